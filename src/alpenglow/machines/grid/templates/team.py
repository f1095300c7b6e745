"""Threads that share lines: what a group of them combines of the elements of each.

A line is a row of a softmax, what is reduced to one element, or what a product adds up.  Several
threads have every so many-th element of it, and what they make of these is combined in pairs, in
shared memory.  So the order in which floats are added is told by shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Load
from alpenglow.loops.coord import Coord
from alpenglow.loops.instruction import Frame
from alpenglow.loops.rows import Totals, combine, in_turn
from alpenglow.machines.grid.templates.groups import below, groups

KEPT = 16
"""Elements of a line that a thread keeps in registers, at most."""

SLOTS = 4
"""Loads of a thread that do not wait for each other."""

EACH = 4
"""Elements of a line that a thread has at least, where neighbours in memory are of one line."""

NEIGHBOURS = 32
"""Lines of a group, where neighbours in memory are of different lines."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a group is shared: `slices` threads have a line each, of `lines`; powers of two.

    If `along`, neighbouring threads are of one line.
    """

    lines: int
    slices: int
    along: bool

    @property
    def threads(self) -> int:
        return self.lines * self.slices


def split_for(count: int, extent: int, along: bool, threads: int) -> Split:
    """Return how `count` lines of so many elements are shared by groups of at most `threads`."""
    threads = 1 << (threads.bit_length() - 1)
    if along:
        slices = min(_rounded_up(ceil_div(extent, EACH)), threads)
        return Split(min(threads // slices, _rounded_up(count)), slices, along)
    lines = min(NEIGHBOURS, threads, _rounded_up(count))
    slices = min(threads // lines, _rounded_up(ceil_div(extent, EACH)))
    return Split(lines, slices, along)


def _rounded_up(count: int) -> int:
    """Return the power of two that is not less."""
    return 1 << (count - 1).bit_length()


@contextmanager
def lines(
    k: Frame, target: Target, extents: Sequence[int], extent: int, along: bool
) -> Iterator[tuple[Team, list[Coord], Expr | None]]:
    """Open a grid for lines of `extent` elements, one for each combination of indices.

    Yields the threads of a group, where the line of a thread is, and the condition that it is one
    of its own: a thread for which that is false leaves no result.
    """
    count = math.prod(extents)
    split = split_for(count, extent, along, target.facts.group)
    with groups(k, [ceil_div(count, split.lines)], split.threads) as ((group,), thread):
        team = Team(k, split, thread)
        number, inside = team.number(group.base, count)
        yield team, k.loops.split(number, extents), inside


class Team:
    """The threads of a group, as one of them sees it."""

    def __init__(self, k: Frame, split: Split, thread: Expr) -> None:
        self.k, self.b, self.split = k, k.b, split
        self.apart = 1 if split.along else split.lines
        b = self.b
        if split.along:
            self.line, self.slice = b.let(thread // split.slices), b.let(thread % split.slices)
            self._place = b.let(self.line * split.slices + self.slice)
        else:
            self.line, self.slice = b.let(thread % split.lines), b.let(thread // split.lines)
            self._place = b.let(self.slice * split.lines + self.line)

    def number(self, group: Expr, count: int) -> tuple[Expr, Expr | None]:
        """Return the number of a thread's line, and the condition that there is one of `count`.

        Where there is none, threads do what those of the last line do, and leave no result.
        """
        at = self.b.let(group * self.split.lines + self.line)
        if count % self.split.lines == 0:
            return at, None
        inside = self.b.let(Compare("lt", at, Const(count)))
        return below(self.k, at, count), inside

    def combined(
        self, values: Sequence[Expr], join: Callable[[list[Expr], list[Expr]], Sequence[Expr]]
    ) -> list[Expr]:
        """Return what all threads of a line have, joined: those of the lower slices come first."""
        b, half = self.b, self.split.slices // 2
        if not half:
            return list(values)
        arrays = [b.array(v.dtype, self.split.threads, "shared") for v in values]
        for array, value in zip(arrays, values, strict=True):
            b.store(array, self._place, value)
        b.barrier()
        while half:
            with b.when(Compare("lt", self.slice, Const(half))):
                mine = [b.let(Load(a, self._place)) for a in arrays]
                theirs = [b.let(Load(a, self._place + half * self.apart)) for a in arrays]
                for array, value in zip(arrays, join(mine, theirs), strict=True):
                    b.store(array, self._place, value)
            b.barrier()
            half //= 2
        first = self.line * self.split.slices if self.split.along else self.line
        return [b.let(Load(a, first)) for a in arrays]

    @contextmanager
    def present(self, inside: Expr | None) -> Iterator[None]:
        """Open a block that runs in threads whose line is there."""
        if inside is None:
            yield
            return
        with self.b.when(inside):
            yield

    def storing(self, inside: Expr | None, which: int = 0) -> Expr:
        """Return the condition that a thread is the one that stores result `which` of its line."""
        leads = Compare("eq", self.slice, Const(which % self.split.slices))
        return leads if inside is None else Binary("and", inside, leads)


class Elements:
    """What a thread has of a line: every so many-th element.

    Few are computed once and kept in registers, others whenever they are asked for.
    """

    def __init__(
        self, team: Team, extent: int, dtype: str, element: Callable[[Expr], Expr],
        keep: bool = True,
    ) -> None:  # fmt: skip
        self.team, self.extent, self.dtype = team, extent, dtype
        self._element = element
        self._kept: list[Expr] | None = None
        if keep and ceil_div(extent, team.split.slices) <= KEPT:
            self._kept = [self._first(i) for i in range(ceil_div(extent, team.split.slices))]

    def map(self, function: Callable[[Expr], Expr]) -> Elements:
        """Return a function of the elements."""
        of = Elements(
            self.team, self.extent, self.dtype, lambda at: function(self._element(at)), False
        )
        if self._kept is not None:
            of._kept = [self.team.b.let(function(value)) for value in self._kept]
        return of

    def each(self, body: Callable[[Expr, Expr, int], None], totals: Sequence[Totals] = ()) -> None:
        """Run `body` for each element, with its place in the line and its value.

        Its last argument counts modulo SLOTS, and `totals` are those that it adds to.
        """
        b, slices = self.team.b, self.team.split.slices
        turns, rest = divmod(self.extent, slices)
        if self._kept is not None:
            for i, value in enumerate(self._kept[:turns]):
                body(self._at(i), value, i % SLOTS)
        else:

            def turn(inner: list[Coord], slot: int) -> None:
                at = b.let(self.team.slice + inner[0].base * slices)
                body(at, self._element(at), slot)

            in_turn(self.team.k.loops, [turns], turn, SLOTS, totals)
        if rest:
            at = self._at(turns)
            with b.when(Compare("lt", at, Const(self.extent))):
                body(at, self._element(at) if self._kept is None else self._kept[turns], 0)

    def combined(self, op: str, neutral: float) -> Expr:
        """Return all elements of the line combined by add, mul, min or max."""
        k = self.team.k.loops
        totals = Totals(k, op, neutral, self.dtype, 1, SLOTS)
        self.each(lambda at, value, slot: totals.add(slot, value), [totals])

        def join(x: list[Expr], y: list[Expr]) -> list[Expr]:
            return [combine(k, op, x[0], y[0])]

        (total,) = self.team.combined([totals.whole()], join)
        return total

    def _at(self, turn: int) -> Expr:
        return self.team.b.let(self.team.slice + turn * self.team.split.slices)

    def _first(self, turn: int) -> Expr:
        """Return an element that is kept; 0 where the line has no more."""
        k, at = self.team.k.loops, self._at(turn)
        if (turn + 1) * self.team.split.slices <= self.extent:
            return k.b.let(self._element(at))
        zero = k.constant(0, self.dtype)
        return k.when(Compare("lt", at, Const(self.extent)), lambda: self._element(at), zero)
