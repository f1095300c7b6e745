"""A worker: what runs a part of a network, and how its operands come there.

A worker is a target and what it may use of it: cores, memory, and the link by which values reach
it.  Several may be of one machine, as two groups of the cores of a CPU, or two devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from alpenglow.base.cpus import check_threads
from alpenglow.base.errors import OptionError
from alpenglow.ir.target import Target


@dataclass(frozen=True, slots=True)
class Link:
    """Describe how values reach a worker and leave it.

    Args:
        seconds: the seconds before the first byte arrives.
        bandwidth: the bytes per second after that.

    Raises:
        OptionError: if a number is out of range.

    Example:
        >>> ag.Link(seconds=0.001, bandwidth=1e9).time_of(1_000_000)
        0.002
    """

    seconds: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < math.inf:
            raise OptionError(f"a link's delay is {self.seconds!r} s, expected 0 or more")
        if not self.bandwidth > 0:
            raise OptionError(f"a link carries {self.bandwidth!r} bytes a second, expected some")

    def time_of(self, nbytes: int) -> float:
        """Return the seconds until a number of bytes has arrived.

        Args:
            nbytes: the number of bytes.

        Returns:
            The seconds; 0 for no bytes.
        """
        return self.seconds + nbytes / self.bandwidth if nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """Describe a worker of a `Host` or of `place`: threads of a target, and a limit of memory.

    Args:
        name: letters, digits, "_", "-" and ".".
        target: the target of the code that the worker runs.
        threads: the number of threads.
        memory: the limit in bytes for weights, arena, inputs and outputs of all parts that the
            worker runs; None: no limit.
        link: how values reach the worker.

    Raises:
        OptionError: if the name has other characters, or a number is less than 1.

    Example:
        >>> ag.Worker("left", ag.Target.parse("cpu"), threads=1, memory=200_000_000).memory
        200000000
    """

    name: str
    target: Target
    threads: int = 1
    memory: int | None = None
    link: Link = Link()

    def __post_init__(self) -> None:
        word = isinstance(self.name, str) and self.name
        if not word or not all(c.isalnum() or c in "_-." for c in word):
            raise OptionError(
                f"a worker is called {self.name!r}, expected letters, digits, '_', '-' and '.'"
            )
        check_threads(self.threads)
        if self.memory is not None and self.memory <= 0:
            raise OptionError(
                f"worker '{self.name}' has {self.memory!r} bytes, expected more than 0",
                hint="leave memory out where it is not limited",
            )


def check_workers(workers: Sequence[Worker]) -> None:
    """Raise OptionError unless there are workers, each with a name of its own."""
    for w in workers:
        if not isinstance(w, Worker):
            raise OptionError(
                f"a worker is {w!r}, expected a Worker", hint="Worker('a', Target.parse('cpu'))"
            )
    names = [w.name for w in workers]
    if not names:
        hint = "[Worker('a', Target.parse('cpu'))]"
        raise OptionError("workers is empty, expected 1 or more", hint=hint)
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise OptionError(f"two workers are called '{twice[0]}', expected unique names")
