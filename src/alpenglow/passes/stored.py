"""Stored weights: what a model writes out as arithmetic on tables of few bits is a dequantize."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import NARROW_INTS, TensorType
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import BYTES, MatMul
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.passes.constants import is_constant

rules = Rules()


def read_stored(g: Graph) -> Graph:
    """See dequantized weights in what a model writes out as arithmetic."""
    rules.apply(g)
    return g


@rules.on(Mul)
def dequantize_written_out(g: Graph, node: Node) -> Rewritten:
    """mul(sub(cast(q), cast(z)), s) => dequantize(q, s, z)   where q is a constant table of few
    bits, and z and s are constant; likewise without z"""
    for v, scale in (node.inputs, node.inputs[::-1]):
        assert v is not None and scale is not None
        zero = None
        match v:
            case Value(Node(Sub(), [Value() as inner, Value() as offset])):
                v, zero = inner, _before_cast(g, offset)
                if zero is None:
                    continue
        q = _before_cast(g, v)
        if q is None or q.array is None or q.type.rank < 2 or not is_constant(scale):
            continue
        if zero is None:
            zero = _everywhere(g, 0, q.type)
        if scale.type.dtype == "f32" and zero.type == q.type:
            return g(Dequantize(), q, scale, zero)
    return None


@rules.on(MatMul)
def weights_that_are_cast(g: Graph, node: Node) -> Rewritten:
    """mat_mul(x, cast(q)) => mat_mul(x, dequantize(q, 1, 0))   where q is a constant matrix of few
    bits: their scale may be a factor of the product"""
    x, w = node.inputs
    q = None if w is None else _before_cast(g, w)
    if q is None or q.type.rank != 2:
        return None
    one = _everywhere(g, 1, q.type.with_dtype("f32"))
    return g(MatMul(), x, g(Dequantize(), q, one, _everywhere(g, 0, q.type)))


def _everywhere(g: Graph, number: int, t: TensorType) -> Value:
    """Return a number in each place of a tensor."""
    one = g.constant(np.full((), number, t.numpy), "", TensorType(t.dtype, ()))
    return g(Broadcast(t.shape), one)


def _before_cast(g: Graph, v: Value) -> Value | None:
    """Return the integers of few bits that v is as f32; None if it is none, or not constant."""
    match v:
        case Value(Node(Cast(dtype="f32"), [Value() as q])):
            integers = q
        case Value(Node(Broadcast() as op, [Value(Node(Cast(dtype="f32"), [Value() as q]))])):
            integers = g(op, q)
        case _:
            return None
    return integers if q.type.dtype in BYTES | NARROW_INTS and is_constant(q) else None
