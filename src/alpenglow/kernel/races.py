"""Who has read and written memory that threads share, and whether a barrier is between.

Two threads that meet at an element are of one subgroup, which its barriers and those of the group
part in time; or of two subgroups, which barriers of the group part; or of two groups, which nothing
does.  For each of the three it is noted who was there last.  A subgroup that acts as one, on tiles,
is like a thread that is met once.
"""

from __future__ import annotations

import numpy as np

from alpenglow.ir.types import Array

NOBODY, SEVERAL = -1, -2


class RaceError(AssertionError):
    """Two threads are at one place of memory, one writes, and no barrier is between them."""


class _Seen:
    """Who has read and written elements: threads, subgroups or groups, by number."""

    def __init__(self, size: int) -> None:
        self.reader = np.full(size, NOBODY)
        self.writer = np.full(size, NOBODY)
        self.atomic = np.zeros(size, np.bool_)
        """Of what is written, whether it was by atomic operations alone."""

    def forget(self, where: Array) -> None:
        self.reader[where] = self.writer[where] = NOBODY

    def read(self, where: Array, who: Array) -> None:
        _note(self.reader, where, who)

    def write(self, where: Array, who: Array) -> None:
        self.writer[where] = who
        self.atomic[where] = False

    def change(self, where: Array, who: Array) -> None:
        before = self.writer[where] == NOBODY
        _note(self.writer, where, who)
        self.atomic[where] |= before


def _note(seen: Array, where: Array, who: Array) -> None:
    """Note who is somewhere: SEVERAL, if others are there or have been."""
    before = seen[where]
    now = np.where((before == NOBODY) | (before == who), who, SEVERAL)
    seen[where] = now
    seen[where[seen[where] != now]] = SEVERAL


class Watch:
    """Who has read and written the elements of one array, by threads that barriers do not part.

    Threads are numbered in their group, which has `count` of them in subgroups of `size`.  Numbers
    from `count` on are those of subgroups that act as one.
    """

    def __init__(self, name: str, elements: int, shared: bool) -> None:
        """An array that is `shared` is one of each group."""
        self.name, self.shared = name, shared
        self.threads, self.subgroups, self.groups = (_Seen(elements) for _ in range(3))
        self.group = 0
        self.count, self.size = 1, 1
        self.touched: list[Array] = []
        """The elements that the threads of the group have touched since they met."""

    def enter(self, group: int, count: int, size: int) -> None:
        """Let another group begin, of so many threads, or know more of this group's."""
        self.group, self.count, self.size = group, count, size
        self.meet()

    def meet(self) -> None:
        """All threads of the group have met."""
        for where in self.touched:
            self.threads.forget(where)
            self.subgroups.forget(where)
        self.touched.clear()

    def meet_subgroups(self, numbers: Array) -> None:
        """The threads of these subgroups have met, each subgroup for itself."""
        if self.touched:
            where = np.unique(np.concatenate(self.touched))
            self.touched = [where]
            threads, subgroups = self.threads, self.subgroups
            threads.reader[where[np.isin(subgroups.reader[where], numbers)]] = NOBODY
            threads.writer[where[np.isin(subgroups.writer[where], numbers)]] = NOBODY

    def read(self, where: Array, who: Array) -> None:
        for seen, does, units in self._levels(where, who):
            self._differ(where, units, seen.writer[where], "reads", "wrote", does, seen)
            seen.read(where, units)

    def write(self, where: Array, who: Array) -> None:
        for seen, does, units in self._levels(where, who):
            self._differ(where, units, seen.writer[where], "writes", "wrote", does, seen)
            self._differ(where, units, seen.reader[where], "writes", "read", does, None)
            seen.write(where, units)
            self._differ(where, units, seen.writer[where], "writes", "writes", does, None)

    def change(self, where: Array, who: Array) -> None:
        """Note what is done atomically, which several may do."""
        for seen, does, units in self._levels(where, who):
            others = np.where(seen.atomic[where], NOBODY, seen.writer[where])
            self._differ(where, units, others, "changes", "wrote", does, None)
            self._differ(where, units, seen.reader[where], "changes", "read", does, None)
            seen.change(where, units)

    def _levels(self, where: Array, who: Array) -> list[tuple[_Seen, str, Array]]:
        """Return who touches elements: threads, subgroups and groups, where there are several."""
        self.touched.append(where)
        levels = [(self.threads, "thread", who)]
        if self.size > 1:
            alone = who < self.count
            numbers = np.where(alone, who // self.size, (who - self.count) % self.width)
            levels.append((self.subgroups, "subgroup", numbers))
        if not self.shared:
            levels.append((self.groups, "group", np.full_like(who, self.group)))
        return levels

    @property
    def width(self) -> int:
        """How many subgroups a group has."""
        return self.count // self.size

    def _differ(
        self, where: Array, who: Array, others: Array, does: str, did: str, level: str,
        seen: _Seen | None,
    ) -> None:  # fmt: skip
        for i in np.flatnonzero((others != NOBODY) & (others != who))[:1]:
            other = "others" if others[i] == SEVERAL else self._named(level, int(others[i]))
            other += ", atomically," if seen is not None and seen.atomic[where[i]] else ""
            between = {"thread": "barrier", "subgroup": "barrier of the group"}.get(level)
            missing = f"no {between} is between" if between else "nothing parts groups in time"
            raise RaceError(
                f"{self._named(level, int(who[i]))} {does} {self.name}[{where[i]}], "
                f"which {other} {did}, and {missing}"
            )

    def _named(self, level: str, number: int) -> str:
        if level == "thread" and number >= self.count:
            return f"subgroup {(number - self.count) % self.width}"
        return f"{level} {number}"
