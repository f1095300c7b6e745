"""Layouts: an artifact installed in this process, and the argument tables of its calls.

A layout computes the argument table of a call from the `slots` of its artifact and from the extents
of the call, and plans the arena for them; `Bound` is the table for one choice of extents.  An
artifact without open extents has one.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import ge
from typing import Any

import numpy as np

from alpenglow.base.mapped import maps_of
from alpenglow.base.memory import ALIGNMENT, aligned, aligned_bytes
from alpenglow.ir import dims
from alpenglow.ir.dims import Sym
from alpenglow.ir.types import Array
from alpenglow.machines.api import Artifact
from alpenglow.machines.registry import this_process
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Buffer, Instr, Program
from alpenglow.program.bind import bind
from alpenglow.program.interpret import Memory
from alpenglow.program.offsets import Block, assign_offsets
from alpenglow.program.plan import lifetimes
from alpenglow.runtime.call.calls import StopWord
from alpenglow.runtime.call.faults import Faults
from alpenglow.runtime.memory.slots import Slots

KEPT, KEPT_NBYTES = 1024, 4 << 20
"""How many choices of extents a layout remembers, and how much of tables for them: each token that
a decoder adds is another choice, and seldom comes again."""

MOST_ROOMS = 8
"""How many arenas a layout of open extents keeps between calls."""

MOST_CONTEXTS = 64
"""For how many choices of extents the tables in an arena are kept."""


Form = tuple[np.dtype[Any], tuple[int, ...], list[tuple[int, int]]]
"""Element type and shape of an array, and where its address goes, with what is added to it."""


@dataclass(slots=True, eq=False)
class Bound:
    """The argument table for given extents, as far as it is the same for every call.

    `slots` says, for each input and output, where its address goes and what is added to it;
    `forms` holds its element type and shape, `inputs` and `outputs` all of these in order.
    `widest` is the largest extent: more threads have nothing to do; `values` are those of the
    symbols.  A call `is_long` until one was seen not to be.  `pool` keeps contexts of calls that
    have ended.
    """

    args: Array
    extents: Array
    arena_nbytes: int
    slots: dict[str, list[tuple[int, int]]]
    forms: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
    inputs: list[Form]
    outputs: list[Form]
    interpreted: list[Instr]
    make_memory: Callable[[Array], Memory] | None
    widest: int
    values: Mapping[str, int]
    is_long: bool = True
    pool: list[Context] = field(default_factory=list)
    pooled: list[Context] = field(default_factory=list)
    """All contexts that are in the pool, or will be again."""

    def stop(self, reason: int) -> None:
        """End the calls whose contexts are not in the pool."""
        idle = set(map(id, self.pool))
        for context in list(self.pooled):
            if id(context) not in idle:
                context.stop.stop(reason)


class Context:
    """The memory of one running call: arena, argument table, table to walk, and stop word."""

    def __init__(self, layout: Layout, bound: Bound, arena: Array) -> None:
        self.arena = arena
        self.room: Room | None = None  # while a call runs
        self.args = bound.args.copy()
        self.args[layout.arena_slots] += np.uint64(address_of(self.arena))
        self.table = layout.table.copy()
        self.table[:, 1] += np.uint64(address_of(self.args))
        self.table[:, 2] = bound.extents
        self.base = address_of(self.table)
        self.words = self.args.data
        """The argument table for writing single addresses, which NumPy takes twice as long for."""
        faults = Faults(layout.checks, bound.values)
        self.stop = StopWord(faults.error)
        self.args[layout.stop_slots] = self.stop.address
        self.args[layout.fault_slots] = faults.addresses()
        self.memory = None if bound.make_memory is None else bound.make_memory(self.arena)


class Room:
    """An arena, and the contexts of all extents for which calls have run in it, one at a time."""

    def __init__(self) -> None:
        self.arena = np.empty(0, np.uint8)
        self.contexts: dict[Bound, Context] = {}

    def arena_for(self, nbytes: int) -> Array:
        """Return the arena for one more context, another one if this is too small."""
        if self.arena.nbytes < nbytes:
            # Calls of growing extents should not each need new memory.
            self.arena = aligned_bytes(nbytes + nbytes // 4)
            self.contexts.clear()
        elif len(self.contexts) >= MOST_CONTEXTS:
            self.contexts.clear()
        return self.arena


class Layout:
    """An artifact in this process: its code, and how the argument tables of calls are made.

    A call `is_table` if it is one table that runs once from end to end, with nothing interpreted or
    hidden; it `has_jumps` if it has loops or branches, and `remembers` if there are variables.
    `results` are the names of the outputs, as the caller knows them, and `hidden` the names of the
    inputs that the runtime fills.  If it `streams`, it is told before each span, and after it.
    Constants are mapped from `files`.
    """

    streams = False
    turn: AbstractContextManager[Any] = nullcontext()
    """Calls run in blocks of this: side by side, but of a layout that streams."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = _aligned(artifact)
        address = self._installed(artifact)
        self._slots = self._laid_out(address)
        program = self.artifact.program
        self.checks, self.spans = self._slots.checks, self._slots.spans
        self.has_jumps = self._slots.has_jumps
        self.files = maps_of(b.array for b in program.buffers.values())
        self.entries = len(self._slots.table)
        self.table = np.array(self._slots.table or [(0, 0, 0)], np.uint64)
        in_one_piece = len(self.spans) == 1 and self.spans[0].number < 0
        self.hidden = program.hidden
        self.is_table = in_one_piece and not self.hidden and not self.has_jumps
        self.remembers = bool(program.variables)
        self.results = [program.names.get(n, n) for n in program.outputs]
        self._lives = lifetimes(program)
        self._outer = {
            n: t for n in self._slots.callers if (t := program.buffers[n].type) is not None
        }
        self._prepare(program, self._slots)
        self._rooms: list[Room] = []  # those free, where extents are open
        self._plans: dict[tuple[int, ...], tuple[Array, int]] = {}
        self._bounds: OrderedDict[tuple[int, ...], Bound] = OrderedDict()

    @property
    def is_plain(self) -> bool:
        """Whether a call is one table, and nothing is remembered either."""
        return self.is_table and not self.remembers

    def _installed(self, artifact: Artifact) -> Callable[[str], int]:
        """Install the code, and return what tells where a kernel lies."""
        self._code = this_process().install(artifact)
        return self._code.address

    def _laid_out(self, address: Callable[[str], int]) -> Slots:
        """Return the slots of the argument table, given where kernels lie."""
        return Slots(self.artifact, address)

    def _prepare(self, program: Program, slots: Slots) -> None:
        """Get ready what makes binding fast: index arrays, and functions of the symbols."""
        order = {name: i for i, name in enumerate(self._lives)}
        extents = slots.extents
        self._extents = [(i, slots.number(d)) for i, d in enumerate(extents) if isinstance(d, Sym)]
        self._fixed_extents = np.array([0 if isinstance(d, Sym) else d for d in extents] or [0])
        self._template = np.array(slots.args, np.int64)
        self._kept = min(KEPT, max(MOST_CONTEXTS, KEPT_NBYTES // max(self._template.nbytes, 1)))
        self.arena_slots = np.array([slot for slot, *_ in slots.arena], np.intp)
        self.stop_slots = np.array(slots.stops, np.intp)
        self.fault_slots = np.array(slots.faults, np.intp)
        self._arena_buffers = np.array([order[b] for _, b, _, _ in slots.arena], np.intp)
        self._arena_fixed = np.array([offset for _, _, offset, _ in slots.arena], np.int64)
        # Number -1 is the 0 that is appended to what is computed.
        self._arena_numbers = np.array([n for *_, n in slots.arena], np.intp)
        self._extent_slots = np.array([slot for slot, _ in slots.computed], np.intp)
        self._extent_numbers = np.array([n for _, n in slots.computed], np.intp)
        self._shifted_slots = np.array([slot for slot, _ in slots.shifted], np.intp)
        self._shifted_numbers = np.array([n for _, n in slots.shifted], np.intp)
        self.symbols = sorted(self._symbols())
        sizes = [program.buffers[name].nbytes for name in self._lives]
        shapes = ["(" + "".join(f"{d}, " for d in t.shape) + ")" for t in self._outer.values()]
        self._compute = compiled(self.symbols, [str(d) for d in slots.numbers])
        self._sizes = compiled(self.symbols, list(map(str, sizes)))
        self._shapes = compiled(self.symbols, shapes)
        self._shifts = compiled(self.symbols, list(map(str, slots.offsets())))
        conditions = [f"({d}) {relation} 0" for d, relation in self.artifact.guards]
        self._guard = compiled(self.symbols, [" and ".join(conditions) or "True"], "")

    def _symbols(self) -> set[str]:
        outer = {n for t in self._outer.values() if t is not None for n in t.symbols()}
        guarded = {n for d, _ in self.artifact.guards for n in dims.names(d)}
        return outer | guarded | {n for d in self._slots.numbers for n in dims.names(d)}

    def enter(self, span: int) -> None:
        """Return when a span may run; of a layout that streams."""

    def leave(self, span: int) -> None:
        """Take note that a span has run; of a layout that streams."""

    # ── binding ──

    def serves(self, values: Mapping[str, int]) -> bool:
        """Whether the code is right for these extents."""
        return bool(self._guard(*(values[s] for s in self.symbols)))

    def bound(self, values: Mapping[str, int]) -> Bound:
        """Return the argument table for these extents."""
        key = tuple(values[s] for s in self.symbols)
        bound = self._bounds.get(key)
        if bound is None:
            bound = self._bounds[key] = self._bind({s: values[s] for s in self.symbols})
            if len(self._bounds) > self._kept:
                self._bounds.popitem(last=False)
        return bound

    def _bind(self, values: dict[str, int]) -> Bound:
        numbers = tuple(values.values())
        computed = np.array((*self._compute(*numbers), 0), np.int64)
        places, arena = self._planned(numbers)
        args = self._template.copy()
        args[self.arena_slots] = (
            places[self._arena_buffers] + self._arena_fixed + computed[self._arena_numbers]
        )
        args[self._extent_slots] = computed[self._extent_numbers]
        if self._slots.shifted:
            args[self._shifted_slots] += computed[self._shifted_numbers]
        extents = self._fixed_extents
        if self._extents:
            extents = extents.copy()
            for i, number in self._extents:
                extents[i] = computed[number]
        shift = iter(self._shifts(*numbers))
        slots = {n: [(slot, next(shift)) for slot, _ in uses]
                 for n, uses in self._slots.callers.items()}  # fmt: skip
        shapes = self._shapes(*numbers)
        forms = {n: (t.numpy, shape)
                 for (n, t), shape in zip(self._outer.items(), shapes, strict=True)}  # fmt: skip
        interpreted: list[Instr] = []
        make = None
        if self._slots.interpreted:
            memory = self.exact(values, places, arena)
            pairs = zip(self.artifact.table, memory.instrs(), strict=True)
            interpreted = [i for e, i in pairs if not e.kernel and not isinstance(i.op, Jump)]
            make = partial(Memory, memory)
        inputs, outputs = (
            [(*forms[n], slots[n]) for n in names]
            for names in (self.artifact.program.inputs, self.artifact.program.outputs)
        )
        return Bound(
            args.view(np.uint64), extents, arena, slots, forms, inputs, outputs, interpreted, make,
            int(extents.max()), values,
        )  # fmt: skip

    def exact(self, values: Mapping[str, int], places: Array, arena: int) -> Program:
        """Return the program with numbers for its extents, and its memory planned."""
        program = self.artifact.program
        bound = bind(program, values) if values else program
        named = dict(zip(self._lives, places.tolist(), strict=True))
        return replace(bound, buffers=_placed(bound.buffers, named), arena=arena)

    def _planned(self, numbers: tuple[int, ...]) -> tuple[Array, int]:
        """Return the place of every buffer in the arena, and how long that is.

        Extents are rounded up for it, so that a plan serves many calls of nearly the same extents.
        """
        sizes: tuple[int, ...] = self._sizes(*numbers)
        if not numbers:
            program = self.artifact.program
            places = [program.buffers[n].offset for n in self._lives]
            return np.array(places, np.int64), program.arena
        generous = self._sizes(*map(_rounded, numbers))
        return self._placed(generous if all(map(ge, generous, sizes)) else sizes)

    def _placed(self, sizes: tuple[int, ...]) -> tuple[Array, int]:
        """Return the same for buffers of these sizes."""
        if sizes not in self._plans:
            lives = self._lives.values()
            blocks = [Block(n, a, b + 1) for n, (a, b) in zip(sizes, lives, strict=True)]
            placement = assign_offsets(blocks, ALIGNMENT)
            if len(self._plans) == KEPT:
                self._plans.clear()
            self._plans[sizes] = np.array(placement.offsets, np.int64), placement.peak
        return self._plans[sizes]

    # ── running ──

    def take(self, bound: Bound) -> Context:
        """Return the memory of a call; to be given back.  Raises ModelError as `check_files`."""
        if self.files:
            self.check_files()
        if self.symbols:
            context = self._taken_from_room(bound)
        else:
            try:
                context = bound.pool.pop()  # in one step: other threads do the same
            except IndexError:
                context = Context(self, bound, aligned_bytes(bound.arena_nbytes))
                bound.pooled.append(context)
        context.stop.word.value = 0
        return context

    def _taken_from_room(self, bound: Bound) -> Context:
        try:
            room = self._rooms.pop()
        except IndexError:
            room = Room()
        context = room.contexts.get(bound)
        if context is None:
            arena = room.arena_for(bound.arena_nbytes)
            context = room.contexts[bound] = Context(self, bound, arena)
        context.room = room
        return context

    def check_files(self) -> None:
        """Raise ModelError if a file that constants are mapped from was written into.

        Before code runs, as what a file is too short for ends the process; behind what takes long,
        too, so that nothing is returned of what changed meanwhile.
        """
        for file in self.files:
            file.check()

    def give_back(self, bound: Bound, context: Context) -> None:
        """Keep the memory of a call that has ended for another."""
        room, context.room = context.room, None
        if room is None:
            bound.pool.append(context)
        elif len(self._rooms) < MOST_ROOMS:
            self._rooms.append(room)


Place = tuple[Layout, Bound]
"""Where code runs for certain extents: the layout that serves them, and its arguments for them."""


def _address_of(array: Array) -> int:
    """Return the address of the first element of an array, as NumPy offers it to Python."""
    address: int = array.__array_interface__["data"][0]
    return address


_word_at = ctypes.c_size_t.from_address
HEAD = object.__basicsize__


def _address_in(array: Array) -> int:
    """Return the address of the first element of an array from the array object, 10 times faster.

    NumPy's C interface, which is stable, has it behind the head of each object.
    """
    address: int = _word_at(id(array) + HEAD).value
    return address


def _stands_behind_head() -> bool:
    """Return True if `_address_in` is right: only CPython's `id` is the address of an object."""
    if sys.implementation.name != "cpython":
        return False
    array = np.empty(1)
    return _address_in(array) == _address_of(array)


address_of = _address_in if _stands_behind_head() else _address_of


def dense(array: Array) -> Array:
    """Return an array as compiled code takes it, itself if it is so."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def _placed(buffers: Mapping[str, Buffer], places: Mapping[str, int]) -> dict[str, Buffer]:
    return {k: replace(b, offset=places.get(k, b.offset)) for k, b in buffers.items()}


def compiled(symbols: list[str], expressions: list[str], end: str = ", ") -> Callable[..., Any]:
    """Return a function from values of `symbols` to those of expressions in them."""
    # Names of symbols are identifiers, and the text of an extent is an expression of Python.
    body = "".join(f"{d}{end}" for d in expressions)
    scope = {"__builtins__": {}, "max": max, "min": min}
    call: Callable[..., Any] = eval(f"lambda {', '.join(symbols)}: ({body})", scope)
    return call


def _rounded(value: int) -> int:
    """Return `value` rounded up by at most an eighth."""
    step = max(1, 1 << max(value.bit_length() - 4, 0))
    return -(-value // step) * step


def _aligned(artifact: Artifact) -> Artifact:
    """Return the artifact with each constant at an address that vectors like."""
    program = artifact.program
    buffers = {
        name: b
        if b.constant is None or b.array is None
        else replace(b, constant=b.constant.detached(aligned(b.array)))
        for name, b in program.buffers.items()
    }
    return replace(artifact, program=replace(program, buffers=buffers))
