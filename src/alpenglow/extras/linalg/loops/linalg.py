"""Loop form of Gaussian elimination, matrices in parallel."""

from __future__ import annotations

from alpenglow.extras.linalg.linalg import Eliminate
from alpenglow.ir.dims import ceil_div, is_open, known
from alpenglow.kernel.expr import Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import block, width


@push(Eliminate)
def eliminate(k: Loops, op: Eliminate, ins: list[Source | None], outs: list[Sink]) -> None:
    (x,) = ins
    assert x is not None
    upper, determinants = outs
    n = x.shape[-1]
    if any(known(d) and d == 0 for d in x.shape[:-2]):
        return
    with k.parallel(x.shape[:-2]) as batch:
        with k.loops([n, n]) as at:
            upper.store([*batch, *at], x([*batch, *at]))
        value = k.b.var(k.constant(1, x.type.dtype))
        with k.loop(n) as j:
            pivot = _pivot(k, upper, batch, j, n)
            moved = k.b.let(k.m.ne(pivot, j.expr()))
            with k.b.when(moved):
                _swap(k, upper, batch, j.expr(), pivot, n)
                k.b.set(value, k.m.neg(value))
            diagonal = upper.load([*batch, j, j])
            k.b.set(value, k.m.mul(value, diagonal))
            with k.b.when(k.m.ne(diagonal, 0.0)):
                _clear(k, upper, batch, j, diagonal, n)
        determinants.store(batch, value)


def _pivot(k: Loops, a: Sink, batch: list[Coord], j: Coord, n: int) -> Expr:
    """Return the row of the largest element of column j from row j on."""
    best = k.b.var(k.m.abs(a.load([*batch, j, j])))
    row = k.b.var(j.expr())
    with k.b.loop(k.m.sub(lift(n), j.expr())) as step:
        i = k.m.add(j.expr(), step)
        size = k.m.abs(a.load([*batch, coord(i), j]))
        # A NaN is the largest, and stays.
        better = k.m.bit_and(k.m.bit_or(k.m.gt(size, best), k.m.isnan(size)), k.m.eq(best, best))
        k.b.set(best, k.select(better, size, best))
        k.b.set(row, k.select(better, i, row))
    return k.inside(row, n)


def _swap(k: Loops, a: Sink, batch: list[Coord], i: Expr, j: Expr, n: int) -> None:
    """Exchange two rows."""
    with k.loop(n) as c:
        x, y = a.load([*batch, coord(i), c]), a.load([*batch, coord(j), c])
        a.store([*batch, coord(i), c], y)
        a.store([*batch, coord(j), c], x)


def _clear(k: Loops, a: Sink, batch: list[Coord], j: Coord, diagonal: Expr, n: int) -> None:
    """Subtract multiples of row j from those below it, so that column j is zero there."""
    lanes = width(k, n)
    limit = n if is_open(n) or n % lanes else None
    first = k.b.let((j + 1).expr() // lanes)
    with k.b.loop(k.b.let(lift(n) - (j + 1).expr())) as step:
        i = j + step + 1
        share = k.m.div(a.load([*batch, i, j]), diagonal)

        def subtract(c: Coord, i: Coord = i, share: Expr = share) -> None:
            before = a.load([*batch, i, c])
            after = k.m.sub(before, k.m.mul(share, a.load([*batch, j, c])))
            a.store([*batch, i, c], k.select(c.compare("gt", j), after, before))

        with k.b.loop(k.b.let(lift(ceil_div(n, lanes)) - first)) as number:
            block(k, (first + number) * lanes, lanes, limit, subtract)
        a.store([*batch, i, j], k.constant(0, diagonal.dtype))
