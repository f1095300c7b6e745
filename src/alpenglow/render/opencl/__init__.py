"""OpenCL C: the text of kernels for GPUs.  Nothing here runs them."""
