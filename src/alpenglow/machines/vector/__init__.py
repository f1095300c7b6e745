"""What machines share whose kernels keep vectors in registers: passes, operators, templates."""

from alpenglow.machines.vector import operators

__all__ = ["operators"]
