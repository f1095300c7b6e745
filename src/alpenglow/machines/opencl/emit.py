"""From a planned program to an artifact: OpenCL C for every instruction that has a kernel.

Each text is a program of one kernel, so that what a device's compiler makes of it can be kept under
the text, whichever model it came from.
"""

from __future__ import annotations

from collections.abc import Callable

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
from alpenglow.program import Instr, Program
from alpenglow.render.opencl.render import render_placed

Choose = Callable[[Instr, Target, bool], ChosenKernel | None]
"""Chooses the kernel of an instruction; None where there is none."""

PARTS = 4
"""Into how many parts for each core a loop is cut: some cores may be slower than others."""


def emit(
    program: Program, target: Target, strict: bool, progress: Progress, choose: Choose
) -> Artifact:
    """Return the artifact of a program; what has no kernel that is safe is interpreted."""
    table: list[Entry] = []
    objects: dict[str, bytes] = {}
    entries: dict[str, Entry] = {}
    instrs = list(program.instrs())
    for number, instr in enumerate(instrs):
        progress("writing kernels", number, len(instrs))
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
    chosen = choose(instr, target, strict)
    if chosen is None or not admitted(chosen.kernel, instr):
        return Entry("", 1)
    kernel = spread(chosen.kernel, target)
    name = kernel.name
    if name not in objects:
        try:
            objects[name] = render_placed(kernel, chosen.aliased, fast=not chosen.exact).encode()
        except UnsupportedError:
            return Entry("", 1)
    groups, threads = launch(kernel)
    stops, faults = (b in kernel.buffers for b in (STOP, FAULT))
    assert stops == faults, "kernels of devices look at no stop word"
    return Entry(name, 1, dims_of(kernel), stops, faults, groups, threads)


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
    groups: list[Dim] = []
    threads: list[int] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in ("group", "thread"):
        if body[0].kind == "group":
            groups.insert(0, _extent(body[0]))
        else:
            threads.insert(0, _threads(body[0]))
        body = body[0].body
    return tuple(groups) or (1,), tuple(threads) or (1,)


def _extent(loop: For) -> Dim:
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    extent = loop.extent
    assert isinstance(extent, Index) and extent.dim is not None, "the caller knows the extent"
    return extent.dim


def _threads(loop: For) -> int:
    assert isinstance(loop.extent, Const), "groups have as many threads as their kernel says"
    return int(loop.extent.value)
