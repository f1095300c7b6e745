"""Which contractions take less time in f32 than in halves, though halves are asked for."""

from __future__ import annotations

from alpenglow.ir.dims import estimate, product
from alpenglow.ir.graph import Node
from alpenglow.ir.target import Target
from alpenglow.machines.vector.passes.winograd import DIRECT, best_block, winograd_fits
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import unstretched
from alpenglow.ops.tensor.packing import DOTS

FEW = 8
"""Rows up to which weights are what is waited for: of halves there are half as many bytes."""


def faster_in_f32(node: Node, dtype: str, target: Target) -> bool:
    """Return whether a contraction takes less time in f32 than in `dtype`."""
    if dtype in target.facts.slower and _rows(node) > FEW:
        return True
    return _has_fewer_products(node, dtype, target)


def _rows(node: Node) -> int:
    """Return how often each of the weights of a contraction is multiplied."""
    y = node.output.type.shape
    if isinstance(node.op, Conv):
        return estimate(product((y[0], *y[2:])))
    if not isinstance(node.op, MatMul):
        return 0
    w = node.inputs[1]
    assert w is not None, "a product has two operands"
    shared = unstretched(w).type.rank <= 2
    return estimate(product(y[:-1]) if shared else y[-2])


def _has_fewer_products(node: Node, dtype: str, target: Target) -> bool:
    """Whether there is a way to convolve in f32 with fewer multiplications."""
    op, w, result = node.op, node.inputs[1], node.output.type
    if not isinstance(op, Conv) or w is None or w.array is None or not result.static:
        return False
    at_once = DOTS[dtype] if dtype in DOTS and dtype in target.facts.multiplies else 1
    fits = winograd_fits(op, w.type.extents, result.extents, target.facts.lanes)
    return fits and best_block(w.type.extents, result.extents, at_once) != DIRECT
