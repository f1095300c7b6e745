"""Choosing what rolls: chains whose rows are computed a few at a time, where memory is limited.

A chain takes its windows, what is alive before and after it, and its result as a whole.  So each
stretch of instructions has a price, alone or as a chain, and the dearest decides: a dynamic
programme finds the cheapest way to cut the program.  Prices leave out how pieces fit together in
the arena, so what is chosen is planned, and the plan is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.memory import rounded_up
from alpenglow.program.banded import height
from alpenglow.program.instr import Program
from alpenglow.program.plan import lifetimes, mark_lifetimes, plan
from alpenglow.program.rolling import rolled
from alpenglow.program.share import share
from alpenglow.program.unfold import unfold
from alpenglow.program.views import eliminate_copies
from alpenglow.program.windows import Source, Windows, taken_over, windows_of

LONGEST = 400
"""A chain of more instructions is not tried: each row of each is an instruction."""

TRIES = 6
"""How many choices are planned, each for less than the last, since a plan may not reach a price."""

Chains = tuple[tuple[int, int, int], ...]
"""Where chains begin and end, and how many rows of their results are a step."""


def stream_rows(program: Program, limit: int) -> Program:
    """Return the program with rows of some chains computed a few at a time, if it must be.

    Each buffer holds one value.  If no choice keeps to the limit, the one is returned that takes
    the least memory; it is the same for any such limit.
    """
    if arena_of(program, limit) <= limit:
        return program
    prices = _Prices.of(program)
    target = limit
    for _ in range(TRIES):
        chains = prices.within(target)
        if chains is None:
            break
        chosen = rolled(prices.source, chains)
        arena = arena_of(chosen, limit)
        if arena <= limit:
            return chosen
        target -= max(arena - limit, limit // 50) // 2
    return min((program, *prices.least()), key=arena_of)


def arena_of(program: Program, enough: int = 0) -> int:
    """Return how many bytes a program takes once it is planned, or more if that is `enough`."""
    return plan(_laid_out(program), enough).arena


def _laid_out(program: Program) -> Program:
    """Return a program as it is before it is planned."""
    return mark_lifetimes(unfold(share(eliminate_copies(program))))


@dataclass(frozen=True, eq=False)
class _Prices:
    """What stretches of a program take, in bytes: what is alive at each instruction, and chains.

    `alive` holds a row for each buffer that there is once views and sharing are done: its size, and
    the first and the last instruction that use it.  `shares` are the instructions whose result lies
    where an operand was.
    """

    source: Source
    alive: NDArray[np.int64]
    shares: frozenset[int]
    single: NDArray[np.int64]
    chains: dict[int, list[tuple[int, int]]]
    """For each end of chains, where they may begin, and what they take."""

    @staticmethod
    def of(program: Program) -> _Prices:
        source = Source(program)
        alive, shares = _alive(source)
        changes = np.zeros(len(source.instrs) + 1, np.int64)
        for size, first, last in alive:
            changes[first] += size
            changes[last + 1] -= size
        prices = _Prices(source, alive, shares, np.cumsum(changes)[:-1], {})
        for end in range(1, len(source.instrs) + 1):
            prices.chains[end] = list(prices._ending(end))
        return prices

    def within(self, limit: int) -> Chains | None:
        """Return the chains, as few instructions as possible, with which no price is above the
        limit; None if there are none."""
        cut = self._cut(lambda worst, before: (worst > limit, before))
        return None if cut is None else self._with_steps(cut, limit)

    def least(self) -> Iterator[Program]:
        """Yield programs with the chains for which the dearest price is least."""
        cut = self._cut(lambda worst, before: (False, max(worst, before)))
        assert cut is not None, "some cut is the least"
        highest = max(self._price(begin, end, 1) for begin, end in cut) if cut else 0
        for bound in (highest, 0):
            yield rolled(self.source, self._with_steps(cut, bound))

    def _cut(self, judge: Callable[[int, int], tuple[bool, int]]) -> list[tuple[int, int]] | None:
        """Return where to begin and end chains, so that the sum, or the worst, is least.

        `judge` tells of a price, and of what came before, whether it is out of question, and what
        both are together.
        """
        count = len(self.source.instrs)
        best: list[tuple[int, int, int] | None] = [(0, 0, -1)]
        """Of so many instructions: the worst price, how many roll, where the last stretch began."""
        for end in range(1, count + 1):
            choices = []
            stretches = [(end - 1, int(self.single[end - 1]), 0)]
            stretches += [(begin, price, end - begin) for begin, price in self.chains[end]]
            for begin, price, rolls in stretches:
                before = best[begin]
                if before is None:
                    continue
                out, worst = judge(price, before[0])
                if not out:
                    choices.append((worst, before[1] + rolls, begin, rolls))
            chosen = min(choices, default=None)
            best.append(None if chosen is None else (chosen[0], chosen[1], chosen[2]))
        return self._traced(best)

    @staticmethod
    def _traced(best: list[tuple[int, int, int] | None]) -> list[tuple[int, int]] | None:
        chains = []
        end = len(best) - 1
        while end > 0:
            state = best[end]
            if state is None:
                return None
            begin = state[2]
            previous = best[begin]
            assert previous is not None, "what goes on from nothing is nothing"
            if state[1] > previous[1]:
                chains.append((begin, end))
            end = begin
        return chains

    def _with_steps(self, cut: list[tuple[int, int]], limit: int) -> Chains:
        """Return chains with as many rows a step as the limit allows, or else one."""
        return tuple((begin, end, self._step(begin, end, limit)) for begin, end in cut)

    def _step(self, begin: int, end: int, limit: int) -> int:
        tall = height(self.source.instrs[end - 1].outs[0].type)
        sizes = sorted({-(-tall // steps) for steps in range(2, tall + 1)}, reverse=True)
        fitting = (s for s in sizes if self._price(begin, end, s) <= limit)
        return next(fitting, 1)

    def _price(self, begin: int, end: int, step: int) -> int:
        return self._taken(windows_of(self.source, begin, end, step), begin)

    def _taken(self, windows: Windows, begin: int) -> int:
        """Return what a chain takes."""
        (out,) = self.source.instrs[windows.end - 1].outs
        shared = windows.end - 1 in self.shares
        apart = shared and taken_over(windows, begin) is None
        own = rounded_up(out.type.nbytes) if apart else 0
        return self._around(begin, windows.end) + windows.nbytes + own

    def _ending(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield where chains may begin that end before instruction `end`, and what they take."""
        source = self.source
        if source.forms[end - 1] is None or height(source.instrs[end - 1].outs[0].type) < 2:
            return
        windows, count = Windows(source, end, 1), 0
        for k in range(end - 1, max(end - LONGEST, 0) - 1, -1):
            if source.skips(k):
                continue
            if not windows.add(k):
                return
            count += 1
            if count > 1:
                yield k, self._taken(windows, k)

    def _around(self, begin: int, end: int) -> int:
        """Return how much is alive at some of these instructions, and at others as well."""
        size, first, last = self.alive.T
        inside = (first >= begin) & (last < end)
        return int(size[(first < end) & (last >= begin) & ~inside].sum())


def _alive(source: Source) -> tuple[NDArray[np.int64], frozenset[int]]:
    """Return the size of each buffer that will be, and the first and last instruction using it; and
    the instructions whose result lies where an operand was."""
    made = [replace(instr, names=(str(k),)) for k, instr in enumerate(source.instrs)]
    tagged = replace(source.program, body=tuple(made))
    program = _laid_out(tagged)
    number = list(_origins(share(eliminate_copies(tagged))))
    spans: dict[str, list[int]] = {}
    shares = set()
    for k, instr in enumerate(program.instrs()):
        for r in (*instr.reads(), *instr.outs):
            spans.setdefault(r.buffer, []).append(number[k])
        if {r.buffer for r in instr.reads()} & {r.buffer for r in instr.outs}:
            shares.add(number[k])
    rows = [
        (rounded_up(program.buffers[name].nbytes), min(spans[name]), max(spans[name]))
        for name in lifetimes(program)
    ]
    return np.array(rows, np.int64).reshape(-1, 3), frozenset(shares)


def _origins(program: Program) -> Iterator[int]:
    """Yield which instruction each one comes from once regions are laid out; it has their names."""
    for instr in program.instrs():
        laid_out = unfold(replace(program, body=(instr,)))
        yield from (int(instr.names[0]) for _ in laid_out.instrs())
