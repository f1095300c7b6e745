"""Copies into shared memory that are under way, in the evaluator.

A copy takes what its source holds when it begins.  It is there when its thread has waited for the
batch of copies that it was committed with, and not before: until then nobody may touch the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alpenglow.ir.types import Array
from alpenglow.kernel.races import NOBODY, RaceError

_OPEN = -1
"""The batch of copies that have not been committed."""


@dataclass(slots=True)
class Copied:
    """Elements on their way to an array: places, values, whose copies they are, and batches."""

    name: str
    where: Array
    value: Array
    who: Array
    batch: Array


class Copies:
    """What the threads of a group have begun to copy."""

    def __init__(self, threads: int) -> None:
        self.under_way: list[Copied] = []
        self.committed = np.zeros(threads, np.int64)
        """How many batches each thread has committed."""

    def begin(self, name: str, where: Array, value: Array, who: Array) -> None:
        self.under_way.append(Copied(name, where, value, who, np.full(len(who), _OPEN)))

    def commit(self, at_work: Array) -> None:
        for c in self.under_way:
            mine = np.isin(c.who, at_work) & (c.batch == _OPEN)
            c.batch[mine] = self.committed[c.who[mine]]
        self.committed[at_work] += 1

    def arrive(self, at_work: Array, left: int) -> Iterator[Copied]:
        """Yield what threads wait for: all but their last `left` batches."""
        kept: list[Copied] = []
        for c in self.under_way:
            old = (c.batch != _OPEN) & (c.batch < self.committed[c.who] - left)
            there = np.isin(c.who, at_work) & old
            if there.any():
                yield _some(c, there)
            if not there.all():
                kept.append(_some(c, ~there))
        self.under_way = kept

    def touch(self, name: str, where: Array, who: Array, does: str) -> None:
        """Raise RaceError where somebody touches what a copy is on its way to."""
        for c in self.under_way:
            if c.name != name:
                continue
            owners = np.full(int(max(c.where.max(), where.max(initial=0))) + 1, NOBODY)
            owners[c.where] = np.arange(len(c.where))
            for i in np.flatnonzero(owners[where] != NOBODY)[:1]:
                copy = owners[where[i]]
                actor = f"thread {who[i]}" if who[i] < len(self.committed) else "a subgroup"
                open_ = c.batch[copy] == _OPEN
                missing = "been committed" if open_ else "been waited for"
                raise RaceError(
                    f"{actor} {does} {name}[{where[i]}], to which a copy of thread "
                    f"{c.who[copy]} is under way: it has not {missing}"
                )


def _some(c: Copied, chosen: Array) -> Copied:
    return Copied(c.name, c.where[chosen], c.value[chosen], c.who[chosen], c.batch[chosen])
