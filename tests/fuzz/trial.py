"""One instruction, run on copies of its operands between fences, once on each side."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.ir import dims
from alpenglow.machines.api import Entry
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.program.interpret import Memory, step
from alpenglow.program.text import print_program

from .fences import Fault, Plot, attempt
from .places import Place, operands, places

Array = NDArray[Any]

PIECES = 3
"""Into how many parts a parallel loop is cut."""

CANARY = 0xC3
"""The bytes of a page that belong to no operand."""

SIDES = ("end", "beginning")

LONG = 4000
"""How many characters of a program are enough to see what it is about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a kernel does that it may not: with which operand, and on which side of it."""

    kernel: str
    what: str
    operand: str
    side: str
    program: str

    def __str__(self) -> str:
        return f"{self.kernel}, flush with the {self.side}: {self.what}\n{self.program}"


@dataclass(slots=True)
class Tally:
    """How much was looked at: kernels by name, instructions, operands of them, and calls."""

    kernels: set[str] = field(default_factory=set)
    instructions: int = 0
    interpreted: int = 0
    operands: int = 0
    calls: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.kernels)} kernels, {self.instructions} instructions, {self.operands} "
            f"operands placed, {self.calls} calls; {self.interpreted} instructions interpreted"
        )

    def add(self, other: Tally) -> None:
        self.kernels |= other.kernels
        self.instructions += other.instructions
        self.interpreted += other.interpreted
        self.operands += other.operands
        self.calls += other.calls


class Plots:
    """Plots that one instruction after the other uses."""

    def __init__(self) -> None:
        self._plots: list[Plot] = []

    def __enter__(self) -> Plots:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for plot in self._plots:
            plot.close()

    def take(self, sizes: list[int]) -> list[Plot]:
        """Return a plot for each of so many bytes."""
        for i, nbytes in enumerate(sizes):
            if i == len(self._plots):
                self._plots.append(Plot(nbytes))
            elif self._plots[i].room < nbytes:
                self._plots[i].close()
                self._plots[i] = Plot(nbytes)
        return self._plots[: len(sizes)]


class Trial:
    """An instruction with the address of its kernel; `values` are those of open extents."""

    def __init__(
        self, entry: Entry, address: int, instr: Instr, memory: Memory,
        values: Mapping[str, int], plots: Plots,
    ) -> None:  # fmt: skip
        self._entry, self._address, self._instr = entry, address, instr
        self._memory = memory
        self._extent = number(entry.extent, values)
        # Nobody looks at what it finds: the program runs on its own, too.
        self._stop, self._found = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._extents = [number(dim, values) for dim in entry.extents]
        self._places = places(instr, memory.program)
        self._plots = plots.take([place.nbytes for place in self._places])
        self.findings: list[Finding] = []

    def run(self, tally: Tally) -> None:
        """Run on both sides, compare, and leave the result in memory."""
        tally.kernels.add(self._entry.kernel)
        tally.instructions += 1
        tally.operands += len(SIDES) * len(operands(self._instr))
        one, other = (self._on_side(kind, tally) for kind in range(len(SIDES)))
        if not self.findings:
            self._compare(one, other)
        if self.findings:
            step(self._memory, self._instr)  # what comes next is not to blame
            return
        for place, flat in zip(self._places, one, strict=True):
            if place.written.any():
                self._bytes(place)[place.written] = flat[place.written]

    def _on_side(self, kind: int, tally: Tally) -> list[Array]:
        """Run on one side; return what the places hold then."""
        side, at_end = SIDES[kind], kind == 0
        pairs = list(zip(self._plots, self._places, strict=True))
        opened = [plot.open(place.nbytes, at_end) for plot, place in pairs]
        flats = [flat for flat, _ in opened]
        for (plot, place), (flat, page) in zip(pairs, opened, strict=True):
            page.fill(CANARY)
            place.fill(flat, kind)
            flat[place.read] = self._bytes(place)[place.read]
            if not place.written.any():
                plot.seal()
        before = [flat.copy() for flat in flats]
        slots = self._slots(flats)
        for begin, end in self._parts(whole=at_end):
            tally.calls += 1
            fault = attempt(self._address, ctypes.addressof(slots), begin, end)
            if fault is not None:
                self._tell(fault, side, flats)
                break
        for place, was, (flat, page) in zip(self._places, before, opened, strict=True):
            if ((was != flat) & ~place.written).any():
                self._find(side, f"writes into the gaps of {place}", place)
            rest = page[: page.size - flat.size] if at_end else page[flat.size :]
            if (rest != CANARY).any():
                self._find(side, f"writes beside {place}", place)
        made = [flat.copy() for flat in flats]
        for plot in self._plots:
            plot.shut()
        return made

    def _compare(self, one: list[Array], other: list[Array]) -> None:
        """Find results that are not the same on both sides."""
        for place, a, b in zip(self._places, one, other, strict=True):
            differs = (a != b) & place.result
            if differs.any():
                owner = place.owner(int(np.argmax(differs)))
                what = f"{owner} depends on gaps, or on how the loop is cut, or is not written"
                self._find(SIDES[1], what, place)

    def _bytes(self, place: Place) -> Array:
        return self._memory.bytes[place.buffer][place.begin : place.end]

    def _parts(self, whole: bool) -> list[tuple[int, int]]:
        """Return the parts of the parallel loop, in the order in which they run."""
        if self._extent < 1:
            return []
        count = 1 if whole else min(PIECES, self._extent)
        cuts = [self._extent * i // count for i in range(count + 1)]
        return list(pairwise(cuts))[::-1]

    def _slots(self, flats: list[Array]) -> Any:
        """Return what the kernel gets: addresses of results and operands, words, and extents."""
        found = {o.name: flat.ctypes.data + o.region.offset * o.region.type.numpy.itemsize
                 - place.begin
                 for place, flat in zip(self._places, flats, strict=True)
                 for o in place.operands}  # fmt: skip
        self._stop[0] = 0
        words = [self._stop.ctypes.data] if self._entry.stops else []
        words += [self._found.ctypes.data] if self._entry.faults else []
        numbers = [*(found[o.name] for o in operands(self._instr)), *words, *self._extents]
        return (ctypes.c_int64 * max(len(numbers), 1))(*numbers)

    def _tell(self, fault: Fault, side: str, flats: list[Array]) -> None:
        """Add what a fault shows."""
        for plot, place, flat in zip(self._plots, self._places, flats, strict=True):
            if not plot.holds(fault.address):
                continue
            begin = flat.ctypes.data
            if fault.address < begin:
                where = f"{begin - fault.address} bytes before {place}"
            elif fault.address >= begin + flat.size:
                where = f"{fault.address - begin - flat.size} bytes behind the last of {place}"
            else:
                where = f"{place}, which is not a result"
            self._find(side, f"{fault.access} {where}", place)
            return
        self._find(side, f"{fault.signal}: {fault.access} {fault.address:#x}", None)

    def _find(self, side: str, what: str, place: Place | None) -> None:
        operand = "" if place is None else str(place)
        text = excerpt(self._memory.program, self._instr)
        self.findings.append(Finding(self._entry.kernel, what, operand, side, text))


def run_all(
    program: Program, table: Sequence[Entry], addresses: Mapping[str, int],
    arrays: Mapping[str, Array], tally: Tally, values: Mapping[str, int] | None = None,
) -> list[Finding]:  # fmt: skip
    """Run a program instruction by instruction; return what is wrong with its kernels.

    `arrays` holds those of inputs, and of outputs, which are written.  Instructions without a
    kernel are interpreted.
    """
    # Without a place in the arena every buffer has memory of its own.
    buffers = {name: replace(b, offset=None) for name, b in program.buffers.items()}
    memory = Memory(replace(program, buffers=buffers, arena=0))
    for name, array in arrays.items():
        flat = array.reshape(-1)
        memory.bytes[name] = flat.view(np.uint8) if flat.size else np.empty(0, np.uint8)
    findings: list[Finding] = []
    with Plots() as plots:
        steps, at = list(zip(table, program.instrs(), strict=True)), 0
        while at < len(steps):
            entry, instr = steps[at]
            if not entry.kernel:
                tally.interpreted += not isinstance(instr.op, Jump)
                at += step(memory, instr)
                continue
            at += 1
            trial = Trial(entry, addresses[entry.kernel], instr, memory, values or {}, plots)
            trial.run(tally)
            findings += trial.findings
    return findings


def number(dim: dims.Dim, values: Mapping[str, int]) -> int:
    """Return what an extent is where symbols have these values."""
    found = dims.bind(dim, values)
    assert isinstance(found, int), f"{found} is open"
    return found


def excerpt(program: Program, instr: Instr) -> str:
    """Return the text of a program of one instruction."""
    used = {o.region.buffer for o in operands(instr)}
    one = replace(
        program, buffers={k: b for k, b in program.buffers.items() if k in used}, body=(instr,),
        inputs=tuple(n for n in program.inputs if n in used),
        outputs=tuple(n for n in program.outputs if n in used),
    )  # fmt: skip
    return print_program(one)[:LONG]
