"""Tuned kernels of this machine, a file a family; importing one registers it."""

from alpenglow.machines.templates import Templates

templates = Templates()
