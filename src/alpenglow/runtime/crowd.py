"""How many threads a team may be, where other processes want the same CPUs.

A thread that the system does not let run holds up the others if it has begun something: for a
time slice, some milliseconds, in which they would have done it long ago.  So a team whose threads
are late becomes smaller, and tries after a while whether it may grow again; how long that is
doubles with each attempt that fails.  Where the system tells that its CPUs are all taken, it is not
even tried, but for once in a long while: a container may see the load of CPUs that are not its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

TWICE = 0.1
"""Within so many seconds, a second share that is late is no accident."""

FIRST_PAUSE = 0.05
"""Seconds until a team that has become smaller first tries to grow."""

LONGEST_PAUSE = 5.0
"""Seconds after which it tries in any case."""

LOAD = Path("/proc/loadavg")


class Crowd:
    """What a team has seen of others; `workers` is how many threads it may be, 0 without limit."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        free_cpus: Callable[[], int | None] | None = None,
    ) -> None:
        self.workers = 0
        self._clock = clock
        self._free_cpus = _free_cpus if free_cpus is None else free_cpus
        self._late_at = -TWICE
        self._changed_at = 0.0
        self._asked_at = 0.0
        self._pause = FIRST_PAUSE
        self._is_trial = False

    def fit(self, threads: int) -> int:
        """Return how many of so many threads are to run now, this one included."""
        if not self.workers:
            return threads
        now = self._clock()
        since = now - self._changed_at
        if since >= self._pause and (since >= LONGEST_PAUSE or self._is_free(now)):
            self._is_trial, self._changed_at = True, now
            self.workers += 1
            if self.workers >= threads:
                self.workers = 0
        return min(threads, self.workers) if self.workers else threads

    def saw_late(self, workers: int, count: int) -> None:
        """Note that in a run of so many threads `count` shares were late."""
        now = self._clock()
        again = count > 1 or now - self._late_at < TWICE
        failed = self._is_trial and now - self._changed_at < TWICE
        if again or failed:
            self.workers = max(1, workers - 1)
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if self._is_trial else FIRST_PAUSE
            self._is_trial, self._changed_at = False, now
        self._late_at = now

    def _is_free(self, now: float) -> bool:
        """Whether there is a CPU for one thread more, as far as is known; asked now and then."""
        if now - self._asked_at < FIRST_PAUSE:
            return False
        self._asked_at = now
        free = self._free_cpus()
        return free is None or free > self.workers


def _free_cpus() -> int | None:
    """Return how many CPUs nobody but the caller runs on; None where that is not told."""
    try:
        fields = LOAD.read_text(encoding="ascii").split()
        running = int(fields[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return None
    return (os.cpu_count() or 1) - (running - 1)
