"""Converters for medians and modes: elements that are picked by their order along an axis."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.torch.convert.reduction import last_axis
from alpenglow.frontends.torch.convert.running import accumulated
from alpenglow.frontends.torch.table import Made, Site, axis_of, number, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise import arithmetic, comparison, logic, select
from alpenglow.ops.reduction import reduction
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, Transpose
from alpenglow.ops.tensor.order import TopK

Pick = tuple[Value, Value]
"""An element of the last axis, which then has an extent of 1, and where it is."""


def along(s: Site, x: Value, dim: int, pick: Callable[[Site, Value], Pick]) -> Made:
    """Return what is picked of x along an axis, in the shape that is stated."""
    if x.type.rank:
        axis = axis_of(dim, x.type.rank)
        rest = [i for i in range(x.type.rank) if i != axis]
        moved = s.g(Transpose((*rest, axis)), x)
    else:
        moved = s.reshaped(x, (1,))
    number(moved.type.shape[-1])
    y = s.cast(moved, "u8") if x.type.dtype == "bool" else moved
    value, place = pick(s, y)
    shape = s.stated(0).shape
    return [s.reshaped(s.cast(value, x.type.dtype), shape), s.reshaped(place, shape)]


def middle(name: str, pick: Callable[[Site, Value], Pick]) -> None:
    """Register a median of all elements, and along an axis."""

    @on(f"aten.{name}.default")
    def of_all(s: Site, x: Value) -> Made:
        extent = number(product(x.type.shape))
        if not extent:
            return s.filled(float("nan"), s.result)
        return s.reshaped(pick(s, s.reshaped(x, (extent,)))[0], ())

    @on(f"aten.{name}.dim")
    def along_one(s: Site, x: Value, dim: int, keepdim: bool = False) -> Made:
        return along(s, x, dim, pick)


def median(s: Site, x: Value) -> Pick:
    """Pick the middle element in order, of an even number the lower; NaN if there is one."""
    extent, last = x.type.shape[-1], x.type.rank - 1
    k = (extent + 1) // 2
    values, places = s.g.add(TopK(last, k, False), [x]).results
    value, place = (last_axis(s, v, k - 1, 1) for v in (values, places))
    if x.type.dtype not in FLOATS:
        return value, place
    undefined = s.cast(s.g(comparison.IsNaN(), x), "u8")
    where = s.g(reduction.ArgMax(last), undefined)
    missing = s.cast(s.g(reduction.ReduceMax((last,)), undefined), "bool")
    nothing = reduction.filled(s.g, float("nan"), value)
    return (s.g(select.Where(), missing, nothing, value),
            s.g(select.Where(), missing, where, place))  # fmt: skip


def median_of_numbers(s: Site, x: Value) -> Pick:
    """Pick the middle of those elements that are not NaN; NaN if all are."""
    if x.type.dtype not in FLOATS:
        return median(s, x)
    extent, last = x.type.shape[-1], x.type.rank - 1
    values, places = s.g.add(TopK(last, extent, False), [x]).results
    numbers = s.cast(s.g(logic.BitNot(), s.g(comparison.IsNaN(), x)), "i64")
    count = s.g(reduction.ReduceSum((last,)), numbers)
    less = s.g(arithmetic.Sub(), count, reduction.filled(s.g, 1, count))
    half = s.g(arithmetic.Div(), less, reduction.filled(s.g, 2, count))
    return s.g(GatherElements(last), values, half), s.g(GatherElements(last), places, half)


middle("median", median)
middle("nanmedian", median_of_numbers)


@on("aten.mode.default")
def mode(s: Site, x: Value, dim: int = -1, keepdim: bool = False) -> Made:
    return along(s, x, dim, most_frequent)


def most_frequent(s: Site, x: Value) -> Pick:
    """Pick the element that is there most often, of several the least, at its last place.

    In order, equal elements are runs: the longest is that whose last element is furthest from the
    first.
    """
    g, extent, last = s.g, x.type.shape[-1], x.type.rank - 1
    values, places = g.add(TopK(last, extent, False), [x]).results
    ordinal = s.spread(g(Range(extent)), x.type.shape)
    zero = reduction.filled(g, 0, ordinal)
    equal = g(comparison.Equal(), last_axis(s, values, 1, extent - 1),
              last_axis(s, values, 0, extent - 1))  # fmt: skip
    first = last_axis(s, reduction.filled(g, 0, s.cast(values, "bool")), 0, 1)
    begun = g(select.Where(), g(Concat(last), first, equal), zero, ordinal)
    (start,) = accumulated(s, (begun,), last,
                           lambda a, b: (g(arithmetic.Maximum(), a[0], b[0]),))  # fmt: skip
    longest = g(reduction.ArgMax(last), g(arithmetic.Sub(), ordinal, start))
    return g(GatherElements(last), values, longest), g(GatherElements(last), places, longest)
