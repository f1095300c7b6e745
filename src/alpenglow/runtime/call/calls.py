"""Calls that end before they are done: stop words, who sets them, and who waits meanwhile.

Compiled code looks at the stop word of its call and runs out quickly once that is not 0.  It is set
by `Executable.cancel`, when the time of a call is up, by an interrupt, and by code that finds data
out of range (`kernel.faults`).  Python handles signals
in its main thread and between its own instructions only, so a call that may be long runs on a
thread of its own, while the caller waits where it can be interrupted.  Whatever ends the waiting,
the caller goes on only when the code has ended: it works on the caller's memory.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Protocol

from alpenglow.base.errors import AlpenglowError, CancelledError, OptionError, TimeLimitError
from alpenglow.kernel.faults import OUT_OF_RANGE

CANCELLED, TIMED_OUT, INTERRUPTED = 1, 2, 3
"""What a stop word can hold but 0 and OUT_OF_RANGE: why."""

LONG = 20e-3
"""Seconds from which on a call is long: it then runs on a thread of its own."""

SLICE = 0.05 if os.name == "nt" else None
"""Seconds after which a waiting thread looks for signals where they do not wake it."""

MOST_IDLE = 8
"""How many threads are kept for calls to come."""


class StopWord:
    """An i64 that compiled code reads, and when it is to be set if it is not before.

    `fault` tells which data the code found out of range.
    """

    __slots__ = ("address", "deadline", "fault", "word")

    def __init__(self, fault: Callable[[], AlpenglowError] | None = None) -> None:
        self.fault = fault
        self.word = ctypes.c_int64()
        self.address = ctypes.addressof(self.word)
        self.deadline: float | None = None

    def is_set(self) -> bool:
        """Whether the code is to end."""
        if is_over(self.deadline):
            self.stop(TIMED_OUT)
        return bool(self.word.value)

    def stop(self, reason: int) -> None:
        """Tell the code to end, unless it has been told."""
        if not self.word.value:
            self.word.value = reason

    def check(self) -> None:
        """Raise what the word stands for, unless that is nothing."""
        if self.word.value == OUT_OF_RANGE:
            assert self.fault is not None, "this code checks no data"
            raise self.fault()
        if self.word.value:
            raise _error(self.word.value)


class Call:
    """A call of several parts, of which at most one runs: what stops it stops that and the rest."""

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self._reason = 0
        self._part: StopWord | None = None

    def stop(self, reason: int) -> None:
        """End the call."""
        self._reason = self._reason or reason
        if (part := self._part) is not None:
            part.stop(reason)

    def check(self) -> None:
        """Raise CancelledError or TimeLimitError if the call is to end."""
        if self.deadline is not None and not self._reason and is_over(self.deadline):
            self._reason = TIMED_OUT
        if self._reason:
            raise _error(self._reason)

    def begin(self, part: StopWord) -> None:
        """Set the part that runs now; raise as `check` if the call is to end."""
        part.deadline = self.deadline
        self._part = part
        if self._reason or self.deadline is not None:  # set before `stop` could see the part
            self.check()

    def end(self) -> None:
        """Say that the part has ended."""
        self._part = None


Results = dict[str, Any]
"""The outputs of a call by name."""

Work = Callable[[Call], Results]
"""Returns the outputs; the call is what stops it."""


class Queue(Protocol):
    """Runs one call after another.  `runtime.call.requests.Manager` is one; nothing imports that
    module before the first request."""

    def submit(
        self, work: Work, priority: int = 0, deadline: float | None = None
    ) -> Future[Results]:
        """Return a future of the outputs of `work`."""
        ...


@contextmanager
def part(stop: StopWord, call: Call | None) -> Iterator[None]:
    """Run code with a stop word in a block, as a part of `call`.

    Raises CancelledError or TimeLimitError if that is to end, or the word is set at the end.
    """
    stop.deadline = None
    if call is None:
        yield
    else:
        try:
            call.begin(stop)
            yield
        finally:
            call.end()
    stop.check()


def deadline_of(timeout: float | None) -> float | None:
    """Return when a call that begins now is to end; raise OptionError if `timeout` is no time."""
    if timeout is None:
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise OptionError(f"timeout is {timeout!r}, expected seconds, more than 0")
    return time.monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)


def end_of(deadline: float | None, timeout: float | None) -> float | None:
    """Return the deadline of a request that is given one of these; OptionError if both."""
    if timeout is None:
        return deadline
    if deadline is not None:
        raise OptionError("deadline and timeout are both given, expected one of them")
    return deadline_of(timeout)


def is_over(deadline: float | None) -> bool:
    """Whether it is later than that."""
    return deadline is not None and time.monotonic() >= deadline


def run_apart(code: Callable[[], None], stop: StopWord) -> None:
    """Run what looks at a stop word on another thread, and wait for its end.

    The word is set at its deadline.  What a signal's handler raises in the caller sets it, too, and
    is raised when the code has ended.  Where there is nothing to wait for (signals come to the main
    thread alone), or no thread can be started, the caller runs the code.
    """
    if stop.deadline is None and threading.get_ident() != threading.main_thread().ident:
        code()
        return
    runner = _Runner.take()
    if runner is None:
        code()
        return
    job = _Job(code)
    try:
        runner.todo.put(job)
        if not job.wait(stop.deadline):
            stop.stop(TIMED_OUT)
            job.wait(None)
    except BaseException:
        runner.settle(stop)
        raise
    finally:
        runner.give_back()
    if job.error is not None:
        raise job.error


class _Job:
    """Something to run once, and what came of it."""

    def __init__(self, code: Callable[[], None]) -> None:
        self._code = code
        self._ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._code()
        except BaseException as error:  # raised again where it is waited for
            self.error = error
        finally:
            self._ended.set()

    def wait(self, deadline: float | None) -> bool:
        """Wait for the end, until the deadline; return whether it has come."""
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            span = left if SLICE is None or left is None else min(left, SLICE)
            if self._ended.wait(SLICE if span is None else span):
                return True
            if is_over(deadline):
                return False


class _Runner:
    """A thread that runs jobs one after the other."""

    idle: list[_Runner] = []  # noqa: RUF012  (threads of this process that wait for work)

    def __init__(self) -> None:
        self.todo: SimpleQueue[_Job | None] = SimpleQueue()
        name = "alpenglow-call"
        threading.Thread(target=_serve, args=(self.todo,), name=name, daemon=True).start()

    @classmethod
    def take(cls) -> _Runner | None:
        """Return one that has nothing to do; None where no more threads can be started."""
        try:
            return cls.idle.pop()  # in one step: other threads do the same
        except IndexError:
            pass
        try:
            return cls()
        except RuntimeError:
            return None

    def give_back(self) -> None:
        """Keep it for another call."""
        if len(self.idle) < MOST_IDLE:
            self.idle.append(self)
        else:
            self.todo.put(None)

    def settle(self, stop: StopWord) -> None:
        """Stop what was put here, and wait until it has ended, however often that is interrupted.

        Jobs run in order: a last one that does nothing ends after it, if it ever came here.
        """
        while True:
            try:
                stop.stop(INTERRUPTED)
                last = _Job(lambda: None)
                self.todo.put(last)
                last.wait(None)
                return
            except BaseException:  # the first one is raised by the caller
                continue


def _serve(todo: SimpleQueue[_Job | None]) -> None:
    while (job := todo.get()) is not None:
        job.run()
        del job  # it holds the arrays of a call


def _error(reason: int) -> AlpenglowError:
    if reason == TIMED_OUT:
        return TimeLimitError("the call took longer than its timeout", hint="a longer timeout")
    return CancelledError("the call was cancelled")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Runner.idle.clear)
