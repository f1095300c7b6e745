"""A row of turns: the argument tables of many turns of a loop, one after the other, as one table.

Two buffers take turns in holding what is carried: one turn writes what the next one reads.  Where
the body begins its result with a copy of what it was given (as one that appends does), one buffer
that is long enough holds both, and nothing is copied.  All turns share an arena.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from alpenglow.base.memory import aligned_bytes
from alpenglow.ir.types import Array
from alpenglow.machines.api import ENTRY_NBYTES
from alpenglow.machines.registry import this_process
from alpenglow.runtime.call.calls import LONG, StopWord, run_apart
from alpenglow.runtime.call.faults import Faults
from alpenglow.runtime.memory.layout import Layout, Spread, address_of, dense

KEPT_NBYTES = 1 << 24
"""How large the memory of a row may be that is kept for the next run."""

FIRST_BITE = 4
"""How many turns are walked before anybody looks how long they take."""

PATIENCE = 5e-3
"""Seconds within which compiled code should come back, so that the host can be interrupted."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is the same for all rows of turns in the code of a layout; buffers go by their names.

    `entries` are those of its table that have something to do.  `goes_on` is "" where no turn ends
    the loop; `in_place` says which of what is carried extends what was given.
    """

    layout: Layout
    entries: list[int]
    count: str
    going: str
    goes_on: str
    carried: list[tuple[str, str]]
    in_place: list[bool]
    captured: list[str]
    sliced: Sequence[str]
    collected: list[str]

    @property
    def turn_nbytes(self) -> int:
        """How long the tables of one turn are."""
        return ENTRY_NBYTES * len(self.entries) + 8 * self.layout.arguments + 8


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of some turns: how many there were, and whether the last one asks for more."""

    turns: int
    going: bool
    carried: list[Array]
    collected: list[Array]


class Row:
    """Tables for turns that begin with given extents, as far as they are the same for every run.

    `sizes` are bytes that hold what is carried, in any turn; `sliced` and `collected` those of one
    slice.  `start` holds the symbols of the first turn, `steps` by how much they grow each turn.
    """

    def __init__(
        self, form: Form, spread: Spread, start: Mapping[str, int], steps: tuple[int, ...],
        sizes: list[int], sliced: list[int], collected: list[int],
    ) -> None:  # fmt: skip
        self.form = form
        self.spread = spread
        self.turns = len(spread.args)
        self.start = start
        self.steps = steps
        self.sizes = sizes
        moving = [*zip(form.sliced, sliced, strict=True), (form.count, 8), (form.goes_on, 1),
                  *zip(form.collected, collected, strict=True)]  # fmt: skip
        turn = np.arange(self.turns)[:, None]
        for name, nbytes in moving:
            spread.args[:, self.slots(name)] += turn * nbytes
        entries = spread.extents[:, form.entries]
        self.extents = entries.reshape(-1)
        self.is_long = True
        """Whether the last turns took long; so it is taken before the first."""
        self.bite = FIRST_BITE
        """How many turns pass quickly, as far as that is known."""
        self.widest = int(self.extents.max()) if len(self.extents) else 1
        self._pool: list[RowContext] = []

    def slots(self, name: str) -> Array:
        """Return where in the tables the address of a buffer goes."""
        return self.spread.slots.get(name, _NOWHERE)

    def take(self) -> RowContext:
        """Return the memory of a run; to be given back."""
        try:
            context = self._pool.pop()  # in one step: other threads do the same
        except IndexError:
            return RowContext(self)
        context.stop.word.value = 0
        return context

    def give_back(self, context: RowContext) -> None:
        """Keep the memory of a run that has ended for another."""
        if context.nbytes <= KEPT_NBYTES:
            self._pool.append(context)


_NOWHERE = np.empty(0, np.intp)


class RowContext:
    """The memory of one run of a row: arena, tables, and what is carried."""

    def __init__(self, row: Row) -> None:
        self._row = row
        faults = Faults(row.form.layout.checks, row.turns, partial(_in_turn, row.start, row.steps))
        self.stop = StopWord(faults.error)
        form, spread = row.form, row.spread
        layout = form.layout
        self._arena = aligned_bytes(spread.arena_nbytes)
        self._numbers = np.arange(row.turns)
        self._first = 0
        self._flags = np.zeros(row.turns, np.uint8)
        self._yes = np.ones(1, np.uint8)
        self._buffers = [
            (own := aligned_bytes(nbytes), own if here else aligned_bytes(nbytes))
            for nbytes, here in zip(row.sizes, form.in_place, strict=True)
        ]
        self._args = args = spread.args.copy()
        args[:, layout.arena_slots] += address_of(self._arena)
        args[:, layout.stop_slots] = self.stop.address
        args[:, layout.fault_slots] = faults.addresses()
        held = ((form.count, self._numbers), (form.goes_on, self._flags), (form.going, self._yes))
        for name, array in held:
            args[:, row.slots(name)] += address_of(array)
        for (source, result), (even, odd) in zip(form.carried, self._buffers, strict=True):
            args[0::2, row.slots(source)] += address_of(even)
            args[1::2, row.slots(source)] += address_of(odd)
            args[0::2, row.slots(result)] += address_of(odd)
            args[1::2, row.slots(result)] += address_of(even)
        self._bases = dict.fromkeys([*form.captured, *form.sliced, *form.collected], 0)
        self._table = _table(layout, form.entries, row.extents, args)
        self._base = address_of(self._table)
        arrays = (self._arena, args, self._table, *(b for pair in self._buffers for b in pair))
        self.nbytes = sum(a.nbytes for a in arrays)

    def begin(
        self, env: Mapping[str, Any], sliced: Sequence[Array], stacks: Sequence[Array], first: int
    ) -> list[Array]:
        """Make ready for turns from number `first` on; return what must be held till they end."""
        form = self._row.form
        for (name, _), (buffer, _) in zip(form.carried, self._buffers, strict=True):
            if len(self._row.slots(name)):
                array = env[name]
                buffer[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        if first != self._first:
            self._numbers += first - self._first
            self._first = first
        captured = [dense(env[n]) for n in form.captured]
        held = [*captured, *sliced, *stacks]
        names = (*form.captured, *form.sliced, *form.collected)
        for name, array in zip(names, held, strict=True):
            address = address_of(array)
            if (moved := address - self._bases[name]) != 0:
                self._args[:, self._row.slots(name)] += moved
                self._bases[name] = address
        return held

    def walk(self, turns: int, threads: int) -> int:
        """Run so many turns, or as many as there are until one ends the loop; return how many.

        None begins once the stop word is set.
        """
        count = len(self._row.form.entries)
        together = min(threads, self._row.widest)
        may_stop = bool(self._row.form.goes_on)
        one_by_one = may_stop and together > 1  # what looks at flags in between is one thread
        process, done, bite = this_process(), 0, 1 if one_by_one else self._row.bite
        while done < turns and not self.stop.is_set():
            start = time.perf_counter()
            size = min(bite, turns - done)
            at = self._base + ENTRY_NBYTES * count * done
            if may_stop and not one_by_one:
                flags = address_of(self._flags) + done
                done += self._ran(partial(process.run_until, at, count, size, flags), size)
            else:
                done += self._ran(partial(process.run, at, count * size, together), size)
            seconds = time.perf_counter() - start
            self._row.is_long = seconds > LONG
            if may_stop and not self._flags[done - 1]:
                break
            if not one_by_one:
                bite = _adapted(bite, size, seconds)
                self._row.bite = bite
        return done

    def _ran(self, code: Callable[[int], int | None], turns: int) -> int:
        """Run code for so many turns; return for how many it says that it ran."""
        address = self.stop.address
        if not self._row.is_long and self.stop.deadline is None:
            ran = code(address)
        else:
            counts: list[int | None] = []
            run_apart(lambda: counts.append(code(address)), self.stop)
            (ran,) = counts
        return turns if ran is None else ran

    def goes_on(self, done: int) -> bool:
        """Whether the last of so many turns asked for another."""
        return bool(self._flags[done - 1])

    def carried(
        self, done: int, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]]
    ) -> list[Array]:
        """Return what so many turns have left to carry on, in arrays of its own."""
        buffers = [
            pair[done % 2][: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for pair, shape, dtype in zip(self._buffers, shapes, dtypes, strict=True)
        ]
        return [buffer.copy() for buffer in buffers]


def _in_turn(start: Mapping[str, int], steps: tuple[int, ...], turn: int) -> Mapping[str, int]:
    """Return what symbols stand for in a turn."""
    grown = zip(start.items(), steps, strict=True)
    return {s: value + turn * step for (s, value), step in grown}


def _adapted(bite: int, turns: int, seconds: float) -> int:
    """Return how many turns to walk next, where the last so many took so long."""
    if seconds > PATIENCE:
        return max(bite // 8, 1)
    return bite * 8 if turns == bite else bite


def _table(layout: Layout, entries: list[int], extents: Array, args: Array) -> Array:
    """Return the table of all turns: for each entry its kernel, its arguments and its extent."""
    turns = len(args)
    table = np.empty((turns, len(entries), 3), np.int64)
    table[:, :, 0] = layout.table[entries, 0]
    at = address_of(args) + args.strides[0] * np.arange(turns)
    table[:, :, 1] = at[:, None] + layout.table[entries, 1].astype(np.int64)
    table[:, :, 2] = extents.reshape(turns, -1)
    return table
