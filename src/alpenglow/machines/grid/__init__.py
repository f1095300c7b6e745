"""What machines share whose kernels are grids of threads: templates, and the choice of a kernel."""
