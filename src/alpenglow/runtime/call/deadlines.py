"""Deadlines: what is late is stopped, whether it waits or runs.

One thread of the process looks at the clock for all requests.  It begins with the first that has a
deadline, and sleeps until the earliest of them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Protocol

from alpenglow.runtime.call import calls


class Late(Protocol):
    """What can be late: it is stopped then."""

    deadline: float | None

    def done(self) -> bool: ...

    def stop(self, reason: int) -> bool: ...


class _Watch:
    """Who is to be stopped when, and the thread that does it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, weakref.ref[Late]]] = []
        self._numbers = count()
        self._worth = 64  # how many entries are looked through for those that are done
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, request: Late) -> None:
        assert request.deadline is not None, "it can be late"
        # What is done must not be kept for its deadline's sake.
        entry = request.deadline, next(self._numbers), weakref.ref(request)
        with self._lock:
            if len(self._heap) >= self._worth:
                self._heap = [e for e in self._heap if (r := e[2]()) is not None and not r.done()]
                heapify(self._heap)
                self._worth = max(64, 2 * len(self._heap))
            heappush(self._heap, entry)
            is_first = self._heap[0] is entry
            if self._thread is None:
                name = "alpenglow-deadlines"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()
        if is_first:
            self._bell.put(None)

    def _serve(self) -> None:
        while True:
            late = self._late()
            for reference in late:
                request = reference()
                if request is not None:
                    request.stop(calls.TIMED_OUT)
                del request
            with self._lock:
                first = self._heap[0][0] if self._heap else None
            left = None if first is None else max(0.0, first - time.monotonic())
            try:
                self._bell.get(timeout=left if left is None else min(left, threading.TIMEOUT_MAX))
            except Empty:
                continue

    def _late(self) -> list[weakref.ref[Late]]:
        """Return those whose time is up, who are watched no more."""
        late = []
        with self._lock:
            while self._heap and calls.is_over(self._heap[0][0]):
                late.append(heappop(self._heap)[2])
        return late


def watch(request: Late) -> None:
    """Stop a request at its deadline."""
    _watch.add(request)


_watch = _Watch()


def _begin_anew() -> None:
    global _watch
    _watch = _Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
