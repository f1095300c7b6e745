"""Cutting a schedule: as good as the best of all ways there are, which are tried one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from alpenglow.ir.types import Array
from alpenglow.placement.search import Cuts, Interval, soonest, steadiest

CASES = 1000


def every_way(n: int, workers: int) -> Iterator[Cuts]:
    """Yield all ways to cut n units into intervals, with any workers."""
    for cuts in product([False, True], repeat=n - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        pieces = list(pairwise(bounds))
        for chosen in product(range(workers), repeat=len(pieces)):
            yield tuple(Interval(*p, d) for p, d in zip(pieces, chosen, strict=True))


def fits(way: Cuts, nbytes: Array, limits: Sequence[float]) -> bool:
    memory: dict[int, float] = defaultdict(float)
    for s in way:
        memory[s.worker] += nbytes[s.begin, s.end, s.worker]
    return all(memory[d] <= limits[d] for d in memory)


def times(way: Cuts, seconds: Array) -> list[float]:
    return [float(seconds[s.begin, s.end, s.worker]) for s in way]


def rank(way: Cuts, seconds: Array) -> tuple[float, float]:
    """Return the slowest stage, and all stages together."""
    each = times(way, seconds)
    return max(each), sum(each)


def drawn(seed: int, n: int, workers: int) -> tuple[Array, Array, list[float]]:
    """Return what stages cost, and what memory they need and have; some may not be."""
    rng = np.random.default_rng(seed)
    shape = (n + 1, n + 1, workers)
    # Halves, so that sums are exact in any order; many costs are equal.
    seconds = rng.integers(1, 40, shape) / 2
    seconds[rng.random(shape) < rng.choice([0.0, 0.3])] = np.inf
    nbytes = rng.integers(0, 20, shape).astype(float)
    limits = [float(rng.choice([5, 15, 30, np.inf])) for _ in range(workers)]
    return seconds, nbytes, limits


def size_of(seed: int) -> tuple[int, int]:
    # Of 8 units and 3 workers there are 49,152 ways.
    return ((1, 2, 3, 4, 5, 6)[seed % 6], 1 + seed % 3) if seed % 100 else (8, 3)


@pytest.mark.sampled(0, "3")
@pytest.mark.parametrize("block", range(10))
def test_no_way_is_sooner(block: int) -> None:
    for seed in range(block, CASES, 10):
        n, workers = size_of(seed)
        seconds, nbytes, limits = drawn(seed, n, workers)
        ways = [w for w in every_way(n, workers) if fits(w, nbytes, limits)]
        best = min((sum(times(w, seconds)) for w in ways), default=np.inf)
        found = soonest(seconds, nbytes, limits)
        chosen = None if found is None else found.cuts

        assert found is None or found.within == 0
        assert (chosen is None) == (best == np.inf)
        if chosen is not None:
            assert fits(chosen, nbytes, limits)
            assert sum(times(chosen, seconds)) == best


@pytest.mark.sampled(0, "4", "9")
@pytest.mark.parametrize("block", range(10))
def test_no_pipeline_is_faster(block: int) -> None:
    for seed in range(block, CASES, 10):
        n, workers = size_of(seed)
        seconds, nbytes, limits = drawn(seed, n, workers)
        alike = list(range(workers))
        if seed % 2 and workers > 1:
            for costs in (seconds, nbytes):
                costs[:, :, 1] = costs[:, :, 0]
            limits[1] = limits[0]
            alike[1] = 0
        ways = [
            w for w in every_way(n, workers)
            if len({s.worker for s in w}) == len(w) and fits(w, nbytes, limits)
        ]  # fmt: skip
        best = min((rank(w, seconds) for w in ways), default=(np.inf, np.inf))
        chosen = steadiest(seconds, nbytes, limits, alike)

        assert (chosen is None) == (best[0] == np.inf)
        if chosen is not None:
            assert fits(chosen, nbytes, limits)
            assert len({s.worker for s in chosen}) == len(chosen)
            assert rank(chosen, seconds) == best
