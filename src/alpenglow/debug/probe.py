"""Calling functions in a process of their own, so that a crash or a hang is but an answer.

The process is kept from call to call, and replaced when a call kills it or outlasts its time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Literal

if sys.platform != "win32":
    import resource

STARTING = 600.0
"""Seconds that a process may take until it answers: it imports all that its function needs."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What became of a process that did not answer: `how` names the signal or the exit status."""

    kind: Literal["crash", "hang"]
    how: str


class Probe:
    """Calls functions of modules with arguments that can be pickled; one call at a time.

    A call returns what the function returns, or Lost.  `seconds` limits each call; `nbytes`, where
    the system has such limits, how much memory the process may address beyond what it has when it
    is ready.  Exceptions in the function end the process: what may raise is caught inside.
    """

    def __init__(self, seconds: float, nbytes: int = 0) -> None:
        self.seconds = seconds
        self.nbytes = nbytes
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        pipe = self._pipe or self._started(function)
        if pipe is None:
            return Lost("hang", f"not ready in {STARTING:g} s")
        try:
            pipe.send((function, arguments))
            if not pipe.poll(self.seconds):
                self.close()
                return Lost("hang", f"no answer in {self.seconds:g} s")
            return pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            how = _name(self._process.exitcode)
            self.close()
            return Lost("crash", how)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _started(self, function: Callable[..., Any]) -> Connection | None:
        """Start a process and return the way to it; None if it is not ready in time."""
        # Not forked: threads, and what crashed calls left behind, stay on this side.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._pipe = ours
        self._process = context.Process(target=_serve, args=(theirs, self.nbytes), daemon=True)
        self._process.start()
        theirs.close()
        # Pickling the function's name makes the process import its module before the clock runs.
        with contextlib.suppress(ConnectionError, EOFError):
            ours.send(function)
            if not ours.poll(STARTING):
                # What it says later would be taken for the answer to the first call.
                self.close()
                return None
            ours.recv()
        return ours


def _serve(pipe: Connection, nbytes: int) -> None:
    """Answer calls until the other side hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError):
        pipe.recv()
        if nbytes:
            _limit(nbytes)
        pipe.send(None)
        while True:
            function, arguments = pipe.recv()
            pipe.send(function(*arguments))


def _limit(nbytes: int) -> None:
    """Let this process address `nbytes` more than now, where the system knows such a limit."""
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            held = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + nbytes, held + nbytes))


def _name(status: int) -> str:
    """Return the name of the signal that a process died of, or its exit status in words."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"exit status {status}"
