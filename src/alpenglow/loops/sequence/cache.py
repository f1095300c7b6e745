"""Loop form of a cache that is written at positions that depend on data."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import columns
from alpenglow.ops.sequence.cache import UpdateCache


@push(UpdateCache)
def update_cache(k: Loops, op: UpdateCache, ins: list[Source | None], outs: list[Sink]) -> None:
    cache, update, start = ins
    assert cache is not None and update is not None and start is not None
    rank = cache.type.rank
    axis = op.axis % rank
    extent, count = cache.shape[axis], update.shape[axis]
    if 0 in cache.shape:
        return
    others = [d for a, d in enumerate(cache.shape) if a != axis]

    def rows(at: list[Coord]) -> None:
        """Write all rows at a place on the other axes."""

        def place(row: Coord) -> list[Coord]:
            return [*at[:axis], row, *at[axis:]]

        if not k.in_place:
            with k.loop(extent) as row:
                outs[0].store(place(row), cache(place(row)))
        first = k.b.let(k.m.cast(start([at[0]]), "i64"))
        with k.loop(count) as j:
            to = k.b.let(first + j.base)
            if op.circular:
                write(k.b.let(k.m.mod(to, k.extent(extent, "i64"))), j, place)
                return
            inside = k.m.bit_and(k.m.ge(to, 0), k.m.lt(to, k.extent(extent, "i64")))
            with k.b.when(inside):
                write(to, j, place)

    def write(to: Expr, j: Coord, place: Callable[[Coord], list[Coord]]) -> None:
        outs[0].store(place(coord(k.b.let(k.inside(to, extent)))), update(place(j)))

    if axis == rank - 1:
        with k.parallel(others) as at:
            rows(at)
        return
    columns(k, others[:-1], others[-1], lambda outer, last: rows([*outer, last]))
