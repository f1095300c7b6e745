"""Tuned kernels for grids of threads, a file a family; importing one registers it."""

from alpenglow.machines.templates import Templates

templates = Templates()
