"""From a planned program to an artifact: OpenCL C for every instruction that has a kernel.

Each text is a program of one kernel, so that what a device's compiler makes of it can be kept under
the text, whichever model it came from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.base import deadline
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Dim
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Index
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.spread import in_parts, over_threads
from alpenglow.kernel.stmt import For, Kernel
from alpenglow.kernel.stoppable import STOP
from alpenglow.machines.api import Artifact, Entry, Progress
from alpenglow.machines.choice import ChosenKernel, dims_of, signature
from alpenglow.machines.proof import admitted
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.render.opencl.render import LACKS, WITH_DOTS, render_placed

Choose = Callable[[Instr, Target, bool], ChosenKernel | None]
"""Chooses the kernel of an instruction; None where there is none."""

PARTS = 4
"""Into how many parts for each core a loop is cut: some cores may be slower than others."""


class RefusedWarning(UserWarning):
    """A kernel cannot be written as OpenCL C, so that its instruction is interpreted."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A kernel as the devices of a target run it, and its text as a program."""

    kernel: Kernel
    text: str


def written(instr: Instr, target: Target, strict: bool, choose: Choose) -> Written | None:
    """Return the kernel of an instruction; None if there is none that is safe.

    Raises UnsupportedError if OpenCL C has no words for it.
    """
    chosen = choose(instr, target, strict)
    if chosen is None or not admitted(chosen.kernel, instr):
        return None
    return as_text(chosen.kernel, target, chosen.aliased, chosen.exact)


def as_text(kernel: Kernel, target: Target, aliased: frozenset[str], exact: bool) -> Written:
    """Return a chosen kernel as the devices of a target run it.

    Raises UnsupportedError if OpenCL C has no words for it.
    """
    kernel = spread(kernel, target)
    lacks = WITH_DOTS if "i8" in target.facts.multiplies else LACKS
    return Written(kernel, render_placed(kernel, aliased, fast=not exact, lacks=lacks))


def refusal(instr: Instr, target: Target, choose: Choose) -> str:
    """Return why an instruction is interpreted though every operator in it has a kernel; "" if it
    is not."""
    try:
        kernel = written(instr, target, False, choose)
    except UnsupportedError as error:
        return error.message
    return "" if kernel else "its kernel is not proved to stay within its operands"


def emit(
    program: Program, target: Target, strict: bool, progress: Progress, choose: Choose
) -> Artifact:
    """Return the artifact of a program; what has no kernel that is safe is interpreted.

    A `RefusedWarning` tells of kernels that there are, but cannot be written.
    """
    table: list[Entry] = []
    objects: dict[str, bytes] = {}
    entries: dict[str, Entry] = {}
    instrs = list(program.instrs())
    for number, instr in enumerate(instrs):
        deadline.check("the next kernel")
        progress("writing kernels", number, len(instrs))
        if isinstance(instr.op, Jump):
            table.append(Entry("", 1))
            continue
        like = signature(instr)
        if like not in entries:
            entries[like] = _entry(instr, target, strict, choose, objects)
        table.append(entries[like])
    progress("writing kernels", len(instrs), len(instrs))
    return Artifact(target, program, objects, tuple(table))


def _entry(
    instr: Instr, target: Target, strict: bool, choose: Choose, objects: dict[str, bytes]
) -> Entry:
    """Return how an instruction runs; the text of its kernel joins the objects."""
    try:
        made = written(instr, target, strict, choose)
    except UnsupportedError as error:
        names = " + ".join(op.name for op in instr.operators())
        text = f"{names} is interpreted, since {error.message}"
        warnings.warn(text, RefusedWarning, stacklevel=3)
        return Entry("", 1)
    if made is None:
        return Entry("", 1)
    kernel = made.kernel
    objects[kernel.name] = made.text.encode()
    groups, threads = launch(kernel)
    stops, faults = (b in kernel.buffers for b in (STOP, FAULT))
    assert stops == faults, "kernels of devices look at no stop word"
    return Entry(kernel.name, 1, dims_of(kernel), stops, faults, groups, threads)


def spread(kernel: Kernel, target: Target) -> Kernel:
    """Return a kernel as the devices of a target run it: over threads, or in parts for cores."""
    if target.facts.group:
        return over_threads(kernel, target.facts.group)
    return in_parts(kernel, PARTS * target.facts.units)


def launch(kernel: Kernel) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Return the grid of a kernel: how many groups and threads there are, innermost first."""
    loop = kernel.parallel
    if loop is not None:
        return (_extent(loop),), (1,)
    grid = kernel.launch
    return tuple(map(_extent, grid.groups)) or (1,), tuple(map(_threads, grid.threads)) or (1,)


def _extent(loop: For) -> Dim:
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    extent = loop.extent
    assert isinstance(extent, Index) and extent.dim is not None, "the caller knows the extent"
    return extent.dim


def _threads(loop: For) -> int:
    assert isinstance(loop.extent, Const), "groups have as many threads as their kernel says"
    return int(loop.extent.value)
