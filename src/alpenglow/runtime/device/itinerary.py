"""The steps of an artifact that runs partly on a device and partly here, with the copies between.

Entries with a kernel run on the device, all others are interpreted here.  Which side has the newest
contents of a buffer follows from the table, so what is copied when is known before anything runs:
inputs and outputs once a call, constants never, what lies between two entries of one side neither.
Which way a jump goes does not: the host asks, and follows the legs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from alpenglow.machines.api import Entry
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.program.plan import lifetimes

Side = Literal["host", "device"]


@dataclass(frozen=True, slots=True)
class Move:
    """A buffer's contents are copied `to` one side."""

    buffer: str
    to: Side


@dataclass(frozen=True, slots=True)
class Run:
    """Entries [begin, end) of the table run on the device, one after the other."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Here:
    """One instruction is interpreted."""

    number: int


@dataclass(frozen=True, slots=True)
class Hop:
    """Leg `to` is next if a jump, instruction `number`, is taken."""

    number: int
    to: int


Leg = Move | Run | Here | Hop


@dataclass(frozen=True, slots=True)
class Itinerary:
    """What happens in a call, in order, and which results are then on the device alone."""

    legs: tuple[Leg, ...]
    left: frozenset[str]


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of a call `to` one side: how many there are, and their bytes together."""

    to: Side
    count: int
    nbytes: int


def copies(program: Program, it: Itinerary) -> tuple[Copies, Copies]:
    """Return what a call on arrays of the host copies to the device, and what to the host.

    Extents of the program are numbers.  A copy in each iteration of a loop counts once.
    """
    moved: dict[Side, list[str]] = {"device": [], "host": sorted(it.left)}
    for leg in it.legs:
        if isinstance(leg, Move):
            moved[leg.to].append(leg.buffer)
    to_device, to_host = (
        Copies(side, len(names), sum(int(program.buffers[n].nbytes) for n in names))
        for side, names in moved.items()
    )
    return to_device, to_host


def itinerary(program: Program, table: Iterable[Entry]) -> Itinerary:
    """Return the moves and runs of a call; runs on the device are as long as they can be.

    Jumps are decided on the host.  Before each jump, and before each entry that a jump leads to,
    all live buffers move to the device, so that on every path their newest contents are there.
    """
    steps = list(zip(table, program.instrs(), strict=True))
    sides = _Sides(program, steps)
    landings = {k + i.op.by for k, (_, i) in enumerate(steps) if isinstance(i.op, Jump)}
    legs: list[Leg] = []
    begins: list[int] = []
    for number, (entry, instr) in enumerate(steps):
        if number in landings:
            legs += sides.met(number)
        begins.append(len(legs))
        if isinstance(instr.op, Jump):
            legs += [*sides.met(number), *sides.brought(instr, "host")]
            legs.append(Hop(number, number + instr.op.by))
            continue
        legs += sides.brought(instr, "device" if entry.kernel else "host")
        last = legs[-1] if number not in landings and legs else None
        if not entry.kernel:
            legs.append(Here(number))
        elif isinstance(last, Run):
            legs[-1] = Run(last.begin, number + 1)
        else:
            legs.append(Run(number, number + 1))
    if len(steps) in landings:
        legs += sides.met(len(steps))
    begins.append(len(legs))
    exits = (cell.exit for cell in program.variables.values() if cell.exit)
    results = {*program.outputs, *exits}
    left = frozenset(n for n in results if sides.old.get(n) == "host")
    hopping = (replace(x, to=begins[x.to]) if isinstance(x, Hop) else x for x in legs)
    return Itinerary(tuple(hopping), left)


class _Sides:
    """On which side the contents of buffers are old, as one instruction after the other runs."""

    def __init__(self, program: Program, steps: Sequence[tuple[Entry, Instr]]) -> None:
        self._program = program
        self._used = set(on_device(steps))
        self._computed = {r.buffer for entry, i in steps if entry.kernel for r in i.outs}
        self._lives = lifetimes(program)
        # What nobody has written may be anything on either side; constants are on both.
        fed = {*program.inputs, *program.variables} & self._used
        self.old: dict[str, Side] = dict.fromkeys(sorted(fed), "device")

    def brought(self, instr: Instr, side: Side) -> Iterator[Leg]:
        """Yield what an instruction needs copied to its side; then its results are new there."""
        # A result may be a part of its buffer: the rest has to be there, too.
        for r in (*instr.reads(), *instr.outs):
            yield from self._bring(r.buffer, side)
        for r in instr.outs:
            self.old[r.buffer] = "host" if side == "device" else "device"

    def met(self, number: int) -> Iterator[Leg]:
        """Yield what goes to the device before an instruction where several ways meet, or part."""
        for name in [n for n, side in self.old.items() if side == "device"]:
            first, last = self._lives.get(name, (-1, number))
            # In the place of what is dead there may be something else.
            if first < number <= last:
                yield from self._bring(name, "device")
        self.old = dict.fromkeys(sorted(self._computed), "host")

    def _bring(self, name: str, side: Side) -> Iterator[Leg]:
        if name in self._used and self.old.get(name) == side:
            # What no kernel uses has no place there.
            del self.old[name]
            yield Move(name, side)


def on_device(steps: Iterable[tuple[Entry, Instr]]) -> list[str]:
    """Return the buffers that entries with kernels read or write, in order of their use."""
    regions = (r for entry, instr in steps if entry.kernel for r in (*instr.outs, *instr.reads()))
    return list(dict.fromkeys(r.buffer for r in regions))
