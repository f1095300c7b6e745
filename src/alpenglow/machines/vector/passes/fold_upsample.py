"""Convolutions of images whose pixels are repeated are computed from the pixels themselves.

The 3x3 taps of a window over an image upsampled by 2 meet 2x2 different pixels: weights of taps
that meet the same one are added up ahead.  Which these are depends on where a pixel of the result
stands, so there is a convolution for each such phase; they are interleaved as those of a transposed
convolution.  Sums are taken in another order, so this runs under numerics="fast" only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.machines.vector.passes.phases import is_plain
from alpenglow.machines.vector.passes.winograd import (
    DIRECT,
    best_block,
    winograd_cost,
    winograd_fits,
)
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.window.conv_transpose import side_by_side

REPEATED = 20
"""What making an element of the upsampled image costs, in multiply-adds."""


def fold_upsample(g: Graph, target: Target) -> Graph:
    """Compute convolutions of upsampled images from the small ones, where that pays."""
    nodes = len(g.nodes)
    for node in list(g.nodes):
        if not is_plain(node) or not _in_f32(node):
            continue
        x, steps = _small(g, node.inputs[0])
        if math.prod(steps) > 1 and _pays(node, x, steps, target.facts.lanes):
            weights = _added_up(node, steps)
            if np.isfinite(weights).all():  # sums may overflow where products did not
                g.replace(node.output, _from_small(g, node, x, steps, weights))
    if len(g.nodes) > nodes:
        g.prune()
    return g


def _in_f32(node: Node) -> bool:
    """Whether weights that are added up lose nothing that matters."""
    return all(v is None or v.type.dtype == "f32" for v in node.inputs[:2])


def _small(g: Graph, x: Value | None) -> tuple[Value, tuple[int, ...]]:
    """Return the image whose pixels x repeats, and how often along each axis."""
    assert x is not None, "there is an image"
    steps = [1] * (x.type.rank - 2)
    while g.users(x) == 1:
        match x:
            case Value(Node(Gather(axis), [Value() as inner, Value(array=at)])) if at is not None:
                axis %= inner.type.rank
                step = _repeats(at, inner.type.extents[axis])
                if axis < 2 or not step or steps[axis - 2] > 1:
                    break
                x, steps[axis - 2] = inner, step
            case _:
                break
    return x, tuple(steps)


def _repeats(at: Array, extent: int) -> int:
    """Return how often each of so many elements is read in a row; 0 if not all are alike."""
    if at.ndim != 1 or not extent or at.size % extent:
        return 0
    step = at.size // extent
    return step if np.array_equal(at, np.repeat(np.arange(extent), step)) else 0


def _taps(window: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Return how many pixels of the small image a window meets at most along each axis."""
    return [(k + s - 2) // s + 1 for k, s in zip(window, steps, strict=True)]


def _pays(node: Node, x: Value, steps: tuple[int, ...], lanes: int) -> bool:
    """Whether convolutions by phases cost less than one of the large image, and making that."""
    op, image, w = node.op, node.inputs[0], node.inputs[1]
    assert isinstance(op, Conv) and image is not None and w is not None
    result, filters = node.output.type.extents, w.type.extents
    direct = result[0] * math.prod(result[2:]) * math.prod(filters[:2])
    large = direct * math.prod(filters[2:])
    if winograd_fits(op, filters, result, lanes):
        block = best_block(filters, result)
        large = large if block == DIRECT else winograd_cost(block, filters, result)
    small = direct * math.prod(_taps(filters[2:], steps))
    return small <= large + REPEATED * image.type.size


def _from_small(g: Graph, node: Node, x: Value, steps: tuple[int, ...], weights: Array) -> Value:
    """Return the convolution of x with each pixel repeated `steps` times along each axis.

    Element y of an axis is of phase (y + start) % step if padding is made up to a multiple of the
    step by `start`; tap t of its window meets pixel (y + start + t) // step then.
    """
    op, (_, w, *rest) = node.op, node.inputs
    assert isinstance(op, Conv) and w is not None
    spatial, window = len(steps), w.type.extents[2:]
    pads = op.window(spatial)[0]
    before = [-(-p // s) for p, s in zip(pads[:spatial], steps, strict=True)]
    starts = [s * b - p for b, s, p in zip(before, steps, pads[:spatial], strict=True)]
    taps = weights.shape[2:]
    after = [(p - k) // s + t for p, k, s, t in
             zip(pads[spatial:], window, steps, taps, strict=True)]  # fmt: skip
    bias = rest[0].array if rest and rest[0] is not None else None
    each = None if bias is None else g.constant(np.tile(bias, math.prod(steps)))
    conv = Conv((1,) * spatial, (*before, *after))
    y = g(conv, x, g.constant(weights, copy=False), each)
    return side_by_side(g, y, 1, steps, starts, node.output.type.shape[2:])


def _added_up(node: Node, steps: Sequence[int]) -> Array:
    """Return weights [O, C, …] added up by the pixels that they meet, [phases · O, C, …]."""
    w = node.inputs[1]
    assert w is not None and w.array is not None, "weights are constant"
    sums = w.array.astype(np.float64)
    for axis, (step, count) in enumerate(zip(steps, _taps(w.type.extents[2:], steps), strict=True)):
        # Axes that have been looked at stand in front by phase.
        at = 2 + 2 * axis
        phase, tap = np.indices((step, sums.shape[at]))
        meets = (phase + tap) // step == np.arange(count)[:, None, None]
        moved = np.tensordot(sums, meets.astype(np.float64), (at, 2))
        sums = np.moveaxis(moved, (-1, -2), (axis, at + 1))
    with np.errstate(over="ignore"):
        return sums.reshape(-1, *sums.shape[1 + len(steps) :]).astype(w.type.numpy)
