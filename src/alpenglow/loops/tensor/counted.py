"""Loop forms of what finds elements: those that are not 0, those that differ from each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from alpenglow.ir.types import FLOATS
from alpenglow.kernel.expr import Binary, Compare, Const, Convert, Expr, Register, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.ops.tensor.counted import NonZero, Unique

Less = Callable[[Expr, Expr], Expr]
"""Whether the first of two items of a line comes before the second."""

INDEX = (1 << 32) - 1
"""The bits of an index that is packed with a key."""

INT_MAX = (1 << 31) - 1
"""The largest i32."""


@push(NonZero)
def non_zero(k: Loops, op: NonZero, ins: list[Source | None], outs: list[Sink]) -> None:
    """Store every coordinate where the next one found belongs, and move on past those found.

    That needs no branch, and stays within the result: what was found so far is not after here.
    """
    (x,) = ins
    assert x is not None
    places, count = outs
    hits = k.b.var(Const(0))
    if 0 not in x.shape:
        with k.loops(x.shape) as at:
            for axis, c in enumerate(at):
                places.store([coord(axis), coord(hits)], c.expr())
            hit = k.m.ne(comparable(k, x(at)), 0)
            k.b.set(hits, k.m.add(hits, k.m.cast(hit, "i64")))
        for axis in range(len(x.shape)):
            fill(k, places, [coord(axis)], hits)
    count.store([], hits)


@push(Unique)
def unique(k: Loops, op: Unique, ins: list[Source | None], outs: list[Sink]) -> None:
    """Sort the indices of the slices, then number the runs of equal ones."""
    (x,) = ins
    assert x is not None
    first, _, counts, count = outs
    total = k.b.var(Const(0))
    if first.shape[0]:
        slices = Slices(k, x, op.axis % len(x.shape))
        sort(k, slices, counts, first)
        if op.sorted:
            number_runs(k, slices, outs, total)
        else:
            number_occurrences(k, slices, outs, total)
        fill(k, first, [], total)
        fill(k, counts, [], total)
    count.store([], total)


class Slices:
    """The slices of a tensor along an axis, to be compared."""

    def __init__(self, k: Loops, x: Source, axis: int) -> None:
        self.k = k
        self.x = x
        self.axis = axis
        self.others = (*x.shape[:axis], *x.shape[axis + 1 :])
        self.size = math.prod(self.others)

    def order(self, p: Expr, q: Expr) -> Expr:
        """Return -1, 0 or 1 as slice p comes before slice q, equals it, or comes after it."""
        k = self.k
        if self.size == 0:
            return Const(0)
        sign = k.b.var(Const(0))
        if self.size == 1:
            # Both always are slices, which no proof of addresses would see.
            n = Convert(lift(self.x.shape[self.axis]), "u64")
            there = (Compare("lt", Convert(i, "u64"), n) for i in (p, q))
            with k.b.when(Binary("and", *there)):
                k.b.set(sign, self._order([coord(0)] * len(self.others), p, q))
            return sign
        p, q = (k.inside(i, self.x.shape[self.axis]) for i in (p, q))
        i, same = k.b.var(Const(0)), k.b.var(Const(True, "bool"))
        with k.b.repeat_while(Binary("and", same, Compare("lt", i, lift(self.size)))):
            k.b.set(sign, self._order(k.split(i, self.others), p, q))
            k.b.set(i, k.m.add(i, 1))
            k.b.set(same, k.m.eq(sign, 0))
        return sign

    def element(self, p: Expr) -> Expr:
        """Return the element of slice p, where slices have one."""
        return self._element([coord(0)] * len(self.others), p)

    def _element(self, at: list[Coord], p: Expr) -> Expr:
        return comparable(self.k, self.x([*at[: self.axis], coord(p), *at[self.axis :]]))

    def _order(self, at: list[Coord], p: Expr, q: Expr) -> Expr:
        k = self.k
        a, b = self._element(at, p), self._element(at, q)
        return k.m.where(less(k, a, b), Const(-1), k.m.cast(less(k, b, a), "i64"))


def sort(k: Loops, slices: Slices, order: Sink, spare: Sink) -> None:
    """Store the indices of the slices in `order`, sorted; equal ones keep theirs.

    Where an element fits above its index, both are sorted as one number, which saves looking up
    elements all over the tensor.  Long integers fit if they are not far from each other.
    """
    if slices.size != 1 or slices.x.type.dtype == "f64":
        sort_indices(k, slices, order, spare)
    elif slices.x.type.numpy.itemsize <= 4:
        sort_packed(k, lambda i: short_key(k, slices.element(i)), order, spare)
    else:
        least, reach = span(k, slices, order.shape[0])
        near = k.b.let(k.m.bit_and(k.m.ge(reach, 0), k.m.le(reach, INT_MAX)))

        def key(i: Expr) -> Expr:
            return k.m.cast(k.m.sub(slices.element(i), least), "i64")

        with k.b.when(near):
            sort_packed(k, key, order, spare)
        with k.b.otherwise():
            sort_indices(k, slices, order, spare)


def sort_indices(k: Loops, slices: Slices, order: Sink, spare: Sink) -> None:
    """Sort indices by what they stand for."""
    with k.loop(order.shape[0]) as i:
        order.store([i], i.expr())
    merge(k, order, spare, lambda p, q: k.m.lt(slices.order(p, q), 0))


def sort_packed(k: Loops, key: Callable[[Expr], Expr], order: Sink, spare: Sink) -> None:
    """Sort numbers of a key of 32 bits and an index, and leave the indices."""
    with k.loop(order.shape[0]) as i:
        order.store([i], k.m.bit_or(k.m.shift_left(key(i.expr()), 32), i.expr()))
    merge(k, order, spare, k.m.lt)
    with k.loop(order.shape[0]) as i:
        order.store([i], k.m.bit_and(order.load([i]), INDEX))


def short_key(k: Loops, x: Expr) -> Expr:
    """Return an i64 of 32 bits that is ordered as an element of as many or fewer."""
    if x.dtype in FLOATS:
        bits = k.m.bits(k.m.where(k.m.eq(x, 0.0), 0.0, x), "i32")
        # Of negative numbers, the larger the bits the less.
        bits = k.m.bit_xor(bits, k.m.bit_and(k.m.shift_right(bits, 31), INT_MAX))
        x = k.m.where(k.m.isnan(x), INT_MAX, bits)
    wide = k.m.cast(x, "i64")
    return k.m.sub(wide, INT_MAX + 1) if x.dtype == "u32" else wide


def span(k: Loops, slices: Slices, n: int) -> tuple[Expr, Expr]:
    """Return the least element, and as i64 how far it is to the largest; wrapped if that is far."""
    first = slices.element(Const(0))
    least, most = k.b.var(first), k.b.var(first)
    with k.loop(n) as i:
        x = slices.element(i.expr())
        k.b.set(least, k.m.minimum(least, x))
        k.b.set(most, k.m.maximum(most, x))
    return least, k.m.cast(k.m.sub(most, least), "i64")


def merge(k: Loops, order: Sink, spare: Sink, less: Less) -> None:
    """Sort what `order` holds: runs of 1, 2, 4, … are merged into `spare` and back."""
    width, n = k.b.var(Const(1)), order.shape[0]
    with k.b.repeat_while(Compare("lt", width, lift(n))):
        for source, target in ((order, spare), (spare, order)):
            merge_runs(k, less, source, target, k.m.minimum(k.m.maximum(width, 1), n))
            k.b.set(width, k.m.add(width, width))


def merge_runs(k: Loops, less: Less, source: Sink, target: Sink, width: Expr) -> None:
    """Merge each pair of neighbouring sorted runs of a width into one.

    What is taken from a run goes where it stands, as much further as the other is not used up.
    """
    n = source.shape[0]
    begin = k.b.var(Const(0))
    with k.b.repeat_while(Compare("lt", begin, lift(n))):
        i = k.b.var(k.m.maximum(begin, 0))
        middle = k.m.minimum(k.m.add(i, width), n)
        end = k.m.minimum(k.m.add(middle, width), n)
        j = k.b.var(middle)
        left_there, right_there = Compare("lt", i, middle), Compare("lt", j, end)
        with k.b.repeat_while(Binary("and", left_there, right_there)):
            left, right = source.load([i]), source.load([j])
            later = less(right, left)
            target.store([k.m.add(i, k.m.sub(j, middle))], k.select(later, right, left))
            step = k.m.cast(later, "i64")
            k.b.set(j, k.m.add(j, step))
            k.b.set(i, k.m.add(i, k.m.sub(1, step)))
        further = k.m.maximum(k.m.sub(k.m.minimum(j, end), middle), 0)
        with k.b.repeat_while(left_there):
            target.store([k.m.add(i, further)], source.load([i]))
            k.b.set(i, k.m.add(i, 1))
        with k.b.repeat_while(right_there):
            target.store([j], source.load([j]))
            k.b.set(j, k.m.add(j, 1))
        k.b.set(begin, end)


def number_runs(k: Loops, slices: Slices, outs: list[Sink], total: Register) -> None:
    """Number the runs of equal slices in sorted order, which `counts` holds until it is read."""
    first, kinds, counts, _ = outs
    before = k.b.var(Const(0))
    size = k.b.var(Const(0))
    with k.loop(counts.shape[0]) as i:
        index = k.inside(counts.load([i]), first.shape[0])
        begins = k.b.var(k.m.eq(i.expr(), 0))
        with k.b.when(k.m.gt(i.expr(), 0)):
            k.b.set(begins, k.m.ne(slices.order(before, index), 0))
        with k.b.when(begins):
            first.store([total], index)
            k.b.set(total, k.m.add(total, 1))
            k.b.set(size, Const(0))
        k.b.set(before, index)
        k.b.set(size, k.m.add(size, 1))
        kind = k.m.maximum(k.m.sub(total, 1), 0)
        kinds.store([index], kind)
        # The place of a kind is not behind this one, whose element has been read.
        counts.store([kind], size)


def number_occurrences(k: Loops, slices: Slices, outs: list[Sink], total: Register) -> None:
    """Number the kinds as they first occur: each slice first learns who is the first like it."""
    first, kinds, counts, _ = outs
    leader = k.b.var(Const(0))
    with k.loop(counts.shape[0]) as i:
        index = k.inside(counts.load([i]), first.shape[0])
        begins = k.b.var(k.m.eq(i.expr(), 0))
        with k.b.when(k.m.gt(i.expr(), 0)):
            k.b.set(begins, k.m.ne(slices.order(leader, index), 0))
        k.b.set(leader, k.select(begins, index, leader))
        kinds.store([index], leader)
    with k.loop(counts.shape[0]) as i:
        leads = k.inside(kinds.load([i]), first.shape[0])
        with k.b.when(k.m.eq(leads, i.expr())):
            kinds.store([i], total)
            first.store([total], i.expr())
            counts.store([total], Const(1))
            k.b.set(total, k.m.add(total, 1))
        with k.b.otherwise():
            # Its leader came before and is numbered.
            kind = k.inside(kinds.load([leads]), first.shape[0])
            kinds.store([i], kind)
            counts.store([kind], k.m.add(counts.load([kind]), 1))


def fill(k: Loops, out: Sink, at: Sequence[Coord], begin: Expr, value: int = 0) -> None:
    """Store `value` along the last axis of a result, from `begin` on."""
    i = k.b.var(begin)
    with k.b.repeat_while(Compare("lt", i, lift(out.shape[-1]))):
        out.store([*at, coord(i)], Const(value))
        k.b.set(i, k.m.add(i, 1))


def comparable(k: Loops, x: Expr) -> Expr:
    """Return an element as a number that can be compared."""
    return k.m.cast(x, "i32") if x.dtype == "bool" else x


def less(k: Loops, x: Expr, y: Expr) -> Expr:
    """Return whether x < y, NaN being larger than any number."""
    if x.dtype not in FLOATS:
        return k.m.lt(x, y)
    return k.m.bit_or(k.m.lt(x, y), k.m.bit_and(k.m.isnan(y), k.m.bit_not(k.m.isnan(x))))
