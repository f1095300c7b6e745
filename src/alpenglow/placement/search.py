"""The best way to cut a schedule into intervals, each a worker's: exact, by dynamic programming.

A schedule of n units has positions 0 to n, and a *stage* is an interval between two of them on a
worker.  `seconds[i, j, d]`, for i < j, is what the stage from i to j takes on worker d, with all
that is brought there and taken away; infinity where it may not be.  Two goals are reached exactly:

    latency      the least sum over the stages.  A worker may have several; its memory is the sum
                 of theirs
    throughput   the least of the slowest stage, then the least sum.  A worker has at most one
                 stage, so that all work at the same time

For latency without limits of memory that is O(n²·d).  Where the best way does not keep the limits,
a position has several ways to it, of which none is both sooner and smaller than another, and which
a price of memory does not rule out.  For throughput there is a table for each
choice of workers that have a stage already; workers that are alike are told apart by number only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from alpenglow.ir.types import Array

Goal = Literal["latency", "throughput"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The units from `begin` to before `end`, on a worker by its number."""

    begin: int
    end: int
    worker: int


Cuts = tuple[Interval, ...]

STEPS = 100
"""How often prices of memory are corrected."""

MOST_WAYS = 50_000
"""How many ways are compared before the search is content with less than the best."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best stages, or some that take longer by a share of `within` at most."""

    cuts: Cuts
    within: float = 0.0


def soonest(seconds: Array, nbytes: Array, limits: Sequence[float]) -> Best | None:
    """Return the stages that take the least time one after the other; None if none are found.

    `nbytes[i, j, d]` is the memory of a stage, `limits[d]` how much all of a worker's may have.
    Where limits leave more ways than can be kept, the result may be a little slower than the best.
    """
    forward = np.triu(np.ones(seconds.shape[:2], bool), 1)[:, :, None]
    seconds = np.where(forward & (nbytes <= np.asarray(limits, float)), seconds, np.inf)
    limited = np.flatnonzero(np.isfinite(limits))
    most, memory = np.asarray(limits, float)[limited], np.where(forward, nbytes, 0)
    bound = _Bound.of(seconds, memory[:, :, limited], most, limited)
    if not bound.exists:
        return None
    if bound.fits:
        return Best(bound.cuts)
    ways = _ways(seconds, memory, bound)
    if ways is not None:
        # What the bound knows already is not found again: nothing is sooner.
        cuts = _traced(ways) if len(ways[-1].times) else bound.cuts
        return Best(cuts) if cuts else None
    cuts = bound.cuts or _traced(_ways(seconds, memory, bound, hopeful=True) or [])
    return Best(cuts, 1 - bound.value / _sum(cuts, seconds)) if cuts else None


def _sum(cuts: Cuts, costs: Array) -> float:
    return float(sum(costs[c.begin, c.end, c.worker] for c in cuts))


@dataclass(frozen=True, slots=True)
class _Bound:
    """What no way can beat, and the best that is known to fit (`cuts`, empty if none is).

    Memory has a price, in seconds a byte, instead of a limit: the best way then takes, less the
    price of all memory that there is, no longer than the best that keeps the limits (Lagrange).
    `rest[j]` is what stages from position j on cost at these prices.  `fits` says that the best way
    at no price keeps the limits, `exists` that there is any.
    """

    limited: Array
    most: Array
    prices: Array
    rest: Array
    value: float
    cuts: Cuts
    fits: bool
    exists: bool

    @staticmethod
    def of(seconds: Array, memory: Array, most: Array, limited: Array) -> _Bound:
        """Raise the prices of what is short, and lower those of what is not, by and by.

        `memory` is that of the workers in `limited` alone, who have `most`.
        """
        prices, best = np.zeros(len(limited)), _Bound.none(limited, most)
        cuts: Cuts = ()
        known, stride, since = np.inf, 1.0, 0
        for step in range(STEPS):
            costs = seconds.copy()
            costs[:, :, limited] += memory * prices
            rest, way = _chain(costs)
            if not way:
                break
            short = -most
            for place, d in enumerate(limited):
                short[place] += sum(memory[c.begin, c.end, place] for c in way if c.worker == d)
            value, fits = float(rest[0] - prices @ most), bool((short <= 0).all())
            if fits and _sum(way, seconds) < known:
                known, cuts = _sum(way, seconds), way
            if value > best.value:
                since = 0
                best = replace(best, prices=prices, rest=rest, value=value,
                               fits=fits and not step, exists=True)  # fmt: skip
            elif (since := since + 1) == 5:
                stride, since = stride / 2, 0
            if best.fits or not short.any() or stride < 1e-3:
                break
            far = known - value if cuts else 0.1 * value
            prices = np.maximum(prices + stride * far * short / (short @ short), 0.0)
        return replace(best, cuts=cuts)

    @staticmethod
    def none(limited: Array, most: Array) -> _Bound:
        return _Bound(limited, most, np.zeros(0), np.zeros(0), -np.inf, (), False, False)


def _chain(costs: Array) -> tuple[Array, Cuts]:
    """Return the least costs from each position to the end, and the stages of the whole."""
    n, workers = costs.shape[0] - 1, costs.shape[2]
    rest, came = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    rest[n] = 0.0
    for i in range(n - 1, -1, -1):
        ways = (costs[i, i + 1 :] + rest[i + 1 :, None]).reshape(-1)
        came[i] = np.argmin(ways)
        rest[i] = ways[came[i]]
    stages: list[Interval] = []
    position = 0
    while position < n and np.isfinite(rest[0]):
        length, worker = divmod(int(came[position]), workers)
        stages.append(Interval(position, position + 1 + length, worker))
        position += 1 + length
    return rest, tuple(stages)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to a position: their seconds, the memory that limited workers have by then, the
    position, way and worker that each came by, and what the whole takes with them at best."""

    times: Array
    memory: Array
    came: Array
    at_best: Array

    def part(self, which: Array) -> _Ways:
        return _Ways(self.times[which], self.memory[which], self.came[which], self.at_best[which])


def _ways(
    seconds: Array, memory: Array, bound: _Bound, hopeful: bool = False
) -> list[_Ways] | None:
    """Return the ways to each position; None if they are too many.

    Only the most `hopeful` are kept where that is asked for: then they are never too many.
    """
    n, compared = seconds.shape[0] - 1, 0
    ways = [
        _Ways(
            np.zeros(1), np.zeros((1, len(bound.limited))), np.zeros((1, 3), np.int64), np.zeros(1)
        )
    ]
    for j in range(1, n + 1):
        able = _able(j, ways, seconds, memory, bound)
        if hopeful:
            able = able.part(np.argsort(able.at_best, kind="stable")[: MOST_WAYS // n])
        compared += len(able.times)
        if compared > MOST_WAYS and not hopeful and len(bound.limited) > 1:
            return None
        ways.append(able.part(_undominated(able.times, able.memory)))
    return ways


def _able(j: int, ways: Sequence[_Ways], seconds: Array, memory: Array, bound: _Bound) -> _Ways:
    """Return the ways to position j that keep the limits and may be the best."""
    sizes = [len(w.times) for w in ways]
    before = np.repeat(np.arange(j), sizes)
    number = np.concatenate([np.arange(n) for n in sizes])
    times = np.concatenate([w.times for w in ways])[:, None] + seconds[before, j]
    used = np.concatenate([w.memory for w in ways])
    used = np.repeat(used[:, None, :], seconds.shape[2], axis=1)
    for place, d in enumerate(bound.limited):
        used[:, d, place] += memory[before, j, d]
    at_best = times + bound.rest[j] + (used - bound.most) @ bound.prices
    known = _sum(bound.cuts, seconds) or np.inf
    fits = (used <= bound.most).all(axis=2)
    at, d = np.nonzero(np.isfinite(times) & fits & (at_best < known))
    came = np.stack([before[at], number[at], d], axis=1)
    return _Ways(times[at, d], used[at, d], came, at_best[at, d])


def _undominated(times: Array, memory: Array) -> Array:
    """Return the ways, soonest first, that no sooner one is smaller than, or as small."""
    order = np.lexsort((*memory.T, times))
    if memory.shape[1] == 1:
        sizes = memory[order, 0]
        least = np.minimum.accumulate(np.concatenate([[np.inf], sizes]))[:-1]
        kept_first: Array = order[sizes < least]
        return kept_first
    front = np.empty_like(memory)
    kept: list[int] = []
    for k in order:
        if not (front[: len(kept)] <= memory[k]).all(axis=1).any():
            front[len(kept)] = memory[k]
            kept.append(k)
    return np.array(kept, np.int64)


def _traced(ways: Sequence[_Ways]) -> Cuts:
    """Return the stages of the soonest way to the end."""
    stages: list[Interval] = []
    position, way = len(ways) - 1, int(np.argmin(ways[-1].times))
    while position:
        begin, before, worker = map(int, ways[position].came[way])
        stages.append(Interval(begin, position, worker))
        position, way = begin, before
    return tuple(reversed(stages))


def steadiest(
    seconds: Array, nbytes: Array, limits: Sequence[float], alike: Sequence[int]
) -> Cuts | None:
    """Return the stages of which the slowest is fastest, then those that take least together; None
    if there are none.

    `alike[d]` is the number of the kind of worker d: workers of a kind have equal costs and limits.
    """
    forward = np.triu(np.ones(seconds.shape[:2], bool), 1)[:, :, None]
    fits = np.where(forward & (nbytes <= np.asarray(limits, float)), seconds, np.inf)
    slowest = _Pipeline(fits, alike, np.maximum).value()
    if not np.isfinite(slowest):
        return None
    return _Pipeline(np.where(fits <= slowest, fits, np.inf), alike, np.add).stages()


class _Pipeline:
    """Tables of the best ways to all positions, one for each choice of workers that are taken."""

    def __init__(self, seconds: Array, alike: Sequence[int], joined: np.ufunc) -> None:
        self.kinds = sorted(set(alike))
        self.members = [[d for d, kind in enumerate(alike) if kind == k] for k in self.kinds]
        self.n = seconds.shape[0] - 1
        self.tables: dict[tuple[int, ...], Array] = {}
        self.came: dict[tuple[int, ...], Array] = {}
        for taken in product(*(range(len(m) + 1) for m in self.members)):
            self._fill(taken, seconds, joined)

    def _fill(self, taken: tuple[int, ...], seconds: Array, joined: np.ufunc) -> None:
        """Compute the best ways that have so many workers of each kind."""
        best = np.full(self.n + 1, np.inf)
        came = np.full((self.n + 1, 2), -1)
        if not any(taken):
            best[0] = 0.0
        for k, count in enumerate(taken):
            if not count:
                continue
            fewer = (*taken[:k], count - 1, *taken[k + 1 :])
            ways = joined(self.tables[fewer][:, None], seconds[:, :, self.members[k][0]])
            at = np.argmin(ways, axis=0)
            found = ways[at, np.arange(self.n + 1)]
            better = found < best
            best[better] = found[better]
            came[better] = np.stack([at, np.full(self.n + 1, k)], axis=1)[better]
        self.tables[taken], self.came[taken] = best, came

    def _last(self) -> tuple[int, ...]:
        """Return which workers the best way to the end takes, as few as can be."""
        return min(self.tables, key=lambda taken: (self.tables[taken][self.n], sum(taken)))

    def value(self) -> float:
        return float(self.tables[self._last()][self.n])

    def stages(self) -> Cuts:
        taken, position = self._last(), self.n
        stages: list[Interval] = []
        while position:
            begin, k = map(int, self.came[taken][position])
            taken = (*taken[:k], taken[k] - 1, *taken[k + 1 :])
            stages.append(Interval(begin, position, self.members[k][taken[k]]))
            position = begin
        return tuple(reversed(stages))
