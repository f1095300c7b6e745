"""Running an artifact on a device with memory of its own, as its `itinerary` says.

Constants are copied to the device once and for all.  The addresses that kernels get are the same in
every call, so each run of entries is a list that the device has recorded.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpenglow.base.memory import aligned_bytes, bytes_of
from alpenglow.ir.dims import bind
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Artifact, Device, Entry, Launch
from alpenglow.program import Instr, Program, Region
from alpenglow.program.interpret import Memory, step
from alpenglow.runtime.calls import StopWord
from alpenglow.runtime.faults import Faults, check_in
from alpenglow.runtime.itinerary import Here, Move, Run, itinerary, on_device

WORD = 8
"""The bytes of a word in which a kernel leaves a fault."""


class Constants:
    """The constants that kernels of an artifact read, on a device, for as long as this is kept."""

    def __init__(self, artifact: Artifact, device: Device) -> None:
        program = artifact.program
        self.places: dict[str, Argument] = {}
        for name in on_device(zip(artifact.table, program.instrs(), strict=True)):
            b = program.buffers[name]
            if b.array is None:
                continue
            self.places[name] = _allocated(self, device, b.array.nbytes), 0
            if b.array.nbytes:
                device.wait(device.upload(*self.places[name], bytes_of(b.array)))


class Remote:
    """A program whose extents are numbers, on a device.  Calls run one after another."""

    def __init__(
        self, program: Program, table: Sequence[Entry], device: Device, code: Any,
        constants: Constants, values: Mapping[str, int],
    ) -> None:  # fmt: skip
        """`values` are those of the symbols that entries of the table name."""
        self.program, self.device = program, device
        self._turn = threading.Lock()
        self._constants = constants
        self._places = dict(constants.places)
        steps = list(zip(table, program.instrs(), strict=True))
        self._instrs = [instr for _, instr in steps]
        self.legs = itinerary(program, table)
        arena = None
        for name in on_device(steps):
            b = program.buffers[name]
            if name in self._places:
                continue
            if b.space != "arena":
                self._places[name] = _allocated(self, device, int(b.nbytes)), 0
                continue
            if arena is None:
                arena = _allocated(self, device, program.arena)
            assert b.offset is not None, "memory is planned"
            self._places[name] = arena, b.offset
        self._faults = _FaultWords(self, steps, device)
        self.launches = [
            self._launch(entry, instr, values) if entry.kernel else None for entry, instr in steps
        ]
        self._recorded = {
            leg: device.record(code, [x for x in self.launches[leg.begin : leg.end] if x])
            for leg in self.legs
            if isinstance(leg, Run)
        }
        # Only what passes between the two sides needs memory here.
        self._meets = any(isinstance(leg, Here) for leg in self.legs)

    def run(self, feeds: Mapping[str, Array], results: Mapping[str, Array], stop: StopWord) -> None:
        """Run on inputs and write results, both by the names of buffers.

        Ends between two legs once the stop word is set.  Raises FeedError where a kernel found
        data that are out of range.
        """
        program, device = self.program, self.device
        host = Memory(program, aligned_bytes(program.arena if self._meets else 0))
        for name, array in (*feeds.items(), *results.items()):
            host.bytes[name] = bytes_of(array)
        with self._turn:
            before: list[Any] = []
            for leg in self.legs:
                if stop.is_set():
                    break
                match leg:
                    case Move(name, "device") if host.bytes[name].size:
                        before.append(device.upload(*self._places[name], host.bytes[name]))
                    case Move(name, "host") if host.bytes[name].size:
                        device.wait(device.download(*self._places[name], host.bytes[name], before))
                    case Run():
                        before = [device.replay(self._recorded[leg], before)]
                    case Here(number):
                        step(host, self._instrs[number])
            for event in before:
                device.wait(event)
            if not stop.is_set():
                self._faults.check(device)

    def _launch(self, entry: Entry, instr: Instr, values: Mapping[str, int]) -> Launch:
        """Return what is launched for an entry."""
        arguments = [self._argument(r) for r in (*instr.outs, *instr.reads())]
        arguments += self._faults.places(instr) if entry.faults else []
        groups, numbers = (
            tuple(int(bind(d, values)) for d in dims) for dims in (entry.groups, entry.extents)
        )
        return Launch(entry.kernel, tuple(arguments), numbers, groups or (1,), entry.threads)

    def _argument(self, r: Region) -> Argument:
        memory, base = self._places[r.buffer]
        return memory, base + int(r.offset) * r.type.numpy.itemsize


def _allocated(owner: object, device: Device, nbytes: int) -> Any:
    """Return memory of a device that is freed when its owner is dropped."""
    memory = device.allocate(nbytes)
    weakref.finalize(owner, device.free, memory)
    return memory


class _FaultWords:
    """Words on the device in which kernels leave what they find out of range, one for each.

    The first is what they set instead of a stop word, which nobody looks at.
    """

    def __init__(self, owner: object, steps: list[tuple[Entry, Instr]], device: Device) -> None:
        checks = [instr for entry, instr in steps if entry.faults]
        self._numbers = {id(instr): 1 + i for i, instr in enumerate(checks)}
        self._faults = Faults([check_in(i) for i in checks], 1, lambda _: {}) if checks else None
        self._words = np.zeros(1 + len(checks), np.int64)
        if self._faults is not None:
            self._memory = _allocated(owner, device, self._words.nbytes)
            device.wait(device.upload(self._memory, 0, bytes_of(self._words)))

    def places(self, instr: Instr) -> list[Argument]:
        """Return where a kernel finds the two words that it writes."""
        return [(self._memory, 0), (self._memory, WORD * self._numbers[id(instr)])]

    def check(self, device: Device) -> None:
        """Raise FeedError if one holds anything, and forget it."""
        if self._faults is None:
            return
        device.wait(device.download(self._memory, 0, bytes_of(self._words)))
        if self._words.any():
            self._faults.found(self._words[1:])
            self._words.fill(0)
            device.wait(device.upload(self._memory, 0, bytes_of(self._words)))
            raise self._faults.error()
