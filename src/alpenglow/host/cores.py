"""Cores of workers: who of those that run in this process has which, to itself.

A worker whose target runs in this process has as many cores as threads.  No two share one, so teams
never outnumber cores: threads that spin on a core of somebody else's only take time from it.
Workers on devices with memory of their own have none; what a device's driver does here is its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from alpenglow.base import cpus
from alpenglow.base.errors import OptionError
from alpenglow.host.worker import Worker
from alpenglow.machines.registry import device_for, this_process


def allot(workers: Sequence[Worker]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the CPUs of each worker; raise OptionError if there are too few."""
    here = [w for w in workers if device_for(w.target) is None]
    free, wanted = cpus.granted_cpus(), sum(w.threads for w in here)
    if wanted > len(free):
        said = ", ".join(f"'{w.name}' {w.threads}" for w in here)
        raise OptionError(
            f"workers want {wanted} CPUs ({said}), but this process may use {len(free)}",
            hint="fewer workers, or fewer threads of each",
        )
    groups: dict[str, tuple[int, ...]] = {}
    for worker in here:
        groups[worker.name], free = tuple(free[: worker.threads]), free[worker.threads :]
    return groups


@contextmanager
def kept_to(group: Sequence[int]) -> Iterator[None]:
    """Let this thread, and all that help it, run on these CPUs alone, in a block that ends with it.

    Where the system binds no threads there are no more than that, wherever they run.
    """
    if not group:
        yield
        return
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # a system may forbid it
            os.sched_setaffinity(0, group)
    with this_process().own_team(len(group)):
        yield
