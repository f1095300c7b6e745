"""Stored weights: what a model writes out as arithmetic on tables of few bits is a dequantize."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import NARROW_INTS, TensorType
from alpenglow.ops.arithmetic import Mul, Sub
from alpenglow.ops.contraction import BYTES
from alpenglow.ops.movement import Broadcast
from alpenglow.ops.quantize import Dequantize
from alpenglow.ops.select import Cast
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
            zero = g(
                Broadcast(q.type.shape),
                g.constant(np.zeros((), q.type.numpy), "", TensorType(q.type.dtype, ())),
            )
        if scale.type.dtype == "f32" and zero.type == q.type:
            return g(Dequantize(), q, scale, zero)
    return None


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
