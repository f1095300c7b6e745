"""Recordings: kernels with all that they are given, which a stream runs again and again.

A kernel gets its buffers, then its numbers, then for each buffer where in it to begin, in bytes.

Launches are enqueued one by one.  On one core, of 100 kernels of 64 threads one takes 3.0 to 4.8 µs
on Intel's runtime and 3.5 to 5.0 µs on PoCL, of which 0.5 µs are Python's (bench/launches.py).  In
a command buffer (cl_khr_command_buffer) it takes 4.4 and 4.0 µs, no less: both runtimes enqueue its
kernels one by one, too, and one that still runs cannot be begun again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from ctypes import byref, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from itertools import zip_longest
from math import prod
from typing import Any

from alpenglow.base.errors import DeviceError
from alpenglow.machines.api import Launch
from alpenglow.machines.opencl.library import ask, check, library, number
from alpenglow.machines.opencl.stream import Event, Stream, waits

_GROUP_SIZE = 0x11B0
_I64 = c_int64


class Kernel:
    """A kernel whose arguments are set, and its grid."""

    def __init__(self, program: int, device: int, launch: Launch) -> None:
        cl, code = library(), c_int32()
        name = launch.kernel
        self.launch = launch  # what it is given stays
        self.handle = c_void_p(cl.clCreateKernel(program, name.encode(), byref(code)))
        check(code.value, f"take kernel '{name}'")
        weakref.finalize(self, cl.clReleaseKernel, self.handle).atexit = False
        buffers = [c_void_p(memory.handle) for memory, _ in launch.arguments]
        offsets = [_I64(offset) for _, offset in launch.arguments]
        for i, argument in enumerate([*buffers, *map(_I64, launch.numbers), *offsets]):
            code = cl.clSetKernelArg(self.handle, i, 8, byref(argument))
            check(code, f"give kernel '{name}' its argument {i}")
        self.grid = _grid(launch)
        most = number(ask(cl.clGetKernelWorkGroupInfo, self.handle, device, about=_GROUP_SIZE))
        if prod(launch.threads) > most:
            raise DeviceError(
                f"kernel '{name}' has groups of {prod(launch.threads)} threads, expected at most "
                f"{most} on this device"
            )


def _grid(launch: Launch) -> tuple[c_uint32, None, Any, Any]:
    """Return dimensions, no offset, how many threads there are, and how many are in a group."""
    axes = list(zip_longest(launch.groups or (1,), launch.threads, fillvalue=1))
    sizes = c_size_t * len(axes)
    total = sizes(*(g * t for g, t in axes))
    local = sizes(*(t for _, t in axes)) if launch.threads else None
    return c_uint32(len(axes)), None, total, local


def is_empty(launch: Launch) -> bool:
    """True if no thread would run."""
    return 0 in launch.groups or 0 in launch.threads


class Recording:
    """Kernels that run one after the other."""

    def __init__(self, kernels: Sequence[Kernel], stream: Stream) -> None:
        self.kernels = kernels
        calls = [(stream.queue, k.handle, *k.grid) for k in kernels]
        self._first, self._last = calls[:1], calls[-1:]
        self._between = [(*call, c_uint32(0), None, None) for call in calls[1:-1]]

    def run(self, stream: Stream, after: Iterable[Event | None]) -> Event:
        """Begin to run them."""
        enqueue = library().clEnqueueNDRangeKernel
        if not self.kernels:
            return stream.mark(after)
        event, before, codes = c_void_p(), waits(after), []
        if len(self.kernels) > 1:
            codes.append(enqueue(*self._first[0], *before, None))
            codes += [enqueue(*call) for call in self._between]
        # Intel's runtime runs what follows a kernel that failed: the last one waits for the same.
        codes.append(enqueue(*self._last[0], *before, byref(event)))
        for kernel, code in zip(self.kernels, codes, strict=True):
            check(code, f"begin kernel '{kernel.launch.kernel}'")
        begun = Event(event)
        stream.flush()
        return begun
