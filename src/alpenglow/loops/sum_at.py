"""Loop form of adding up at places: strips of neighbours in parallel, each in the order of places.

A strip is some vectors wide, so that what is read and written of a row is more than a cache line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.dims import ceil_div, estimate, known
from alpenglow.kernel.expr import Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.gather import clamped
from alpenglow.loops.rows import block, width
from alpenglow.ops.sum_at import SumAt

VECTORS = 16
"""How many vectors a strip is wide, where there are as many."""

Neighbours = Callable[[Callable[[list[Coord]], None]], None]
"""Runs something for the last coordinates of all neighbours of a strip."""


@push(SumAt)
def sum_at(k: Loops, op: SumAt, ins: list[Source | None], outs: list[Sink]) -> None:
    x, indices, *factors = ins
    weights = factors[0] if factors else None
    assert x is not None and indices is not None
    axis = op.axis % len(x.shape)
    extent = outs[0].shape[axis]
    if any(known(d) and d == 0 for d in outs[0].shape):
        return

    def strip(front: list[Coord], neighbours: Neighbours) -> None:
        with k.loop(extent) as place:
            zero = k.constant(0, x.type.dtype)
            neighbours(lambda back: outs[0].store([*front, place, *back], zero))
        with k.loops(indices.shape[::-1]) as (i, tap):
            at = clamped(k, indices([tap, i]), extent)
            weight = None if weights is None else k.m.cast(weights([tap, i]), x.type.dtype)

            def add(back: list[Coord]) -> None:
                part = x([*front, i, *back])
                part = part if weight is None else k.m.mul(part, weight)
                where = [*front, at, *back]
                outs[0].store(where, k.m.add(outs[0].load(where), part))

            neighbours(add)

    strips(k, x.shape[:axis], x.shape[axis + 1 :], strip)


def strips(
    k: Loops, outer: Sequence[int], inner: Sequence[int],
    body: Callable[[list[Coord], Neighbours], None],
) -> None:  # fmt: skip
    """Run `body` in parallel for all indices below `outer` and strips of what lies within them."""
    if not inner:
        with k.parallel(outer) as front:
            body(front, lambda run: run([]))
        return
    *middle, last = inner
    lanes = width(k, last)
    vectors = min(VECTORS, max(ceil_div(estimate(last), lanes), 1))
    wide = lanes * vectors
    whole = known(last) and last % wide == 0
    limit = None if whole or lanes == 1 else last
    with k.parallel([*outer, *middle, ceil_div(last, wide)]) as at:
        front, between, number = at[: len(outer)], at[len(outer) : -1], at[-1]
        turns: Expr | int = vectors
        if not whole:
            left = (coord(lift(ceil_div(last, lanes))) - number * vectors).expr()
            turns = k.b.let(k.m.minimum(left, vectors))

        def neighbours(run: Callable[[list[Coord]], None]) -> None:
            with k.b.loop(turns) as vector:
                start = number.expr() * wide + vector * lanes
                block(k, start, lanes, limit, lambda c: run([*between, c]))

        body(front, neighbours)
