"""Quantized models: operators between dequantized and quantized tensors become integer operators.

A model spells a quantized convolution as one of floats between a dequantize of each operand and a
quantize of the result.  Here it becomes a convolution of the integers, whose sums are brought to
the scale of the result by one multiplication.  Dequantizing moves down and quantizing up, past what
only moves or selects elements, until they meet.  Tensors of i8 become u8 with another zero point:
machines multiply bytes without a sign by bytes with one.

Sums of integers are exact where those of floats are not, so a result may be one step off what the
floats give, where they are near the middle between two.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.ir.dims import estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.elementwise.activation import LeakyRelu, Relu, Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Sub
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.product.contraction import BYTES, Conv, MatMul
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import STEPS, Quantize
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Slice,
    Transpose,
    append_axes,
)
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import AveragePool, MaxPool
from alpenglow.passes import pointwise, roundtrips, tables, unsigned
from alpenglow.passes.constants import along, read_once
from alpenglow.passes.grid import (
    LEAST,
    Grid,
    dequantized,
    grid_of,
    known_array,
    quantized,
    spread,
)

rules = Rules()

MORE = 2
"""A slice is quantized before it is cut out of at most so many times its elements."""

FOLLOWED = 6
"""The most operators between a bias and the quantize of what is made of it."""

LOST = 2.0**-6
"""The most steps of a quantized result by which rounding a bias may change it."""

PRECISE = 2.0**-21
"""Relative error of a bias of whole steps: of f32, the scale and the product of two scales."""

NARROWING = (
    Reshape, Transpose, Slice, Broadcast, Pad, Concat, Gather, MaxPool, AveragePool, ReduceMean,
    Relu, LeakyRelu, Clip, Sigmoid, Tanh,
)  # fmt: skip
"""Operators that make no difference between two values of an operand larger."""

ROOM = 2**31 - 1
"""The largest accumulator in i32."""

LARGEST = 255**2
"""No product of two bytes less their zero points is larger."""


def integers(g: Graph) -> Graph:
    """Compute a quantized model in integers, as far as it goes."""
    while WHOLE.apply(g):
        pass
    tables.rules.apply(g)
    return g


# ── sums of products ──


@rules.on(Conv)
def conv_of_integers(g: Graph, node: Node) -> Rewritten:
    """conv(dequantize(x, s, a), dequantize(w, t, b), bias)
    => dequantize(add(conv_integer(x, w, a, b), bias / (s t)), s t)   where x and w are bytes"""
    op, (a, b, *rest) = node.op, node.inputs
    x, w = _bytes(a), _bytes(b)
    if x is None or w is None or not isinstance(op, Conv):
        return None
    if not x[1].uniform or w[1].axis not in (None, 0):
        return None
    whole = ConvInteger(op.strides, op.pads, op.dilations, op.group)
    y = _product(g, whole, x, w, 1)
    if y is None or not rest or rest[0] is None:
        return y
    bias = append_axes(g, rest[0], y.type.rank - 2)
    return g(Add(), y, g(Broadcast(y.type.shape), bias))


@rules.on(ConvTranspose)
def conv_transpose_of_integers(g: Graph, node: Node) -> Rewritten:
    """conv_transpose(dequantize(x, s, a), dequantize(w, t, b), bias) => the convolution by phases
    that it is lowered to   where x and w are bytes, and w is constant"""
    op, (a, b, *rest) = node.op, node.inputs
    x, w = _bytes(a), _bytes(b)
    if x is None or w is None or a is None or not isinstance(op, ConvTranspose):
        return None
    array, grid = known_array(w[0]), w[1]
    simple = x[1].uniform and grid.axis in (None, 1) and len(grid.zeros) == 1
    if array is None or not simple or max(op.dilations) > 1:
        return None
    whole = Broadcast(w[0].type.shape).reference(array)
    turned = op.phases(g, g.constant(whole), float(grid.zeros[0]))
    if grid.axis == 1:
        grid = replace(grid, scales=grid.scales * (op.group * math.prod(op.strides)), axis=0)
    bias = None
    if rest and rest[0] is not None:
        bias = _folded(g, op.of_phases(g, rest[0]), rest[0].name)
    weights = dequantized(g, _folded(g, turned, w[0].name), grid)
    return op.interleaved(g, a, weights, bias, w[0].type.extents[2:])


@rules.on(MatMul)
def mat_mul_of_integers(g: Graph, node: Node) -> Rewritten:
    """mat_mul(dequantize(x, s, a), dequantize(y, t, b))
    => dequantize(mat_mul_integer(x, y, a, b), s t)   where x and y are bytes"""
    x, y = map(_bytes, node.inputs)
    if x is None or y is None:
        return None
    columns = node.output.type.rank - 1
    if not x[1].uniform or y[1].axis not in (None, columns):
        return None
    return _product(g, MatMulInteger(), x, y, columns)


@rules.on(Add)
def bias_of_integers(g: Graph, node: Node) -> Rewritten:
    """add(dequantize(x, s), bias) => dequantize(add(x, bias / s), s)   where x are accumulators in
    i32, the bias is constant, with one number or one a channel, and its rounding is lost in f32 or
    in the rounding of the results"""
    for v, other in (node.inputs, node.inputs[::-1]):
        sums = quantized(v)
        if sums is None or v is None or other is None or sums[1].dtype != "i32":
            continue
        bias = along(other)
        if bias is None or not read_once(g, v) or bias.axis not in (None, sums[1].axis or 1):
            continue
        steps = _in_steps(g, node, other, bias.axis, sums)
        if steps is not None:
            axis = bias.axis if bias.axis is not None else sums[1].axis
            more = spread(g, steps, "i32", axis, v.type)
            return dequantized(g, g(Add(), sums[0], more), sums[1])
    return None


def _folded(g: Graph, v: Value, name: str) -> Value:
    """Return v, as a constant if it is computed from constants."""
    array = known_array(v)
    return v if array is None else g.constant(array, name)


def _bytes(v: Value | None) -> tuple[Value, Grid] | None:
    """Return bytes and their grid if v is bytes dequantized."""
    source = quantized(v)
    return source if source is not None and source[1].dtype in BYTES else None


def _product(
    g: Graph, op: Op, x: tuple[Value, Grid], y: tuple[Value, Grid], axis: int
) -> Value | None:
    """Return the dequantized sums of products of integers; None where their scale is no number."""
    scales = tuple(x[1].scale * s for s in y[1].scales)
    if min(scales) < LEAST:
        return None
    zeros = [spread(g, grid.zeros, grid.dtype, grid.axis, q.type) for q, grid in (x, y)]
    sums = g(op, x[0], y[0], *zeros)
    return dequantized(g, sums, Grid(scales, (0,), "i32", axis if len(scales) > 1 else None))


def _in_steps(
    g: Graph, node: Node, v: Value, axis: int | None, sums: tuple[Value, Grid]
) -> tuple[int, ...] | None:
    """Return the bias `v` that `node` adds, in steps of its accumulators; None if that is inexact.

    A channel whose weights are next to nothing has a scale that no bias fits.  Its bias is limited
    to what leaves room for the products.
    """
    array, reach = known_array(v), _reach(sums[0])
    if array is None or reach is None or reach > ROOM:
        return None
    assert axis is not None or array.size == 1, "several numbers need an axis"
    reals, scales = array.reshape(-1).astype(np.float64), np.array(sums[1].scales)
    steps = np.clip(np.rint(reals / scales), reach - ROOM, ROOM - reach)
    errors = np.abs(steps * scales - reals)
    if not np.isfinite(errors).all():
        return None
    if (errors > PRECISE * np.abs(reals)).any() and errors.max() > LOST * _step(g, node.output):
        return None
    return tuple(int(s) for s in steps)


def _step(g: Graph, v: Value, depth: int = FOLLOWED) -> float:
    """Return the least step to which all that is made of v is rounded, 0.0 if there is none.

    Between v and a quantize stand only operators that make no difference larger.
    """
    if depth == 0 or not v.users or any(o is v for o in g.outputs.values()):
        return 0.0
    steps = []
    for node in v.users:
        match node.op:
            case Quantize() if (grid := grid_of(node)) is not None and node.inputs[0] is v:
                steps.append(min(grid.scales))
            case LeakyRelu(alpha=alpha) if abs(alpha) > 1:
                return 0.0
            case Add() | Sub():  # Of v and what is made of v, maybe.
                steps.append(_step(g, node.output, depth - 1) / 2)
            case op if isinstance(op, NARROWING):
                steps.append(_step(g, node.output, depth - 1))
            case _:
                return 0.0
    return min(steps)


def _reach(sums: Value) -> int | None:
    """Return how large sums of products can be; None if the number of products is not known."""
    match sums:
        case Value(Node(ConvInteger() | MatMulInteger() as op, [_, Value() as w, *_])):
            counts = w.type.shape[1:] if isinstance(op, ConvInteger) else w.type.shape[-2:-1]
            if all(isinstance(d, int) for d in counts):
                return LARGEST * math.prod(int(d) for d in counts)
    return None


# ── what moves or selects elements ──


@rules.on(Reshape, Transpose, Slice, Broadcast, Pad, MaxPool, Gather, Resize)
def dequantize_later(g: Graph, node: Node) -> Rewritten:
    """f(dequantize(q, s, z)) => dequantize(f(q), s, z)   where f moves or selects elements"""
    source = quantized(node.inputs[0])
    if source is None:
        return None
    q, grid = source
    axis = _axis_after(node, grid.axis) if grid.axis is not None else None
    if grid.axis is not None and axis is None:
        return None
    op = _on_integers(node.op, grid)
    if op is None or not _is_padded_by_step(node.op, grid):
        return None
    return dequantized(g, g(op, q, *node.inputs[1:]), replace(grid, axis=axis))


@rules.on(Concat)
def dequantize_whole(g: Graph, node: Node) -> Rewritten:
    """concat(dequantize(p, s, z), dequantize(q, s, z)) => dequantize(concat(p, q), s, z)"""
    parts = [quantized(v) for v in node.inputs]
    pairs = [p for p in parts if p is not None]
    if len(pairs) < len(parts) or len({grid for _, grid in pairs}) > 1 or not pairs[0][1].uniform:
        return None
    return dequantized(g, g(node.op, *[q for q, _ in pairs]), pairs[0][1])


@rules.on(Relu, Clip)
def limit_integers(g: Graph, node: Node) -> Rewritten:
    """clip(dequantize(q, s, z), l, h) => dequantize(clip(q, l / s + z, h / s + z), s, z)   where
    each bound is a step of bytes, or lies behind all of them; likewise relu"""
    source = _bytes(node.inputs[0])
    if source is None or not source[1].uniform:
        return None
    q, grid = source
    low, high = (node.op.low, node.op.high) if isinstance(node.op, Clip) else (0.0, math.inf)
    if not (_is_below(low, grid) or _is_step(low, grid)):
        return None
    if not (_is_above(high, grid) or _is_step(high, grid)):
        return None
    least, most = grid.limits
    bounds: dict[str, Any] = {}
    if (lowest := grid.nearest(low)) > least:
        bounds["low"] = lowest
    if (highest := grid.nearest(high)) < most:
        bounds["high"] = highest
    return dequantized(g, g(Clip(**bounds), q) if bounds else q, grid)


@rules.on(Quantize)
def quantize_earlier(g: Graph, node: Node) -> Rewritten:
    """quantize(f(x), s, z) => f(quantize(x, s, z))   where f moves or selects elements, and
    nothing else reads them"""
    grid = grid_of(node)
    y = node.inputs[0]
    if grid is None or not grid.uniform or y is None or not read_once(g, y) or y.producer is None:
        return None
    inner = y.producer
    op = _on_integers(inner.op, grid)
    if op is None or grid.dtype not in STEPS:
        return None
    match inner.op:
        case Reshape() | Transpose() | Broadcast() | Concat():
            moved = len(inner.inputs)
        case MaxPool() | Pad() | Resize():
            moved = 1
            if not read_once(g, _first(inner)):
                return None
        case Slice():
            moved, x = 1, _first(inner)
            if not read_once(g, x) or estimate(x.type.size) > MORE * estimate(y.type.size):
                return None
        case _:
            return None
    parts = [_quantized_alike(g, node.op, v, grid) for v in inner.inputs[:moved]]
    return g(op, *parts, *inner.inputs[moved:])


def _first(node: Node) -> Value:
    v = node.inputs[0]
    assert v is not None
    return v


def _quantized_alike(g: Graph, op: Op, v: Value | None, grid: Grid) -> Value:
    assert v is not None
    scale = spread(g, grid.scales, "f32", None, v.type)
    return g(op, v, scale, spread(g, grid.zeros, grid.dtype, None, v.type))


def _on_integers(op: Op, grid: Grid) -> Op | None:
    """Return an operator that moves or selects reals as it does with integers of a grid."""
    match op:
        case Reshape() | Transpose() | Slice() | Broadcast() | Gather() | Concat():
            return op
        case Pad(mode="constant", value=value):
            if not grid.uniform or math.isnan(value):
                return None
            return replace(op, value=float(grid.nearest(value)))
        case Pad():
            return op
        case MaxPool() if grid.uniform and grid.dtype in BYTES:
            return op
        case Resize(mode="nearest") as resize:
            return op if resize.coordinates != "tf_crop_and_resize" and grid.uniform else None
    return None


def _is_padded_by_step(op: Op, grid: Grid) -> bool:
    """Whether integers can stand for what a pad adds, with nothing rounded or cut off."""
    return not isinstance(op, Pad) or op.mode != "constant" or _is_step(op.value, grid)


def _axis_after(node: Node, axis: int) -> int | None:
    """Return which axis of the result is `axis` of what a node moves; None if none is."""
    match node.op:
        case Transpose(perm=perm):
            return perm.index(axis)
        case Broadcast():
            x = _first(node)
            return axis + node.output.type.rank - x.type.rank
    return None


def _is_step(real: float, grid: Grid) -> bool:
    """Whether a real is one of the numbers that a uniform grid holds."""
    if _is_below(real, grid) or _is_above(real, grid) or math.isnan(real):
        return False
    steps = real / grid.scale
    # The scale and the real were rounded to f32 each.
    return abs(steps - round(steps)) <= 2.0**-20 * abs(steps)


def _is_below(real: float, grid: Grid) -> bool:
    """Whether a real is less than all that a uniform grid holds, and by more than rounding."""
    return real / grid.scale < grid.limits[0] - grid.zero - 0.25


def _is_above(real: float, grid: Grid) -> bool:
    return real / grid.scale > grid.limits[1] - grid.zero + 0.25


WHOLE = Rules()
for group in (roundtrips.rules, rules, unsigned.rules, pointwise.rules):
    for root, each in group.by_root.items():
        for rule in each:
            WHOLE.on(root)(rule)
