"""Loop forms of what orders elements along an axis."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.ir.types import FLOATS
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Register, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, pull, push
from alpenglow.loops.heap import Heap, Item
from alpenglow.ops.tensor.order import ReverseSequence, TopK

FEW = 48
"""So many results are as fast to insert into as a heap."""

Place = Callable[[Coord | Expr | int], list[Coord]]
"""The coordinates of a place along the axis, on the present line."""


@push(TopK)
def top_k(k: Loops, op: TopK, ins: list[Source | None], outs: list[Sink]) -> None:
    """Keep the first of each line in order; lines in parallel."""
    (x,) = ins
    assert x is not None
    axis = op.axis % len(x.shape)
    lines = (*x.shape[:axis], *x.shape[axis + 1 :])
    kept = outs[0].shape[axis]
    if kept == 0 or 0 in lines:
        return
    with k.parallel(lines) as line:

        def on(c: Coord | Expr | int) -> list[Coord]:
            return [*line[:axis], coord(c), *line[axis:]]

        if kept < FEW:
            insert_all(k, op, x, outs, axis, on)
        else:
            heap_all(k, op, x, outs, axis, on)


def insert_all(k: Loops, op: TopK, x: Source, outs: list[Sink], axis: int, on: Place) -> None:
    """Insert each element into the results so far, which stay sorted.

    An element moves the smaller ones before it down by one place.  Most elements of a long line
    fall to the first comparison, with the last of the results.
    """
    values, indices = outs
    kept = values.shape[axis]
    with k.loop(x.shape[axis]) as i:
        value = x(on(i))
        # The place that is free: after the results so far, or the last if all are taken.
        free = k.b.var(k.m.minimum(i.expr(), kept - 1))
        moving = k.b.var(Const(True, "bool"))
        full = i.compare("ge", kept)
        with k.b.when(full):
            k.b.set(moving, precedes(k, op, value, values.load(on(kept - 1))))
        with k.b.when(moving):
            insert(k, op, value, free, values, indices, on)
            place = k.m.maximum(free, 0)
            values.store(on(place), value)
            indices.store(on(place), i.expr())


def heap_all(k: Loops, op: TopK, x: Source, outs: list[Sink], axis: int, on: Place) -> None:
    """Keep the results so far as a heap, the one to go next at its root, and sort that at last."""
    values, indices = outs
    kept = values.shape[axis]

    def load(at: Expr) -> Item:
        return values.load(on(at)), indices.load(on(at))

    def store(at: Expr, item: Item) -> None:
        values.store(on(at), item[0])
        indices.store(on(at), item[1])

    def before(p: Item, q: Item) -> Expr:
        """Return whether p stands behind q in the results: the root is what goes first."""
        later = k.m.bit_and(k.m.gt(p[1], q[1]), k.m.bit_not(precedes(k, op, p[0], q[0])))
        return k.m.bit_or(later, precedes(k, op, q[0], p[0]))

    heap = Heap(k, kept, load, store, before)
    size = lift(kept)
    with k.loop(kept) as i:
        store(i.expr(), (x(on(i)), i.expr()))
    heap.build(size)
    with k.loop(x.shape[axis] - kept) as i:
        place = (i + kept).expr()
        value = x(on(place))
        with k.b.when(precedes(k, op, value, values.load(on(0)))):
            store(Const(0), (value, place))
            heap.sink(Const(0), size)
    heap.sort(size)


def insert(
    k: Loops, op: TopK, value: Expr, free: Register, values: Sink, indices: Sink, on: Place
) -> None:
    """Move the results before the free place that `value` precedes, and that place with them."""
    first = k.b.var(Const(True, "bool"))
    with k.b.repeat_while(Binary("and", first, Compare("gt", free, Const(0)))):
        before = k.m.sub(free, 1)
        other = values.load(on(before))
        k.b.set(first, precedes(k, op, value, other))
        with k.b.when(first):
            values.store(on(free), other)
            indices.store(on(free), indices.load(on(before)))
            k.b.set(free, before)


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
