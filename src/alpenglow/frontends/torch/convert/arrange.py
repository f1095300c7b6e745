"""Converters that arrange elements by a pattern: rolls, triangles, diagonals, windows, strides."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.movement import inverse, permuted, replaced, sliced
from alpenglow.frontends.torch.convert.movement import begun
from alpenglow.frontends.torch.table import Made, Site, axis_of, dynamic, number, numbers, on
from alpenglow.ir.dims import Dim, is_open, known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.tensor.gather import Gather, ScatterNd
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, Trilu, stretch


@on("aten.roll.default")
def roll(s: Site, x: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Made:
    if not dims:
        flat = s.reshaped(x, (product(x.type.shape),))
        return s.reshaped(turned(s, flat, 0, shifts[0]), x.type.shape)
    y = x
    for shift, dim in zip(shifts, dims, strict=True):
        y = turned(s, y, axis_of(dim, x.type.rank), shift)
    return y


def turned(s: Site, x: Value, axis: int, shift: Dim) -> Value:
    """Return x with the elements of an axis moved on, those at its end to its start."""
    if not x.type.rank:
        return x
    extent = x.type.shape[axis]
    if not is_open(extent) and extent == 0:
        return x
    # An open extent leaves -s % d as it is, where it is the same as -s for the few s there are.
    count = shift % extent
    if not is_open(count) and count == 0:
        return x
    head = sliced(s.g, x, axis, extent - count, count)
    return s.g(Concat(axis), head, sliced(s.g, x, axis, 0, extent - count))


@on("aten.tril.default")
def tril(s: Site, x: Value, diagonal: int = 0) -> Made:
    return s.g(Trilu(diagonal, False), x)


@on("aten.triu.default")
def triu(s: Site, x: Value, diagonal: int = 0) -> Made:
    return s.g(Trilu(diagonal, True), x)


@on("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(s: Site, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Made:
    rank = x.type.rank
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    perm = (*(i for i in range(rank) if i not in (a, b)), a, b)
    *outer, rows, columns = (x.type.shape[i] for i in perm)
    flat = s.reshaped(permuted(s.g, x, perm), (*outer, rows * columns))
    start: Dim = offset if offset >= 0 else -offset * columns
    size = s.result.shape[-1]
    if not is_open(size) and size == 0:
        start = 0
    return sliced(s.g, flat, len(outer), start, size, number(columns) + 1)


@on("aten.diagonal_scatter.default")
def diagonal_scatter(
    s: Site, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Made:
    count = src.type.shape[-1]
    if not is_open(count) and count == 0:
        return x
    rank = x.type.rank
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    perm = (a, b, *(i for i in range(rank) if i not in (a, b)))
    places = [s.g(Range(count, first)) for first in (max(-offset, 0), max(offset, 0))]
    tuples = s.g(Concat(1), *(s.reshaped(v, (count, 1)) for v in places))
    updates = permuted(s.g, src, (rank - 2, *range(rank - 2)))
    y = s.g(ScatterNd(), permuted(s.g, x, perm), tuples, updates)
    return permuted(s.g, y, inverse(perm))


@on("aten.unfold.default", "aten.unfold_copy.default")
def unfold(s: Site, x: Value, dimension: int, size: int, step: int) -> Made:
    if not x.type.rank:
        return s.reshaped(x, s.result.shape)
    axis, rank = axis_of(dimension, x.type.rank), s.result.rank
    count = s.result.shape[axis]
    starts = s.spread(s.reshaped(s.g(Range(count, 0, step)), (count, 1)), (count, size))
    at = s.g(Add(), starts, s.spread(s.g(Range(size)), (count, size)))
    y = s.g(Gather(axis), x, at)
    perm = [i for i in range(rank) if i != axis + 1]
    return permuted(s.g, y, [*perm, axis + 1])


@on("aten.slice_scatter.default")
def slice_scatter(
    s: Site, x: Value, src: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None,
    step: int = 1,
) -> Made:  # fmt: skip
    axis = axis_of(dim, x.type.rank)
    extent, count = x.type.shape[axis], src.type.shape[axis]
    if not is_open(count) and count == 0:
        return x
    first = begun(extent, start)
    if step != 1:
        at = s.g(Range(count, 0, step))
        at = s.g(Add(), at, s.spread(s.constant(first, "i64"), (count,)))
        perm = (axis, *(i for i in range(x.type.rank) if i != axis))
        rows, updates = permuted(s.g, x, perm), permuted(s.g, src, perm)
        y = s.g(ScatterNd(), rows, s.reshaped(at, (count, 1)), updates)
        return permuted(s.g, y, inverse(perm))
    return replaced(s.g, x, axis, first, src)


@on("aten.select_scatter.default")
def select_scatter(s: Site, x: Value, src: Value, dim: int, index: Dim) -> Made:
    axis = axis_of(dim, x.type.rank)
    first = x.type.shape[axis] + index if known(index) and index < 0 else index
    shape = (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])
    return replaced(s.g, x, axis, first, s.reshaped(src, shape))


@on("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    s: Site, x: Value, size: Sequence[Dim], stride: Sequence[Dim],
    storage_offset: Dim | None = None,
) -> Made:  # fmt: skip
    if 0 in s.result.shape:
        return s.filled(0, s.result)
    extent = product(x.type.shape)
    at = strided(s, extent, s.result.shape, stride, storage_offset)
    return s.g(Gather(0), s.reshaped(x, (extent,)), at)


@on("aten.as_strided_scatter.default")
def as_strided_scatter(
    s: Site, x: Value, src: Value, size: Sequence[Dim], stride: Sequence[Dim],
    storage_offset: Dim | None = None,
) -> Made:  # fmt: skip
    if 0 in src.type.shape:
        return x
    extent = product(x.type.shape)
    at = strided(s, extent, src.type.shape, stride, storage_offset)
    flat = s.reshaped(x, (extent,))
    y = s.g(ScatterNd(), flat, s.reshaped(at, (*src.type.shape, 1)), src)
    return s.reshaped(y, x.type.shape)


@on("aten.resize.default")
def resize(s: Site, x: Value, size: Sequence[Dim]) -> Made:
    """The elements that lie first in memory, or all and whatever comes after them."""
    count, wanted = numbers(product(x.type.shape), product(s.result.shape))
    flat = s.reshaped(x, (count,))
    if wanted <= count:
        return s.reshaped(sliced(s.g, flat, 0, 0, wanted), s.result.shape)
    more = s.filled(0, x.type.with_shape((wanted - count,)))
    return s.reshaped(s.g(Concat(0), flat, more), s.result.shape)


def strided(
    s: Site, extent: Dim, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim | None
) -> Value:
    """Return the indices of a view's elements in a contiguous tensor of `extent` elements."""
    offset = offset or 0
    if not known(extent) or not known(offset) or not all(map(known, [*shape, *strides])):
        raise dynamic("a strided view")
    steps = [int(n) for n in strides]
    last = offset + sum((int(d) - 1) * n for d, n in zip(shape, steps, strict=True))
    if last >= extent:
        raise UnsupportedError(f"size and stride reach element {last}, expected less than {extent}")
    wanted = tuple(shape)
    at = s.spread(s.constant(offset, "i64"), wanted)
    for i, n in enumerate(steps):
        line = s.reshaped(s.g(Range(wanted[i], 0, n)), (wanted[i], *[1] * (len(steps) - 1 - i)))
        at = s.g(Add(), at, stretch(s.g, line, wanted))
    return at
