"""Layout: convolutions and matrix products move to blocked tensors and packed weights.

Each convolution becomes pack, pad, convolve in blocks, unpack.  Then unpacks sink past operators
that work as well on blocked tensors, and meet the packs of the next convolution, where both
vanish: a network converts at its edges only.  Weights are packed by operators on constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rules
from alpenglow.ir.target import Target
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.blocked import (
    DOTS,
    PACKED,
    ConvBlocked,
    ConvPlanar,
    DepthwiseBlocked,
    MatMulPacked,
    PackConv,
    PackMatrix,
    Ungroup,
)
from alpenglow.ops.contraction import Conv, MatMul
from alpenglow.ops.gather import Gather
from alpenglow.ops.lookup import Lookup
from alpenglow.ops.movement import Broadcast, Concat, Pack, Pad, Reshape, Transpose, Unpack
from alpenglow.ops.pooling import AveragePool, MaxPool
from alpenglow.ops.reduction import Reduction
from alpenglow.ops.select import Cast
from alpenglow.passes.choices import Problem


def layout(g: Graph, target: Target) -> Graph:
    """Rewrite convolutions and matrix products for the vectors of `target`."""
    for node in list(g.nodes):
        match node:
            case Node(Conv()) if _packs(node):
                _conv(g, node, target)
            case Node(MatMul()) if _packs(node):
                _mat_mul(g, node, target)
    g.prune()
    SINK.apply(g)
    for node in g.nodes:
        match node:
            case Node(Unpack(), [Value() as x]):
                _called(x, node.output)
    return g


def _packs(node: Node) -> bool:
    """Whether there are kernels of packed weights for the operands of a contraction."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return (x.type.dtype, w.type.dtype) in PACKED


# ── convolution ──


def _conv(g: Graph, node: Node, target: Target) -> None:
    op, lanes = node.op, target.lanes
    assert isinstance(op, Conv)
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    bands = _bands(w)
    if bands == 0 or not x.type.static or 0 in node.output.type.shape:
        return
    outputs, per_group = w.type.extents[:2]
    channels = per_group * op.group
    if x.type.dtype == "u8" and planar_pays(op, w.type.extents, lanes) and bands == 1:
        y = _words(g, op, x, w)
        bias = rest[0] if rest else None
        g.replace(node.output, y if bias is None else g(Add(), y, _per_channel(g, bias, y)))
        return
    if x.type.dtype == "f32" and planar_pays(op, w.type.extents, lanes):
        y = _planar(g, op, x, w)
        if rest and rest[0] is not None:
            y = g(Add(), y, _per_channel(g, rest[0], y))
        g.replace(node.output, y)
        return
    if op.group > 1 and per_group == 1 and outputs == channels:
        y = _depthwise(g, node, x, w, lanes)
    else:
        if op.group > 1 and (per_group % lanes or (outputs // op.group) % lanes):
            return
        y = _direct(g, Problem(op, x.type, w.type, target), x, w, bands, node)
    bias = rest[0] if rest else None
    if bias is not None and bias.type.dtype != y.type.dtype:
        bias = g(Cast(y.type.dtype), bias)
    g.replace(node.output, rounded(g, unpacked(g, y, bias, lanes), node.output.type.dtype))


def rounded(g: Graph, y: Value, dtype: str) -> Value:
    """Return sums in the type that the result had: those of bf16 are f32."""
    return y if y.type.dtype == dtype else g(Cast(dtype), y)


def _bands(w: Value) -> int:
    """Return in how many groups constant weights stand on the diagonal; 0 if they are computed."""
    match w:
        case Value(Node(Ungroup(group), [Value() as inner])) if inner.array is not None:
            return group
    return 0 if w.array is None else 1


def planar_pays(op: Conv, w: tuple[int, ...], lanes: int) -> bool:
    """Whether a convolution by weights of shape `w` is better computed on plain images.

    Blocks of so few output channels would be mostly padding.  Reading x in this layout may cost a
    pass over it, so there must be work to save.
    """
    outputs, _, *taps = w
    narrow = op.group == 1 and outputs <= lanes // 2
    stride = op.strides[-1] if op.strides else 1
    return narrow and stride == 1 and (lanes - outputs) * math.prod(taps) >= 4 * lanes


def _planar(g: Graph, op: Conv, x: Value, w: Value) -> Value:
    """Return the convolution of plain images, its padding written out, without a bias."""
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    return g(Conv(strides, (0,) * (2 * spatial), dilations), padded(g, x, pads), w)


def _words(g: Graph, op: Conv, x: Value, w: Value) -> Value:
    """Return the convolution of bytes as plain images, without a bias."""
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    return g(ConvPlanar(strides, dilations), padded(g, g(Pack(4), x), pads), g(Pack(4), w))


def _per_channel(g: Graph, bias: Value, y: Value) -> Value:
    """Return a bias for each channel stretched to plain images."""
    ones = [1] * (y.type.rank - 2)
    return _stretch(g, g(Reshape((1, y.type.shape[1], *ones)), bias), y)


def unpacked(g: Graph, y: Value, bias: Value | None, lanes: int) -> Value:
    """Return a blocked y plus a bias for each channel, in the plain layout."""
    outputs = y.type.blocked
    assert outputs is not None, f"{y} is not blocked"
    if bias is not None:
        ones = [1] * (y.type.rank - 3)
        blocked = g(Pack(lanes), g(Reshape((1, outputs, *ones)), bias))
        y = g(Add(), y, _stretch(g, blocked, y))
    return g(Unpack(outputs), y)


def _direct(g: Graph, problem: Problem, x: Value, w: Value, bands: int, node: Node) -> Value:
    op, lanes = problem.op, problem.target.lanes
    assert isinstance(op, Conv)
    pads, strides, dilations = op.window(x.type.rank - 2)
    channels, outputs = x.type.extents[1], w.type.extents[0]
    dots = DOTS.get(x.type.dtype, 1)
    inner = lanes if channels >= lanes // 2 else 4 if dots > 1 else 1
    source = g(Pack(inner), x) if inner > 1 else x
    row = estimate(node.output.type.extents[-1])
    # A narrow panel lies in few bands, so that few blocks of input channels are read for it.
    width = lanes if bands > 1 else panel_width(problem, outputs // op.group, row)
    packed = g(PackConv(inner, width, dots), w)
    conv = ConvBlocked(channels, outputs, lanes, strides, dilations, op.group, bands)
    return g(conv, padded(g, source, pads), packed)


def panel_width(problem: Problem, outputs: int, row: int) -> int:
    """Return how many output channels one register tile computes.

    Two vectors, so that the many rows of the tile reuse each weight; four where rows are too
    short for a high tile; but no more than leaves fewest padding channels.
    """
    lanes = problem.target.lanes
    blocks = ceil_div(outputs, lanes)
    assert known(blocks)
    choices = (4, 2, 3, 1) if row <= 4 else (2, 3, 1)
    waste = {c: -blocks % c for c in choices}
    best = min(choices, key=lambda c: (waste[c], choices.index(c)))
    return problem.choose("width", best, *(c for c in (1, 2, 3, 4) if c <= blocks)) * lanes


def _depthwise(g: Graph, node: Node, x: Value, w: Value, lanes: int) -> Value:
    op = node.op
    assert isinstance(op, Conv)
    pads, strides, dilations = op.window(x.type.rank - 2)
    channels, _, *extents = w.type.extents
    source = padded(g, g(Pack(lanes), x), pads)
    taps = g(Reshape((1, channels, *extents)), w)
    if x.type.dtype == "u8" and dilations[-1] == 1:
        along, dots = extents[-1], DOTS["u8"]
        none, most = (0,) * (taps.type.rank - 1), -along % dots
        full = g(Pad((*none, 0), (*none, most)), taps) if most else taps
        split = g(Reshape((1, channels, *extents[:-1], (along + most) // dots, dots)), full)
        packed = g(Pack(lanes), split)
        plain = g(Reshape(packed.type.shape[1:]), packed)
        rank = plain.type.rank
        turned = g(Transpose((*range(rank - 2), rank - 1, rank - 2)), plain)
        return g(DepthwiseBlocked(strides, dilations, along), source, turned)
    packed = g(Pack(lanes), taps)
    plain = g(Reshape(packed.type.shape[1:]), packed)
    return g(DepthwiseBlocked(strides, dilations), source, plain)


def padded(g: Graph, x: Value, pads: tuple[int, ...]) -> Value:
    """Return x with zeros around its spatial axes, as many as ONNX's `pads` says."""
    spatial = len(pads) // 2
    if not any(is_open(p) or p for p in pads):
        return x
    tail = (0,) * (x.type.rank - 2 - spatial)
    return g(Pad((0, 0, *pads[:spatial], *tail), (0, 0, *pads[spatial:], *tail)), x)


def _stretch(g: Graph, x: Value, like: Value) -> Value:
    """Return a blocked x repeated to the type of `like`."""
    if x.type == like.type:
        return x
    return g(Broadcast(like.type.shape, like.type.blocked), x)


# ── matrix product ──


def _mat_mul(g: Graph, node: Node, target: Target) -> None:
    x, w = node.inputs
    assert x is not None and w is not None
    match w:
        case Value(Node(Broadcast(), [Value() as inner])) if inner.array is not None:
            w = inner
    squeezed = [d for d in w.type.shape[:-2] if d != 1]
    if w.array is None or squeezed or not x.type.static or 0 in (*x.type.shape, *w.type.shape):
        return
    matrix = w if w.type.rank == 2 else g(Reshape(w.type.shape[-2:]), w)
    rows, columns = node.output.type.extents[-2:]
    dots = DOTS.get(x.type.dtype, 1)
    problem = Problem(node.op, x.type, matrix.type, target)
    packed = g(PackMatrix(_matrix_width(problem, rows, columns), dots), matrix)
    y = g(MatMulPacked(columns), x, packed)
    g.replace(node.output, rounded(g, y, node.output.type.dtype))


def _matrix_width(problem: Problem, rows: int, columns: int) -> int:
    """Return the columns of one panel: the fewer rows, the more columns keep the units busy."""
    lanes = problem.target.lanes
    vectors = max(1, -(-columns // lanes))
    best = min(vectors, 8 if rows <= 2 else 4 if rows <= 6 else 2)
    widths = (w for w in (1, 2, 3, 4, 6, 8) if is_open(vectors) or w <= vectors)
    return problem.choose("width", best, *widths) * lanes


# ── sinking unpacks ──

SINK = Rules()


@dataclass(frozen=True, slots=True)
class Blocks:
    """The layout that the operands of a node share."""

    lanes: int
    channels: Dim


def _blocks(node: Node) -> Blocks | None:
    """Return the layout of the first operand that is an unpack."""
    for v in node.inputs:
        match v:
            case Value(Node(Unpack(channels), [Value() as x])):
                lanes = x.type.shape[-1]
                assert known(lanes)
                return Blocks(lanes, channels)
    return None


def _blocked(g: Graph, v: Value, blocks: Blocks, shape: tuple[Dim, ...]) -> Value | None:
    """Return `v` in the given layout if that is free: an unpack, or the broadcast of a constant
    or of one element a channel."""
    match v:
        case Value(Node(Unpack(), [Value() as x])) if x.type.shape[-1] == blocks.lanes:
            return _called(x, v)
        case Value(Node(Broadcast(), [Value(Node(Unpack(channels), [Value() as x]))])):
            if x.type.shape[-1] == blocks.lanes and channels == blocks.channels:
                return g(Broadcast(shape, blocks.channels), x)
        case Value(Node(Broadcast(), [Value() as x])) if x.array is not None or _little(x, v):
            if x.type.size == 1:
                flat = g(Reshape(()), x) if x.type.rank else x
                return g(Broadcast(shape, blocks.channels), flat)
            full = (1,) * (v.type.rank - x.type.rank) + x.type.extents
            if full[1] != blocks.channels:
                return None
            packed = g(Pack(blocks.lanes), g(Reshape(full), x))
            return g(Broadcast(shape, blocks.channels), packed)
    if v.array is not None and v.type.shape[1] == blocks.channels:
        return g(Pack(blocks.lanes), v)
    return None


def _little(x: Value, v: Value) -> bool:
    """Whether x, which v stretches, has one element at most for each channel."""
    shape = (1,) * (v.type.rank - x.type.rank) + x.type.shape
    return x.type.static and all(d == 1 for i, d in enumerate(shape) if i != 1)


def _called(x: Value, v: Value) -> Value:
    """Return x, called as its unpacked form v is: that may vanish, and its name with it."""
    x.name = x.name or v.name
    return x


@SINK.on(Elementwise)
def sink_elementwise(g: Graph, node: Node) -> Value | None:
    """f(unpack(x), unpack(y), constant)  =>  unpack(f(x, y, pack(constant)))"""
    blocks = _blocks(node)
    if blocks is None or len(node.results) != 1:
        return None
    t = node.output.type
    shape = (t.shape[0], ceil_div(t.shape[1], blocks.lanes), *t.shape[2:], blocks.lanes)
    operands = []
    for v in node.inputs:
        assert v is not None
        x = _blocked(g, v, blocks, shape)
        if x is None:
            return None
        operands.append(x)
    return g(Unpack(blocks.channels), g(node.op, *operands))


@SINK.on(MaxPool, AveragePool)
def sink_pool(g: Graph, node: Node) -> Value | None:
    """pool(unpack(x))  =>  unpack(pool(x))"""
    match node.inputs:
        case [Value(Node(Unpack(channels), [Value() as x])) as v]:
            return g(Unpack(channels), g(node.op, _called(x, v)))
    return None


@SINK.on(Reduction)
def sink_reduction(g: Graph, node: Node) -> Value | None:
    """reduce(unpack(x))  =>  unpack(reduce(x)), where only spatial axes are reduced"""
    match node:
        case Node(Reduction() as op, [Value(Node(Unpack(channels), [Value() as x])) as v]):
            if not op.axes or min(op.axes) < 2:
                return None
            y = g(Unpack(channels), g(replace(op, keepdims=True), _called(x, v)))
            return y if op.keepdims else g(Reshape(node.output.type.shape), y)
    return None


@SINK.on(Gather)
def sink_gather(g: Graph, node: Node) -> Value | None:
    """gather(unpack(x), positions)  =>  unpack(gather(x, positions)), along a spatial axis"""
    match node:
        case Node(Gather(axis), [Value(Node(Unpack(channels), [Value() as x])) as v, Value() as i]):
            if axis % v.type.rank < 2 or i.type.rank != 1:
                return None
            return g(Unpack(channels), g(Gather(axis % v.type.rank), _called(x, v), i))
    return None


@SINK.on(Lookup)
def sink_lookup(g: Graph, node: Node) -> Value | None:
    """lookup(unpack(x), table)  =>  unpack(lookup(x, table))"""
    match node.inputs:
        case [Value(Node(Unpack(channels), [Value() as x])) as v, table]:
            return g(Unpack(channels), g(node.op, _called(x, v), table))
    return None


@SINK.on(Pad)
def sink_pad(g: Graph, node: Node) -> Value | None:
    """pad(unpack(x))  =>  unpack(pad(x)), where the batch and the channels stay as they are"""
    match node:
        case Node(Pad(before, after), [Value(Node(Unpack(channels), [Value() as x])) as v]):
            if before[1] or after[1] or before[0] or after[0]:
                return None
            op = replace(node.op, before=(*before, 0), after=(*after, 0))  # type: ignore[type-var]
            return g(Unpack(channels), g(op, _called(x, v)))
    return None


@SINK.on(Concat)
def sink_concat(g: Graph, node: Node) -> Value | None:
    """concat(unpack(x), unpack(y))  =>  unpack(concat(x, y)), where all but the last fill blocks"""
    match node:
        case Node(Concat(axis)):
            rank = node.output.type.rank
            if axis % rank != 1:
                return None
            parts: list[Value] = []
            for v in node.inputs:
                match v:
                    case Value(Node(Unpack(channels), [Value() as x])):
                        full = channels == x.type.shape[1] * x.type.shape[-1]
                        if not full and v is not node.inputs[-1]:
                            return None
                        parts.append(_called(x, v))
                    case _:
                        return None
            if len({p.type.shape[-1] for p in parts}) > 1:
                return None
            return g(Unpack(node.output.type.shape[1]), g(Concat(1), *parts))
    return None


@SINK.on(Pack)
def cancel_pack(g: Graph, node: Node) -> Value | None:
    """pack(unpack(x), lanes)  =>  x, where x has blocks of that many lanes"""
    match node:
        case Node(Pack(lanes), [Value(Node(Unpack(), [Value() as x])) as v]):
            return _called(x, v) if x.type.shape[-1] == lanes else None
    return None
