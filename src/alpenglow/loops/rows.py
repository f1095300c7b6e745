"""Loops over rows and columns, several neighbours at a time, for forms that run their own.

What combines the elements of a row (its last axis) computes in vectors along it and combines the
lanes in the end; what combines elements across rows gives each lane a column of its own.

Long sums of floats are taken in tiers (`Totals`): rounding grows with the additions to a register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.ir.types import DTYPES, FLOATS
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Reduce, Register, Shuffle, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops

BLOCK = 32
"""Additions to a register before what it holds moves to the next tier; a power of 2."""

SHORT = 48
"""Additions to a register that need no tiers."""

OPEN = 64
"""The same where an extent is open: tiers that are not used cost a little."""

MOST = 10**7
"""Additions that a sum of an open extent has tiers for."""


LONG = 16
"""So many vectors of narrow integers make a row worth vectors that are full of them."""

VECTORS = 16
"""How many vectors a strip is wide, if there are as many."""

Neighbours = Callable[[Callable[[list[Coord]], None]], None]
"""A function that runs another for the last coordinates of all neighbours in a strip."""


def width(k: Loops, extent: int) -> int:
    """Return how many neighbours to compute at once along an axis of this extent."""
    lanes = k.lanes
    while lanes > max(estimate(extent), 1):
        lanes //= 2
    return lanes


def narrow_width(k: Loops, extent: int, dtype: str) -> int:
    """Return how many neighbours of integers of 1 or 2 bytes fill a vector; else as `width`.

    Of a short row as few as `width` says: the rest of it, a masked vector, would cost too much.
    """
    lanes = width(k, extent)
    if lanes == 1 or dtype in FLOATS or k.facts.group:
        return lanes
    full = lanes * max(4 // DTYPES[dtype].itemsize, 1)
    return full if estimate(extent) >= LONG * full else lanes


def slots_for(extent: Dim, lanes: int, most: int) -> int:
    """Return how many accumulators a row of this extent keeps busy, at most `most`."""
    return max(min(most, ceil_div(estimate(extent), lanes)), 1)


def along(
    k: Loops,
    extents: Sequence[int],
    lanes: int,
    body: Callable[[list[Coord], int], None],
    slots: int = 1,
    totals: Sequence[Totals] = (),
) -> None:
    """Run `body` for a whole row: vectors of `lanes` on the last axis, in loops over the others.

    The second argument of `body` counts vectors modulo `slots`: with an accumulator for each, one
    addition need not wait for the last.  `totals` are those that `body` adds to.
    """
    *outer, last = extents
    if 0 in extents:
        return
    full, rest = divmod(last, lanes)
    groups, left = divmod(full, slots)
    turns = [*outer, _turns(groups, left, rest)]
    loops = _Loops(k, turns, totals, math.prod(extents), slots * lanes)
    with loops.nest(outer) as before:

        def step(slot: int, number: Expr, limit: Dim | None = None) -> None:
            block(k, number * lanes, lanes, limit, lambda c: body([*before, c], slot))

        if is_open(groups) or groups:
            for group in loops.innermost(groups):
                for slot in range(slots):
                    step(slot, group * slots + slot)
        if is_open(last):
            with k.b.loop(lift(left)) as number:
                step(0, number + groups * slots)
            with k.b.when(Compare("gt", lift(rest), Const(0))):
                step(0, lift(full), last)
            return
        for slot in range(left):
            step(slot, Const(groups * slots + slot))
        if rest:
            step(left, Const(full), last)


def columns(
    k: Loops, outer: Sequence[int], extent: int, body: Callable[[list[Coord], Coord], None],
    vectors: int = 1,
) -> None:  # fmt: skip
    """Run `body` in parallel for all indices below `outer` and vectors along a last axis.

    A long axis is taken `vectors` at a time, as one wide vector.
    """
    lanes = width(k, extent)
    if lanes > 1 and not k.facts.group and estimate(extent) >= lanes * vectors * vectors:
        lanes *= vectors
    full, rest = divmod(extent, lanes)
    with k.parallel([*outer, ceil_div(extent, lanes)]) as (*at, number):
        start = number.expr() * lanes

        def run(limit: Dim | None) -> None:
            block(k, start, lanes, limit, lambda c: body(at, c))

        if not is_open(rest) and not rest:
            run(None)
            return
        with k.b.when(number.compare("lt", full)):
            run(None)
        with k.b.otherwise():
            run(extent)


def strips(
    k: Loops, outer: Sequence[int], inner: Sequence[int],
    body: Callable[[list[Coord], Neighbours], None],
) -> None:  # fmt: skip
    """Run `body` in parallel for all indices below `outer` and strips of the last axis of `inner`.

    A strip is some vectors wide, so that a row of it is more than a cache line.
    """
    if not inner:
        with k.parallel(outer) as front:
            body(front, lambda run: run([]))
        return
    *middle, last = inner
    lanes = width(k, last)
    full, rest = divmod(last, lanes)
    vectors = 1 if k.facts.group else min(VECTORS, max(ceil_div(estimate(last), lanes), 1))
    whole = not is_open(last) and last % (lanes * vectors) == 0
    with k.parallel([*outer, *middle, ceil_div(last, lanes * vectors)]) as at:
        front, between, number = at[: len(outer)], at[len(outer) : -1], at[-1]
        first = number * vectors
        turns: Expr = Const(vectors)
        if not whole:
            turns = k.b.let(k.m.minimum((coord(lift(full)) - first).expr(), vectors))

        def neighbours(run: Callable[[list[Coord]], None]) -> None:
            with k.b.loop(turns) as vector:
                start = k.b.let((first + vector).expr() * lanes)
                block(k, start, lanes, None, lambda c: run([*between, c]))
            if not whole and (is_open(rest) or rest):
                with k.b.when(Compare("lt", turns, Const(vectors))):
                    block(k, lift(full * lanes), lanes, last, lambda c: run([*between, c]))

        body(front, neighbours)


def in_turn(
    k: Loops,
    extents: Sequence[int],
    body: Callable[[list[Coord], int], None],
    slots: int,
    totals: Sequence[Totals] = (),
) -> None:
    """Run `body` for all indices below `extents`, in vectors as they are.

    Its second argument counts modulo `slots` along the last axis, and `totals` is as for `along`.
    """
    if not extents or 0 in extents:
        if not extents:
            body([], 0)
        return
    *outer, last = extents
    groups, left = divmod(last, slots)
    turns = [*outer, _turns(groups, left)]
    loops = _Loops(k, turns, totals, math.prod(extents), slots)
    with loops.nest(outer) as before:
        if is_open(groups) or groups:
            for group in loops.innermost(groups):
                for slot in range(slots):
                    body([*before, coord(group * slots + slot)], slot)
        if is_open(left):
            with k.b.loop(lift(left)) as number:
                body([*before, coord(number + groups * slots)], 0)
            return
        for slot in range(left):
            body([*before, coord(groups * slots + slot)], slot)


def block(
    k: Loops, start: Expr, lanes: int, limit: Dim | None, body: Callable[[Coord], None]
) -> None:
    """Run `body` for the neighbours from `start` on, masking off those from `limit` on."""
    ramp = Coord(start, 1, lanes)
    with k.vector(lanes, None if limit is None else ramp.compare("lt", limit)):
        body(ramp)


def accumulators(k: Loops, value: float, dtype: str, lanes: int, slots: int) -> list[Register]:
    """Return `slots` registers of `lanes` lanes that hold `value`."""
    one = k.constant(value, dtype)
    return [k.b.var(Const(one.value, one.dtype, lanes)) for _ in range(slots)]


def combined(k: Loops, op: str, registers: Sequence[Expr]) -> Expr:
    """Return all lanes of all registers combined by add, mul, min or max."""
    total = in_lanes(k, op, registers)
    return k.b.let(total if total.lanes == 1 else Reduce(op, total))


def in_lanes(k: Loops, op: str, registers: Sequence[Expr]) -> Expr:
    """Return registers combined by add, mul, min or max, each lane by itself."""
    total: Expr = registers[0]
    for r in registers[1:]:
        total = combine(k, op, total, r)
    return total


class Totals:
    """What elements are combined to by add, mul, min or max, in a register for each slot.

    The lanes belong to one row, or each to a column of its own if `apart`.  A long sum of floats is
    taken in tiers: after some additions the registers are joined, added to a total above them, and
    begin at zero again; so do the totals in their turn.  Registers are joined and not just added to
    others, for where signs alternate each holds numbers of one sign: together they cancel.
    """

    def __init__(
        self, k: Loops, op: str, neutral: float, dtype: str, lanes: int, slots: int = 1,
        apart: bool = False,
    ) -> None:  # fmt: skip
        self.registers = accumulators(k, neutral, dtype, lanes, slots)
        self.above: list[Register] = []
        self.moves: Expr | None = None
        self.long = False
        self.tiered = op == "add" and dtype in FLOATS
        self._k, self._op, self._apart = k, op, apart

    def add(self, slot: int, value: Expr) -> None:
        """Combine a value with what the register of a slot holds."""
        register = self.registers[slot]
        self._k.set(register, combine(self._k, self._op, register, value))

    def have_above(self, tiers: int) -> None:
        """Begin totals above the registers."""
        first = self.registers[0]
        lanes = first.lanes if self._apart else 1
        self.above = accumulators(self._k, 0, first.dtype, lanes, tiers)

    def move_up(self, tier: int) -> None:
        """Add the registers to the total above them, or a total to the next, and set it to zero."""
        part = self.above[tier - 1] if tier else self._joined(True)
        self._k.set(self.above[tier], self._k.m.add(self.above[tier], part))
        for register in [self.above[tier - 1]] if tier else self.registers:
            self._k.set(register, self._k.constant(0, register.dtype))

    def whole(self) -> Expr:
        """Return all that was combined."""
        k, total = self._k, self._joined(self.long)
        if self.moves is None:
            for above in self.above:
                total = k.b.let(k.m.add(above, total))
            return total
        total = k.b.var(total)
        with k.b.when(Compare("ne", self.moves, Const(0))):
            for above in self.above:
                k.set(total, k.m.add(above, total))
        return total

    def _joined(self, turned: bool) -> Expr:
        k = self._k
        registers: Sequence[Expr] = self.registers
        if self._apart:
            return in_lanes(k, self._op, registers)
        lanes = registers[0].lanes
        if turned and lanes > 1 and len(registers) > 1:
            # Lanes meet neighbours: what is above zero in one may be below in the next.
            order = tuple(i ^ 1 for i in range(lanes))
            pairs = [
                k.b.let(k.m.add(x, Shuffle(y, order)))
                for x, y in zip(registers[::2], registers[1::2], strict=False)
            ]
            registers = [*pairs, *registers[2 * len(pairs) :]]
        return combined(k, self._op, registers)


def _turns(groups: int, left: int, rest: int = 0) -> int:
    """Return how many elements a row adds to a register, at most.

    What is left over has registers of its own, or that of the first slot where an extent is open.
    """
    if is_open(groups) or is_open(left):
        return groups + left + 1
    return groups + 1 if left or rest else groups


class _Loops:
    """Nested loops in which totals move up: after BLOCK turns of the last loop, or whenever turns
    of one around it have added as much.

    `turns` says how many turns each loop has at most; one of the last adds an element to a register
    of each slot.  There are so many `elements`, and `together` of them are added in a turn.
    """

    def __init__(
        self, k: Loops, turns: Sequence[int], totals: Sequence[Totals], elements: int, together: int
    ) -> None:
        self._k = k
        self._totals = [t for t in totals if t.tiered]
        opened = any(is_open(n) for n in turns)
        count = math.prod(map(estimate, turns))
        for t in self._totals:
            t.long = count > BLOCK // 2
        short = count <= SHORT
        if opened:
            # Guards: longer sums have code of their own, and so have those of many short rows.
            short = count <= OPEN and elements <= OPEN * together and math.prod(turns[:-1]) <= OPEN
            count = MOST // together
        if short or not self._totals:
            self._totals = []
            return
        self._last = self._level = len(turns) - 1
        each = 1
        while not is_open(turns[self._level]) and each * turns[self._level] <= BLOCK:
            each *= turns[self._level]
            self._level -= 1
        # What a turn of a loop adds; rows of few elements may have no whole block.
        self._each = lift(each)
        self._rows = self._level < self._last or (self._last > 0 and is_open(turns[-1]))
        tiers, count = 1, count // BLOCK
        while count > BLOCK:
            tiers, count = tiers + 1, count // BLOCK
        for t in self._totals:
            t.have_above(tiers)
        self._moves = k.b.var(Const(0))
        if opened:
            # Where there are few elements nothing moved, and nothing is added.
            for t in self._totals:
                t.moves = self._moves
        self._since = k.b.var(Const(0)) if self._rows else None

    @contextmanager
    def nest(self, extents: Sequence[int], level: int = 0) -> Iterator[list[Coord]]:
        """Open the loops around the last."""
        if not extents:
            yield []
            return
        with self._k.loop(extents[0]) as first:
            with self.nest(extents[1:], level + 1) as rest:
                yield [first, *rest]
            if self._totals and self._rows and level == min(self._level, self._last - 1):
                self._turned()

    def innermost(self, extent: int) -> Iterator[Expr]:
        """Open the last loop, once for whole blocks and once for the rest, and yield its index."""
        b = self._k.b
        if not self._totals or self._level < self._last:
            with b.loop(lift(extent)) as i:
                yield i
            return
        blocks, rest = divmod(extent, BLOCK)
        with b.loop(lift(blocks)) as number:
            with b.loop(BLOCK) as i:
                yield number * BLOCK + i
            self._move_up()
        if is_open(rest) or rest:
            with b.loop(lift(rest)) as i:
                yield i + blocks * BLOCK
        self._each = lift(rest) + 1

    def _turned(self) -> None:
        """Move totals up if what turns have added since the last time makes a block."""
        b = self._k.b
        assert self._since is not None, "turns are counted"
        b.set(self._since, self._since + self._each)
        with b.when(Compare("ge", self._since, Const(BLOCK))):
            b.set(self._since, Const(0))
            self._move_up()

    def _move_up(self, tier: int = 0) -> None:
        """Move totals up to a tier, and what is there further each BLOCK times."""
        for t in self._totals:
            t.move_up(tier)
        if tier == 0:
            self._k.b.set(self._moves, self._moves + 1)
        if tier + 1 == len(self._totals[0].above):
            return
        past = Binary("and", self._moves, Const(BLOCK ** (tier + 1) - 1))
        with self._k.b.when(Compare("eq", past, Const(0))):
            self._move_up(tier + 1)


def combine(k: Loops, op: str, x: Expr, y: Expr) -> Expr:
    """Return x and y combined by add, mul, min or max; of bool, min is and, max is or."""
    if x.dtype == "bool":
        return k.m.bit_and(x, y) if op == "min" else k.m.bit_or(x, y)
    formulas = {"add": k.m.add, "mul": k.m.mul, "min": k.m.minimum, "max": k.m.maximum}
    return formulas[op](x, y)


def unless_masked(k: Loops, value: Expr, neutral: float) -> Expr:
    """Return the value, with `neutral` in the lanes that are masked off."""
    if k.mask is None:
        return value
    return k.select(k.mask, value, k.constant(neutral, value.dtype))


def placed(
    rank: int, axes: Sequence[int], inner: Sequence[Coord], outer: Sequence[Coord]
) -> list[Coord]:
    """Return the coordinates that are `inner` on `axes` and `outer` on the other axes."""
    inside, outside = iter(inner), iter(outer)
    return [next(inside) if a in axes else next(outside) for a in range(rank)]


def zeros(count: int) -> list[Coord]:
    """Return the first place on `count` axes."""
    return [coord(0)] * count
