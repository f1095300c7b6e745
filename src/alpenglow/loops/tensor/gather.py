"""Loop forms of gather, scatter and one-hot: every index is brought into range before its use."""

from __future__ import annotations

from alpenglow.ir.dims import known
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, pull, push
from alpenglow.loops.rows import Neighbours, strips
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)


@pull(Gather)
def gather(k: Loops, op: Gather, ins: list[Source | None], at: list[Coord]) -> Expr:
    data, indices = ins
    assert data is not None and indices is not None
    axis = op.axis % len(data.shape)
    end = axis + len(indices.shape)
    place = clamped(k, indices(at[axis:end]), data.shape[axis])
    return data([*at[:axis], place, *at[end:]])


@pull(GatherElements)
def gather_elements(
    k: Loops, op: GatherElements, ins: list[Source | None], at: list[Coord]
) -> Expr:
    data, indices = ins
    assert data is not None and indices is not None
    axis = op.axis % len(data.shape)
    place = clamped(k, indices(at), data.shape[axis])
    return data([*at[:axis], place, *at[axis + 1 :]])


@pull(GatherNd)
def gather_nd(k: Loops, op: GatherNd, ins: list[Source | None], at: list[Coord]) -> Expr:
    data, indices = ins
    assert data is not None and indices is not None
    outer = len(indices.shape) - 1
    axes = range(op.batch_dims, op.batch_dims + indices.shape[-1])
    coords = [
        clamped(k, indices([*at[:outer], coord(i)]), data.shape[axis])
        for i, axis in enumerate(axes)
    ]
    return data([*at[: op.batch_dims], *coords, *at[outer:]])


@push(ScatterElements)
def scatter_elements(
    k: Loops, op: ScatterElements, ins: list[Source | None], outs: list[Sink]
) -> None:
    """Copy and update one line along the axis after the other, lines in parallel."""
    data, indices, updates = ins
    assert data is not None and indices is not None and updates is not None
    axis = op.axis % len(data.shape)
    lines = (*data.shape[:axis], *data.shape[axis + 1 :])
    touched = (*indices.shape[:axis], *indices.shape[axis + 1 :])
    if 0 in data.shape:
        return
    with k.parallel(lines) as line:
        if not k.in_place:
            with k.loop(data.shape[axis]) as i:
                at = [*line[:axis], i, *line[axis:]]
                outs[0].store(at, data(at))
        if 0 in indices.shape:
            return
        inside = None
        for c, extent, limit in zip(line, lines, touched, strict=True):
            if limit < extent:
                below = c.compare("lt", limit)
                inside = below if inside is None else k.m.bit_and(inside, below)

        def update() -> None:
            with k.loop(indices.shape[axis]) as i:
                at = [*line[:axis], i, *line[axis:]]
                place = clamped(k, indices(at), data.shape[axis])
                combine(k, op.reduction, outs[0], [*line[:axis], place, *line[axis:]], updates(at))

        if inside is None:
            update()
            return
        with k.b.when(inside):
            update()


@push(ScatterNd)
def scatter_nd(k: Loops, op: ScatterNd, ins: list[Source | None], outs: list[Sink]) -> None:
    """Copy and update strips of neighbours in the slices: strips in parallel, updates in order."""
    data, indices, updates = ins
    assert data is not None and indices is not None and updates is not None
    depth = indices.shape[-1]
    if 0 in data.shape:
        return

    def strip(_: list[Coord], neighbours: Neighbours) -> None:
        if not k.in_place:
            with k.loops(data.shape[:depth]) as place:
                neighbours(lambda rest: outs[0].store([*place, *rest], data([*place, *rest])))
        if 0 in indices.shape[:-1]:
            return
        with k.loops(indices.shape[:-1]) as tuples:
            coords = [clamped(k, indices([*tuples, coord(i)]), data.shape[i]) for i in range(depth)]

            def update(rest: list[Coord]) -> None:
                combine(k, op.reduction, outs[0], [*coords, *rest], updates([*tuples, *rest]))

            neighbours(update)

    strips(k, [], data.shape[depth:], strip)


def combine(k: Loops, reduction: str, out: Sink, at: list[Coord], value: Expr) -> None:
    """Store a value, or what a reduction makes of it and what is there."""
    if reduction != "none":
        function = {"add": k.m.add, "mul": k.m.mul, "min": k.m.minimum, "max": k.m.maximum}
        value = function[reduction](out.load(at), value)
    out.store(at, value)


@pull(OneHot)
def one_hot(k: Loops, op: OneHot, ins: list[Source | None], at: list[Coord]) -> Expr:
    indices, values = ins
    assert indices is not None and values is not None and known(op.depth)
    axis = op.axis % len(at)
    index = indices([*at[:axis], *at[axis + 1 :]])
    dtype = index.dtype
    wide = dtype if dtype in ("f64", "u64") else "f64" if dtype == "f32" else "i64"
    index = k.m.cast(index, wide)
    if wide != "u64":
        index = k.m.where(k.m.lt(index, 0), k.m.add(index, op.depth), index)
    position = k.m.cast(at[axis].expr(), wide)
    return k.m.where(k.m.eq(index, position), values([coord(1)]), values([coord(0)]))


def clamped(k: Loops, index: Expr, extent: int) -> Coord:
    """Return an index counted from the front and limited to what an axis of `extent` has."""
    at = k.m.cast(index, "i64")
    front = k.m.where(k.m.lt(at, 0), k.m.add(at, extent), at)
    return coord(k.m.minimum(k.m.maximum(front, 0), max(extent - 1, 0)))
