"""The layout of a bundle: which kernel runs when, and at which byte of which memory.

There are three regions.  `constants` holds the weights, the same for all entry points; `mutable`
holds the inputs and outputs of one entry point, and the state of all (`bundles.mutable`); `scratch`
holds what lives while one runs.  An address is a region and a byte in it, so all that a bundle
needs to know at run time is where the three begin, and how many rows of state there are.
Everything here is a function of the programs and the target: no device, no clock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alpenglow.base import words
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.memory import ALIGNMENT, rounded_up
from alpenglow.bundles.kernels import chosen, refuse_interpreted
from alpenglow.bundles.mutable import Move, Mutable, Place, State, Symbol, mutable
from alpenglow.bundles.rows import Grown, Range, Rows, Version
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP
from alpenglow.machines.choice import ChosenKernel
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Buffer, Instr, Program, Region
from alpenglow.program.bind import bind
from alpenglow.runtime.session.held import overwrites

CHECKS_NBYTES = ALIGNMENT
"""Bytes of memory in which checks of data leave what they find."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel, the places of its buffers, its run-time extents, and that of its parallel loop."""

    kernel: str
    args: tuple[Place, ...]
    extent: Dim
    extents: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Goto:
    """A jump: the call with number `to` is next if the byte at `flag` is not 0, as `when` says.

    A jump without a flag is always taken.  The number of all calls is the end.  A jump back is not
    taken once the stop word is set: what ends its loop may then never be computed.
    """

    to: int
    flag: Place | None = None
    when: bool = True
    stop: Place | None = None


Command = KernelCall | Goto


@dataclass(frozen=True, slots=True)
class Branch:
    """What an entry point does where there are so many rows of state, in some of these ranges.

    None are said where it does the same for any.
    """

    calls: tuple[Command, ...]
    rows: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """What an entry point does on machines of a target: one of several, of which it chooses."""

    target: Target
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Routine:
    """The calls and jumps of one entry point, in order, and the memory that they need.

    One that runs on machines of several targets has `choices`, from the least to the best, of which
    `branches` are the first; `scratch` is what the one needs that needs most.  One that `checks`
    data has two words for it at the end of `mutable`: a stop word, and what was found out of range.

    A call adds `step` rows to the `state`, if that grows, and ends with the moves `last`.  One that
    `loses` the state leaves none if data are out of range, for parts of it were written over.
    `multiply_adds` is the number for one call, with the most rows if the state grows.
    """

    entry: str
    symbols: tuple[Symbol, ...]
    branches: tuple[Branch, ...]
    mutable_nbytes: int
    scratch_nbytes: int
    checks: bool = False
    choices: tuple[Variant, ...] = ()
    state: State | None = None
    step: int = 0
    last: tuple[Move, ...] = ()
    loses: bool = False
    multiply_adds: int = 0

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        return tuple(s for s in self.symbols if not s.output)

    @property
    def outputs(self) -> tuple[Symbol, ...]:
        return tuple(s for s in self.symbols if s.output)

    def named(self, mark: str) -> list[tuple[str, Branch]]:
        """Return the branches, each with the name of its function, or of the only one.

        A `mark` in the name keeps it apart from those that callers choose.
        """
        if len(self.branches) == 1:
            return [(self.entry, self.branches[0])]
        return [(f"{self.entry}{mark}rows{k}", branch) for k, branch in enumerate(self.branches)]

    @property
    def stop_word(self) -> Place:
        """Where the stop word of one that checks data lies."""
        assert self.checks, "nothing is checked"
        return Place("mutable", self.mutable_nbytes - CHECKS_NBYTES)


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel, the operands of it that lie in a buffer that it writes, and what it computes.

    `target` is the machine that it is for.  If `exact`, floats are added and multiplied as written.
    """

    kernel: Kernel
    aliased: frozenset[str]
    what: str
    target: Target
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Contents of the region of constants, from `offset` on."""

    offset: int
    array: Array


@dataclass(frozen=True, slots=True, eq=False)
class BundlePlan:
    """A bundle before it is written in any format.

    `kernels` are told apart by content and named by it; `strict` says how they are rendered.
    """

    target: Target
    strict: bool
    routines: tuple[Routine, ...]
    kernels: Mapping[str, KernelCode]
    constants: tuple[Constant, ...]
    constants_nbytes: int
    alignment: int = ALIGNMENT

    def weights(self) -> bytes:
        """Return the region of constants."""
        region = bytearray(self.constants_nbytes)
        for c in self.constants:
            region[c.offset : c.offset + c.array.nbytes] = c.array.tobytes()
        return bytes(region)


def multiply_adds(program: Program) -> int:
    """Return the number of multiply-adds along inner dimensions; a loop's body counts once."""
    return sum(i.work() for i in program.instrs())


def _multiply_adds(version: Version, rows: Rows | None) -> int:
    """Return the multiply-adds of a program, with the most rows that it is for."""
    if rows is None:
        return multiply_adds(version.program)
    most = max(last for _, last in version.rows)
    return multiply_adds(bind(version.program, rows.values(most)))


Planned = Program | Grown
"""An entry point runs one program, or one of several, depending on the number of rows."""


def layout(programs: Mapping[str, Planned], target: Target, *, strict: bool = False) -> BundlePlan:
    """Lay out planned programs, one for each entry point, over shared constants.

    Raises UnsupportedError if an instruction of any has no compiled kernel, naming them all.
    """
    return fat_layout({target: programs}, strict=strict)


def fat_layout(
    programs: Mapping[Target, Mapping[str, Planned]], *, strict: bool = False, name: str = ""
) -> BundlePlan:
    """Lay out the same entry points for several targets, from the least to the best.

    Constants that are the same for several of them, weights in the same order, are kept once.
    `name` is the bundle's, after which what handles its state is called.
    """
    refuse_interpreted({
        target: [p for p in by_entry.values() if isinstance(p, Program)]
        for target, by_entry in programs.items()
    })  # fmt: skip
    maker = _Maker(strict, len(programs) == 1, name or next(iter(programs[next(iter(programs))])))
    by_target = [
        [maker.routine(entry, program, target) for entry, program in by_entry.items()]
        for target, by_entry in programs.items()
    ]
    targets = tuple(programs)
    first = targets[0]
    if len(targets) > 1:
        first = replace(first, name=",".join(map(str, targets)))
    routines = tuple(_chosen(alike, targets) for alike in zip(*by_target, strict=True))
    _require_one_state(routines)
    return BundlePlan(
        first, strict, routines, maker.kernels, tuple(maker.constants),
        maker.constants_nbytes,
    )  # fmt: skip


def _chosen(alike: Sequence[Routine], targets: Sequence[Target]) -> Routine:
    """Return an entry point of those that are made of it for each target."""
    first = alike[0]
    assert all(r.symbols == first.symbols for r in alike), "targets differ in what callers see"
    if len(alike) == 1:
        return first
    choices = tuple(Variant(t, r.branches) for t, r in zip(targets, alike, strict=True))
    assert len({r.checks for r in alike}) == 1, "targets differ in what they check"
    assert len({(r.state, r.last) for r in alike}) == 1, "targets differ in their state"
    scratch, loses = max(r.scratch_nbytes for r in alike), any(r.loses for r in alike)
    work = max(r.multiply_adds for r in alike)
    return replace(
        first, scratch_nbytes=scratch, choices=choices, loses=loses, multiply_adds=work
    )


def _require_one_state(routines: Sequence[Routine]) -> None:
    """Raise an error if entry points would not find each other's state, or hide its functions."""
    first = routines[0]
    for r in routines[1:]:
        if r.state != first.state:
            both = (f"{x.entry} has {_said_of(x.state)}" for x in (first, r))
            raise UnsupportedError(
                f"entry points of a bundle share its state, but {', '.join(both)}",
                hint="shapes that differ in nothing that is state, or a bundle for each",
            )
    taken = {r.entry for r in routines} & set(first.state.functions if first.state else ())
    if taken:
        raise OptionError(f"entry point '{taken.pop()}' is already a function of the state")


def _said_of(state: State | None) -> str:
    return words.some(f"{c.name}: {c.type}" for c in state.cells) if state else "none"


class _Maker:
    """Collects what the routines of a layout share."""

    def __init__(self, strict: bool, single: bool, name: str) -> None:
        self.strict, self.single, self.name = strict, single, name
        self.kernels: dict[str, KernelCode] = {}
        self.constants: list[Constant] = []
        self.constants_nbytes = 0
        self._offsets: dict[str, int] = {}

    def routine(self, entry: str, planned: Planned, target: Target) -> Routine:
        """Return an entry point for a target."""
        if isinstance(planned, Grown):
            rows, versions = planned.rows, planned.versions
        else:
            rows = None
            versions = (Version(planned, chosen(planned, target, self.strict)),)
        memory = mutable(versions, rows)
        words = {STOP: Place("mutable", memory.end), FAULT: Place("mutable", memory.end + 8)}
        branches = tuple(self._branch(v, rows, memory.places, words, target) for v in versions)
        checks = any(FAULT in k.kernel.buffers for v in versions for k in v.kernels)
        programs = [v.program for v in versions]
        return Routine(
            entry, memory.symbols, branches, memory.end + CHECKS_NBYTES * checks,
            rounded_up(max(p.arena for p in programs)), checks,
            state=self._state(programs[0], memory, rows), step=rows.step if rows else 0,
            last=tuple(dict.fromkeys(m for p in programs for m in _swaps(p, memory.places))),
            loses=any(map(_loses, versions)),
            multiply_adds=max(_multiply_adds(v, rows) for v in versions),
        )  # fmt: skip

    def _state(self, program: Program, memory: Mutable, rows: Rows | None) -> State | None:
        """Return what stays of the variables of a program."""
        if not program.variables:
            return None
        first = []
        for name, cell in program.variables.items():
            if cell.axis is None:
                source = Buffer(name, cell.type.nbytes, "const", cell.type, cell.initial)
                place = Place("constants", self._constant(source))
                first.append(Move(Place("mutable", memory.places[name]), place, source.nbytes))
        length = rows.length if rows else 0
        return State(self.name, memory.cells, length, memory.state_nbytes, tuple(first))

    def _branch(
        self, version: Version, rows: Rows | None, places: Mapping[str, int],
        words: Mapping[Any, Place], target: Target,
    ) -> Branch:  # fmt: skip
        """Return the calls of a program, and its jumps: these are counted without empty calls."""
        calls: list[Command] = []
        begins: list[int] = []
        jumps: dict[int, int] = {}
        kernels = iter(version.kernels)
        stop = words[STOP] if any(FAULT in k.kernel.buffers for k in version.kernels) else None
        for number, instr in enumerate(version.program.instrs()):
            begins.append(len(calls))
            if isinstance(instr.op, Jump):
                jumps[len(calls)] = number + instr.op.by
                flags = [self._place(r, version.program.buffers[r.buffer], rows, places)
                         for r in instr.reads()]  # fmt: skip
                back = stop if instr.op.by < 0 else None
                calls.append(Goto(-1, flags[0] if flags else None, instr.op.when, back))
                continue
            choice = next(kernels)
            kernel = choice.kernel
            if not self.single:
                # The same kernel is other code for each machine.
                machine = re.sub(r"\W", "_", str(target))
                kernel = replace(kernel, name=f"{kernel.name}.{machine}")
            self.kernels.setdefault(
                kernel.name, KernelCode(kernel, choice.aliased, _said(instr), target, choice.exact)
            )
            args = [
                self._place(r, version.program.buffers[r.buffer], rows, places)
                for r in (*instr.outs, *instr.reads())
            ]
            args += [words[b] for b in kernel.buffers if b in words]
            extent, *extents = (_told(d, rows) for d in (choice.extent, *_extents(choice)))
            if is_open(extent) or extent > 0:
                calls.append(KernelCall(kernel.name, tuple(args), extent, tuple(extents)))
        begins.append(len(calls))
        return Branch(tuple(_led(calls, jumps, begins)), version.rows)

    def _place(self, r: Region, b: Buffer, rows: Rows | None, places: Mapping[str, int]) -> Place:
        offset = _told(r.offset, rows) * r.type.numpy.itemsize
        if b.space == "const":
            return Place("constants", self._constant(b) + offset)
        if b.space == "arena":
            assert b.offset is not None, f"{b.name} has no place in the arena"
            return Place("scratch", b.offset + offset)
        return Place("mutable", places[b.name] + offset)

    def _constant(self, b: Buffer) -> int:
        """Return where the contents of a constant begin; equal contents are kept once."""
        assert b.array is not None, f"{b.name} is a constant without contents"
        digest = hashlib.sha256(b.array.tobytes()).hexdigest()
        if digest not in self._offsets:
            self._offsets[digest] = self.constants_nbytes
            self.constants.append(Constant(self.constants_nbytes, b.array))
            self.constants_nbytes += rounded_up(b.array.nbytes)
        return self._offsets[digest]


def _led(
    calls: Sequence[Command], jumps: Mapping[int, int], begins: Sequence[int]
) -> Iterator[Command]:
    """Yield calls; a jump leads to the first call of an instruction.

    `jumps` are the instructions that jumps lead to, by call, and `begins` the first calls of all
    instructions.
    """
    for number, call in enumerate(calls):
        yield replace(call, to=begins[jumps[number]]) if isinstance(call, Goto) else call


def _loses(version: Version) -> bool:
    """Whether state that is there may be written over, before it is known that a call succeeds."""
    program, starts = version.program, version.rows == ((0, 0),)
    return any(
        overwrites(program, name, cell)
        for name, cell in program.variables.items()
        if cell.axis is None or not starts
    )


def _swaps(program: Program, places: Mapping[str, int]) -> list[Move]:
    """Return what copies what variables have at exit to where they are at the next entry."""
    return [
        Move(Place("mutable", places[name]), Place("mutable", places[cell.exit]), cell.type.nbytes)
        for name, cell in program.variables.items()
        if cell.exit not in ("", name)
    ]


def _extents(choice: ChosenKernel) -> list[Dim]:
    """Return what the run-time extents of a kernel stand for."""
    extents = [e.dim for e in choice.kernel.extents]
    assert None not in extents, f"{choice.kernel.name} has an extent that nobody knows"
    return [d for d in extents if d is not None]


def _told(d: Dim, rows: Rows | None) -> Dim:
    """Return an extent of a program in terms of the rows of the state."""
    assert rows is not None or not is_open(d), f"{d} is open in a program whose extents are known"
    return d if rows is None else rows.of(d)


def _said(instr: Instr) -> str:
    """Return the operators of an instruction and the types of its operands and results."""
    operands = ", ".join(str(r.type) for r in instr.reads())
    results = ", ".join(str(r.type) for r in instr.outs)
    return f"{' + '.join(op.name for op in instr.operators())}: {operands} -> {results}"
