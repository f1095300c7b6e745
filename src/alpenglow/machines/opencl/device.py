"""An OpenCL device: its memory, its streams, and the kernels that it runs."""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int32, c_void_p
from functools import cached_property

from alpenglow.base import knobs
from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import DeviceError
from alpenglow.base.locks import new_lock
from alpenglow.base.store import Store
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Artifact, Launch
from alpenglow.machines.opencl.devices import DeviceFacts, handles
from alpenglow.machines.opencl.library import (
    OUT_OF_MEMORY,
    ask,
    check,
    library,
    named,
    number,
)
from alpenglow.machines.opencl.program import build, release
from alpenglow.machines.opencl.recording import Kernel, Recording, is_empty
from alpenglow.machines.opencl.stream import PROFILING, Event, Stream

_KDL_OPENCL = 4
_BEGUN, _ENDED = 0x1282, 0x1283
_UNDEFINED = 1 << 1  # of memory that moves to a device, the contents are of no interest


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has not enough memory.  It can be used all the same."""


class Memory:
    """Memory of a device."""

    __slots__ = ("handle", "nbytes")

    def __init__(self, handle: int, nbytes: int) -> None:
        self.handle = handle
        self.nbytes = nbytes


class Code:
    """Programs by the names of their kernels."""

    def __init__(self, programs: Mapping[str, int]) -> None:
        self.programs = programs
        for program in programs.values():
            weakref.finalize(self, release, program).atexit = False


class OpenClDevice:
    """A `machines.api.Device`.  There is one for each device, which executables share."""

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts = facts
        self.in_use_nbytes = 0
        """How much memory is allocated."""
        platform, self.device = handles(facts)
        code = c_int32()
        properties = (ctypes.c_ssize_t * 3)(0x1084, platform, 0)
        self.context: int = library().clCreateContext(
            properties, 1, byref(c_void_p(self.device)), None, None, byref(code)
        )
        check(code.value, f"open {facts.target} ('{facts.name}')")
        self.kernels = self._stream()
        # A processor copies by the cores that run kernels: more streams are more to wait for.
        alone = facts.kind == "cpu"
        self.uploads = self.kernels if alone else self._stream()
        self.downloads = self.kernels if alone else self._stream()
        self._turn = new_lock()
        atexit.register(self.finish)

    def _stream(self, properties: int = 0) -> Stream:
        return Stream(self.context, self.device, properties)

    @cached_property
    def _timed(self) -> Stream:
        return self._stream(PROFILING)

    @property
    def dlpack(self) -> tuple[int, int]:
        """OpenCL's type of device, and the number of this one."""
        return _KDL_OPENCL, self.facts.index

    # Memory.

    def handle(self, memory: Memory) -> int:
        """Return memory as a cl_mem."""
        return memory.handle

    def allocate(self, nbytes: int) -> Memory:
        """Return new memory.  Raises DeviceMemoryError where there is not enough."""
        code = c_int32()
        with self._turn:
            if self.in_use_nbytes + nbytes > self.facts.memory_nbytes:
                raise self._lacks(nbytes, "")
            handle = library().clCreateBuffer(self.context, 1, max(1, nbytes), None, byref(code))
            if code.value in OUT_OF_MEMORY:
                raise self._lacks(nbytes, f": {named(code.value)}")
            check(code.value, f"allocate {nbytes} bytes")
            self.in_use_nbytes += nbytes
        memory = Memory(handle, nbytes)
        self._settle(memory)
        return memory

    def _settle(self, memory: Memory) -> None:
        """Have memory of a device of its own found now: drivers put that off to its first use."""
        if self.facts.kind == "cpu":
            return
        move = library().clEnqueueMigrateMemObjects
        try:
            self.kernels.begin(move, 1, byref(c_void_p(memory.handle)), _UNDEFINED).wait()
        except DeviceError as error:
            self.free(memory)
            raise self._lacks(memory.nbytes, f": {error.message}") from None

    def _lacks(self, nbytes: int, why: str) -> DeviceMemoryError:
        facts = self.facts
        return DeviceMemoryError(
            f"{facts.target} ('{facts.name}') has not {_told(nbytes)} more memory: "
            f"{_told(self.in_use_nbytes)} of {_told(facts.memory_nbytes)} are in use here, and "
            f"{_told(facts.largest_nbytes)} can be had at once{why}",
            hint="a smaller batch, weights in fewer bits, fewer models at a time, another device",
        )

    def free(self, memory: Memory) -> None:
        """Give memory back; the runtime keeps it as long as what has begun uses it."""
        library().clReleaseMemObject(memory.handle)
        with self._turn:
            self.in_use_nbytes -= memory.nbytes

    # Copies.

    def upload(
        self, memory: Memory, offset: int, data: Array, after: Sequence[Event | None] = ()
    ) -> Event:
        """Begin to copy bytes of the host, u8[n], to memory."""
        if not data.size:
            return self.uploads.mark(after)
        return self.uploads.begin(
            library().clEnqueueWriteBuffer, memory.handle, 0, offset, data.nbytes,
            data.ctypes.data, after=after, keep=(data, memory),
        )  # fmt: skip

    def download(
        self, memory: Memory, offset: int, data: Array, after: Sequence[Event | None] = ()
    ) -> Event:
        """Begin to copy memory to bytes of the host, u8[n]."""
        if not data.size:
            return self.downloads.mark(after)
        return self.downloads.begin(
            library().clEnqueueReadBuffer, memory.handle, 0, offset, data.nbytes,
            data.ctypes.data, after=after, keep=(data, memory),
        )  # fmt: skip

    def copy(
        self, to: Argument, source: Argument, nbytes: int, after: Sequence[Event | None] = ()
    ) -> Event:
        """Begin to copy memory to other memory, in the stream of kernels."""
        if not nbytes:
            return self.kernels.mark(after)
        return self.kernels.begin(
            library().clEnqueueCopyBuffer, source[0].handle, to[0].handle, source[1], to[1],
            nbytes, after=after,
        )  # fmt: skip

    # Kernels.

    def install(self, artifact: Artifact) -> Code:
        """Return the code of an artifact, whose objects are texts of OpenCL C.

        With two threads PoCL compiles them in 2/3 of the time, Intel's runtime in 9/10.
        """
        store = Store(knobs.cache_folder())

        def built(item: tuple[str, bytes]) -> int:
            return build(self.context, self.facts, item[0], item[1].decode(), store)

        with ThreadPoolExecutor(default_threads()) as pool:
            programs = list(pool.map(built, artifact.objects.items()))
        return Code(dict(zip(artifact.objects, programs, strict=True)))

    def record(self, code: Code, launches: Sequence[Launch]) -> Recording:
        """Return a list of launches; those of empty grids are left out."""
        kernels = [
            Kernel(code.programs[launch.kernel], self.device, launch)
            for launch in launches
            if not is_empty(launch)
        ]
        return Recording(kernels, self.kernels)

    def replay(self, recording: Recording, after: Sequence[Event | None] = ()) -> Event:
        """Begin to run a list."""
        return recording.run(self.kernels, after)

    def wait(self, event: Event | None) -> None:
        """Return when an event has happened.  Raises DeviceError where it failed."""
        if event is not None:
            event.wait()

    def seconds(self, code: Code, launch: Launch) -> float:
        """Run a kernel alone and return how long it took on the device."""
        if is_empty(launch):
            return 0.0
        recording = Recording(
            [Kernel(code.programs[launch.kernel], self.device, launch)], self._timed
        )
        self.finish()
        event = recording.run(self._timed, ())
        event.wait()
        cl = library()
        begun, ended = (
            number(ask(cl.clGetEventProfilingInfo, event.handle, about=about))
            for about in (_BEGUN, _ENDED)
        )
        return (ended - begun) / 1e9

    def finish(self) -> None:
        """Return when all streams have done what was begun."""
        for stream in (self.uploads, self.kernels, self.downloads):
            stream.finish()


_opened: dict[int, OpenClDevice] = {}
_opening = new_lock()


def device_of(facts: DeviceFacts) -> OpenClDevice:
    """Return the device itself: the same one whenever it is asked for.  It stays open."""
    with _opening:
        if facts.index not in _opened:
            _opened[facts.index] = OpenClDevice(facts)
        return _opened[facts.index]


def _told(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MB" if nbytes < 2**30 else f"{nbytes / 2**30:.1f} GB"
