"""The layout of a bundle: which kernel runs when, and at which byte of which memory.

There are three regions.  `constants` holds the weights, the same for all entry points; `mutable`
holds the inputs and outputs of one entry point, and `scratch` what lives while it runs.  An address
is a region and a byte in it, so all that a bundle needs to know at run time is where the three
begin.  Everything here is a function of the programs and the target: no device, no clock.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from alpenglow.base import words
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.memory import ALIGNMENT, rounded_up
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP
from alpenglow.machines.cpu.emit import choose
from alpenglow.machines.cpu.select import compiles
from alpenglow.machines.proof import admitted
from alpenglow.program import Buffer, Instr, Program, Region

CHECKS_NBYTES = ALIGNMENT
"""Bytes of memory in which checks of data leave what they find."""

Memory = Literal["constants", "mutable", "scratch"]
MEMORIES: tuple[Memory, ...] = ("constants", "mutable", "scratch")
"""The regions, in the order in which an entry point takes them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of a region."""

    memory: Memory
    offset: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel, the places of its buffers, and the extent of its parallel loop."""

    kernel: str
    args: tuple[Place, ...]
    extent: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """An input or output: its name in the model and in C, and where in `mutable` it lies."""

    name: str
    ident: str
    type: TensorType
    output: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Variant:
    """What an entry point does on machines of a target: one of several, of which it chooses."""

    target: Target
    calls: tuple[KernelCall, ...]


@dataclass(frozen=True, slots=True)
class Routine:
    """What one entry point does: calls in order, and the memory that they need.

    One that runs on machines of several targets has `choices`, from the least to the best, of which
    `calls` are the first; `scratch` is what the one needs that needs most.  One that `checks` data
    has two words for it at the end of `mutable`: a stop word, and what was found out of range.
    """

    entry: str
    symbols: tuple[Symbol, ...]
    calls: tuple[KernelCall, ...]
    mutable_nbytes: int
    scratch_nbytes: int
    checks: bool = False
    choices: tuple[Variant, ...] = ()

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        return tuple(s for s in self.symbols if not s.output)

    @property
    def outputs(self) -> tuple[Symbol, ...]:
        return tuple(s for s in self.symbols if s.output)

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


def layout(programs: Mapping[str, Program], target: Target, *, strict: bool = False) -> BundlePlan:
    """Lay out planned programs, one for each entry point, over shared constants.

    Raises UnsupportedError if an instruction of any has no compiled kernel, naming them all.
    """
    return fat_layout({target: programs}, strict=strict)


def fat_layout(
    programs: Mapping[Target, Mapping[str, Program]], *, strict: bool = False
) -> BundlePlan:
    """Lay out the same entry points for several targets, from the least to the best.

    Constants that are the same for several of them, weights in the same order, are kept once.
    """
    every = [p for by_entry in programs.values() for p in by_entry.values()]
    refuse_variables(every)
    refuse_interpreted(every)
    maker = _Maker(strict, single=len(programs) == 1)
    by_target = [
        [maker.routine(entry, program, target) for entry, program in by_entry.items()]
        for target, by_entry in programs.items()
    ]
    targets = tuple(programs)
    first = targets[0]
    if len(targets) > 1:
        first = replace(first, name=",".join(map(str, targets)))
    routines = (_chosen(alike, targets) for alike in zip(*by_target, strict=True))
    return BundlePlan(
        first, strict, tuple(routines), maker.kernels, tuple(maker.constants),
        maker.constants_nbytes,
    )  # fmt: skip


def _chosen(alike: Sequence[Routine], targets: Sequence[Target]) -> Routine:
    """Return an entry point of those that are made of it for each target."""
    first = alike[0]
    assert all(r.symbols == first.symbols for r in alike), "targets differ in what callers see"
    if len(alike) == 1:
        return first
    choices = tuple(Variant(t, r.calls) for t, r in zip(targets, alike, strict=True))
    assert len({r.checks for r in alike}) == 1, "targets differ in what they check"
    return replace(first, scratch_nbytes=max(r.scratch_nbytes for r in alike), choices=choices)


def refuse_variables(programs: Iterable[Program]) -> None:
    """Raise UnsupportedError for programs that remember something from call to call."""
    names = dict.fromkeys(name for program in programs for name in program.variables)
    if names:
        raise UnsupportedError(
            f"a bundle has no sessions to own variables: {', '.join(names)}",
            hint="make each an input and an output, which the caller hands from call to call",
        )


def refuse_interpreted(programs: Iterable[Program]) -> None:
    """Raise UnsupportedError if any instruction would need the interpreter."""
    missing: Counter[str] = Counter()
    for program in programs:
        for instr in program.instrs():
            missing.update({op.name for op in instr.operators() if not compiles(op)})
    if missing:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        raise UnsupportedError(
            f"a bundle has no interpreter, which these operators would need: {named}",
            hint="cut the model before them, for example with onnx.utils.extract_model, and do "
            "their work in the program that calls the bundle; `alpenglow check` lists all "
            "operators",
        )


class _Maker:
    """Collects what the routines of a layout share."""

    def __init__(self, strict: bool, single: bool) -> None:
        self.strict, self.single = strict, single
        self.kernels: dict[str, KernelCode] = {}
        self.constants: list[Constant] = []
        self.constants_nbytes = 0
        self._offsets: dict[str, int] = {}

    def routine(self, entry: str, program: Program, target: Target) -> Routine:
        symbols = _symbols(program)
        callers = dict(zip((*program.inputs, *program.outputs), symbols, strict=True))
        calls = []
        checks = False
        end = rounded_up(max((s.offset + s.type.nbytes for s in symbols), default=0))
        words = {STOP: Place("mutable", end), FAULT: Place("mutable", end + 8)}
        for instr in program.instrs():
            choice = choose(instr, target, self.strict)
            assert choice is not None, f"{instr.op.name} has no kernel"
            assert isinstance(choice.extent, int), f"the extent of {instr.op.name} is open"
            kernel = choice.kernel
            if not admitted(kernel, instr):
                raise UnsupportedError(f"{instr.op.name} has no kernel that is proved to be safe")
            if not self.single:
                # The same kernel is other code for each machine.
                machine = re.sub(r"\W", "_", str(target))
                kernel = replace(kernel, name=f"{kernel.name}.{machine}")
            self.kernels.setdefault(
                kernel.name, KernelCode(kernel, choice.aliased, _said(instr), target, choice.exact)
            )
            args = tuple(
                self._place(r, program.buffers[r.buffer], callers)
                for r in (*instr.outs, *instr.reads())
            )
            args += tuple(words[b] for b in kernel.buffers if b in words)
            checks = checks or FAULT in kernel.buffers
            if choice.extent > 0:
                calls.append(KernelCall(kernel.name, args, choice.extent))
        mutable = end + CHECKS_NBYTES * checks
        return Routine(entry, symbols, tuple(calls), mutable, rounded_up(program.arena), checks)

    def _place(self, r: Region, b: Buffer, callers: Mapping[str, Symbol]) -> Place:
        offset = r.offset * r.type.numpy.itemsize
        if b.space == "const":
            return Place("constants", self._constant(b) + offset)
        if b.space == "arena":
            assert b.offset is not None, f"{b.name} has no place in the arena"
            return Place("scratch", b.offset + offset)
        return Place("mutable", callers[b.name].offset + offset)

    def _constant(self, b: Buffer) -> int:
        """Return where the contents of a constant begin; equal contents are kept once."""
        assert b.array is not None, f"{b.name} is a constant without contents"
        digest = hashlib.sha256(b.array.tobytes()).hexdigest()
        if digest not in self._offsets:
            self._offsets[digest] = self.constants_nbytes
            self.constants.append(Constant(self.constants_nbytes, b.array))
            self.constants_nbytes += rounded_up(b.array.nbytes)
        return self._offsets[digest]


def _said(instr: Instr) -> str:
    """Return the operators of an instruction and the types of its operands and results."""
    operands = ", ".join(str(r.type) for r in instr.reads())
    results = ", ".join(str(r.type) for r in instr.outs)
    return f"{' + '.join(op.name for op in instr.operators())}: {operands} -> {results}"


def _symbols(program: Program) -> tuple[Symbol, ...]:
    """Place inputs, then outputs, one behind the other."""
    symbols: list[Symbol] = []
    offset = 0
    idents = identifiers(program.names.get(n, n) for n in (*program.inputs, *program.outputs))
    for k, name in enumerate((*program.inputs, *program.outputs)):
        t = program.buffers[name].type
        assert t is not None, f"{name} is an input or output without a type"
        output = k >= len(program.inputs)
        called = program.names.get(name, name) if output else name
        symbols.append(Symbol(called, idents[k], t, output, offset))
        offset += rounded_up(t.nbytes)
    return tuple(symbols)


def identifiers(names: Iterable[str]) -> list[str]:
    """Return an identifier of C for each name, no two alike even where case does not count."""
    plain = (re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "unnamed" for name in names)
    return words.apart(plain)
