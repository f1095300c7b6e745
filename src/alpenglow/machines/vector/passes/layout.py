"""Layout: convolutions and matrix products move to blocked tensors and packed weights.

Each convolution becomes pack, pad, convolve in blocks, unpack; then unpacking moves down (pass
`propagate_layout`).  Weights are packed by operators on constants.  Where blocks of channels would
be mostly padding, because there are few outputs or the groups are narrow, images stay plain, and so
do those of the depthwise convolutions between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from alpenglow.ir.dims import ceil_div, estimate, is_open, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.target import Target
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.machines.vector.operators.blocked import (
    FEW,
    PACKED,
    PRODUCTS,
    STRIDES,
    WRITTEN,
    ConvBlocked,
    ConvPlanar,
    DepthwiseBlocked,
    DepthwisePlanar,
    MatMulPacked,
    Ungroup,
    sliding_axis,
)
from alpenglow.machines.vector.operators.filters import (
    ConvFilterBlocked,
    DepthwiseFilter,
    UnpackConv,
)
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.passes.long_sums import in_parts, is_of_shares, makes_scores
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import as_type
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape, Slice, Transpose, stretch
from alpenglow.ops.tensor.packing import DOTS, PackConv, PackMatrix
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.passes.choices import Problem

WORTH_LEAVING_OUT = 1 / 16
"""The least share of the products with rows of padding for which they are left out.

The loop over the rows of taps is then no longer as long for each row of the result.
"""

OFTEN = 4
"""How many results of an output channel pay for packing weights that are computed, in each run."""

LEAST_WHOLE = 1 / 32
"""The least share of the products with groups filled up to whole blocks that are not with zeros:
loops take longer by far."""

LEAST_FULL = 0.6
"""The least share of the lanes of plain images that must hold pixels, where groups are narrow."""


def layout(g: Graph, target: Target) -> Graph:
    """Rewrite convolutions and matrix products for the vectors of `target`."""
    for node in list(g.nodes):
        match node:
            case Node(Conv()) if _operands(node) in PACKED:
                _conv(g, node, target)
            case Node(ConvFilter()) if node.output.type.dtype == "f32":
                _conv_filter(g, node, target)
            case Node(MatMul()) if _is_outer(node):
                x, y = (v and stretch(g, v, node.output.type.shape) for v in node.inputs)
                g.replace(node.output, g(Mul(), x, y))
            case Node(MatMul()) if _operands(node) in PRODUCTS and _mat_mul(g, node, target):
                pass
            case Node(MatMul()):
                in_parts(g, node)
    g.prune()
    return g


def _operands(node: Node) -> tuple[str, str]:
    """Return the element types of the operands of a contraction."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return x.type.dtype, w.type.dtype


# ── convolution ──


def _conv(g: Graph, node: Node, target: Target) -> None:
    op, lanes = node.op, target.facts.lanes
    assert isinstance(op, Conv)
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    bands = _bands(w, node)
    if bands == 0 or not x.type.static or 0 in node.output.type.shape:
        return
    outputs, per_group = w.type.extents[:2]
    channels = per_group * op.group
    if x.type.dtype == "u8" and planar_pays(op, w.type.extents, lanes) and bands == 1:
        g.replace(node.output, _biased(g, _words(g, op, x, w), rest))
        return
    plain = x.type.dtype == w.type.dtype == "f32"
    if plain and (
        planar_pays(op, w.type.extents, lanes) or grouped_planar_pays(op, x.type, w.type, lanes)
    ):
        g.replace(node.output, _biased(g, _planar(g, op, x, w), rest))
        return
    if op.group > 1 and per_group == 1 and outputs == channels:
        if plain and _one_tap(op, w):
            scale = g(Reshape((1, *w.type.shape[:1], *w.type.shape[2:])), w)
            g.replace(node.output, _biased(g, g(Mul(), x, stretch(g, scale, x.type.shape)), rest))
            return
        planar = plain and op.window(x.type.rank - 2)[1][-1] <= 2 and _made_planar(x, lanes)
        if planar or depthwise_planar_pays(op, node, lanes):
            g.replace(node.output, _depthwise_planar(g, op, x, w, rest[0] if rest else None))
            return
        y = _depthwise(g, node, x, w, lanes)
    else:
        if op.group > 1 and not whole_groups_pay(op, w.type.extents, lanes):
            return
        if op.group > 1:
            more = -(outputs // op.group) % lanes
            x = _filled(g, x, 1, op.group, -per_group % lanes)
            w = _filled(g, _filled(g, w, 0, op.group, more), 1, 1, -per_group % lanes)
            rest = [v and _filled(g, v, 0, op.group, more) for v in rest]
        y = _direct(g, Problem(op, x.type, w.type, target), x, w, bands, node)
    bias = rest[0] if rest else None
    if bias is not None and bias.type.dtype != y.type.dtype:
        bias = as_type(g, bias, y.type.dtype)
    whole = _without_filling(g, unpacked(g, y, bias, lanes), op.group, outputs)
    # Sums of bf16 are f32.
    g.replace(node.output, as_type(g, whole, node.output.type.dtype))


def _bands(w: Value, node: Node) -> int:
    """Return in how many groups weights stand on the diagonal; 0 if packing them does not pay."""
    match w:
        case Value(Node(Ungroup(group), [Value() as inner])) if inner.array is not None:
            return group
    if w.array is not None:
        return 1
    n, _, *image = node.output.type.extents
    return int(w.type.dtype == "f32" and estimate(n * math.prod(image)) >= OFTEN)


def planar_pays(op: Conv, w: tuple[int, ...], lanes: int) -> bool:
    """Whether a convolution by weights of shape `w` is better computed on plain images.

    Blocks of so few output channels would be mostly padding.  Reading x in this layout may cost a
    pass over it, so there must be work to save.
    """
    outputs, _, *taps = w
    narrow = op.group == 1 and outputs <= lanes // 2
    stride = op.strides[-1] if op.strides else 1
    return narrow and stride == 1 and (lanes - outputs) * math.prod(taps) >= 4 * lanes


def grouped_planar_pays(op: Conv, x: TensorType, w: TensorType, lanes: int) -> bool:
    """Whether a convolution in groups is better computed on plain images.

    Blocks of a narrow group would be partly padding, and so are the last vectors of an image: of
    a row, or of all pixels where each result is made of one of them.
    """
    outputs, per_group, *taps = w.extents
    spatial = len(taps)
    strides = op.window(spatial)[1]
    if op.group == 1 or strides[-1] > 1 or (per_group == 1 and outputs == op.group):
        return False
    if per_group % lanes == 0 and (outputs // op.group) % lanes == 0:
        return False
    out = op.infer(x, w).shape[2:]
    one = math.prod(taps) == 1 and set(strides) == {1} and not any(op.window(spatial)[0])
    pixels = estimate(math.prod(out) if one else out[-1])
    return pixels >= LEAST_FULL * (-(-pixels // lanes) * lanes)


def _made_planar(x: Value, lanes: int) -> bool:
    """Whether x comes from a convolution of plain images, past what moves or is elementwise."""
    seen: Value | None = x
    while seen is not None and seen.producer is not None:
        match seen.producer:
            case Node(Conv() as op, [Value() as before, Value() as w, *_]):
                return grouped_planar_pays(op, before.type, w.type, lanes)
            case Node(Elementwise() | Reshape() | Transpose(), [first, *_]):
                seen = first
            case _:
                return False
    return False


def whole_groups_pay(op: Conv, w: tuple[int, ...], lanes: int) -> bool:
    """Return True if groups, filled up to whole blocks of channels, are not mostly padding."""
    outputs, per_group = w[0] // op.group, w[1]
    blocks = ceil_div(outputs, lanes) * ceil_div(per_group, lanes)
    return outputs * per_group >= LEAST_WHOLE * blocks * lanes**2


def _filled(g: Graph, v: Value, axis: int, groups: int, more: int) -> Value:
    """Return v with `more` zeros behind each of the groups of an axis."""
    if not more:
        return v
    before, (extent, *behind) = v.type.shape[:axis], v.type.shape[axis:]
    apart = g(Reshape((*before, groups, extent // groups, *behind)), v)
    none = (0,) * len(behind)
    wide = g(Pad((0,) * apart.type.rank, (*[0] * (axis + 1), more, *none)), apart)
    return g(Reshape((*before, groups * (extent // groups + more), *behind)), wide)


def _without_filling(g: Graph, y: Value, groups: int, outputs: int) -> Value:
    """Return images of so many channels, of which groups were filled."""
    n, channels, *image = y.type.shape
    if channels == outputs:
        return y
    apart = g(Reshape((n, groups, channels // groups, *image)), y)
    shape = (n, groups, outputs // groups, *image)
    part = g(Slice((0,) * len(shape), shape, (1,) * len(shape)), apart)
    return g(Reshape((n, outputs, *image)), part)


def _one_tap(op: Conv, w: Value) -> bool:
    """Return True if each result is made of the element at its place alone."""
    pads, strides, _ = op.window(w.type.rank - 2)
    return not any(pads) and set(w.type.shape[2:]) | set(strides) <= {1}


def depthwise_planar_pays(op: Conv, node: Node, lanes: int) -> bool:
    """Return True if a depthwise convolution is better computed on plain images.

    Blocks of so few channels would be mostly padding, and the vectors of a row are not.
    """
    (dtype, _), (_, w, *_) = _operands(node), node.inputs
    assert w is not None, "a convolution has weights"
    *rows, last = node.output.type.shape[2:]
    row, strides = estimate(last), op.window(len(rows) + 1)[1]
    full = row >= LEAST_FULL * (-(-row // lanes) * lanes)
    fits = dtype in ("f32", "u8") and len(rows) <= 1 and not any(map(is_open, rows))
    short = strides[-1] in STRIDES and math.prod(w.type.extents[2:]) <= WRITTEN
    return 2 * op.group <= lanes and fits and full and short


def _depthwise_planar(g: Graph, op: Conv, x: Value, w: Value, bias: Value | None) -> Value:
    """Return the depthwise convolution of plain images.

    Channels that were shuffled by moving two axes about are read where they were.
    """
    pads, strides, dilations = op.window(x.type.rank - 2)
    taps = w.type.shape[2:]
    lead = x.type.shape[1:2]
    match x:
        case Value(Node(Reshape(), [Value(Node(Transpose(), _)) as moved])):
            split = moved.type.rank - len(taps)
            if moved.type.shape[:1] == x.type.shape[:1] and (
                moved.type.shape[split:] == x.type.shape[2:]
            ):  # fmt: skip
                x, lead = moved, moved.type.shape[1:split]
    if len(taps) == 1:  # a row is an image of one
        pads, strides, dilations = (0, pads[0], 0, pads[1]), (1, *strides), (1, *dilations)
        x, taps = g(Reshape((*x.type.shape[:-1], 1, x.type.shape[-1])), x), (1, *taps)
    y = g(DepthwisePlanar(strides, pads, dilations), x, g(Reshape((*lead, *taps)), w))
    if bias is not None:
        y = g(Add(), y, stretch(g, g(Reshape((1, *lead, *(1 for _ in taps))), bias), y.type.shape))
    shape = (y.type.shape[0], w.type.shape[0], *y.type.shape[-len(w.type.shape[2:]) :])
    return y if y.type.shape == shape else g(Reshape(shape), y)


def _planar(g: Graph, op: Conv, x: Value, w: Value) -> Value:
    """Return the convolution of plain images, its padding written out, without a bias."""
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    plain = Conv(strides, (0,) * (2 * spatial), dilations, op.group)
    return g(plain, padded(g, x, pads), w)


def _words(g: Graph, op: Conv, x: Value, w: Value) -> Value:
    """Return the convolution of bytes as plain images, without a bias."""
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    return g(ConvPlanar(strides, dilations), padded(g, g(Pack(4), x), pads), g(Pack(4), w))


def _biased(g: Graph, y: Value, rest: Sequence[Value | None]) -> Value:
    """Return plain images plus a bias for each channel, if there is one."""
    bias = rest[0] if rest else None
    return y if bias is None else g(Add(), y, _per_channel(g, bias, y))


def _per_channel(g: Graph, bias: Value, y: Value) -> Value:
    """Return a bias for each channel stretched to plain images."""
    ones = [1] * (y.type.rank - 2)
    return stretch(g, g(Reshape((1, y.type.shape[1], *ones)), bias), y.type.shape)


def unpacked(g: Graph, y: Value, bias: Value | None, lanes: int) -> Value:
    """Return a blocked y plus a bias for each channel, in the plain layout."""
    outputs = y.type.logical[1]
    if bias is not None:
        ones = [1] * (y.type.rank - 3)
        packed = g(Pack(lanes), g(Reshape((1, outputs, *ones)), bias))
        y = g(Add(), y, stretch(g, packed, y.type.shape, y.type.layout))
    return g(Unpack(outputs), y)


def _direct(g: Graph, problem: Problem, x: Value, w: Value, bands: int, node: Node) -> Value:
    op, lanes = problem.op, problem.target.facts.lanes
    assert isinstance(op, Conv)
    pads, strides, dilations = op.window(x.type.rank - 2)
    channels, outputs = x.type.extents[1], w.type.extents[0]
    dots = DOTS.get(x.type.dtype, 1)
    inner = lanes if channels >= lanes // 2 else 4 if dots > 1 else 1
    source = g(Pack(inner), x) if inner > 1 else x
    places = node.output.type.extents[2:]
    row = estimate(places[sliding_axis(w.type.extents[2:], places)])
    # A narrow panel lies in few bands, so that few blocks of input channels are read for it.
    width = lanes if bands > 1 else panel_width(problem, outputs // op.group, row)
    packed = g(PackConv(inner, width, dots), w)
    spatial = len(strides)
    edges = (0, 0)
    # Of bytes there is so little to compute that reading weights with gaps takes longer.
    if dots < 4 and _outside(op, x.type, w.type) >= WORTH_LEAVING_OUT:
        edges = (pads[0], pads[spatial])
        pads = tuple(0 if axis % spatial == 0 else p for axis, p in enumerate(pads))
    conv = ConvBlocked(channels, outputs, lanes, strides, dilations, op.group, bands, edges)
    return g(conv, padded(g, source, pads), packed)


def _outside(op: Conv, x: TensorType, w: TensorType) -> float:
    """Return which share of the products would meet rows of padding."""
    spatial = len(w.shape) - 2
    pads, strides, dilations = op.window(spatial)
    rows, taps = x.extents[2], w.extents[2]
    open_ = any(is_open(d) for d in (*x.shape, *pads))
    if spatial < 2 or open_ or min(pads) < 0:
        return 0
    results = op.infer(x, w).extents[2]
    places = product(range(results), range(taps))
    met = (y * strides[0] + t * dilations[0] - pads[0] for y, t in places)
    return sum(not 0 <= row < rows for row in met) / (results * taps)


def panel_width(problem: Problem, outputs: int, row: int, alone: bool = False) -> int:
    """Return how many output channels one register tile computes.

    Two vectors, so that the many rows of the tile reuse each weight; four where rows are too
    short for a high tile; but no more than leaves fewest padding channels.  One vector where a row
    is `alone`, neighbours being far away, and one tile takes all of it: then each weight is read
    once, at an even pace.  Where elements can be multiplied as they come from memory, many such
    tiles are faster too: they are twice as high, which reads weights half as often.
    """
    target = problem.target
    lanes = target.facts.lanes
    folds = target.architecture == "x86-64" and target.facts.registers >= 32
    blocks = ceil_div(outputs, lanes)
    assert known(blocks)
    choices: tuple[int, ...] = (4, 2, 3, 1) if row <= 4 else (2, 3, 1)
    if alone and row >= 12 and (folds or row <= target.facts.registers - 4):
        choices = (1,)
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


def _conv_filter(g: Graph, node: Node, target: Target) -> None:
    """Compute the gradient of weights in blocks of outputs, and of inputs where these are many."""
    op, lanes = node.op, target.facts.lanes
    assert isinstance(op, ConvFilter)
    x, dy = node.inputs
    assert x is not None and dy is not None
    outputs, channels, *_ = node.output.type.extents
    if not x.type.static or 0 in (*x.type.shape, *dy.type.shape):
        return
    dw: Value
    if op.group > 1:
        if channels > 1 or outputs != op.group:
            return
        source, grads = padded(g, g(Pack(lanes), x), op.pads), g(Pack(lanes), dy)
        packed = g(DepthwiseFilter(op.taps, op.strides, op.dilations), source, grads)
        dw = g(Reshape(node.output.type.shape), g(Unpack(outputs), packed))
    else:
        many, pads = channels >= lanes // 2, op.pads
        source = g(Pack(lanes), x) if many else padded(g, x, pads)
        left = pads if many else (0,) * len(pads)
        blocked = ConvFilterBlocked(outputs, channels, op.taps, op.strides, left, op.dilations)
        dw = unpacked_filters(g, g(blocked, source, g(Pack(lanes), dy)), node.output.type)
    g.replace(node.output, dw)


def unpacked_filters(g: Graph, dw: Value, filters: TensorType) -> Value:
    """Return filters of this type that are as PackConv has them."""
    outputs, inputs, *_ = filters.extents
    return g(Reshape(filters.shape), g(UnpackConv(outputs, inputs), dw))


def padded(g: Graph, x: Value, pads: tuple[int, ...]) -> Value:
    """Return x with zeros around its spatial axes, as many as ONNX's `pads` says."""
    spatial = len(pads) // 2
    if not any(is_open(p) or p for p in pads):
        return x
    tail = (0,) * (x.type.rank - 2 - spatial)
    return g(Pad((0, 0, *pads[:spatial], *tail), (0, 0, *pads[spatial:], *tail)), x)


# ── matrix product ──


def _mat_mul(g: Graph, node: Node, target: Target) -> bool:
    """Multiply by a constant that is packed, if that pays."""
    x, w = node.inputs
    assert x is not None and w is not None
    match w:
        case Value(Node(Broadcast(), [Value() as inner])) if (
            inner.array is not None and inner.type.shape[-2:] == w.type.shape[-2:]
        ):
            w = inner
    squeezed = [d for d in w.type.shape[:-2] if d != 1]
    if w.array is None or squeezed or not x.type.static or 0 in (*x.type.shape, *w.type.shape):
        return False
    matrix = w if w.type.rank == 2 else g(Reshape(w.type.shape[-2:]), w)
    *batch, rows, columns = node.output.type.extents
    dots = DOTS.get(x.type.dtype, 1)
    # More than a column is put in order on the stack, for which a microcontroller has no room.
    few = FEW if target.facts.own_cache else 1
    long = estimate(x.type.shape[-1]) >= 2 * target.facts.lanes_for(x.type.dtype)
    many = x.type.dtype in FLOATS and long and estimate(math.prod([*batch, rows])) > FEW
    if many and not is_open(columns) and columns <= few:
        return False
    problem = Problem(node.op, x.type, matrix.type, target)
    # Kernels take the samples of a batch as rows.
    together = next((d for d in batch if is_open(d)), rows)
    packed = g(PackMatrix(_matrix_width(problem, together, columns), dots), matrix)
    y = g(MatMulPacked(columns), x, packed)
    g.replace(node.output, as_type(g, y, node.output.type.dtype))
    return True


def _is_outer(node: Node) -> bool:
    """Return True if each element is one product, of the elements' own type."""
    x = node.inputs[0]
    assert x is not None
    inner, types = x.type.shape[-1], {*_operands(node), node.output.type.dtype}
    if is_open(inner) or inner != 1 or len(types) > 1:
        return False
    return not (is_of_shares(x) or makes_scores(node.output))


def _matrix_width(problem: Problem, rows: int, columns: int) -> int:
    """Return the columns of one panel: the fewer rows, the more columns keep the units busy.

    Open rows may be few or many.  Four vectors are as fast for many as two, if there are registers
    for six rows of them, and not much slower for one than eight.
    """
    lanes = problem.target.facts.lanes_for(problem.x.dtype)
    vectors = max(1, -(-columns // lanes))
    if is_open(rows):
        wide = 4 if problem.target.facts.registers >= 32 else 2
    else:
        wide = 8 if rows <= 2 else 4 if rows <= 6 else 2
    best = min(vectors, wide)
    widths = (w for w in (1, 2, 3, 4, 6, 8) if is_open(vectors) or w <= vectors)
    return problem.choose("width", best, *widths) * lanes
