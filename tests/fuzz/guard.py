"""Memory with guards around it: whatever is written outside of its place shows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base import memory
from alpenglow.runtime.memory import layout
from alpenglow.runtime.staged.staged import StagedExecutable

Array = NDArray[Any]

GUARD = 4096
"""Bytes before and behind; more than any vector, or row of a small tensor."""

PATTERN = 0x5C


class Trespass(Exception):
    """Something was written outside of its place."""


class Guards:
    """Hands out memory with a pattern around it, and looks at the pattern later."""

    def __init__(self) -> None:
        self.held: list[tuple[str, Array, int]] = []

    def bytes(self, nbytes: int, what: str = "the arena") -> Array:
        """Return `nbytes` bytes at a multiple of 64, with guards on both sides."""
        raw = np.full(nbytes + 2 * GUARD + memory.ALIGNMENT, PATTERN, np.uint8)
        begin = GUARD + (-(raw.ctypes.data + GUARD) % memory.ALIGNMENT)
        self.held.append((what, raw, begin))
        raw[begin : begin + nbytes] = 0xA5
        return raw[begin : begin + nbytes]

    def check(self) -> None:
        """Raise Trespass if a guard was written over."""
        for what, raw, begin in self.held:
            size = raw.size - 2 * GUARD - memory.ALIGNMENT
            before, behind = raw[:begin] != PATTERN, raw[begin + size :] != PATTERN
            if before.any():
                raise Trespass(f"{begin - int(np.argmax(before))} bytes before {what} were written")
            if behind.any():
                last = int(np.flatnonzero(behind)[-1]) + 1
                raise Trespass(f"{last} bytes behind {what}, which has {size}, were written")


@contextmanager
def guarded() -> Iterator[Guards]:
    """Let executables that run for the first time take their arenas from Guards."""
    guards = Guards()
    before = layout.aligned_bytes
    layout.aligned_bytes = guards.bytes
    try:
        yield guards
    finally:
        layout.aligned_bytes = before


def run(exe: ag.Executable, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run an executable for the first time; raise Trespass if it writes what is not its own."""
    with guarded() as guards:
        kept = {name: array.tobytes() for name, array in feeds.items()}
        out = {}
        staged = isinstance(exe, StagedExecutable)
        for name, t in () if staged else exe.outputs.items():
            if t is not None and t.static and t.size:
                raw = guards.bytes(t.nbytes, f"output '{name}'")
                out[name] = raw.view(t.numpy).reshape(t.extents)
        found = exe.run(feeds, out)
        guards.check()
        for name, array in feeds.items():
            if array.tobytes() != kept[name]:
                raise Trespass(f"input '{name}' was written")
        return copy.deepcopy(found)
