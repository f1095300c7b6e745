"""Fusion: several operators in one instruction."""

from __future__ import annotations

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType


class Fused(Op):
    """The parts in its region, in order; a machine computes them in one kernel.

    The operands are the inputs of the region, its results the outputs of the region.
    """

    layouts = "all"

    def infer(self, *xs: TensorType, regions: tuple[Graph, ...]) -> tuple[TensorType, ...]:
        (body,) = regions
        wanted = tuple(v.type for v in body.inputs.values())
        if xs != wanted:
            raise TypeRuleError(f"fused: operands are {xs}, expected {wanted} as its region takes")
        return tuple(v.type for v in body.outputs.values())
