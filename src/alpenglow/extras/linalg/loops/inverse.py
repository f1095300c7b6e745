"""The loop form of inverting matrices: one after the other, in parallel."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.extras.linalg.inverse import Inverse
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push


@push(Inverse)
def inverse(k: Loops, op: Inverse, ins: list[Source | None], outs: list[Sink]) -> None:
    """Turn x into the unit matrix and, by the same steps, the unit matrix into the inverse."""
    (x,) = ins
    assert x is not None
    n = x.shape[-1]
    if 0 in x.shape:
        return
    with k.parallel(x.shape[:-2]) as outer:
        with k.loops([n, n]) as at:
            outs[0].store([*outer, *at], x([*outer, *at]))
            one, none = (k.constant(v, x.type.dtype) for v in (1, 0))
            outs[1].store([*outer, *at], k.select(at[0].compare("eq", at[1]), one, none))
        with k.loop(n) as j:
            row = pivot(k, outs[0], outer, n, j)
            exchange(k, outs, outer, n, j, row)
            clear(k, outs, outer, n, j)


def pivot(k: Loops, left: Sink, outer: list[Coord], n: int, j: Coord) -> Coord:
    """Return the row of the largest element of column j that is not above the diagonal."""
    best = k.b.var(k.m.abs(left.load([*outer, j, j])))
    row = k.b.var(j.expr())
    with k.loop(n) as i:
        size = k.m.abs(left.load([*outer, i, j]))
        with k.b.when(k.b.let(k.m.bit_and(i.compare("gt", j), k.m.gt(size, best)))):
            k.b.set(best, size)
            k.b.set(row, i.expr())
    return coord(k.inside(row, n))


def exchange(k: Loops, outs: list[Sink], outer: list[Coord], n: int, j: Coord, row: Coord) -> None:
    """Exchange row j with another."""
    for out in outs:
        with k.loop(n) as c:
            kept, other = out.load([*outer, j, c]), out.load([*outer, row, c])
            out.store([*outer, j, c], other)
            out.store([*outer, row, c], kept)


def clear(k: Loops, outs: list[Sink], outer: list[Coord], n: int, j: Coord) -> None:
    """Make column j a column of the unit matrix: divide row j, and take it from the others."""
    divisor = outs[0].load([*outer, j, j])

    def change(out: Sink, i: Coord, by: Callable[[Expr, Expr], Expr]) -> None:
        with k.loop(n) as c:
            value = by(out.load([*outer, i, c]), out.load([*outer, j, c]))
            out.store([*outer, i, c], value)

    for out in outs:
        change(out, j, lambda own, _: k.m.div(own, divisor))
    with k.loop(n) as i, k.b.when(i.compare("ne", j)):
        factor = outs[0].load([*outer, i, j])
        for out in outs:
            change(out, i, lambda own, row: k.m.sub(own, k.m.mul(factor, row)))
