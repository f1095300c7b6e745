"""Passes of this machine: what its kernels want of graphs and programs, a file each."""
