"""The kernels of programs as C, run guarded: gcc's vectors, or lane by lane.

What C reads is what a kernel says, with no optimiser of ours in between.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.api import Entry
from alpenglow.machines.choice import ChosenKernel
from alpenglow.machines.vector.select import choose
from alpenglow.program import Program
from alpenglow.render.c.render import Unit

from .cc import TARGET, built
from .trial import Finding, Tally, run_all

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Library:
    """Programs with their tables, in the order of their instructions, and where kernels lie."""

    programs: Sequence[Program]
    tables: Sequence[Sequence[Entry]]
    addresses: dict[str, int]
    loaded: ctypes.CDLL

    def run(self, number: int, feeds: Arrays, tally: Tally) -> list[Finding]:
        """Run a program on arrays by the names of its inputs; return what is wrong with kernels."""
        program = self.programs[number]
        arrays = {name: np.ascontiguousarray(feeds[name]) for name in program.inputs}
        for name in program.outputs:
            t = program.buffers[name].type
            assert t is not None, f"output '{name}' has no type"
            arrays[name] = np.empty(t.extents, t.numpy)
        return run_all(program, self.tables[number], self.addresses, arrays, tally)


def library(
    programs: Sequence[Program], folder: Path, strict: bool, portable: bool, level: int = 0
) -> Library:
    """Build the kernels of programs for `cc.TARGET`; what C cannot say is interpreted."""
    unit = Unit(portable=portable, fast=not strict)
    callers: dict[str, str] = {}
    tables = []
    for program in programs:
        choices = [choose(instr, TARGET, strict) for instr in program.instrs()]
        for choice in choices:
            if choice is not None and choice.kernel.name not in callers:
                callers[choice.kernel.name] = _added(unit, choice, f"k{len(callers)}")
        tables.append([_entry(choice, callers) for choice in choices])
    text = unit.text() + "\n".join(callers.values())
    loaded = built(folder, text, level)
    addresses = {}
    for i, (name, caller) in enumerate(callers.items()):
        if caller:
            function = getattr(loaded, f"k{i}_by_slots")
            addresses[name] = int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    return Library(programs, tables, addresses, loaded)


def _entry(choice: ChosenKernel | None, callers: Mapping[str, str]) -> Entry:
    if choice is None or not callers[choice.kernel.name]:
        return Entry("", 1)
    return Entry(choice.kernel.name, choice.extent)


def _added(unit: Unit, choice: ChosenKernel, name: str) -> str:
    """Add a kernel; return a function that calls it as ours are called, "" if C has no form."""
    try:
        unit.add(choice.kernel, name, aliased=choice.aliased)
    except UnsupportedError:
        return ""
    return _by_slots(choice.kernel, name)


def _by_slots(kernel: Kernel, name: str) -> str:
    slots = [f"args[{i}]" for i in range(len(kernel.buffers))]
    parts = ["begin", "end"] if kernel.parallel is not None else []
    return (
        f"void {name}_by_slots(void **args, ptrdiff_t begin, ptrdiff_t end) {{\n"
        f"  (void)begin; (void)end;\n  {name}({', '.join([*slots, *parts])});\n}}\n"
    )
