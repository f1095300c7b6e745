"""Converters for histograms: how many elements are in each of several bins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Site, number, numbers, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise import arithmetic, comparison, logic, select
from alpenglow.ops.elementwise.floating import Trunc
from alpenglow.ops.reduction import reduction
from alpenglow.ops.tensor.gather import Gather, ScatterElements
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, Slice

Ends = tuple[Value, Value]
"""The least and the largest number that is counted."""


@on("aten.histc.default")
def histc(s: Site, x: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Made:
    """Count elements in bins from min to max, or from the least to the largest if these are one."""
    flat = _flat(s, s.cast(x, wide(x.type.dtype)))
    if min == max and flat.type.shape != (0,):
        return _counted(s, flat, _ends(s, flat, 1.0), bins)
    low, high = (s.constant(n, flat.type.dtype) for n in (min, max))
    return _counted(s, flat, (low, high), bins)


def _flat(s: Site, x: Value) -> Value:
    """Return all elements in a row."""
    return s.reshaped(x, (number(product(x.type.shape)),))


def _ends(s: Site, x: Value, apart: float) -> Ends:
    """Return the least and the largest element; those that are one are moved apart."""
    low, high = s.g(reduction.ReduceMin((0,), False), x), s.g(reduction.ReduceMax((0,), False), x)
    alike, more = s.g(comparison.Equal(), low, high), reduction.filled(s.g, apart, low)
    return (s.g(select.Where(), alike, s.g(arithmetic.Sub(), low, more), low),
            s.g(select.Where(), alike, s.g(arithmetic.Add(), high, more), high))  # fmt: skip


def _counted(s: Site, x: Value, ends: Ends, bins: int) -> Value:
    """Return how many elements are in each bin of one width; the last has both its ends."""
    g, shape = s.g, x.type.shape
    low, high, count = (s.spread(v, shape) for v in (*ends, s.constant(bins, x.type.dtype)))
    along = g(arithmetic.Mul(), g(arithmetic.Sub(), x, low), count)
    place = g(Trunc(), g(arithmetic.Div(), along, g(arithmetic.Sub(), high, low)))
    place = g(arithmetic.Minimum(), place, reduction.filled(g, bins - 1, x))
    chosen = g(select.Where(), _inside(s, x, ends), place, reduction.filled(g, bins, x))
    return _totals(s, s.cast(chosen, "i64"), None, bins)


def _inside(s: Site, x: Value, ends: Ends) -> Value:
    low, high = (s.spread(v, x.type.shape) for v in ends)
    return s.g(logic.BitAnd(), s.g(comparison.GreaterOrEqual(), x, low),
               s.g(comparison.LessOrEqual(), x, high))  # fmt: skip


def _totals(s: Site, places: Value, weight: Value | None, bins: int) -> Value:
    """Return the sums of weights, 1 without any, by places; those at `bins` count nowhere."""
    counts = s.result.with_dtype(wide(s.result.dtype))
    none = s.filled(0, counts.with_shape((bins + 1,)))
    shares = s.filled(1, counts.with_shape(places.type.shape)) if weight is None else weight
    totals = s.g(ScatterElements(0, "add"), none, places, s.cast(shares, counts.dtype))
    return s.cast(s.g(Slice((0,), (bins,), (1,)), totals), s.result.dtype)


# ── bins between edges ──


@on("aten.histogram.bin_ct")
def histogram(
    s: Site, x: Value, bins: int = 100, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> Made:  # fmt: skip
    flat = _flat(s, x)
    edges = _edges(s, flat, bins, range)
    return [_between(s, [flat], [edges], weight, density), edges]


@on("aten.histogram.bins_tensor")
def histogram_between(
    s: Site, x: Value, bins: Value, weight: Value | None = None, density: bool = False
) -> Made:
    return [_between(s, [_flat(s, x)], [bins], weight, density), bins]


@on("aten._histogramdd_bin_edges.default")
def edges_of_each(
    s: Site, x: Value, bins: Sequence[int], range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> Made:  # fmt: skip
    return _edges_of_each(s, x, bins, range)


@on("aten._histogramdd_from_bin_cts.default")
def histogram_of_points(
    s: Site, x: Value, bins: Sequence[int], range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> Made:  # fmt: skip
    return _between(s, _columns(s, x), _edges_of_each(s, x, bins, range), weight, density)


@on("aten._histogramdd_from_bin_tensors.default")
def histogram_of_points_between(
    s: Site, x: Value, bins: Sequence[Value], weight: Value | None = None, density: bool = False
) -> Made:
    return _between(s, _columns(s, x), list(bins), weight, density)


def _columns(s: Site, x: Value) -> list[Value]:
    """Return points as their coordinates, a row for each axis."""
    *outer, axes = numbers(*x.type.shape)
    count = product(outer)
    points = s.reshaped(x, (count, axes))
    return [s.reshaped(s.g(Slice((0, i), (count, 1), (1, 1)), points), (count,))
            for i in range(axes)]  # fmt: skip


def _edges_of_each(
    s: Site, x: Value, bins: Sequence[int], limits: Sequence[float] | None
) -> list[Value]:
    columns = _columns(s, x)
    pairs = [limits and limits[2 * i : 2 * i + 2] for i in range(len(bins))]
    return [_edges(s, *of) for of in zip(columns, bins, pairs, strict=True)]


def _edges(s: Site, x: Value, bins: int, limits: Sequence[float] | None) -> Value:
    """Return the edges of bins between limits, or between the least and the largest element."""
    if limits is None and x.type.shape != (0,):
        low, high = _ends(s, x, 0.5)
    else:
        least, most = limits or (0.0, 1.0)
        apart = 0.5 if least == most else 0.0
        low, high = (s.constant(n, x.type.dtype) for n in (least - apart, most + apart))
    return _spaced(s, low, high, bins + 1)


def _spaced(s: Site, start: Value, end: Value, count: int) -> Value:
    """Return `count` numbers from start to end: the first half from the start, as PyTorch does."""
    g, dtype = s.g, start.type.dtype
    if count < 2:
        return s.spread(s.reshaped(start, (1,) * count), (count,))
    step = g(arithmetic.Div(), g(arithmetic.Sub(), end, start), s.constant(count - 1, dtype))
    near = g(Range(count, 0, 1, dtype))
    far = g(Range(count, count - 1, -1, dtype))
    first, last, every = (s.spread(v, (count,)) for v in (start, end, step))
    up = g(arithmetic.Add(), first, g(arithmetic.Mul(), every, near))
    down = g(arithmetic.Sub(), last, g(arithmetic.Mul(), every, far))
    half = count // 2
    return g(Concat(0), g(Slice((0,), (half,), (1,)), up),
             g(Slice((half,), (count - half,), (1,)), down))  # fmt: skip


def _between(
    s: Site, columns: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool
) -> Value:
    """Return what is in the bins between edges along each axis; the last ones have both ends."""
    g, shape = s.g, columns[0].type.shape
    place = s.filled(0, columns[0].type.with_dtype("i64"))
    inside = s.filled(True, place.type.with_dtype("bool"))
    bins = [int(e.type.shape[0]) - 1 for e in edges]
    for x, line, count in zip(columns, edges, bins, strict=True):
        at = g(arithmetic.Sub(), _upper_bound(s, line, x), reduction.filled(g, 1, place))
        at = g(arithmetic.Minimum(), at, reduction.filled(g, count - 1, place))
        place = g(arithmetic.Add(), g(arithmetic.Mul(), place, reduction.filled(g, count, at)), at)
        ends = (_at(s, line, 0), _at(s, line, count))
        inside = g(logic.BitAnd(), inside, _inside(s, x, ends))
    every = math.prod(bins)
    chosen = g(select.Where(), inside, place, reduction.filled(g, every, place))
    shares = None if weight is None else s.reshaped(s.cast(weight, s.result.dtype), shape)
    counts = s.reshaped(_totals(s, chosen, shares, every), s.result.shape)
    return _dense(s, counts, edges) if density else counts


def _at(s: Site, line: Value, i: int) -> Value:
    return s.reshaped(s.g(Slice((i,), (1,), (1,)), line), ())


def _dense(s: Site, counts: Value, edges: Sequence[Value]) -> Value:
    """Return counts as shares of all, for each unit of the bins' extents."""
    g, shape = s.g, counts.type.shape
    axes = tuple(range(len(shape)))
    sums = s.spread(g(reduction.ReduceSum(axes), counts), shape)
    y = g(arithmetic.Div(), counts, sums)
    for axis, line in enumerate(edges):
        count = int(line.type.shape[0]) - 1
        width = g(arithmetic.Sub(), g(Slice((1,), (count,), (1,)), line),
                  g(Slice((0,), (count,), (1,)), line))  # fmt: skip
        alone = [count if i == axis else 1 for i in axes]
        y = g(arithmetic.Div(), y, s.spread(s.reshaped(width, alone), shape))
    return y


def _upper_bound(s: Site, line: Value, x: Value) -> Value:
    """Return where in a line, in order, the first element beyond each of x is.

    The line is halved as the library of C++ does, which PyTorch asks: so lines that are in no
    order, too, give what they give there.
    """
    g, extent = s.g, int(line.type.shape[0])
    first = s.filled(0, x.type.with_dtype("i64"))
    left = reduction.filled(g, extent, first)
    one, zero, last = (reduction.filled(g, n, first) for n in (1, 0, extent - 1))
    for _ in range(extent.bit_length()):
        half = g(arithmetic.Div(), left, reduction.filled(g, 2, left))
        middle = g(arithmetic.Add(), first, half)
        edge = g(Gather(0), line, g(arithmetic.Minimum(), middle, last))
        below = g(comparison.Less(), x, edge)
        over = g(comparison.Equal(), left, zero)
        rest = g(arithmetic.Sub(), g(arithmetic.Sub(), left, half), one)
        stays = g(logic.BitOr(), below, over)
        first = g(select.Where(), stays, first, g(arithmetic.Add(), middle, one))
        left = g(select.Where(), over, left, g(select.Where(), below, half, rest))
    return first
