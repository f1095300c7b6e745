"""Running an artifact on a device with memory of its own, as its `itinerary` says.

Constants are copied to the device once and for all.  The addresses that kernels get are the same in
every call, so each run of entries is a list that the device has recorded.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.base.locks import new_lock
from alpenglow.base.memory import aligned_bytes, bytes_of
from alpenglow.ir.dims import bind
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Artifact, Device, Entry, Event, Launch
from alpenglow.program import Instr, Program, Region
from alpenglow.program.interpret import Memory, step
from alpenglow.runtime.call.calls import StopWord
from alpenglow.runtime.call.faults import Faults, check_in
from alpenglow.runtime.device.itinerary import Here, Hop, Leg, Move, Run, Side, itinerary, on_device

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


@dataclass(frozen=True, slots=True)
class Lap:
    """The seconds of each instruction in a run, in all its turns, and of copies to each side."""

    instrs: tuple[float, ...]
    copies: Mapping[Side, float]


class Remote:
    """A program whose extents are numbers, on a device.

    Calls run one after another, but the inputs of one may be copied while the one before runs: they
    have memory in two `slots`, by turns.
    """

    def __init__(
        self, program: Program, table: Sequence[Entry], device: Device, code: Any,
        constants: Constants, values: Mapping[str, int],
    ) -> None:  # fmt: skip
        """`values` are those of the symbols that entries of the table name."""
        self.program, self.device, self._code = program, device, code
        self._turn = new_lock()
        self._constants = constants
        self._values = values
        self._steps = list(zip(table, program.instrs(), strict=True))
        self.itinerary = itinerary(program, table)
        self._places = constants.places | self._placed(
            n for n in on_device(self._steps) if n not in program.inputs
        )
        self._faults = _FaultWords(self, self._steps, device)
        self._last: Event = None  # of what runs on the device
        self._calls = 0
        self._slots = [self._slot()]
        # Only what passes between the two sides needs memory here.
        self._meets = any(isinstance(leg, Here | Hop) for leg in self.itinerary.legs)

    def run(self, feeds: Mapping[str, Any], results: Mapping[str, Any], stop: StopWord) -> None:
        """Run on inputs and write results, both by the names of buffers.

        Both are arrays of the host, or DeviceArrays: those are copied on the device, and results
        among them may come later than this returns.  Ends between two legs once the stop word is
        set.  Raises FeedError where a kernel found data that are out of range.
        """
        host = self._host(feeds, results)
        waits: list[Event] = []
        uploads: list[Event] = []
        fed = dict(feeds)
        with self._turn:
            slot = self._next_slot()
            for leg in self._legs(host):
                if stop.is_set():
                    break
                match leg:
                    case Move(name, "device"):
                        waits.append(self._bring(name, fed.get(name), host, slot))
                        uploads.append(waits[-1])
                    case Move(name, "host"):
                        self._fetch(name, host)
                    case Run():
                        self._last = self.device.replay(slot.recorded[leg], waits)
                        slot.last, waits = self._last, []
                    case Here(number):
                        step(host, self._steps[number][1])
                        for r in self._steps[number][1].outs:
                            fed.pop(r.buffer, None)  # what was fed is no longer what is there
            if not stop.is_set():
                for name, array in results.items():
                    self._hand_over(name, array, host)
                self._faults.check(self.device, self._last)
        for event in uploads:  # arrays of the host are the caller's again
            self.device.wait(event)

    def timed(self, feeds: Mapping[str, Array], results: Mapping[str, Array]) -> Lap:
        """Run as `run` does on arrays of the host, but one thing after the other, each timed.

        Kernels are timed by the device, what is done here by the clock.
        """
        host = self._host(feeds, results)
        seconds = [0.0] * len(self._steps)
        copies: dict[Side, float] = {"device": 0.0, "host": 0.0}
        with self._turn:
            slot = self._next_slot()
            launches = self._launches(slot)
            self.device.wait(self._last)
            for leg in self._legs(host):
                begin = time.perf_counter()
                match leg:
                    case Move(name, "device"):
                        self.device.wait(self._bring(name, feeds.get(name), host, slot))
                        copies["device"] += time.perf_counter() - begin
                    case Move(name, "host"):
                        self._fetch(name, host)
                        copies["host"] += time.perf_counter() - begin
                    case Run(first, end):
                        for number in range(first, end):
                            launch = launches[number]
                            assert launch is not None, "what runs there has a kernel"
                            seconds[number] += self.device.seconds(self._code, launch)
                    case Here(number):
                        step(host, self._steps[number][1])
                        seconds[number] += time.perf_counter() - begin
            begin = time.perf_counter()
            for name, array in results.items():
                self._hand_over(name, array, host)
            copies["host"] += time.perf_counter() - begin
            self._faults.check(self.device, self._last)
        return Lap(tuple(seconds), copies)

    def _legs(self, host: Memory) -> Iterator[Leg]:
        """Yield the legs of a call, as the jumps among them lead."""
        legs, at = self.itinerary.legs, 0
        while at < len(legs):
            leg, at = legs[at], at + 1
            if not isinstance(leg, Hop):
                yield leg
            elif step(host, self._steps[leg.number][1]) != 1:
                if leg.to < at:  # with data out of range a loop may never end
                    self._faults.check(self.device, self._last)
                at = leg.to

    def _host(self, feeds: Mapping[str, Any], results: Mapping[str, Any]) -> Memory:
        """Return the memory of a call on this side: the caller's arrays, and what meets them."""
        host = Memory(self.program, aligned_bytes(self.program.arena if self._meets else 0))
        for name, array in (*feeds.items(), *results.items()):
            if isinstance(array, np.ndarray):
                host.bytes[name] = bytes_of(array)
            elif self._meets:
                host.bytes[name] = bytes_of(array.numpy() if name in feeds else _empty(array))
        return host

    def _bring(self, name: str, array: Any, host: Memory, slot: _Slot) -> Event:
        """Begin to copy contents to the device, once nothing there reads what was before."""
        to = slot.places.get(name)
        after = [slot.last] if to else [self._last]
        to = to or self._places[name]
        if array is not None and not isinstance(array, np.ndarray):
            return self.device.copy(to, array.place, array.nbytes, [*after, array.ready])
        memory, offset = to
        event = self.device.upload(memory, offset, host.bytes[name], after)
        if name not in self.program.inputs:
            self.device.wait(event)  # the next instruction here may write where it was
        return event

    def _fetch(self, name: str, host: Memory) -> None:
        """Copy contents to the host, once they have been computed."""
        place = self._places[name]
        self.device.wait(self.device.download(*place, host.bytes[name], [self._last]))

    def _hand_over(self, name: str, array: Any, host: Memory) -> None:
        """Bring a result to where it is wanted."""
        if isinstance(array, np.ndarray):
            if name in self.itinerary.left:
                self._fetch(name, host)
        elif name in self.itinerary.left:
            place = self._places[name]
            self._last = array.ready = self.device.copy(
                array.place, place, array.nbytes, [self._last]
            )
        else:
            memory, offset = array.place
            self.device.wait(self.device.upload(memory, offset, host.bytes[name]))

    # ── memory and launches ──

    def _next_slot(self) -> _Slot:
        """Return memory for the inputs of a call."""
        self._calls += 1
        if len(self._slots) == 1 and self._calls > 1 and self.program.inputs:
            self._slots.append(self._slot())
        return self._slots[self._calls % len(self._slots)]

    def _slot(self) -> _Slot:
        used = set(on_device(self._steps))
        slot = _Slot(self._placed(n for n in self.program.inputs if n in used))
        launches = self._launches(slot)
        slot.recorded = {
            leg: self.device.record(self._code, [x for x in launches[leg.begin : leg.end] if x])
            for leg in self.itinerary.legs
            if isinstance(leg, Run)
        }
        return slot

    def _launches(self, slot: _Slot) -> list[Launch | None]:
        """Return what is launched for each entry; None for what is interpreted."""
        places = {**self._places, **slot.places}
        return [self._launch(*step, places) for step in self._steps]

    def _placed(self, names: Iterable[str]) -> dict[str, Argument]:
        """Return new memory for buffers, one for all that are in the arena."""
        places: dict[str, Argument] = {}
        arena = None
        for name in names:
            b = self.program.buffers[name]
            if b.array is not None:
                continue
            if b.space != "arena":
                places[name] = _allocated(self, self.device, int(b.nbytes)), 0
                continue
            if arena is None:
                arena = _allocated(self, self.device, self.program.arena)
            assert b.offset is not None, "memory is planned"
            places[name] = arena, b.offset
        return places

    def _launch(self, entry: Entry, instr: Instr, places: Mapping[str, Argument]) -> Launch | None:
        """Return what is launched for an entry; None if that has no kernel."""
        if not entry.kernel:
            return None
        arguments = [_argument(r, places) for r in (*instr.outs, *instr.reads())]
        arguments += self._faults.places(instr) if entry.faults else []
        groups, numbers = (
            tuple(int(bind(d, self._values)) for d in dims)
            for dims in (entry.groups, entry.extents)
        )
        return Launch(entry.kernel, tuple(arguments), numbers, groups or (1,), entry.threads)


class _Slot:
    """Memory for the inputs of a call, and the lists of launches that read them there.

    `last` is the event of the newest of these that has begun.
    """

    def __init__(self, places: dict[str, Argument]) -> None:
        self.places = places
        self.recorded: dict[Run, Any] = {}
        self.last: Event = None


def _argument(r: Region, places: Mapping[str, Argument]) -> Argument:
    memory, base = places[r.buffer]
    return memory, base + int(r.offset) * r.type.numpy.itemsize


def _empty(array: Any) -> Array:
    return np.empty(array.shape, array.dtype)


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
        self._faults = Faults([check_in(i) for i in checks], {}) if checks else None
        self._words = np.zeros(1 + len(checks), np.int64)
        if self._faults is not None:
            self._memory = _allocated(owner, device, self._words.nbytes)
            device.wait(device.upload(self._memory, 0, bytes_of(self._words)))

    def places(self, instr: Instr) -> list[Argument]:
        """Return where a kernel finds the two words that it writes."""
        return [(self._memory, 0), (self._memory, WORD * self._numbers[id(instr)])]

    def check(self, device: Device, after: Event) -> None:
        """Raise FeedError if one holds anything after an event, and forget it."""
        if self._faults is None:
            return
        device.wait(device.download(self._memory, 0, bytes_of(self._words), [after]))
        if self._words.any():
            self._faults.found(self._words[1:])
            self._words.fill(0)
            device.wait(device.upload(self._memory, 0, bytes_of(self._words)))
            raise self._faults.error()
