"""The loop form of ArgMax and ArgMin: rows are searched in vectors, columns lane by lane.

Lanes of a row keep the best element that they have seen and its index; in the end the lanes that
hold the best of all give the first index, or the last.  A long row is cut into blocks before: of
a block only the best element is computed, which takes no indices, and then the block that has the
best of all is searched.
"""

from __future__ import annotations

from functools import reduce

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.types import DTYPES, FLOATS, HALVES
from alpenglow.kernel.expr import Const, Convert, Expr, Lanes, Reduce, Register, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import (
    accumulators,
    along,
    columns,
    combine,
    in_lanes,
    narrow_width,
    placed,
    slots_for,
    width,
    zeros,
)
from alpenglow.ops.reduction.reduction import ArgMax, ArgMin, ArgReduction, highest, lowest

SLOTS = 2
"""Vectors of best elements of a row, each with one of indices."""

BLOCK_SLOTS = 4
"""Vectors of best elements of a block."""

TURNS = 8
"""Elements of a block that a lane looks at."""

SHORT = 3
"""Vectors of elements: shorter rows are searched side by side, a lane each."""


@push(ArgMax, ArgMin)
def arg_reduction(k: Loops, op: ArgReduction, ins: list[Source | None], outs: list[Sink]) -> None:
    (x,) = ins
    assert x is not None
    if 0 in outs[0].shape:
        return
    search = _Search(k, op, x, outs[0])
    rank, extents = x.type.rank, list(x.shape)
    extent = extents.pop(search.axis)
    if rank == 1 or (search.axis == rank - 1 and estimate(extent) >= SHORT * k.lanes):
        with k.parallel(extents) as at:
            search.row(at)
        return
    columns(k, extents[:-1], extents[-1], lambda outer, last: search.column([*outer, last]))


class _Search:
    """The search along an axis for the first or last of the best elements."""

    def __init__(self, k: Loops, op: ArgReduction, x: Source, out: Sink) -> None:
        self.k, self.op, self.x, self.out = k, op, x, out
        self.axis = op.axis % x.type.rank
        self.extent = x.shape[self.axis]
        self.dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
        self.fold = "max" if isinstance(op, ArgMax) else "min"
        self.worst = (lowest if isinstance(op, ArgMax) else highest)(x.type.numpy)
        long = is_open(self.extent) or self.extent >= 1 << 31
        self.index = "i64" if long else "i32"

    def element(self, at: list[Coord], place: Coord) -> Expr:
        """Return an element of the row, or rows, at `at`."""
        return self.x(placed(self.x.type.rank, [self.axis], [place], at))

    def store(self, at: list[Coord], index: Expr) -> None:
        where = placed(self.x.type.rank, [self.axis], zeros(1), at) if self.op.keepdims else at
        self.out.store(where, self.k.b.let(self.k.m.cast(index, "i64")))

    def column(self, at: list[Coord]) -> None:
        """Look at one element of each lane after the other."""
        k = self.k
        best, index = k.accumulator(0, self.dtype), k.accumulator(0, self.index)
        k.set(best, self.element(at, coord(0)))
        with k.loop(self.extent - 1) as before:
            i = before + 1
            value = self.element(at, i)
            wins = k.b.let(better(k, self.op, value, best))
            k.set(best, k.select(wins, value, best))
            k.set(index, k.select(wins, k.m.cast(i.expr(), self.index), index))
        self.store(at, index)

    def row(self, at: list[Coord]) -> None:
        """Search a row: the block of it that has the best element, or all of it."""
        lanes = narrow_width(self.k, self.extent, self.dtype)
        size = lanes * BLOCK_SLOTS * TURNS
        if is_open(self.extent) or self.extent < 2 * size or lanes == 1:
            self.store(at, self._searched(at, coord(0), self.extent))
            return
        start = self._block(at, lanes, size)
        self.store(at, self._searched(at, coord(start), size))

    def _block(self, at: list[Coord], lanes: int, size: int) -> Expr:
        """Return where the first (or last) block with the best element of a row begins.

        The last block overlaps the one before it if the row is no multiple of `size`.
        """
        k = self.k
        best, block = k.b.var(self.element(at, coord(0))), k.b.var(Const(0))
        last = self.extent - size
        with k.b.loop(ceil_div(self.extent, size)) as number:
            start = k.b.let(k.m.minimum(number * size, last))
            tops = accumulators(k, self.worst, self.dtype, lanes, BLOCK_SLOTS)

            def look(inner: list[Coord], slot: int) -> None:
                value = self.element(at, inner[0] + start)
                k.set(tops[slot], combine(k, self.fold, tops[slot], value))

            along(k, [size], lanes, look, BLOCK_SLOTS)
            top = k.b.let(in_lanes(k, self.fold, tops))
            wins = better(k, self.op, top, Splat(best, lanes))
            with k.b.when(k.b.let(Reduce("or", wins))):
                k.set(best, Reduce(self.fold, top))
                k.set(block, start)
        return k.limited(block, last + 1).expr()

    def _searched(self, at: list[Coord], start: Coord, count: int) -> Expr:
        """Return the index of the best of `count` elements of a row from `start` on."""
        k = self.k
        lanes = width(k, count)
        slots = slots_for(count, lanes, SLOTS)
        bests = accumulators(k, self.worst, self.dtype, lanes, slots)
        indices = accumulators(k, 0, self.index, lanes, slots)

        def look(inner: list[Coord], slot: int) -> None:
            value = self.element(at, inner[0] + start)
            wins = better(k, self.op, value, bests[slot])
            if k.mask is not None:
                wins = k.m.bit_and(wins, k.mask)
            wins = k.b.let(wins)
            k.set(bests[slot], k.select(wins, value, bests[slot]))
            k.set(indices[slot], k.select(wins, self._numbers(inner[0]), indices[slot]))

        along(k, [count], lanes, look, slots)
        found = self._first(bests, indices)
        return k.m.add(k.m.cast(found, "i64"), start.expr())

    def _numbers(self, place: Coord) -> Expr:
        """Return the indices of neighbours in the type that indices are compared in."""
        if place.lanes == 1:
            return self.k.m.cast(place.expr(), self.index)
        first, ramp = place.base, Lanes(place.lanes)
        if self.index == "i64":
            return place.expr()
        return self.k.m.add(Splat(Convert(first, "i32"), place.lanes), Convert(ramp, "i32"))

    def _first(self, bests: list[Register], indices: list[Register]) -> Expr:
        """Return the first, or last, index of those whose element is the best of all lanes.

        A lane that kept no element has the index 0, and the worst element that there is: if that
        is the best of all, then each element is the worst, and index 0 is the first.
        """
        k, last = self.k, self.op.last
        lanes = bests[0].lanes
        top = k.b.let(in_lanes(k, self.fold, bests))
        top = top if lanes == 1 else k.b.let(Reduce(self.fold, top))
        op = "max" if last else "min"
        none = k.constant((lowest if last else highest)(DTYPES[self.index]), self.index)
        chosen = []
        for best, index in zip(bests, indices, strict=True):
            hit = k.m.eq(best, top)
            if self.dtype in FLOATS:
                hit = k.m.bit_or(hit, k.m.isnan(best))
            chosen.append(k.select(hit, index, none))
        found = k.b.let(reduce(lambda x, y: combine(k, op, x, y), chosen))
        return found if lanes == 1 else k.b.let(Reduce(op, found))


def better(k: Loops, op: ArgReduction, value: Expr, best: Expr) -> Expr:
    """Return whether a value beats the best before it; a NaN beats all numbers."""
    x, y = (value, best) if isinstance(op, ArgMax) else (best, value)
    wins = k.m.ge(x, y) if op.last else k.m.gt(x, y)
    if value.dtype not in FLOATS:
        return wins
    nan = k.m.isnan(value)
    return k.m.bit_or(wins, nan if op.last else k.m.bit_and(nan, k.m.eq(best, best)))
