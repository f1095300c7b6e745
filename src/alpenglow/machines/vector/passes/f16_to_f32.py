"""Promotion: contractions of f16 are computed in f32 and rounded once, as they are defined.

There are kernels for f32, and machines that multiply f16 lose digits in the sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import stretch, unstretched

rules = Rules()


def f16_to_f32(g: Graph) -> Graph:
    """Compute contractions of f16 in f32."""
    return rules.exhaust(g)


@rules.on(Conv, MatMul)
def contraction_of_f16(g: Graph, node: Node) -> Rewritten:
    """conv(x, w, b) => f16(conv(f32(x), f32(w), f32(b)))   of f16; likewise for mat_mul, and not
    rounded where the result is to be wide"""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Conv | MatMul) and x is not None
    if x.type.dtype != "f16":
        return None
    y = g(replace(op, wide=False), *[None if v is None else _widened(g, v) for v in node.inputs])
    return y if op.wide else g(Cast("f16", loose=True), y)


def _widened(g: Graph, v: Value) -> Value:
    """Return v as f32; constants, stretched or not, become others."""
    if v.type.dtype == "f32":
        return v
    source = unstretched(v)
    if source.array is None:
        return g(Cast("f32"), v)
    c = g.constant(source.array.astype(np.float32), copy=False)
    return stretch(g, c, v.type.shape)
