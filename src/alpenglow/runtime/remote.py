"""Running an artifact on a device with memory of its own.

Entries with a kernel run on the device, all others are interpreted here.  Each buffer knows where
its newest contents are, and is copied to the other side when an instruction there needs it: inputs
and outputs once a call, constants once and for all, and what lies between two entries that run on
the same side never.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Literal

from alpenglow.base.memory import aligned_bytes, bytes_of
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Artifact, Device, Entry
from alpenglow.program import Instr, Region
from alpenglow.program.interpret import Memory, step
from alpenglow.runtime.calls import StopWord

Side = Literal["host", "device"]


class Remote:
    """An artifact that is installed on a device.  Calls run one after another."""

    def __init__(self, artifact: Artifact, device: Device) -> None:
        self.artifact = artifact
        self._device = device
        self._code = device.install(artifact)
        self._turn = threading.Lock()
        self._places: dict[str, Argument] = {}
        program = artifact.program
        self._steps = list(zip(artifact.table, program.instrs(), strict=True))
        arena = self._allocated(program.arena)
        for name in self._on_device():
            b = program.buffers[name]
            if b.space == "arena":
                assert b.offset is not None, "memory is planned"
                self._places[name] = arena, b.offset
                continue
            self._places[name] = self._allocated(b.nbytes), 0
            if b.array is not None and b.nbytes:
                device.upload(*self._places[name], bytes_of(b.array))

    def run(self, feeds: Mapping[str, Array], results: Mapping[str, Array], stop: StopWord) -> None:
        """Run on inputs and write results, both by the names of buffers.

        Ends between two instructions once the stop word is set.
        """
        program = self.artifact.program
        host = Memory(program, aligned_bytes(program.arena))
        for name, array in (*feeds.items(), *results.items()):
            host.bytes[name] = bytes_of(array)
        with self._turn:
            newest = _Newest(self._device, self._places, host, set(feeds))
            for entry, instr in self._steps:
                if stop.is_set():
                    return
                if entry.kernel:
                    newest.prepare(instr, "device")
                    self._device.run(self._code, entry, self.arguments(instr))
                else:
                    newest.prepare(instr, "host")
                    step(host, instr)
            for name in results:
                newest.bring(name, "host")

    def seconds(self, entry: Entry, instr: Instr) -> float:
        """Return how long an entry takes on the device, on what lies in memory there."""
        with self._turn:
            return self._device.seconds(self._code, entry, self.arguments(instr))

    def arguments(self, instr: Instr) -> list[Argument]:
        """Return where the results and operands of an instruction lie on the device."""
        return [self._argument(r) for r in (*instr.outs, *instr.reads())]

    def _argument(self, r: Region) -> Argument:
        memory, base = self._places[r.buffer]
        return memory, base + r.offset * r.type.numpy.itemsize

    def _on_device(self) -> list[str]:
        """Return the buffers that entries with kernels read or write, in order of their use."""
        regions = (r for entry, instr in self._steps if entry.kernel
                   for r in (*instr.outs, *instr.reads()))  # fmt: skip
        return list(dict.fromkeys(r.buffer for r in regions))

    def _allocated(self, nbytes: int) -> Any:
        """Return memory of the device that is freed when this is dropped."""
        memory = self._device.allocate(nbytes)
        weakref.finalize(self, self._device.free, memory)
        return memory


class _Newest:
    """Where the newest contents of each buffer are during a call."""

    def __init__(
        self, device: Device, places: Mapping[str, Argument], host: Memory, inputs: set[str]
    ) -> None:
        self._device, self._places, self._host = device, places, host
        # What nobody has written may be anything on either side; constants are on both.
        self._old_on: dict[str, Side] = dict.fromkeys(inputs, "device")

    def prepare(self, instr: Instr, side: Side) -> None:
        """Bring what an instruction reads or writes to one side; its results are new there."""
        for r in (*instr.reads(), *instr.outs):
            self.bring(r.buffer, side)
        for r in instr.outs:
            self._old_on[r.buffer] = "host" if side == "device" else "device"

    def bring(self, name: str, side: Side) -> None:
        """Copy a buffer to one side if what is there is old."""
        if self._old_on.get(name) != side or name not in self._places:
            return
        move = self._device.upload if side == "device" else self._device.download
        if self._host.bytes[name].size:
            move(*self._places[name], self._host.bytes[name])
        del self._old_on[name]
