"""OpenCL as a machine: kernels as OpenCL C, on whatever devices its loader knows."""

from alpenglow.machines.opencl.machine import OpenClCpu, OpenClGpu
from alpenglow.machines.vector import operators

__all__ = ["OpenClCpu", "OpenClGpu", "operators"]
