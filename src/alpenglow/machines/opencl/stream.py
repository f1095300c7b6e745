"""Streams: queues of a device, in each of which things are done in the order they are begun.

What is begun returns an event.  Others may wait for it in other streams, so that it is sent to the
device at once.  Arrays of the host are kept until the device has done with them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from ctypes import byref, c_int32, c_void_p
from typing import Any

from alpenglow.base.errors import DeviceError
from alpenglow.base.locks import new_lock
from alpenglow.machines.opencl.library import check, library, named

PROFILING = 1 << 1
_STATUS = 0x11D3


class Event:
    """What a device was told to do; its handle is given back with it."""

    __slots__ = ("_release", "handle")

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle
        self._release = library().clReleaseEvent

    def status(self) -> int:
        """Return 0 if it is done, less if it failed, more if it is still to do."""
        status = c_int32()
        about = (_STATUS, 4, byref(status), None)
        check(library().clGetEventInfo(self.handle, *about), "tell what is done")
        return status.value

    def wait(self) -> None:
        """Return when it is done.  Raises DeviceError if it failed."""
        code = library().clWaitForEvents(1, byref(self.handle))
        if code:
            status = self.status()  # -1 says nothing
            raise DeviceError(
                f"the device failed while it ran: {named(status if status < -1 else code)}",
                hint="run it again in a new process: what is on the device may be lost",
            )

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._release(self.handle)


class Stream:
    """One queue.  Threads may share it."""

    def __init__(self, context: int, device: int, properties: int = 0) -> None:
        code = c_int32()
        create = library().clCreateCommandQueue
        self.queue = c_void_p(create(context, device, properties, byref(code)))
        check(code.value, "make a queue")
        self._kept: deque[tuple[Event, Any]] = deque()
        self._turn = new_lock()

    def begin(
        self,
        enqueue: Callable[..., int],
        *arguments: Any,
        after: Iterable[Event | None] = (),
        keep: Any = None,
    ) -> Event:
        """Give the device a command, and `keep` what it uses until it is done."""
        self._forget()
        event = c_void_p()
        code = enqueue(self.queue, *arguments, *waits(after), byref(event))
        check(code, f"begin {enqueue.__name__.removeprefix('clEnqueue')}")
        begun = Event(event)
        self.flush()
        if keep is not None:
            self._kept.append((begun, keep))
        return begun

    def mark(self, after: Iterable[Event | None] = ()) -> Event:
        """Return an event that happens when all is done that has begun, and what it comes after."""
        return self.begin(library().clEnqueueMarkerWithWaitList, after=after)

    def flush(self) -> None:
        """Send what has begun to the device."""
        check(library().clFlush(self.queue), "send commands to the device")

    def finish(self) -> None:
        """Return when all is done that has begun."""
        check(library().clFinish(self.queue), "finish what has begun")

    def _forget(self) -> None:
        """Keep no longer what was used by what is done."""
        if self._kept:
            with self._turn:
                while self._kept and self._kept[0][0].status() <= 0:
                    self._kept.popleft()


def waits(after: Iterable[Event | None]) -> tuple[int, Any]:
    """Return how many events a command waits for, and an array of them."""
    handles = [event.handle for event in after if event is not None]
    if not handles:
        return 0, None
    return len(handles), (c_void_p * len(handles))(*handles)
