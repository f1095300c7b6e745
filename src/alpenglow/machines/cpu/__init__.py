"""The CPU as a machine: kernel language to LLVM to object code.

The ABI of a kernel is ``void NAME(ptr args, i64 begin, i64 end)``: `args` points to the addresses
of its operands, results first; [begin, end) is the part of its parallel loop to run.
"""

from alpenglow.machines.cpu.machine import Cpu
from alpenglow.machines.vector import operators

__all__ = ["Cpu", "operators"]
