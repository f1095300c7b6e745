"""The loop form of choosing boxes: a heap of candidates, from which the best is taken in turn."""

from __future__ import annotations

from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Register
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.heap import Heap, Item
from alpenglow.loops.tensor.counted import fill
from alpenglow.ops.image.suppress import Suppress

Box = tuple[Expr, Expr, Expr, Expr]
"""The least and the largest x, the least and the largest y."""


@push(Suppress)
def suppress(k: Loops, op: Suppress, ins: list[Source | None], outs: list[Sink]) -> None:
    """Choose the boxes of each batch and class, in parallel.

    All happens in the line of the result.  The candidates begin as a heap at its front; each that
    is taken out leaves a place behind the heap, and there the boxes that are kept gather, the
    first at the very end.  At last the line is turned round.
    """
    boxes, scores, limit, overlap, threshold = [*ins, None, None][:5]
    assert boxes is not None and scores is not None and limit is not None
    kept, counts = outs
    if 0 in counts.shape:
        return
    if 0 in kept.shape:
        with k.parallel(counts.shape) as line:
            counts.store(line, Const(0))
        return
    with k.parallel(counts.shape) as line:
        size = gather(k, scores, kept, line, None if threshold is None else threshold([]))
        heap = candidates(k, scores, kept, line)
        heap.build(size)
        most = k.constant(0, "f32") if overlap is None else overlap([])
        taken = k.b.var(Const(0))
        left = k.b.var(size)
        most_boxes = limit([])
        going = k.b.var(k.m.gt(most_boxes, 0))
        with k.b.repeat_while(Binary("and", going, Compare("gt", left, Const(0)))):
            index, _ = heap.pop(left)
            free = box(k, boxes, line[0], index, op.center)
            clear = k.b.var(Const(True, "bool"))
            j = k.b.var(Const(0))
            with k.b.repeat_while(Binary("and", clear, Compare("lt", j, taken))):
                other = k.inside(kept.load([*line, from_end(k, size, j)]), kept.shape[-1])
                against = box(k, boxes, line[0], other, op.center)
                k.b.set(clear, k.m.bit_not(overlapping(k, free, against, most)))
                k.b.set(j, k.m.add(j, 1))
            with k.b.when(clear):
                kept.store([*line, from_end(k, size, taken)], index)
                k.b.set(taken, k.m.add(taken, 1))
            k.b.set(going, k.m.lt(taken, most_boxes))
        turn(k, kept, line, size)
        fill(k, kept, line, taken, -1)
        counts.store(line, taken)


def from_end(k: Loops, size: Expr, number: Expr) -> Coord:
    """Return the place of a number, counted from the end of `size` places."""
    return coord(k.m.maximum(k.m.sub(k.m.sub(size, 1), number), 0))


def candidates(k: Loops, scores: Source, out: Sink, line: list[Coord]) -> Heap:
    """Return the heap of boxes at the front of a line, the one of the best score first."""

    def load(at: Expr) -> Item:
        index = k.inside(out.load([*line, coord(at)]), out.shape[-1])
        x = scores([*line, coord(index)])
        return index, k.m.where(k.m.isnan(x), float("-inf"), x)

    def before(p: Item, q: Item) -> Expr:
        same = k.m.bit_and(k.m.eq(p[1], q[1]), k.m.lt(p[0], q[0]))
        return k.m.bit_or(k.m.gt(p[1], q[1]), same)

    def store(at: Expr, item: Item) -> None:
        out.store([*line, coord(at)], item[0])

    return Heap(k, out.shape[-1], load, store, before)


def gather(
    k: Loops, scores: Source, out: Sink, line: list[Coord], threshold: Expr | None
) -> Register:
    """Store the boxes whose score is above the threshold; return their number."""
    size = k.b.var(Const(0))
    with k.loop(out.shape[-1]) as i:
        out.store([*line, coord(size)], i.expr())
        above = None if threshold is None else k.m.gt(scores([*line, i]), threshold)
        k.b.set(size, k.m.add(size, 1 if above is None else k.m.cast(above, "i64")))
    return size


def turn(k: Loops, out: Sink, line: list[Coord], size: Expr) -> None:
    """Reverse the first `size` elements of a line."""
    i, j = k.b.var(Const(0)), k.b.var(k.m.sub(size, 1))
    with k.b.repeat_while(Compare("lt", i, j)):
        a, b = out.load([*line, coord(i)]), out.load([*line, coord(j)])
        out.store([*line, coord(i)], b)
        out.store([*line, coord(j)], a)
        k.b.set(i, k.m.add(i, 1))
        k.b.set(j, k.m.sub(j, 1))


def box(k: Loops, boxes: Source, batch: Coord, index: Expr, center: bool) -> Box:
    """Return the limits of a box."""
    a, b, c, d = (boxes([batch, coord(index), coord(i)]) for i in range(4))
    if center:
        w, h = k.m.times(c, 0.5), k.m.times(d, 0.5)
        return k.m.sub(a, w), k.m.add(a, w), k.m.sub(b, h), k.m.add(b, h)
    return k.m.minimum(b, d), k.m.maximum(b, d), k.m.minimum(a, c), k.m.maximum(a, c)


def overlapping(k: Loops, p: Box, q: Box, most: Expr) -> Expr:
    """Return whether two boxes share more than `most` of what they cover.

    Each step is rounded as written: whether a box is kept must not depend on the machine.
    """
    m = k.m
    width = m.maximum(m.sub(m.minimum(p[1], q[1]), m.maximum(p[0], q[0])), 0)
    height = m.maximum(m.sub(m.minimum(p[3], q[3]), m.maximum(p[2], q[2])), 0)
    shared = m.times(width, height)
    areas = [m.times(m.sub(x1, x0), m.sub(y1, y0)) for x0, x1, y0, y1 in (p, q)]
    covered = m.plus(m.plus(areas[0], areas[1]), m.neg(shared))
    more = m.gt(m.div(shared, covered), most)
    return m.bit_and(m.bit_and(m.gt(shared, 0), m.gt(covered, 0)), more)
