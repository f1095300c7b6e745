"""Contests: runtimes take turns on one model, and are compared round by round.

Another runtime is a process of its own (see `measure.server`), stopped while one runs, so that no
spinning thread takes anybody's core.  In every round each makes one burst of calls, in an order
that is drawn anew; the ratio of two runtimes is the median over the rounds of the ratio of their
bursts.  So a machine that is slow for a while is slow for all of them.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.measure import server
from alpenglow.measure.server import times

WARM = 3
"""How many calls do not count, unless it is said."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long a contest is: rounds, and the calls and seconds that a burst has at least.

    The first `warm` calls of each burst do not count.
    """

    rounds: int = 7
    calls: int = 20
    seconds: float = 0.05
    warm: int = WARM


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """How many times as long another runtime takes: the median, and where 80 % of rounds lie."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(others: Sequence[float], own: Sequence[float]) -> TimeRatio:
        """Compare the bursts of the same rounds."""
        ratios = np.array(others) / np.array(own)
        low, middle, high = np.percentile(ratios, [10, 50, 90])
        return TimeRatio(float(middle), float(low), float(high))


class Contestant(Protocol):
    """Whoever can make a burst of calls."""

    def burst(self, length: Length) -> list[float]:
        """Return the seconds of each call."""
        ...


class Here:
    """A contestant in this process: it must not spin when it is not called."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def burst(self, length: Length) -> list[float]:
        return times(self._call, length.warm, length.calls, length.seconds)


class Process:
    """A contestant in a process of its own, stopped unless it is asked something."""

    program = server.__file__

    def __init__(
        self,
        name: str,
        threads: int,
        cpus: Collection[int],
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        cpu_list = ",".join(map(str, sorted(cpus)))
        self._process = subprocess.Popen(
            [str(python), "-P", self.program, name, str(threads), cpu_list],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
        )
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, what: str, patience: float | None = None, **details: Any) -> dict[str, Any]:
        """Return the answer to a request; raise UnsupportedError if it is that it cannot.

        So does a process that takes more than `patience` seconds; it is ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            print(json.dumps({"do": what, **details}), file=self._process.stdin, flush=True)
            # An answer is one line, written at once.
            if not select.select([self._process.stdout], [], [], patience)[0]:
                self._process.kill()
                raise UnsupportedError(
                    f"{self.name} is too slow: {what} took longer than the limit of {patience:g} s"
                )
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            raise UnsupportedError(
                f"{self.name} ended with exit status {status}, expected an answer"
            )
        self._process.send_signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            reason = answer["error"]
            raise UnsupportedError(f"{self.name} cannot run this model: {reason}")
        return answer

    def load(
        self,
        model: Path,
        feeds: Path,
        scratch: Path,
        precision: str = "f32",
        patience: float | None = None,
    ) -> dict[str, Any]:
        """Load a model and run it once; return how long loading took, and the version.

        Raises UnsupportedError if that takes more than `patience` seconds.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        where = {"model": str(model), "feeds": str(feeds), "scratch": str(scratch)}
        return self.ask("load", patience, **where, precision=precision)

    def burst(self, length: Length) -> list[float]:
        answer = self.ask("burst", warm=length.warm, calls=length.calls, seconds=length.seconds)
        seconds: list[float] = answer["times"]
        return seconds

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # A request that never reached a process that died is written again at closing.
                with suppress(BrokenPipeError):
                    pipe.close()


def compete(contestants: Mapping[str, Contestant], length: Length) -> dict[str, list[list[float]]]:
    """Return, for each contestant, the seconds of the calls of each round's burst."""
    bursts: dict[str, list[list[float]]] = {name: [] for name in contestants}
    shuffled = random.Random(0)
    order = list(contestants)
    for _ in range(length.rounds):
        shuffled.shuffle(order)
        for name in order:
            bursts[name].append(contestants[name].burst(length))
    return bursts


def middles(bursts: Sequence[Sequence[float]]) -> list[float]:
    """Return the median call of each burst."""
    return [median(burst) for burst in bursts]
