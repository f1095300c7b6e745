"""How many threads a team may be, where other processes want the same CPUs.

A thread that the system does not let run holds up the others if it has begun something: for a
time slice, some milliseconds, in which they would have done it long ago.  One that does not come
holds up nobody, but helps nobody either, and takes time from other processes.  So a team whose
threads are late becomes smaller, and tries after a while whether it may grow again; how long that
is doubles with each attempt that fails.

Where the system tells how many threads want to run, it does not shrink if these are but its own,
and does not try to grow while there are as many as CPUs, but for once in a long while: a container
may see the load of CPUs that are not its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from alpenglow.base.log import log

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
        running: Callable[[], int | None] | None = None,
        cpus: int | None = None,
    ) -> None:
        self.workers = 0
        self._clock = clock
        self._running = _running if running is None else running
        self._cpus = cpus or os.cpu_count() or 1
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
            log.debug("calls use %d threads again, as a trial", self.workers)
            if self.workers >= threads:
                self.workers = 0
        return min(threads, self.workers) if self.workers else threads

    def saw_late(self, workers: int, count: int) -> None:
        """Note that in a run of so many threads somebody was late, `count` times."""
        now = self._clock()
        again = count > 1 or now - self._late_at < TWICE
        failed = self._is_trial and now - self._changed_at < TWICE
        if (again or failed) and self._is_crowded(workers):
            self.workers = max(1, workers - 1)
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if self._is_trial else FIRST_PAUSE
            self._is_trial, self._changed_at = False, now
            log.debug(
                "other processes use the CPUs: calls use %d of %d threads", self.workers, workers
            )
        self._late_at = now

    def _is_crowded(self, workers: int) -> bool:
        """Whether others than so many of ours want to run, as far as is known."""
        running = self._running()
        return running is None or running > workers

    def _is_free(self, now: float) -> bool:
        """Whether there is a CPU for one thread more, as far as is known; asked now and then."""
        if now - self._asked_at < FIRST_PAUSE:
            return False
        self._asked_at = now
        running = self._running()
        return running is None or running < self._cpus


def _running() -> int | None:
    """Return how many threads run or would run if they were let; None where that is not told."""
    try:
        fields = LOAD.read_text(encoding="ascii").split()
        return int(fields[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return None
