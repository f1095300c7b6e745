"""The steps of an artifact that runs partly on a device and partly here, with the copies between.

Entries with a kernel run on the device, all others are interpreted here.  Which side has the newest
contents of a buffer follows from the table, so what is copied when is known before anything runs:
inputs and outputs once a call, constants never, what lies between two entries of one side neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from alpenglow.machines.api import Entry
from alpenglow.program import Instr, Program

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


Leg = Move | Run | Here


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

    Extents of the program are numbers.
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
    """Return what happens; runs on the device are as long as they can be."""
    legs: list[Leg] = []
    old: dict[str, Side] = {}
    for leg in _legs(program, list(zip(table, program.instrs(), strict=True)), old):
        last = legs[-1] if legs else None
        if isinstance(leg, Run) and isinstance(last, Run):
            legs[-1] = Run(last.begin, leg.end)
        else:
            legs.append(leg)
    exits = (cell.exit for cell in program.variables.values() if cell.exit)
    results = {*program.outputs, *exits}
    return Itinerary(tuple(legs), frozenset(n for n in results if old.get(n) == "host"))


def _legs(
    program: Program, steps: list[tuple[Entry, Instr]], old: dict[str, Side]
) -> Iterator[Leg]:
    """Yield what happens; `old` tells on which side the contents of buffers are old."""
    used = set(on_device(steps))
    # What nobody has written may be anything on either side; constants are on both.
    fed = {*program.inputs, *program.variables} & used
    old.update(dict.fromkeys(sorted(fed), "device"))

    def bring(name: str, side: Side) -> Iterator[Leg]:
        if name in used and old.get(name) == side:  # what no kernel uses has no place there
            del old[name]
            yield Move(name, side)

    for number, (entry, instr) in enumerate(steps):
        side: Side = "device" if entry.kernel else "host"
        # A result may be a part of its buffer: the rest has to be there, too.
        for r in (*instr.reads(), *instr.outs):
            yield from bring(r.buffer, side)
        for r in instr.outs:
            old[r.buffer] = "host" if side == "device" else "device"
        yield Run(number, number + 1) if entry.kernel else Here(number)


def on_device(steps: Iterable[tuple[Entry, Instr]]) -> list[str]:
    """Return the buffers that entries with kernels read or write, in order of their use."""
    regions = (r for entry, instr in steps if entry.kernel for r in (*instr.outs, *instr.reads()))
    return list(dict.fromkeys(r.buffer for r in regions))
