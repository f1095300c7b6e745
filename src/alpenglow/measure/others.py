"""How much CPU time other processes take while something is measured, where the system says it."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")

MOST = 0.1
"""CPUs that other processes may use before a measurement counts as disturbed."""


class Others:
    """The CPU time of this process and of all since a beginning."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._begin = time.perf_counter(), _own(), _all(stat)

    def cpus(self) -> float | None:
        """Return how many CPUs other processes used on average; None if that is not known."""
        began, own, everything = self._begin
        now, passed = _all(self._stat), time.perf_counter() - began
        if everything is None or now is None or passed <= 0:
            return None
        return max(0.0, (now - everything) - (_own() - own)) / passed


def warning(cpus: float | None) -> str:
    """Return the warning for a number of CPUs that other processes used; "" if it is small."""
    if cpus is None or cpus < MOST:
        return ""
    return (
        f"other processes used {cpus:.1f} of {os.cpu_count()} CPUs during the measurement; "
        "times may be too long: compare p50 or best, not p99, or measure again"
    )


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _all(stat: Path) -> float | None:
    """Return the seconds in which all CPUs were not idle; the system counts in hundredths."""
    try:
        words = stat.read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, soft, *_ = map(int, words[1:])
        return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
