"""How many threads to run on: what the system lets this process have, and what can be asked for.

A process may be bound to some CPUs, and a container may have a quota of their time.  Threads
beyond either only take it from each other: with one CPU's time and 64 threads that spin, each
waits for one that is not let run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from alpenglow.base import knobs
from alpenglow.base.errors import OptionError
from alpenglow.base.knobs import MOST_THREADS

MOST_PER_CPU = 4
"""How many threads of a team there are for each CPU, whatever is asked for."""


def default_threads() -> int:
    """Return how many threads a call uses unless it is told: as many as there is CPU time for.

    `ALPENGLOW_THREADS` says otherwise; OptionError if it is no number of threads.
    """
    named, quota = _settled()
    if named is not None:
        return named
    cpus = len(allowed_cpus())
    return cpus if quota is None else min(cpus, quota)


def allowed_cpus() -> list[int]:
    """Return the numbers of the CPUs on which the system lets this thread run."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def granted_cpus() -> list[int]:
    """Return those of the allowed CPUs that there is time for: as many as a quota grants."""
    return allowed_cpus()[: _settled()[1]]


@cache
def most_workers() -> int:
    """Return how many threads run together at most."""
    return MOST_PER_CPU * (os.cpu_count() or 1)


def check_threads(threads: int | None) -> None:
    """Raise OptionError if `threads` is no number of threads to run on."""
    if threads is None:
        return
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise OptionError(f"threads is {threads!r}, expected a number")
    if not 1 <= threads <= MOST_THREADS:
        raise OptionError(f"threads is {threads}, expected 1 to {MOST_THREADS}")


def cpu_quota(root: Path = Path("/")) -> int | None:
    """Return for how many CPUs the control groups of this process grant time, rounded up.

    `root` is the folder in which `proc` and `sys` are.  None without a limit, or where what is
    there cannot be read or understood: a number of threads is not worth a failure.
    """
    limits = [cpus for cpus in _limits(root) if cpus is not None]
    return max(1, math.ceil(min(limits))) if limits else None


@cache
def _settled() -> tuple[int | None, int | None]:
    """Return what does not change while a process runs: the knob, and the quota."""
    return knobs.threads(), cpu_quota()


def _limits(root: Path) -> Iterator[float | None]:
    """Yield the CPUs that each group that this process is in grants, None where it has no limit."""
    mounts = root / "sys/fs/cgroup"
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        _, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not (colon and second):
            continue
        if not controllers:  # version 2, alone or beside version 1
            for mount in (mounts, mounts / "unified"):
                yield from map(_granted, _above(mount, path))
        elif "cpu" in controllers.split(","):
            for mount in (mounts / controllers, mounts / "cpu"):
                yield from map(_granted_before, _above(mount, path))


def _above(mount: Path, path: str) -> Iterator[Path]:
    """Yield the folder of a group and those of the groups that hold it.

    In a container the path may be that of the host, where only the last of these is there.
    """
    names = [n for n in PurePosixPath(path).parts if n not in ("/", "..")]
    for length in range(len(names), -1, -1):
        yield mount.joinpath(*names[:length])


def _granted(folder: Path) -> float | None:
    """Return the CPUs that `cpu.max` of version 2 grants: "max 100000" or "150000 100000"."""
    fields = _words(folder / "cpu.max")
    return _quotient(fields[0], fields[1]) if len(fields) == 2 else None


def _granted_before(folder: Path) -> float | None:
    """Return the CPUs that a group of version 1 grants; its quota is -1 without a limit."""
    quota = _words(folder / "cpu.cfs_quota_us")
    period = _words(folder / "cpu.cfs_period_us")
    return _quotient(quota[0], period[0]) if len(quota) == len(period) == 1 else None


def _quotient(quota: str, period: str) -> float | None:
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii", errors="replace").split()
    except (OSError, ValueError):
        return []
