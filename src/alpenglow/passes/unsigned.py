"""Quantized models of signed bytes: tensors of i8 become u8 with another zero point.

Machines multiply bytes without a sign by bytes with one: tensors are the former, weights the
latter.  A signed tensor is its unsigned form with the first bit of each byte flipped, and flips
move down until they meet.  The remaining ones are at inputs and outputs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.elementwise.logic import BitXor
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.quantized.integer import HALF, ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import Dequantize, Quantize, Requantize
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose, stretch
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.passes.constants import is_constant, uniform
from alpenglow.passes.grid import grid_of, known_array, spread

rules = Rules()


@rules.on(Quantize)
def quantize_unsigned(g: Graph, node: Node) -> Rewritten:
    """quantize(x, s, z) to i8 => signed(quantize(x, s, z + 128) to u8)"""
    x, scale, _ = node.inputs
    grid = grid_of(node)
    if grid is None or grid.dtype != "i8" or x is None:
        return None
    zeros = tuple(z + HALF for z in grid.zeros)
    zero = spread(g, zeros, "u8", grid.axis, x.type)
    return signed(g, g(Quantize("u8"), x, scale, zero))


@rules.on(Requantize)
def requantize_unsigned(g: Graph, node: Node) -> Rewritten:
    """requantize(x, m, z) to i8 => signed(requantize(x, m, z + 128) to u8)"""
    x, multiplier, zero = node.inputs
    array = known_array(zero) if zero is not None else None
    if array is None or zero is None or not isinstance(node.op, Requantize):
        return None
    if node.op.dtype != "i8":
        return None
    moved = g.constant((array.astype(np.int16) + HALF).astype(np.uint8), copy=False)
    op = replace(node.op, dtype="u8", low=node.op.low + HALF, high=node.op.high + HALF)
    return signed(g, g(op, x, multiplier, stretch(g, moved, zero.type.shape)))


@rules.on(Dequantize)
def dequantize_unsigned(g: Graph, node: Node) -> Rewritten:
    """dequantize(q, s, z) of i8 => dequantize(unsigned(q), s, z + 128)   where q is computed"""
    q, scale, _ = node.inputs
    grid = grid_of(node)
    if grid is None or grid.dtype != "i8" or q is None or is_constant(q):
        return None
    zeros = tuple(z + HALF for z in grid.zeros)
    return g(node.op, unsigned(g, q), scale, spread(g, zeros, "u8", grid.axis, q.type))


@rules.on(ConvInteger, MatMulInteger)
def product_of_unsigned(g: Graph, node: Node) -> Rewritten:
    """conv_integer(x, w, a, b) of i8 => conv_integer(unsigned(x), w, a + 128, b)   where x is
    computed and a constant; likewise mat_mul_integer"""
    x, w, zero, w_zero = node.inputs
    if x is None or zero is None or x.type.dtype != "i8" or is_constant(x):
        return None
    array = known_array(zero)
    if array is None:
        return None
    moved = g.constant((array.astype(np.int16) + HALF).astype(np.uint8), copy=False)
    return g(node.op, unsigned(g, x), w, stretch(g, moved, x.type.shape), w_zero)


@rules.on(MatMulInteger)
def product_by_signed(g: Graph, node: Node) -> Rewritten:
    """mat_mul_integer(x, y, a, b) => mat_mul_integer(x, signed(y), a, b - 128)   where y is u8 and
    computed, and b constant"""
    x, y, zero, y_zero = node.inputs
    if y is None or y_zero is None or y.type.dtype != "u8" or is_constant(y):
        return None
    array = known_array(y_zero)
    if array is None:
        return None
    moved = g.constant((array.astype(np.int16) - HALF).astype(np.int8), copy=False)
    return g(node.op, x, signed(g, y), zero, stretch(g, moved, y.type.shape))


@rules.on(BitXor)
def unsigned_signed(g: Graph, node: Node) -> Rewritten:
    """unsigned(signed(q)) => q"""
    q = _flipped(node, "u8")
    match q:
        case Value(Node(Cast(dtype="i8"), [Value(Node(BitXor()) as inner)])):
            return _flipped(inner, "")
    return None


@rules.on(Reshape, Transpose, Slice, Broadcast, Concat, Pad, MaxPool, Gather, Resize)
def signed_later(g: Graph, node: Node) -> Rewritten:
    """f(signed(q)) => signed(f(q))   where f moves or selects elements"""
    moved = len(node.inputs) if isinstance(node.op, Concat) else 1
    parts = [_unsigned(v) for v in node.inputs[:moved]]
    if None in parts:
        return None
    op = node.op
    match op:
        case Pad(mode="constant"):
            op = replace(op, value=op.value + HALF)
        case Resize() if op.mode != "nearest" or op.coordinates == "tf_crop_and_resize":
            return None
    return signed(g, g(op, *parts, *node.inputs[moved:]))


def signed(g: Graph, q: Value) -> Value:
    """Return bytes less 128, as i8: their bits with the first one flipped."""
    return g(Cast("i8"), g(BitXor(), q, spread(g, (HALF,), "u8", None, q.type)))


def unsigned(g: Graph, q: Value) -> Value:
    """Return signed bytes plus 128, as u8."""
    wide = g(Cast("u8"), q)
    return g(BitXor(), wide, spread(g, (HALF,), "u8", None, q.type))


def _unsigned(v: Value | None) -> Value | None:
    """Return q if v is q made signed."""
    match v:
        case Value(Node(Cast(dtype="i8"), [Value(Node(BitXor()) as inner)])):
            return _flipped(inner, "")
    return None


def _flipped(node: Node, cast: str) -> Value | None:
    """Return the operand whose first bits a node flips, of the dtype `cast`, if given."""
    q, half = node.inputs
    if half is None or q is None or q.type.dtype != "u8" or uniform(half) != HALF:
        return None
    if not cast:
        return q
    match q:
        case Value(Node(Cast(dtype=dtype), [x])) if dtype == cast:
            return x
    return None
