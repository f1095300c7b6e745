"""Limits on memory for whole networks: met with the same bits, or refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from test_rolling import high_water, planned

import alpenglow as ag
from alpenglow.base.memory import aligned_bytes, rounded_up
from alpenglow.runtime.memory import layout
from bundle_cases import same_bits
from whole_networks import Feeds, Network, exported, networks

pytestmark = pytest.mark.models

STRICT = ag.Options(numerics="strict")
BESIDE = 1 << 16
"""Bytes that are watched before an arena and behind it."""
NOBODY, UNWRITTEN = 0x5A, 0xFF
"""What is in them, and in an arena before a call: of floats NaNs, so what is read was written."""


class Arena:
    """The memory of a call, with more on both sides that no call may touch."""

    def __init__(self, nbytes: int) -> None:
        whole = aligned_bytes(nbytes + 2 * BESIDE)
        whole[:] = NOBODY
        self.before, self.inside, self.behind = np.split(whole, [BESIDE, BESIDE + nbytes])
        self.inside[:] = UNWRITTEN

    def is_kept_to(self) -> bool:
        return not ((self.before != NOBODY).any() or (self.behind != NOBODY).any())

    def written(self) -> int:
        """Return one past the last byte that was written."""
        return int(np.flatnonzero(self.inside != UNWRITTEN).max(initial=-1)) + 1


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> list[Arena]:
    """The memory that calls take from now on."""
    taken: list[Arena] = []

    def take(nbytes: int) -> NDArray[np.uint8]:
        taken.append(Arena(nbytes))
        return taken[-1].inside

    monkeypatch.setattr(layout, "aligned_bytes", take)
    return taken


def limited(memory: int) -> ag.Options:
    return replace(STRICT, memory=memory)


def least(g: ag.Graph, memory: int) -> int:
    """Return the least limit that the refusal of a lower one names."""
    with pytest.raises(ag.errors.MemoryLimitError) as caught:
        ag.compile(g, threads=1, options=limited(memory))
    assert f"a limit of {caught.value.least} or more" in str(caught.value)
    return caught.value.least


def check(g: ag.Graph, feeds: Feeds, arenas: list[Arena], seed: str) -> None:
    """Compile and run with limits that are drawn."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    free = ag.compile(g, threads=1, options=STRICT)
    expected = free.run(feeds)
    low, high = least(g, 1), free.artifact.program.arena
    arenas.clear()
    limit = int(rng.integers(low, high + 1))
    exe = ag.compile(g, threads=1, options=limited(limit))
    program, actual = exe.artifact.program, exe.run(feeds)
    (arena,) = arenas

    assert program.arena <= limit
    assert program.arena == arena.inside.nbytes == rounded_up(high_water(program))
    assert same_bits(actual, expected)
    assert arena.is_kept_to()
    assert 0 < arena.written() <= high_water(program)
    assert least(g, int(rng.integers(1, low))) == low
    assert planned(g, "cpu", limited(low)).arena == low


@pytest.mark.parametrize("load", [pytest.param(f, id=name) for name, f in networks().items()])
@pytest.mark.sampled(0, "mnist8", "silero_vad")
def test_drawn_limits_are_met_with_the_same_bits(
    load: Callable[[], Network], arenas: list[Arena], request: pytest.FixtureRequest
) -> None:
    check(*load(), arenas, request.node.callspec.id)


@pytest.mark.slow
@pytest.mark.parametrize("load", [pytest.param(f, id=name) for name, f in exported().items()])
def test_drawn_limits_are_met_by_networks_that_were_exported(
    load: Callable[[], Network], arenas: list[Arena], request: pytest.FixtureRequest
) -> None:
    check(*load(), arenas, request.node.callspec.id)


def test_fifty_networks_are_limited() -> None:
    assert len(networks()) >= 50
