"""Streams of calls: callers that call one thing at the same time, and how long each call takes.

Each stream is a thread that makes a call after the other.  Those at the beginning do not count;
then all streams begin together, and share the calls that are to be made.
"""

from __future__ import annotations

import itertools
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

Call = Callable[[], object]

PERCENTS = {"p50": 50, "p90": 90, "p99": 99, "best": 0, "worst": 100}
"""What is told of the times of calls, by the share of calls, in %, that take no longer."""


@dataclass(frozen=True, slots=True)
class Streams:
    """How many streams there are, and what they do.

    Each makes `warmup` calls that do not count.  Then they make `calls` together, at least, and
    more until `seconds` are over.
    """

    number: int = 1
    warmup: int = 3
    calls: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of each call, and those from the first call's begin to the last one's end."""

    calls: Sequence[float]
    elapsed: float

    def percentiles(self) -> dict[str, float]:
        """Return the times of PERCENTS, each that of a call that was made."""
        times = np.percentile(np.array(self.calls), list(PERCENTS.values()), method="inverted_cdf")
        return dict(zip(PERCENTS, times.tolist(), strict=True))

    @property
    def rate(self) -> float:
        """How many calls were made a second."""
        return len(self.calls) / self.elapsed


def measure(call: Call, streams: Streams, cancel: Call = lambda: None) -> Times:
    """Return how long calls take; an exception of one ends all streams, and so does Ctrl-C.

    `cancel` is called then, to end the calls that are being made.
    """
    run = _Run(call, streams)
    if streams.number == 1:
        run.warm()
        return _joined([run.measured()])
    with ThreadPoolExecutor(streams.number) as pool:
        try:
            for warming in [pool.submit(run.warm) for _ in range(streams.number)]:
                warming.result()
            measuring = [pool.submit(run.measured) for _ in range(streams.number)]
            return _joined([one.result() for one in measuring])
        except BaseException:
            run.end()
            cancel()
            raise


@dataclass(frozen=True, slots=True)
class _Spell:
    """The seconds of the calls of one stream, and when it began and ended."""

    seconds: array[float]
    begin: float
    end: float


def _joined(spells: Sequence[_Spell]) -> Times:
    elapsed = max(s.end for s in spells) - min(s.begin for s in spells)
    return Times([seconds for s in spells for seconds in s.seconds], elapsed)


class _Run:
    """What the streams of a measurement share."""

    def __init__(self, call: Call, streams: Streams) -> None:
        self._call = call
        self._streams = streams
        self._ended = threading.Event()
        self._together = threading.Barrier(streams.number)
        self._turns = itertools.count()

    def end(self) -> None:
        """Let no stream begin another call, nor wait for the others."""
        self._ended.set()
        self._together.abort()

    def warm(self) -> None:
        """Make calls that do not count."""
        self._together.wait()
        for _ in range(self._streams.warmup):
            if not self._ended.is_set():
                self._call_once()

    def measured(self) -> _Spell:
        """Make calls until all streams have made enough."""
        self._together.wait()
        seconds = array("d")
        begin = now = time.perf_counter()
        calls, least = self._streams.calls, self._streams.seconds
        while not self._ended.is_set() and (next(self._turns) < calls or now - begin < least):
            start = time.perf_counter()
            self._call_once()
            now = time.perf_counter()
            seconds.append(now - start)
        return _Spell(seconds, begin, now)

    def _call_once(self) -> None:
        try:
            self._call()
        except BaseException:
            self._ended.set()
            raise
