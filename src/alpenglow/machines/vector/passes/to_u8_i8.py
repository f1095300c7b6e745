"""Signs: contractions of bytes by constants become those of u8 by i8, which machines multiply.

An i8 is a u8 less 128, and a u8 an i8 plus 128.  What that adds to the sums is known where the
weights are, and is the sum over the window of x for weights that were u8.
"""

from __future__ import annotations

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.logic import BitXor
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import BYTES, Conv, MatMul
from alpenglow.ops.tensor.movement import Broadcast, Pad, stretch, unstretched

HALF = 128
"""How far apart the same bits are as u8 and as i8."""

rules = Rules()


def to_u8_i8(g: Graph) -> Graph:
    """Make u8 of the left operands of contractions of bytes, and i8 of their weights."""
    return rules.exhaust(g)


@rules.on(Conv)
def conv_of_i8(g: Graph, node: Node) -> Rewritten:
    """conv(x, w, b) => conv(pad(x ^ 128, 128), w, b - 128 sum(w))   with x of i8, w constant"""
    match node:
        case Node(Conv() as op, [Value() as x, Value() as w, *rest]):
            weights = _constant(w)
            if x.type.dtype != "i8" or weights is None:
                return None
            total = weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
            bias: Value = g.constant((-HALF * total).astype(np.int32))
            if rest and rest[0] is not None:
                bias = g(Add(), rest[0], bias)
            spatial = x.type.rank - 2
            pads, strides, dilations = op.window(spatial)
            wide = _flipped(g, x)
            if any(pads):
                outside = Pad((0, 0, *pads[:spatial]), (0, 0, *pads[spatial:]), value=HALF)
                wide = g(outside, wide)
            return g(Conv(strides, (), dilations, op.group), wide, w, bias)
    return None


@rules.on(Conv)
def conv_by_u8(g: Graph, node: Node) -> Rewritten:
    """conv(x, w, b) => conv(x, w - 128, b) + 128 conv(x, 1)   with w of u8, constant"""
    match node:
        case Node(Conv(group=group) as op, [Value() as x, Value() as w, *rest]):
            weights = _constant(w)
            if x.type.dtype != "u8" or w.type.dtype != "u8" or weights is None:
                return None
            if int(weights.max(initial=0)) < HALF:
                return g(op, x, g.constant(weights.astype(np.int8), copy=False), *rest)
            if group != 1:
                return None
            ones = g.constant(np.ones((1, *weights.shape[1:]), np.int8))
            centred = g(op, x, g.constant(_centred(weights), copy=False), *rest)
            return g(Add(), centred, _share(g, g(op, x, ones), centred))
    return None


@rules.on(MatMul)
def product_of_i8(g: Graph, node: Node) -> Rewritten:
    """mat_mul(x, w) => mat_mul(x ^ 128, w) - 128 sum(w)   with x of i8, w constant"""
    match node:
        case Node(MatMul() as op, [Value() as x, Value() as w]):
            weights = _constant(w)
            if x.type.dtype != "i8" or weights is None:
                return None
            total = weights.astype(np.int64).sum(axis=-2, keepdims=True)
            y = g(op, _flipped(g, x), w)
            shift = g.constant((-HALF * total).astype(np.int32))
            return g(Add(), y, g(Broadcast(y.type.shape), shift))
    return None


@rules.on(MatMul)
def product_by_u8(g: Graph, node: Node) -> Rewritten:
    """mat_mul(x, w) => mat_mul(x, w - 128) + 128 mat_mul(x, 1)   with w of u8, constant"""
    match node:
        case Node(MatMul() as op, [Value() as x, Value() as w]):
            weights = _constant(w)
            if x.type.dtype != "u8" or w.type.dtype != "u8" or weights is None:
                return None
            if int(weights.max(initial=0)) < HALF:
                return g(op, x, _like(g, weights.astype(np.int8), w))
            ones = g.constant(np.ones((weights.shape[-2], 1), np.int8))
            wide = g(Broadcast((*w.type.shape[:-1], 1)), ones) if w.type.rank > 2 else ones
            centred = g(op, x, _like(g, _centred(weights), w))
            return g(Add(), centred, _share(g, g(op, x, wide), centred))
    return None


def _constant(w: Value) -> Array | None:
    """Return the contents of constant bytes, before they were stretched."""
    weights = unstretched(w).array
    matrix = weights is not None and weights.ndim >= 2
    return weights if matrix and w.type.dtype in BYTES else None


def _flipped(g: Graph, x: Value) -> Value:
    """Return x of i8, plus 128, as u8."""
    half = g.constant(np.uint8(HALF))
    return g(BitXor(), g(Cast("u8"), x), g(Broadcast(x.type.shape, x.type.layout), half))


def _centred(weights: Array) -> Array:
    """Return u8 less 128, as i8."""
    return (weights ^ np.uint8(HALF)).view(np.int8)


def _like(g: Graph, weights: Array, w: Value) -> Value:
    """Return a constant stretched as w is."""
    return stretch(g, g.constant(weights, copy=False), w.type.shape)


def _share(g: Graph, total: Value, y: Value) -> Value:
    """Return 128 times `total` for each element of y."""
    half = g(Broadcast(total.type.shape), g.constant(np.int32(HALF)))
    return g(Broadcast(y.type.shape), g(Mul(), total, half))
