"""Loop forms of what orders elements along an axis."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import Loops, Sink, Source, pull, push
from alpenglow.ir.types import FLOATS
from alpenglow.kernel.expr import Const, Expr, Register
from alpenglow.ops.order import ReverseSequence, TopK

Place = Callable[[Coord | Expr | int], list[Coord]]
"""The coordinates of a place along the axis, on the present line."""


@push(TopK)
def top_k(k: Loops, op: TopK, ins: list[Source | None], outs: list[Sink]) -> None:
    """Insert each element into the results so far, which stay sorted; lines in parallel.

    An element moves the smaller ones before it down by one place.  Most elements of a long line
    fall to the first comparison, with the last of the results.
    """
    (x,) = ins
    assert x is not None and isinstance(op.k, int)
    axis = op.axis % len(x.shape)
    lines = (*x.shape[:axis], *x.shape[axis + 1 :])
    if op.k == 0 or 0 in lines:
        return
    values, indices = outs
    with k.parallel(lines) as line:

        def on(c: Coord | Expr | int) -> list[Coord]:
            return [*line[:axis], coord(c), *line[axis:]]

        with k.loop(x.shape[axis]) as i:
            value = x(on(i))
            # The place that is free: after the results so far, or the last if all are taken.
            free = k.b.var(k.m.minimum(i.expr(), op.k - 1))
            moving = k.b.var(Const(True, "bool"))
            full = i.compare("ge", op.k)
            with k.b.when(full):
                k.b.set(moving, precedes(k, op, value, values.load(on(op.k - 1))))
            with k.b.when(moving):
                insert(k, op, value, free, values, indices, on)
                values.store(on(free), value)
                indices.store(on(free), i.expr())


def insert(
    k: Loops, op: TopK, value: Expr, free: Register, values: Sink, indices: Sink, on: Place
) -> None:
    """Move the results before the free place that `value` precedes, and that place with them."""
    going = k.b.var(k.m.gt(free, 0))
    with k.b.repeat_while(going):
        before = k.m.sub(free, 1)
        other = values.load(on(before))
        first = precedes(k, op, value, other)
        with k.b.when(first):
            values.store(on(free), other)
            indices.store(on(free), indices.load(on(before)))
            k.b.set(free, before)
        k.b.set(going, k.m.bit_and(first, k.m.gt(free, 0)))


def precedes(k: Loops, op: TopK, x: Expr, y: Expr) -> Expr:
    """Return whether x stands before an y that came first; NaN is larger than any number."""
    if x.dtype not in FLOATS:
        return k.m.gt(x, y) if op.largest else k.m.lt(x, y)
    if op.largest:
        return k.m.bit_and(k.m.bit_not(k.m.isnan(y)), k.m.bit_or(k.m.gt(x, y), k.m.isnan(x)))
    return k.m.bit_and(k.m.bit_not(k.m.isnan(x)), k.m.bit_or(k.m.lt(x, y), k.m.isnan(y)))


@pull(ReverseSequence)
def reverse_sequence(
    k: Loops, op: ReverseSequence, ins: list[Source | None], at: list[Coord]
) -> Expr:
    x, lengths = ins
    assert x is not None and lengths is not None
    batch, time = op.batch % len(x.shape), op.time % len(x.shape)
    steps = x.shape[time]
    length = k.m.minimum(k.m.maximum(k.m.cast(lengths([at[batch]]), "i64"), 0), steps)
    step = at[time].expr()
    source = k.m.where(k.m.lt(step, length), k.m.sub(k.m.sub(length, 1), step), step)
    return x([*at[:time], coord(source), *at[time + 1 :]])
