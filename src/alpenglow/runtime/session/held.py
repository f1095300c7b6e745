"""What variables hold between the calls of a session, and how a call borrows it.

A call reads it at entry; what is assigned is written into another array, which takes its place when
the call has succeeded.  Where the plan of memory has both in one buffer (`program.share`) the one
array is changed in place, and a call that is ended before its time leaves neither the old value nor
the new one there.  What grows is written behind what was there, but for caches that are written at
positions from data: until it counts as there, nothing has happened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError, SessionError
from alpenglow.base.mapped import maps_of
from alpenglow.base.memory import LARGE_NBYTES, aligned_bytes, rounded_up
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.program import Program
from alpenglow.program.instr import Cell
from alpenglow.runtime.memory.layout import Bound, Place, address_of

NONE: Mapping[str, int] = MappingProxyType({})

Memory = tuple[dict[str, Array], dict[str, Array]]
"""The arrays that variables have at entry and those that they have at exit, by buffers."""


@dataclass(slots=True, eq=False)
class Lying:
    """Where variables lie, as the argument table of one place has it, and after the next call."""

    program: Program
    bound: Bound
    slots: Array
    now: Array
    then: Array


class Held:
    """What the variables of a session hold: for each an array, and one to write another into.

    Those that grow have an array with room for `length` rows, as soon as a call tells the extents
    of rows; `rows` counts those that are there.  `lost` tells what became of variables, if they
    hold nothing that means anything.
    """

    def __init__(
        self,
        initial: Mapping[str, Value],
        growing: Mapping[str, int] = NONE,
        length: int | None = None,
    ) -> None:
        """Without a `length` there is as much room as the first call needs."""
        contents = {n: _contents(v) for n, v in initial.items() if n not in growing}
        files = maps_of(contents.values())
        for file in files:
            file.check()
        self.arrays = owned(contents)
        for file in files:
            file.check()
        self.growing, self.length = growing, length
        self.rows = dict.fromkeys(growing, 0)
        self.spare: dict[str, Array] = {}
        self.lost = ""
        self._lying: Lying | None = None

    @staticmethod
    def of(arrays: dict[str, Array]) -> Held:
        """Return what variables hold where these arrays are that: none of them is copied."""
        held = Held({})
        held.arrays = arrays
        return held

    def make_room(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Have an array of this shape for a variable that grows.

        Raises FeedError where it has another, with rows in it.
        """
        array = self.arrays.get(name)
        if array is not None and array.shape == shape:
            return
        if array is not None and self.rows[name]:
            raise FeedError(
                f"variable '{name}' has room for {array.shape}, this call needs {shape}",
                hint="session.reset(), after which a session may have other dimensions",
            )
        self.arrays[name] = (
            aligned_bytes(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
        )

    def put_rows(self, name: str, array: Array) -> None:
        """Give a variable that grows these rows, for which there is room, in place of its own."""
        axis, rows = self.growing[name], array.shape[self.growing[name]]
        assert self.length is not None and rows <= self.length, "the caller has seen to that"
        room = (*array.shape[:axis], self.length, *array.shape[axis + 1 :])
        self.rows[name] = 0
        self.make_room(name, array.dtype, room)
        self.arrays[name][(slice(None),) * axis + (slice(rows),)] = array
        self.rows[name] = rows

    def kept(self, name: str) -> Array:
        """Return what a variable holds, as a view."""
        if name not in self.growing:
            return self.arrays[name]
        if name not in self.arrays:
            raise SessionError(f"variable '{name}' is empty, expected a call before it is read")
        axis = self.growing[name]
        return self.arrays[name][(slice(None),) * axis + (slice(self.rows[name]),)]

    def copy(self) -> Held:
        """Return the same in memory of its own."""
        new = Held({}, self.growing, self.length)
        new.arrays = owned({n: array for n, array in self.arrays.items() if n not in self.growing})
        for name in self.growing.keys() & self.arrays:
            array = self.arrays[name]
            new.make_room(name, array.dtype, array.shape)
            new.rows[name] = self.rows[name]
            new.kept(name)[...] = self.kept(name)
        return new

    def memory(self, program: Program) -> Memory:
        """Return what a run of a program reads at entry and writes at exit.

        These are the same arrays where it works in place.
        """
        entries, exits = {}, {}
        for name, cell in program.variables.items():
            entries[name] = self.arrays[name]
            if cell.exit == name:
                exits[name] = self.arrays[name]
            elif cell.exit:
                if name not in self.spare:
                    self.spare |= owned({name: self.arrays[name]})
                exits[cell.exit] = self.spare[name]
        return entries, exits

    def put_addresses(self, place: Place, args: Array) -> None:
        """Write into the argument table of a place where variables lie; none of them grows."""
        lying = self._lying
        if lying is None or lying.bound is not place[1]:
            lying = self._lying = self._laid(place[0].artifact.program, place[1])
        args[lying.slots] = lying.now

    def _laid(self, program: Program, bound: Bound) -> Lying:
        entries, exits = self.memory(program)
        places = {name: (address_of(array),) * 2 for name, array in {**entries, **exits}.items()}
        for name, cell in program.variables.items():
            if cell.exit not in ("", name):
                before, after = address_of(entries[name]), address_of(exits[cell.exit])
                places |= {name: (before, after), cell.exit: (after, before)}
        rows = [
            (slot, now + offset, then + offset)
            for name, (now, then) in places.items()
            for slot, offset in bound.slots[name]
        ]
        table = np.array(rows, np.uint64).reshape(-1, 3)
        slots, now, then = table.T.copy()
        return Lying(program, bound, slots.astype(np.intp), now, then)

    def advance(self, program: Program) -> None:
        """Let what a run has written be what the next one reads."""
        for name, cell in program.variables.items():
            if cell.exit not in ("", name):
                self.arrays[name], self.spare[name] = self.spare[name], self.arrays[name]
        lying = self._lying
        if lying is not None and lying.program is program:
            lying.now, lying.then = lying.then, lying.now
        else:
            self._lying = None

    def put(self, name: str, array: Array) -> None:
        """Give a variable what fits it: one that grows other rows in place of its own."""
        if name in self.growing:
            self.put_rows(name, array)
        else:
            self.arrays[name][...] = array

    @contextmanager
    def set_together(self) -> Iterator[None]:
        """Take what is set in a block for lost unless all of it is."""
        try:
            yield
        except BaseException as error:
            self.lost = f"some of them were set, then came {type(error).__name__}"
            raise

    def blame(self, program: Program, ran: bool, error: BaseException) -> None:
        """Take note of what an error may have left changed, in a run that was done or was not."""
        # Once it ran, an interrupt may have come between one variable and the next.
        changed = [
            name for name, cell in program.variables.items()
            if overwrites(program, name, cell) or (ran and cell.exit)
        ]  # fmt: skip
        if changed:
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            where = "" if ran else " in place"
            self.lost = f"{', '.join(changed)} may have changed{where}, then came {why}"


def check_rows(rows: Mapping[str, int], extents: Mapping[str, Dim]) -> None:
    """Raise SessionError where variables that grow by one extent have other numbers of rows."""
    first: dict[Dim, str] = {}
    for name, extent in extents.items():
        other = first.setdefault(extent, name)
        if rows[name] != rows[other]:
            raise SessionError(
                f"variables '{other}' and '{name}' grow together, but have {rows[other]} and "
                f"{rows[name]} rows",
                hint="session.variables.update({…}) sets all at once",
            )


@contextmanager
def lent(program: Program, held: Held | None) -> Iterator[Memory]:
    """Lend the memory of variables to a run in a block, and keep what it assigned if that succeeds.

    Without any they have their initial values, and nothing is kept.
    """
    if not program.variables:
        yield {}, {}
        return
    if held is None:
        initial = {name: cell.initial for name, cell in program.variables.items()}
        yield Held(initial).memory(program)
        return
    ran = False
    try:
        yield held.memory(program)
        ran = True
        held.advance(program)
    except BaseException as error:
        held.blame(program, ran, error)
        raise


def overwrites(program: Program, name: str, cell: Cell) -> bool:
    """Whether what a variable has at entry may be written over.

    What is only put behind what was there begins where that ends: at no number, but at an extent.
    """
    if cell.exit != name:
        return False
    outs = (r for i in program.instrs() for r in i.outs)
    return cell.axis is None or any(r.buffer == name and not is_open(r.offset) for r in outs)


def _contents(v: Value) -> Array:
    assert v.array is not None, "a variable begins with a constant"
    return v.array


def owned(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies where vectors like them, in few pieces of memory, so that pages are huge."""
    copies: dict[str, Array] = {}
    together: dict[str, Array] = {}
    nbytes = 0
    for name, array in arrays.items():
        if nbytes + rounded_up(array.nbytes) >= LARGE_NBYTES:
            copies |= _in_one_piece(together, nbytes)
            together, nbytes = {}, 0
        together[name] = array
        nbytes += rounded_up(array.nbytes)
    return copies | _in_one_piece(together, nbytes)


def _in_one_piece(arrays: Mapping[str, Array], nbytes: int) -> dict[str, Array]:
    memory = aligned_bytes(nbytes)
    copies, at = {}, 0
    for name, array in arrays.items():
        copy = memory[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copies[name] = copy
        at += rounded_up(array.nbytes)
    return copies
