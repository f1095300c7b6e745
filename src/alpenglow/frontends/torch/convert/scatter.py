"""Converters that put or combine elements at positions that tensors hold.

Each index must be in range: another ends the call with an error.  Of several elements for one place
the last is kept, where PyTorch says that any may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.movement import corner, inverse, permuted
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.torch.convert.index import MASKS, Places, by_axis, places_of, with_axis
from alpenglow.frontends.torch.table import Made, Operand, Site, axis_of, dynamic, element, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Mod, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import Gather, ScatterElements, ScatterNd
from alpenglow.ops.tensor.movement import Pad, stretch

REDUCTIONS = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max",
    "amin": "min",
}  # fmt: skip
"""The reductions of `ScatterElements` by their names in PyTorch."""


@on("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    s: Site, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Made:
    stated = [v for v in indices if v is not None]
    if len(stated) == 1 and stated[0].type.dtype in MASKS and stated[0].array is None:
        return put_by_mask(s, x, stated[0], indices.index(stated[0]), values, accumulate)
    listed = by_axis(s, x, indices)
    if all(v is None for v in listed):
        y = stretch(s.g, s.cast(values, x.type.dtype), x.type.shape)
        return apply(s.g, Add(), x, y) if accumulate else y
    return put(s, x, places_of(s, x, listed), values, "add" if accumulate else "none")


@on("aten.put.default")
def put_flat(s: Site, x: Value, index: Value, source: Value, accumulate: bool = False) -> Made:
    flat = s.reshaped(x, (product(x.type.shape),))
    at = s.reshaped(index, (product(index.type.shape),))
    y = put(s, flat, places_of(s, flat, [at]), s.reshaped(source, at.type.shape),
            "add" if accumulate else "none")  # fmt: skip
    return s.reshaped(y, x.type.shape)


@on("aten.index_reduce.default")
def index_reduce(
    s: Site, x: Value, dim: int, index: Value, source: Value, reduce: str,
    include_self: bool = True,
) -> Made:  # fmt: skip
    data, axis, at = with_axis(s, x), axis_of(dim, x.type.rank), with_axis(s, index)
    updates = with_axis(s, source)
    shape = tuple(d if i == axis else 1 for i, d in enumerate(updates.type.shape))
    everywhere = stretch(s.g, s.reshaped(s.cast(at, "i64"), shape), updates.type.shape)
    y = reduced(s, data, axis, everywhere, updates, reduce, include_self)
    return s.reshaped(y, x.type.shape)


@on("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter(
    s: Site, x: Value, dim: int, index: Value, src: Operand, reduce: str | None = None
) -> Made:
    """Put elements of src, or a number, where an index points along an axis."""
    if 0 in index.type.shape:
        return x
    data, at, axis = with_axis(s, x), with_axis(s, index), axis_of(dim, x.type.rank)
    if isinstance(src, Value):
        updates = corner(s.g, with_axis(s, s.cast(src, x.type.dtype)), at.type.shape)
    else:
        updates = s.filled(element(src, x.type.dtype), data.type.with_shape(at.type.shape))
    how = "none" if reduce is None else named(reduce)
    return s.reshaped(written(s, data, axis, at, updates, how), x.type.shape)


@on("aten.scatter_add.default")
def scatter_add(s: Site, x: Value, dim: int, index: Value, src: Value) -> Made:
    return scatter(s, x, dim, index, src, "add")


@on("aten.scatter_reduce.two")
def scatter_reduce(
    s: Site, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Made:
    if 0 in index.type.shape:
        return x
    data, at, axis = with_axis(s, x), with_axis(s, index), axis_of(dim, x.type.rank)
    updates = corner(s.g, with_axis(s, src), at.type.shape)
    return s.reshaped(reduced(s, data, axis, at, updates, reduce, include_self), x.type.shape)


@on("aten.masked_scatter.default")
def masked_scatter(s: Site, x: Value, mask: Value, source: Value) -> Made:
    shape = s.result.shape
    mask, data = stretch(s.g, mask, shape), stretch(s.g, x, shape)
    flat = (product(shape),)
    counts = s.g(CumSum(0), s.cast(s.reshaped(mask, flat), "i64"))
    at = s.reshaped(s.g(Sub(), counts, s.filled(1, counts.type)), shape)
    return s.g(Where(), mask, picked(s, source, at), data)


def picked(s: Site, source: Value, at: Value) -> Value:
    """Return elements of a source by their index; -1 is allowed for elements that are not read."""
    extent = product(source.type.shape)
    if known(extent) and extent == 0:
        raise UnsupportedError("source has 0 elements, expected at least 1")
    ranged = s.within(at, -1, extent - 1, "the number of an element of the source")
    return s.g(Gather(0), s.reshaped(source, (extent,)), ranged)


@on("aten.nonzero_static.default")
def nonzero_static(s: Site, x: Value, size: Dim, fill_value: int = -1) -> Made:
    rank, count = x.type.rank, product(x.type.shape)
    if not known(size) or not known(count):
        raise dynamic("size or self")
    if 0 in (size, rank, count):
        return s.filled(fill_value, s.result)
    bits = s.cast(s.reshaped(s.cast(x, "bool"), (count,)), "i64")
    totals = s.g(CumSum(0), bits)
    # Element i that is not zero goes to place i; what is zero, or has no place, to one past all.
    place = s.g(Sub(), totals, s.filled(1, totals.type))
    fits = s.g(Less(), totals, s.filled(size + 1, totals.type))
    kept = s.g(BitAnd(), fits, s.cast(bits, "bool"))
    place = s.g(Where(), kept, place, s.filled(size, place.type))
    coordinates = np.stack(np.unravel_index(np.arange(count), x.type.extents), axis=-1)
    rows = s.filled(fill_value, s.result.with_shape((size + 1, rank)))
    at = s.reshaped(place, (count, 1))
    y = s.g(ScatterNd(), rows, at, s.g.constant(coordinates.astype(np.int64)))
    return corner(s.g, y, (size, rank))


# ── by a mask whose data are not known ──


def put_by_mask(
    s: Site, x: Value, mask: Value, first: int, values: Value, accumulate: bool
) -> Value:
    """Put values where a mask over axes from `first` on says, all along the other axes."""
    after = x.type.rank - first - mask.type.rank
    # In the result of the index one axis, of as many elements as the mask says, stands for its own.
    shape = (1,) * (first + 1 + after - values.type.rank) + values.type.shape
    mask, new = s.cast(mask, "bool"), s.reshaped(s.cast(values, x.type.dtype), shape)
    if known(shape[first]) and shape[first] == 1:
        new = s.reshaped(new, (*shape[:first], *[1] * mask.type.rank, *shape[first + 1 :]))
    else:
        new = spread_by_mask(s, new, mask, first)
    new = stretch(s.g, new, x.type.shape)
    everywhere = s.reshaped(mask, (*mask.type.shape, *[1] * after))
    kept = stretch(s.g, everywhere, x.type.shape)
    return s.g(Where(), kept, apply(s.g, Add(), x, new) if accumulate else new, x)


def spread_by_mask(s: Site, values: Value, mask: Value, axis: int) -> Value:
    """Return values, one along an axis for each element that a mask picks, where it picks them.

    Elsewhere there is 0.  The call ends with an error if the mask picks more or fewer.
    """
    bits = s.cast(s.reshaped(mask, (product(mask.type.shape),)), "i64")
    count = values.type.shape[axis]
    surplus = s.g(Sub(), s.g(ReduceSum((0,), False), bits), s.extent(count))
    surplus = s.within(surplus, 0, 0, "how many more a mask picks than there are values")
    surplus = stretch(s.g, surplus, bits.type.shape)
    # Value i goes to what the mask picks as number i + 1; number 0 is what it does not pick.
    number = s.g(Add(), s.g(Mul(), s.g(CumSum(0), bits), bits), surplus)
    before = tuple(int(i == axis) for i in range(values.type.rank))
    after = (0,) * values.type.rank
    return s.g(Gather(axis), s.g(Pad(before, after), values), s.reshaped(number, mask.type.shape))


# ── by index ──


def put(s: Site, x: Value, places: Places, values: Value, reduction: str) -> Value:
    """Put values, broadcast to what an index of tensors reads of x, where it points."""
    wanted = places.result(x.type.shape)
    rank = x.type.rank
    updates = stretch(s.g, s.cast(values, x.type.dtype), wanted)
    front, back = places.front(rank), places.from_front(len(wanted))
    updates = permuted(s.g, updates, inverse(back))
    data = permuted(s.g, x, front)
    if 0 in wanted:
        return x
    y = apply(s.g, ScatterNd(reduction), data, places.tuples, updates)
    return permuted(s.g, y, inverse(front))


def written(s: Site, x: Value, axis: int, index: Value, updates: Value, reduction: str) -> Value:
    """Return x with updates put or combined along an axis; updates and index have one shape."""
    at = s.indices(s.cast(index, "i64"), x.type.shape[axis], axis, negative=False)
    return apply(s.g, ScatterElements(axis, reduction), x, at, updates)


def reduced(
    s: Site, x: Value, axis: int, index: Value, updates: Value, reduce: str, include_self: bool
) -> Value:
    """Return x with updates combined along an axis, and without its own elements if so said.

    A mean of integers is rounded down.
    """
    reduction = named(reduce)
    start = x
    if not include_self:
        neutral = s.filled(neutral_of(x.type.dtype, reduction), updates.type)
        start = written(s, x, axis, index, neutral, "none")
    total = written(s, start, axis, index, updates, reduction)
    if reduce != "mean":
        return total
    ones, zeros = s.filled(1, updates.type), s.filled(1 if include_self else 0, x.type)
    counts = written(s, zeros, axis, index, ones, "add")
    counts = s.g(Maximum(), counts, s.filled(1, x.type))
    if x.type.dtype in FLOATS:
        return s.g(Div(), total, counts)
    return s.g(Div(), s.g(Sub(), total, s.g(Mod(), total, counts)), counts)


def neutral_of(dtype: str, reduction: str) -> float:
    """Return the number that changes nothing that it is combined with."""
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if dtype in FLOATS:
        return -math.inf if reduction == "max" else math.inf
    if dtype == "bool":
        return reduction == "min"
    limits = np.iinfo(DTYPES[dtype])
    return int(limits.min if reduction == "max" else limits.max)


def named(reduce: str) -> str:
    """Return our name of what combines elements."""
    if reduce not in REDUCTIONS:
        raise ModelError(f"reduce is '{reduce}', expected one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[reduce]
