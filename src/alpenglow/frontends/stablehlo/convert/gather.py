"""Converters that read slices at computed places: those out of range are moved into it."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.movement import replaced, sliced
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.dimension_numbers import GATHER, SCATTER
from alpenglow.frontends.stablehlo.module import GatherDims
from alpenglow.frontends.stablehlo.places import (
    as_index,
    clamped,
    column,
    counted,
    index_vectors,
    known_number,
    linear,
    strides_of,
)
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.gather import Gather, GatherNd
from alpenglow.ops.tensor.movement import Concat, Transpose, stretch


@on("stablehlo.gather")
def gather(s: Site) -> Made:
    s.count(2)
    return gathered(s, s.numbers("slice_sizes"))


@on("stablehlo.dynamic_gather")
def dynamic_gather(s: Site) -> Made:
    s.count(3)
    return gathered(s, s.dims(2))


def gathered(s: Site, sizes: Sequence[Dim]) -> Value:
    x, dims = s.input(0), s.dims_of("dimension_numbers", GatherDims)
    vectors = index_vectors(s, s.input(1), dims.index_axis)
    check(s, x, vectors, dims, sizes)
    *batch, _ = vectors.type.shape
    rank = len(batch) + len(dims.offset)
    if 0 in sizes or any(known(d) and d == 0 for d in batch):
        return _nothing(s, x, batch, sizes, dims, rank)
    whole = all(
        size == (1 if i in dims.start_map else d)
        for i, (size, d) in enumerate(zip(sizes, x.type.shape, strict=True))
    )
    if whole and dims.start_map and not dims.operand_batch:
        made = _whole_slices(s, x, vectors, dims)
    else:
        made = _each(s, x, vectors, dims, sizes)
    kept = [i for i in range(x.type.rank) if i not in (*dims.collapsed, *dims.operand_batch)]
    made = s.reshaped(made, (*batch, *(sizes[i] for i in kept)))
    return s.g(Transpose(arranged(len(batch), dims.offset, rank)), made)


def check(s: Site, x: Value, vectors: Value, dims: GatherDims, sizes: Sequence[Dim] | None) -> None:
    """Raise ModelError unless the axes of a gather or scatter go together."""
    rank = x.type.rank
    offset, collapsed, batch, index_batch, start_map, _ = GATHER if sizes is not None else SCATTER
    s.axes((*dims.collapsed, *dims.operand_batch), rank, f"{collapsed} and {batch}")
    s.axes(dims.start_map, rank, start_map)
    s.axes(dims.index_batch, vectors.type.rank, index_batch)
    s.axes(dims.offset, vectors.type.rank - 1 + len(dims.offset), offset)
    if vectors.type.shape[-1] != len(dims.start_map):
        count = vectors.type.shape[-1]
        raise s.wrong(f"{start_map} has {len(dims.start_map)} entries, expected {count}")
    if len(dims.operand_batch) != len(dims.index_batch):
        count = len(dims.index_batch)
        raise s.wrong(f"{batch} has {len(dims.operand_batch)} entries, expected {count}")
    count = len(dims.offset) + len(dims.collapsed) + len(dims.operand_batch)
    if count != rank:
        lists = f"{offset}, {collapsed} and {batch}"
        raise s.wrong(f"{lists} have {count} entries in all, expected {rank} for {x.type}")
    if sizes is None:
        return
    s.each(rank, slice_sizes=sizes)
    for i, (size, d) in enumerate(zip(sizes, x.type.shape, strict=True)):
        most = 1 if i in (*dims.collapsed, *dims.operand_batch) else d
        if known(size) and (size < 0 or (known(most) and size > most)):
            raise s.wrong(f"slice_sizes[{i}] is {size}, expected 0 to {most} for {x.type}")


def batch_places(s: Site, vectors: Value, dims: GatherDims) -> list[tuple[int, Value]]:
    """Return the axes of the operand that go with axes of the indices, and the index along each."""
    axis = dims.index_axis
    found = []
    *batch, _ = vectors.type.shape
    for of_x, of_index in zip(dims.operand_batch, dims.index_batch, strict=True):
        place = of_index - (of_index > axis)
        found.append((of_x, counted(s, batch[place], place, batch)))
    return found


def arranged(count: int, offset: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the permutation of the result: axes of slices move to the positions `offset`."""
    slices = iter(range(count, rank))
    batch = iter(range(count))
    return tuple(next(slices) if i in offset else next(batch) for i in range(rank))


def _nothing(
    s: Site, x: Value, batch: Sequence[Dim], sizes: Sequence[Dim], dims: GatherDims, rank: int
) -> Value:
    kept = [sizes[i] for i in range(x.type.rank)
            if i not in (*dims.collapsed, *dims.operand_batch)]  # fmt: skip
    order = arranged(len(batch), dims.offset, rank)
    shape = [(*batch, *kept)[i] for i in order]
    return stretch(s.g, s.full(0, x.type.dtype, ()), tuple(shape))


def _whole_slices(s: Site, x: Value, vectors: Value, dims: GatherDims) -> Value:
    """Return slices that are whole along axes that no index names."""
    rest = [i for i in range(x.type.rank) if i not in dims.start_map]
    columns = [
        clamped(s, column(s, vectors, j), x.type.shape[axis] - 1)
        for j, axis in enumerate(dims.start_map)
    ]
    batch = vectors.type.rank - 1
    if len(columns) == 1:
        (axis,) = dims.start_map
        made = s.g(Gather(axis), x, columns[0])
        order = (*range(axis, axis + batch), *range(axis), *range(axis + batch, made.type.rank))
        front = s.g(Transpose(order), made)
        return _with_ones(s, front, dims, batch, rest, x.type.rank)
    turned = s.g(Transpose((*dims.start_map, *rest)), x)
    index = s.g(Concat(batch), *(s.reshaped(c, (*c.type.shape, 1)) for c in columns))
    return _with_ones(s, s.g(GatherNd(0), turned, index), dims, batch, rest, x.type.rank)


def _with_ones(
    s: Site, made: Value, dims: GatherDims, batch: int, rest: Sequence[int], rank: int
) -> Value:
    """Return slices with axes of one element for indexed axes that the result keeps."""
    shape: list[Dim] = list(made.type.shape[:batch])
    inner = dict(zip(rest, made.type.shape[batch:], strict=True))
    shape += [inner.get(i, 1) for i in range(rank) if i in inner or i not in dims.collapsed]
    return s.reshaped(made, shape)


def _each(s: Site, x: Value, vectors: Value, dims: GatherDims, sizes: Sequence[Dim]) -> Value:
    """Return slices of any form: each element by its place in row-major order."""
    *batch, _ = vectors.type.shape
    shape = (*batch, *sizes)
    at: dict[int, Value] = {}
    for j, axis in enumerate(dims.start_map):
        most = x.type.shape[axis] - sizes[axis]
        at[axis] = clamped(s, column(s, vectors, j), most)
    for axis, index in batch_places(s, vectors, dims):
        at[axis] = index
    parts = []
    for axis in range(x.type.rank):
        along = counted(s, sizes[axis], len(batch) + axis, shape)
        if axis in at:
            start = s.reshaped(at[axis], (*batch, *[1] * x.type.rank))
            along = s.g(Add(), along, stretch(s.g, start, shape))
        parts.append(along)
    flat = s.reshaped(x, (product(x.type.shape),))
    if not parts:
        return stretch(s.g, x, shape)
    return s.g(Gather(0), flat, linear(s, parts, strides_of(s, x.type.shape)))


# ── slices whose beginning is data ──


@on("stablehlo.dynamic_slice")
def dynamic_slice(s: Site) -> Made:
    x, sizes = s.input(0), s.numbers("slice_sizes")
    s.count(1 + x.type.rank)
    s.each(x.type.rank, slice_sizes=sizes)
    for axis, size in enumerate(sizes):
        d = x.type.shape[axis]
        if size < 0 or (known(d) and size > d):
            raise s.wrong(f"slice_sizes[{axis}] is {size}, expected 0 to {d}")
        if size != d:
            x = along(s, x, axis, _start(s, 1 + axis, d - size), size)
    return x


def _start(s: Site, i: int, most: Dim) -> Value | int:
    """Return the start of a slice, clamped so that the slice is within its tensor."""
    number = known_number(s, i)
    if number is not None and known(most):
        return int(min(max(number, 0), most))
    v = s.input(i)
    if v.type.rank:
        raise s.wrong(f"an index is {v.type}, expected a scalar")
    return clamped(s, as_index(s, v), most)


def along(s: Site, x: Value, axis: int, start: Value | int, size: int) -> Value:
    """Return `size` elements along an axis from one that may be data."""
    if isinstance(start, int):
        return sliced(s.g, x, axis, start, size)
    first = stretch(s.g, start, (size,))
    where = first if size == 1 else s.g(Add(), first, counted(s, size, 0, (size,)))
    return s.g(Gather(axis), x, where)


@on("stablehlo.dynamic_update_slice")
def dynamic_update_slice(s: Site) -> Made:
    x, update = s.input(0), s.input(1)
    s.count(2 + x.type.rank)
    if update.type.rank != x.type.rank or update.type.dtype != x.type.dtype:
        raise s.wrong(f"update is {update.type}, expected the rank and dtype of {x.type}")
    for have, there in zip(update.type.shape, x.type.shape, strict=True):
        if known(have) and known(there) and have > there:
            raise s.wrong(f"update is {update.type}, expected at most the shape of {x.type}")
    if any(known(d) and d == 0 for d in update.type.shape):
        return x
    partial = [i for i, (a, b) in enumerate(zip(update.type.shape, x.type.shape, strict=True))
               if a != b]  # fmt: skip
    starts = {i: _start(s, 2 + i, x.type.shape[i] - update.type.shape[i]) for i in partial}
    return _put(s, x, update, partial, starts)


def _put(
    s: Site, x: Value, update: Value, axes: Sequence[int], starts: dict[int, Value | int]
) -> Value:
    """Return x with an update that is shorter along axes, one axis after the other."""
    if not axes:
        return update
    axis, *others = axes
    size = fixed(update.type.shape[axis])
    start = starts[axis]
    if others:
        update = _put(s, along(s, x, axis, start, size), update, others, starts)
    if isinstance(start, int):
        return replaced(s.g, x, axis, start, update)
    place = s.reshaped(start, (1,))
    whole = s.reshaped(x, (1, *x.type.shape))
    made = s.g(UpdateCache(axis + 1), whole, s.reshaped(update, (1, *update.type.shape)), place)
    return s.reshaped(made, x.type.shape)
