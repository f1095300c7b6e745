"""Requests: calls that wait for their turn, and the manager that runs them one after another.

Who submits a call has a future at once.  Of those that wait, that of the highest priority runs
first, and of equals that which came first.  How many may wait is bounded: who comes when the queue
is full is told so, rather than served when nobody cares any more.

Imported when it is first needed: who never submits has neither the thread nor the queue.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from queue import SimpleQueue
from typing import Any, Generic, Literal, Protocol, TypeVar

from alpenglow.base.errors import BusyError, OptionError, TimeLimitError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.ir.types import TensorType
from alpenglow.runtime.call import calls, deadlines, feeds, short
from alpenglow.runtime.call.calls import Call, Queue, Results, StopWord, Work
from alpenglow.runtime.call.feeds import Places
from alpenglow.runtime.memory.layout import Place

MOST_WAITING = 10_000
"""How many requests wait for an Executable at most."""

YEAR = 365 * 24 * 3600
MOST_SECONDS = 10 * YEAR
"""Deadlines that are further away are times of another clock, such as `time.time()`."""

LAST_SECONDS = 1.0
"""How long what runs is waited for as a process ends, once it was told to end."""


class Managed(Protocol):
    """The part of an Executable that requests for it use."""

    name: str
    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]
    threads: int | None
    manager: Queue | None

    @property
    def running(self) -> set[StopWord | Call]:
        """The calls whose code runs now."""
        ...

    def short_place(self, arrays: Sequence[Any], lends: bool = False) -> Place | None:
        """Return where a call with inputs of these shapes runs quickly, if one has run there."""
        ...

    def run_some(
        self,
        arrays: Mapping[str, Any],
        out: Places | None,
        outputs: Sequence[str] | None,
        call: Call | None,
    ) -> Results:
        """Return the outputs that are wanted."""
        ...


class Request(Future[Results]):
    """A call that waits, runs or is over, and the future that its caller holds.

    To `cancel` one that waits ends it at once.  One that runs ends as soon as its code has seen
    that it is to; it is cancelled even if the code is done before.
    """

    def __init__(self, work: Work | None, priority: int = 0, deadline: float | None = None) -> None:
        super().__init__()
        self.priority, self.deadline = priority, deadline
        self.work = work
        self.call = Call(None)
        self.queue: Waiting[Any] | None = None
        """Where it waits."""
        self.manager: Manager | None = None
        """Who lets the thread run it that waits for it."""
        self._lock = threading.Lock()  # of the two that follow
        self._is: Literal["waiting", "running", "over"] = "waiting"
        self._stopped = 0  # why, as stop words say it
        _requests.add(self)

    def running(self) -> bool:
        return self._is == "running"

    def result(self, timeout: float | None = None) -> Results:
        """Return the outputs when they are there, or raise what went wrong.

        Who would wait for the manager's thread to wake runs the request itself.
        """
        if timeout is None and self._is == "waiting" and self.manager is not None:
            self.manager.run_here(self)
        return super().result(timeout)

    def cancel(self) -> bool:
        """End the request; return False if it was over before, unless it was cancelled."""
        return self.stop(calls.CANCELLED) or self.cancelled()

    def stop(self, reason: int) -> bool:
        """End the request, as stop words say why; return False if it was over before."""
        with self._lock:
            if self._is == "over":
                return False
            self._stopped = self._stopped or reason
            waited = self._is == "waiting"
            if waited:
                self._is = "over"
        if not waited:
            self.call.stop(reason)
            return True
        if (queue := self.queue) is not None:
            queue.forget(self)
        self.leave()
        self._settle_stopped("waited")
        return True

    def start(self) -> bool:
        """Go from waiting to running; return False if the request is over, or late and so over."""
        if self.deadline is not None and calls.is_over(self.deadline):
            self.stop(calls.TIMED_OUT)
        with self._lock:
            if self._is != "waiting":
                return False
            self._is = "running"
        return True

    def pause(self) -> bool:
        """Wait for another part to be run; return False if the request was stopped, or is over."""
        with self._lock:
            if self._stopped or self._is == "over":
                return False
            self._is = "waiting"
            return True

    def finish(self, results: Results) -> None:
        """Hand over what was asked for, unless the request has been stopped."""
        if self._end():
            self.set_result(results)

    def fail(self, error: BaseException) -> None:
        """Hand over what went wrong, unless the request has been stopped."""
        if self._end():
            self.set_exception(error)

    def run(self) -> None:
        """Run the work of a request that has been started, to its end."""
        assert self.work is not None, "what is over is not started"
        try:
            results = self.work(self.call)
        except BaseException as error:  # the caller's, who has the future
            self.fail(error)
        else:
            self.finish(results)

    def lose(self) -> None:
        """Fail in the child of a fork, unless it is done: what would end it is in the parent.

        Locks that a thread of the parent held stay held, so they are replaced.  Callbacks are
        called in the parent alone.
        """
        self._lock, self._condition = threading.Lock(), threading.Condition()
        if not self.done():
            super().__init__()  # without callbacks and waiters
            self._is, self.work = "over", None
            self.set_exception(
                UnsupportedError(
                    "the process was forked before the request was done; its parent has the result",
                    hint="submit it again in this process",
                )
            )

    def leave(self) -> None:
        """Take note that the request is over, whatever came of it, before its caller is told."""

    def _end(self) -> bool:
        """Be over; return True if something is to be handed over still."""
        with self._lock:
            if self._is == "over":
                return False
            self._is = "over"
        self.leave()
        if self._stopped:
            self._settle_stopped("ran")
            return False
        self.work = None
        return True

    def _settle_stopped(self, how: str) -> None:
        self.work = None  # it holds the caller's arrays
        if self._stopped == calls.TIMED_OUT:
            passed = f"the deadline passed while the request {how}"
            self.set_exception(TimeLimitError(passed, hint="a later deadline"))
            return
        super().cancel()
        self.set_running_or_notify_cancel()  # for those who wait for several


R = TypeVar("R", bound=Request)


class Waiting(Generic[R]):
    """Requests in the order in which they are to run.  Whoever calls a method but `forget` holds
    `lock`."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._heap: list[tuple[int, int, R]] = []
        self._live: set[R] = set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[R]:
        return iter(self._live)

    def put(self, request: R, arrival: int) -> None:
        """Add a request, the `arrival`-th."""
        request.queue = self
        heappush(self._heap, (-request.priority, arrival, request))
        self._live.add(request)

    def first(self) -> tuple[int, int, R] | None:
        """Return the first request behind what it is ordered by: less priority, and its number."""
        heap = self._heap
        while heap and heap[0][2] not in self._live:
            heappop(heap)
        return heap[0] if heap else None

    def take(self) -> R | None:
        """Return the first request, which waits no more."""
        entry = self.first()
        if entry is None:
            return None
        heappop(self._heap)
        self._live.discard(entry[2])
        return entry[2]

    def forget(self, request: R) -> None:
        """Drop a request that is over: others may take its place."""
        with self._lock:
            self._live.discard(request)
            if len(self._heap) > 2 * len(self._live) + 64:
                self._heap = [entry for entry in self._heap if entry[2] in self._live]
                heapify(self._heap)


class Manager:
    """A thread that runs requests one after another, those that wait in their order.

    The thread is a daemon, and begins with the first request.  Who waits for the result of the
    first one while nothing runs has the turn instead: a thread that sleeps takes longer to wake
    than a short call to run.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._reset()
        _managers.add(self)

    def _reset(self) -> None:
        """Begin with nothing: at first, and in the child of a fork."""
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of who runs something
        self._waiting: Waiting[Request] = Waiting(self._lock)
        self._arrivals = count()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._sleeps = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._current: Request | None = None

    def submit(self, work: Work, priority: int = 0, deadline: float | None = None) -> Request:
        """Return a request that runs when its turn has come; raise BusyError if too many wait."""
        check(priority, deadline)
        request = Request(work, priority, deadline)
        request.manager = self
        with self._lock:
            if self._closed:
                raise UnsupportedError(
                    f"{shown(self._name)}: requests after close are not supported"
                )
            if len(self._waiting) >= self._most:
                raise full(self._name, len(self._waiting))
            if self._thread is None:
                self._begin()
            self._waiting.put(request, next(self._arrivals))
            if self._sleeps:  # it rings before it is said: once too often wakes for nothing
                self._bell.put(None)
                self._sleeps = False
        if deadline is not None:
            deadlines.watch(request)
        return request

    def end(self) -> None:
        """Take no more requests; the thread ends when nothing is left to do.

        Nothing is locked here: this may be called wherever objects are collected.
        """
        self._closed = True
        self._bell.put(None)

    def close(self) -> None:
        """Take no more requests, and end those that there are."""
        self.end()
        with self._lock:
            left = [r for r in (self._current, *self._waiting) if r is not None]
        for request in left:
            request.cancel()
        if (thread := self._thread) is not None:
            thread.join(LAST_SECONDS)

    def _begin(self) -> None:
        name = f"alpenglow-{self._name}"
        thread = threading.Thread(target=_serve, args=(self,), name=name, daemon=True)
        thread.start()
        self._thread = thread

    def run_here(self, request: Request) -> None:
        """Run a request in this thread, if it is the first and nothing runs."""
        if self._turn.locked():
            return
        with self._turn:
            try:
                with self._lock:
                    first = self._waiting.first()
                    if first is None or first[2] is not request:
                        return
                    self._current = self._waiting.take()
                if request.start():
                    request.run()
            except BaseException as error:  # an interrupt, between two instructions of ours
                request.fail(error)
            finally:
                self._current = None

    def run_next(self) -> bool:
        """Run the first request, if there is one; return whether there was."""
        with self._turn:
            with self._lock:
                self._current = request = self._waiting.take()
                self._sleeps = request is None
            if request is not None and request.start():
                request.run()
            self._current = None
        return request is not None

    def sleep(self) -> bool:
        """Return when there may be something to run; False once this is closed."""
        if not self._closed:
            self._bell.get()
        return not self._closed


def _serve(manager: Manager) -> None:
    while manager.run_next() or manager.sleep():
        pass


def submit(
    exe: Managed, arrays: Mapping[str, Any], outputs: Sequence[str] | None,
    priority: int, deadline: float | None,
) -> Future[Results]:  # fmt: skip
    """Return a request for a call of an Executable; raise FeedError if names do not fit."""
    feeds.named(arrays, exe.inputs)
    if outputs is not None:
        feeds.chosen(outputs, exe.outputs)
    queue = exe.manager or _managed(exe)
    return queue.submit(partial(run, exe, arrays, outputs), priority, deadline)


def _managed(exe: Managed) -> Queue:
    """Return the manager of an Executable, made if need be; it ends with the Executable."""
    with _making:
        if exe.manager is None:
            exe.manager = manager = Manager(exe.name, MOST_WAITING)
            weakref.finalize(exe, manager.end).atexit = False
        return exe.manager


def run(
    exe: Managed, arrays: Mapping[str, Any], outputs: Sequence[str] | None, call: Call
) -> Results:
    """Return what `exe.run` returns, as a call that others may stop."""
    if outputs is None:
        row = [arrays[name] for name in exe.inputs]
        place = exe.short_place(row)
        if place is not None:
            plain = short.run(place, row, exe.threads, exe.running, call)
            if plain is not None:
                return dict(zip(place[0].results, plain, strict=True))
    return exe.run_some(arrays, None, outputs, call)


def check(priority: int, deadline: float | None) -> None:
    """Raise OptionError if these are none, TimeLimitError if the deadline has passed."""
    if not isinstance(priority, int):
        raise OptionError(f"priority is {priority!r}, expected a whole number, higher ones first")
    if deadline is None:
        return
    if isinstance(deadline, bool) or not isinstance(deadline, int | float):
        raise OptionError(f"deadline is {deadline!r}, expected a time of time.monotonic()")
    if not deadline - time.monotonic() < MOST_SECONDS:  # NaN is none, either
        raise OptionError(
            f"deadline is {deadline!r}, expected a time of time.monotonic(), which is "
            f"{time.monotonic():.1f} now, within {MOST_SECONDS / YEAR:.0f} years",
            hint="time.monotonic() + 0.1, not time.time() + 0.1",
        )
    if calls.is_over(deadline):
        raise TimeLimitError(
            "the deadline had passed when the request came",
            hint="deadlines are times of time.monotonic(): time.monotonic() + 0.1",
        )


def full(name: str, waiting: int) -> BusyError:
    """Return the error for who comes when so many wait."""
    return BusyError(
        f"{shown(name)} is busy: {waiting} requests wait, and no more may",
        hint="submit again when some of them are done, or elsewhere",
    )


_making = threading.Lock()
_managers: weakref.WeakSet[Manager] = weakref.WeakSet()
_requests: weakref.WeakSet[Request] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no code run while the process ends, unless it does not look."""
    for manager in list(_managers):
        manager.close()


def _reset_all() -> None:
    global _making
    _making = threading.Lock()
    for manager in list(_managers):
        manager._reset()
    for request in list(_requests):
        request.lose()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
