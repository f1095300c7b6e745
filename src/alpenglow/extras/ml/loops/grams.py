"""The loop form of counting grams: each place of a text is looked up in the sorted table."""

from __future__ import annotations

from alpenglow.extras.ml.grams import CountGrams
from alpenglow.kernel.expr import Compare, Const, Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push


@push(CountGrams)
def count_grams(k: Loops, op: CountGrams, ins: list[Source | None], outs: list[Sink]) -> None:
    x, grams, columns = ins
    assert x is not None and grams is not None and columns is not None
    rows, length = x.shape
    kinds, n = grams.shape
    if rows == 0:
        return
    with k.parallel([rows]) as (row,):
        with k.loop(op.width) as column:
            outs[0].store([row, column], k.constant(0, "f32"))
        if kinds == 0:
            return
        # No gram fits whose elements are farther apart than the row is long.
        fitting = k.m.minimum(Const(op.distances), lift(length))
        with k.b.loop(fitting) as far:
            distance = k.b.let(far + 1)
            starts = k.m.sub(lift(length), k.m.mul(distance, n - 1))
            start = k.b.var(Const(0))
            with k.b.repeat_while(Compare("lt", start, starts)):
                element = [k.m.add(start, k.m.mul(distance, i)) for i in range(n)]
                kind = lookup(k, [k.m.cast(x([row, e]), "i64") for e in element], grams)
                with k.b.when(k.m.ge(kind, 0)):
                    add_one(k, outs[0], row, columns([coord(k.inside(kind, kinds))]), op.width)
                k.b.set(start, k.m.add(start, 1))


def lookup(k: Loops, gram: list[Expr], grams: Source) -> Expr:
    """Return the row of the table that is `gram`, or -1, halving what is left of the table."""
    low, high = k.b.var(Const(0)), k.b.var(lift(grams.shape[0]))
    row, going = k.b.var(Const(-1)), k.b.var(Const(True, "bool"))
    with k.b.repeat_while(going):
        middle = k.inside(k.m.shift_right(k.m.add(low, high), 1), grams.shape[0])
        sign = compare(k, gram, grams, middle)
        k.b.set(row, k.select(k.m.eq(sign, 0), middle, row))
        k.b.set(low, k.select(k.m.gt(sign, 0), k.m.add(middle, 1), low))
        k.b.set(high, k.select(k.m.lt(sign, 0), middle, high))
        k.b.set(going, k.m.bit_and(k.m.ne(sign, 0), k.m.lt(low, high)))
    return row


def compare(k: Loops, gram: list[Expr], grams: Source, row: Expr) -> Expr:
    """Return -1, 0 or 1 as the gram stands before a row of the table, is it, or stands after it."""
    sign: Expr = Const(0)
    for i, x in reversed(list(enumerate(gram))):
        y = grams([row, coord(i)])
        greater = k.m.cast(k.m.gt(x, y), "i64")
        sign = k.m.where(k.m.lt(x, y), Const(-1), k.m.where(k.m.eq(x, y), sign, greater))
    return sign


def add_one(k: Loops, out: Sink, row: Coord, column: Expr, width: int) -> None:
    """Add 1 to a column, if there is such a column."""
    inside = k.m.bit_and(k.m.ge(column, 0), k.m.lt(column, width))
    with k.b.when(inside):
        out.store([row, column], k.m.add(out.load([row, column]), 1.0))
