"""Converters of reductions, over axes and over windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from alpenglow.frontends.movement import inverse
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.stablehlo.arguments import chosen_along
from alpenglow.frontends.stablehlo.bodies import apply_body, single
from alpenglow.frontends.stablehlo.convert.movement import padded
from alpenglow.frontends.stablehlo.folds import begun, combining, is_neutral, operands_and_inits
from alpenglow.frontends.stablehlo.table import Made, Site, Window, on
from alpenglow.frontends.windows import folded, over_windows
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import ALL, COMPLEX, FLOATS, NUMBERS
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMin, ReduceProd, ReduceSum
from alpenglow.ops.reduction.scan import CumProd, CumSum
from alpenglow.ops.tensor.movement import Transpose, stretch
from alpenglow.ops.window.pooling import MaxPool

REDUCTIONS: Mapping[str, Callable[..., Op]] = {
    "stablehlo.add": ReduceSum,
    "stablehlo.multiply": ReduceProd,
    "stablehlo.maximum": ReduceMax,
    "stablehlo.minimum": ReduceMin,
}
TOTALS: Mapping[str, Callable[..., Op]] = {"stablehlo.add": CumSum, "stablehlo.multiply": CumProd}
LOGICAL = {"stablehlo.or": "stablehlo.maximum", "stablehlo.and": "stablehlo.minimum"}
"""Operations on bits, and those that do the same to truth values."""

MOST_SPATIAL = 3
"""Windows over no more axes are pooled, or summed by a convolution."""


@on("stablehlo.reduce")
def reduce(s: Site) -> Made:
    xs, inits = operands_and_inits(s)
    axes = tuple(sorted(s.axes(s.numbers("dimensions"), xs[0].type.rank, "dimensions")))
    kept = tuple(d for i, d in enumerate(xs[0].type.shape) if i not in axes)
    block = s.body()
    if any(known(xs[0].type.shape[a]) and xs[0].type.shape[a] == 0 for a in axes):
        return [stretch(s.g, init, kept) for init in inits]
    if len(xs) == 1 and (made := _reduced(s, xs[0], axes, single(block))) is not None:
        return begun(s, block, inits, [made])
    if len(axes) == 1 and (both := chosen_along(s, block, xs, inits, axes[0])) is not None:
        return both
    combine = combining(s, block)
    values = list(xs)
    for axis in reversed(axes):
        values = folded(s.g, values, axis, combine)
    return begun(s, block, inits, [s.reshaped(v, kept) for v in values])


def _reduced(s: Site, x: Value, axes: tuple[int, ...], operation: str) -> Value | None:
    """Return a reduction for which there is an operator, None if there is none."""
    if x.type.dtype == "bool":
        operation = LOGICAL.get(operation, operation)
    is_sum = operation == "stablehlo.add"
    if operation in REDUCTIONS and (x.type.dtype in ALL or (x.type.dtype in COMPLEX and is_sum)):
        return apply(s.g, REDUCTIONS[operation](axes, False), x)
    return None


@on("stablehlo.map")
def map_(s: Site) -> Made:
    return apply_body(s, s.body(), s.required())


# ── windows ──


@on("stablehlo.reduce_window")
def reduce_window(s: Site) -> Made:
    """Reduce windows; padding, and the holes that base dilation makes, hold the initial value.

    So says StableHLO's specification.  XLA reduces the elements of the operand alone, and differs
    if the initial value is not neutral, such as a sum that begins with 5.
    """
    xs, inits = operands_and_inits(s)
    s.attribute("window_dimensions")  # there is no default
    w, block = s.window(xs[0].type.rank), s.body()
    if len(xs) == 1 and (made := _known_window(s, xs[0], inits[0], single(block), w)) is not None:
        return made
    low, high = [a for a, _ in w.edges], [b for _, b in w.edges]
    within = [b - 1 for b in w.base]
    values = [padded(s, x, init, low, high, within) for x, init in zip(xs, inits, strict=True)]
    windows = over_windows(s.g, values, w.size, w.strides, w.spread, combining(s, block))
    return begun(s, block, inits, windows)


def _known_window(s: Site, x: Value, init: Value, operation: str, w: Window) -> Value | None:
    """Return a reduction of windows by a windowed operator; None if no operator computes it."""
    if not is_neutral(operation, init) or not x.type.static or 0 in x.type.shape or max(w.base) > 1:
        return None
    reach = [(n - 1) * d for n, d in zip(w.size, w.spread, strict=True)]
    axes = [i for i, n in enumerate(w.size) if n > 1 or w.strides[i] > 1 or w.edges[i] != (0, 0)]
    if (total := _running(s, x, operation, w, axes)) is not None:
        return total
    if x.type.dtype not in FLOATS or not 0 < len(axes) <= MOST_SPATIAL or operation not in (
        "stablehlo.add", "stablehlo.maximum", "stablehlo.minimum"
    ):  # fmt: skip
        return None
    if any(min(w.edges[i]) < 0 or max(w.edges[i]) > reach[i] for i in axes):
        return None  # the edge alone has whole windows
    if any(x.type.extents[i] + sum(w.edges[i]) <= reach[i] for i in axes):
        return None  # no window fits
    return _pooled(s, x, operation, axes, w)


def _running(
    s: Site, x: Value, operation: str, w: Window, axes: Sequence[int]
) -> Value | None:  # fmt: skip
    """Return running totals, if windows reach from the beginning, or to the end."""
    if len(axes) != 1 or operation not in TOTALS or x.type.dtype not in NUMBERS:
        return None
    (axis,) = axes
    n, edges = x.type.extents[axis], w.edges[axis]
    if w.size[axis] != n or w.strides[axis] != 1 or edges not in ((n - 1, 0), (0, n - 1)):
        return None
    return s.g(TOTALS[operation](axis, False, edges[0] == 0 and n > 1), x)


def _pooled(s: Site, x: Value, operation: str, axes: Sequence[int], w: Window) -> Value:
    others = [i for i in range(x.type.rank) if i not in axes]
    shape = x.type.extents
    turned = s.g(Transpose((*others, *axes)), x)
    channels = int(np.prod([shape[i] for i in others]))
    spatial = tuple(shape[i] for i in axes)
    kernel, steps, gaps = (tuple(v[i] for i in axes) for v in (w.size, w.strides, w.spread))
    pads = (*(w.edges[i][0] for i in axes), *(w.edges[i][1] for i in axes))
    if operation == "stablehlo.add":
        ones = s.full(1, x.type.dtype, (1, 1, *kernel))
        flat = s.reshaped(turned, (channels, 1, *spatial))
        made = s.g(Conv(steps, pads, gaps), flat, ones)
    else:
        flat = s.reshaped(turned, (1, channels, *spatial))
        flat = flat if operation == "stablehlo.maximum" else s.g(Neg(), flat)
        made = s.g(MaxPool(kernel, steps, pads, gaps), flat)
        made = made if operation == "stablehlo.maximum" else s.g(Neg(), made)
    out = s.reshaped(made, (*(shape[i] for i in others), *made.type.shape[2:]))
    return s.g(Transpose(inverse((*others, *axes))), out)
