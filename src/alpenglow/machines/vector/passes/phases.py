"""Convolutions whose outputs are interleaved in a finer image are computed where they belong.

A transposed convolution is lowered to one convolution that makes all phases of the result, and so
is sub-pixel convolution written; a depth-to-space follows.  Phase by phase, each pixel of the
result costs its own products and none that are cut off, and images stay in blocks of channels,
where interleaving is a matter of addresses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpenglow.ir.dims import ceil_div, estimate, is_open, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.blocked import PACKED, SUMS
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.operators.phases import ConvPhases, DepthwisePhases
from alpenglow.machines.vector.passes.layout import padded, panel_width
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import as_type
from alpenglow.ops.tensor.movement import Pad, Reshape, Slice, Transpose
from alpenglow.ops.tensor.packing import DOTS, PackConv
from alpenglow.passes.choices import Problem

MOVED = 40
"""What moving an element of a result to its place costs, in multiply-adds."""


def phases(g: Graph, target: Target) -> Graph:
    """Compute convolutions that are interleaved phase by phase, where that pays."""
    nodes = len(g.nodes)
    for node in list(g.nodes):
        if _is_depthwise(node, target.facts.lanes // 2):
            finer = interleaving(g, node)
            if finer is not None and finer.simple and finer.by_channel:
                g.replace(finer.result, _each_channel(g, node, finer, target.facts.lanes))
            continue
        if not is_plain(node) or not _suits(node):
            continue
        finer = interleaving(g, node)
        if finer is not None and finer.simple and _pays(finer, node, target.facts.lanes):
            y = _by_phases(g, node, finer, target)
            g.replace(finer.result, as_type(g, y, finer.result.type.dtype))
    if len(g.nodes) > nodes:
        g.prune()
    return g


def is_plain(node: Node) -> bool:
    """Whether a node is a convolution of images of known extents by constant weights, in one group
    and of all places."""
    op = node.op
    if not isinstance(op, Conv):
        return False
    x, w, *rest = node.inputs
    assert x is not None and w is not None, "convolutions have images and weights"
    every = op.group == 1 and set(op.strides) <= {1} and set(op.dilations) <= {1}
    constant = w.array is not None and all(v is None or v.array is not None for v in rest)
    return every and constant and x.type.static and 0 not in node.output.type.shape


def _is_depthwise(node: Node, least: int) -> bool:
    """Whether a node convolves each channel of images of floats by several weights of its own.

    Of fewer than `least` channels blocks would be mostly padding.
    """
    op = node.op
    if not isinstance(op, Conv) or len(node.inputs) != 2:
        return False
    x, w = node.inputs
    assert x is not None and w is not None, "convolutions have images and weights"
    every = set(op.strides) <= {1} and set(op.dilations) <= {1} and x.type.shape[1] == op.group
    return (every and x.type.dtype == "f32" and w.type.shape[1] == 1 and op.group >= max(2, least)
            and x.type.static and 0 not in node.output.type.shape)  # fmt: skip


def _suits(node: Node) -> bool:
    """Whether there is a kernel for a convolution, if it is interleaved."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return (x.type.dtype, w.type.dtype) in PACKED and x.type.dtype != "u8"


@dataclass(frozen=True, slots=True)
class Interleaving:
    """What becomes of the result of a convolution: a finer image, whose borders are cut off."""

    result: Value
    outputs: int
    steps: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    factors: tuple[int, ...]
    """The extents that the channels are split into."""
    order: tuple[int, ...]
    """The factors by number: those of the phases of each axis, then those of the outputs."""

    @property
    def simple(self) -> bool:
        """Whether an image of known extents is made, or one of two axes at most whose phases have
        as many elements: proofs that kernels for others stay within their operands take long."""
        sides = zip(self.result.type.shape[2:], self.steps, self.starts, self.ends, strict=True)
        rests = [(start + end) % step for d, step, start, end in sides if is_open(d)]
        return not rests or (len(self.steps) <= 2 and not any(rests))

    @property
    def by_channel(self) -> bool:
        """Whether all phases of one output lie side by side."""
        behind = self.order[self.order.index(0) + 1 :]
        return self.factors[0] == self.outputs and all(self.factors[i] == 1 for i in behind)

    def apart(self, g: Graph, v: Value) -> Value:
        """Return a constant with elements for each channel, [channels, …], as those of each phase,
        [phases, outputs, …]."""
        rest, count = v.type.shape[1:], len(self.factors)
        split = g(Reshape((*self.factors, *rest)), v)
        moved = g(Transpose((*self.order, *range(count, count + len(rest)))), split)
        return g(Reshape((math.prod(self.steps), self.outputs, *rest)), moved)


def interleaving(g: Graph, node: Node) -> Interleaving | None:
    """Return how the result of a convolution is interleaved; None if it is not."""
    n, channels, *image = node.output.type.shape
    spatial = len(image)
    split = _only_user(g, node.output)
    moved = split and _only_user(g, split.output)
    whole = moved and _only_user(g, moved.output)
    match (split, moved, whole):
        case (
            Node(Reshape(shape=(first, *apart))),
            Node(Transpose(perm=(0, *perm))),
            Node(Reshape(shape=shape)) as last,
        ) if first == n and apart[-spatial:] == image:
            factors = apart[:-spatial]
            groups = _between(perm, len(factors), spatial)
        case _:
            return None
    if groups is None or any(map(is_open, factors)) or product(factors) != channels:
        return None
    numbers = tuple(map(int, factors))
    outputs, *steps = (math.prod(numbers[i] for i in group) for group in groups)
    finer = [d * s for d, s in zip(image, steps, strict=True)]
    if shape != (n, outputs, *finer) or math.prod(steps) == 1:
        return None
    order = (*itertools.chain(*groups[1:]), *groups[0])
    result, starts, ends = _cut(g, last.output)
    return Interleaving(result, outputs, tuple(steps), starts, ends, numbers, order)


def _between(perm: Sequence[int], factors: int, spatial: int) -> list[list[int]] | None:
    """Return the factors, by number, that come to stand before and behind each spatial axis.

    `perm` says where the axes behind the batch come from: factors first, then spatial axes.  None
    if those change places.
    """
    groups: list[list[int]] = [[]]
    for axis in perm:
        if axis <= factors:
            groups[-1].append(axis - 1)
        elif axis == factors + len(groups):
            groups.append([])
        else:
            return None
    return groups if len(groups) == spatial + 1 else None


def _cut(g: Graph, image: Value) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """Return what is read of an image, and how much of it stands before and behind that."""
    n, channels, *extents = image.type.shape
    match _only_user(g, image):
        case Node(Slice(starts=(0, 0, *starts), sizes=sizes, steps=steps)) as cut if sizes[:2] == (
            n,
            channels,
        ) and set(steps) == {1}:
            ends = [d - size - a for d, size, a in zip(extents, sizes[2:], starts, strict=True)]
            if not any(map(is_open, (*starts, *ends))):
                return cut.output, tuple(map(int, starts)), tuple(map(int, ends))
    none = (0,) * len(extents)
    return image, none, none


def _only_user(g: Graph, v: Value) -> Node | None:
    """Return the node that reads a value, if nobody else does."""
    return next(iter(v.users)) if v.users and g.users(v) == 1 else None


def _pays(finer: Interleaving, node: Node, lanes: int) -> bool:
    """Whether it takes less time to compute each phase's outputs in blocks of their own.

    Where there are few of them, these are mostly padding; but images of all phases are moved.
    """
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    grid, size = (estimate(product(v.type.shape[2:])) for v in (node.output, finer.result))
    products = lanes * math.prod(w.type.extents[1:])
    together = products * grid * ceil_div(w.type.extents[0], lanes)
    apart = products * size * ceil_div(finer.outputs, lanes)
    return apart <= together + MOVED * size * finer.outputs


def _by_phases(g: Graph, node: Node, finer: Interleaving, target: Target) -> Value:
    op, (x, w, *rest), lanes = node.op, node.inputs, target.facts.lanes
    assert isinstance(op, Conv) and x is not None and w is not None
    spatial, channels, dtype = len(finer.steps), x.type.extents[1], x.type.dtype
    dots = DOTS.get(dtype, 1)
    inner = lanes if channels >= lanes // 2 or dots > 1 else 1
    image = finer.result.type.shape[2:]
    pixels = estimate(product(image[-2:])) // math.prod(finer.steps[-2:])
    width = panel_width(Problem(op, x.type, w.type, target), finer.outputs, pixels)
    sums = SUMS[dtype][1] if dtype in SUMS else dtype
    bias = rest[0] if rest else None
    if bias is None:
        bias = g.constant(np.zeros(w.type.extents[0], np.float32))
    conv = ConvPhases(
        channels, finer.outputs, lanes, finer.steps, finer.starts, finer.ends, _window(finer, w)
    )
    source = padded(g, g(Pack(inner), x) if inner > 1 else x, op.window(spatial)[0])
    weights = g(PackConv(inner, width, dots), _filled(g, finer.apart(g, w), width))
    each = _filled(g, finer.apart(g, as_type(g, bias, sums)), width)
    return g(Unpack(finer.outputs), g(conv, source, weights, each))


def _each_channel(g: Graph, node: Node, finer: Interleaving, lanes: int) -> Value:
    op, (x, w) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    spatial = len(finer.steps)
    source = padded(g, g(Pack(lanes), x), op.window(spatial)[0])
    weights = finer.apart(g, w)
    phases, channels, _, *taps = weights.type.extents
    packed = g(Pack(lanes), g(Reshape((phases, channels, *taps)), weights))
    plain = g(Reshape(packed.type.shape), packed)
    conv = DepthwisePhases(finer.steps, finer.starts, finer.ends)
    return g(Unpack(channels), g(conv, source, plain))


def _filled(g: Graph, v: Value, width: int) -> Value:
    """Return [phases, outputs, …] as [all outputs, …], with zeros that fill panels behind those of
    each phase."""
    more = -v.type.extents[1] % width
    none = (0,) * (v.type.rank - 2)
    full = g(Pad((0, 0, *none), (0, more, *none)), v) if more else v
    phases, outputs, *rest = full.type.shape
    return g(Reshape((phases * outputs, *rest)), full)


def _window(finer: Interleaving, w: Value) -> tuple[int, ...]:
    """Return the window whose phases the weights are: the last ones of an axis may have no first
    tap, but zeros."""
    assert w.array is not None, "weights are constant"
    window = []
    for axis, step in enumerate(finer.steps):
        first = w.array.take(0, axis=2 + axis)
        used = first.any(axis=tuple(range(1, first.ndim))).reshape(finer.factors)
        by_phase = used.transpose(finer.order).reshape(*finer.steps, finer.outputs)
        others = tuple(i for i in range(by_phase.ndim) if i != axis)
        last = int(np.flatnonzero(by_phase.any(axis=others)).max(initial=0)) + 1
        window.append((w.type.extents[2 + axis] - 1) * step + last)
    return tuple(window)
