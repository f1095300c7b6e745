"""From a planned program to an artifact: a kernel for every instruction, compiled once each.

Kernels are told apart by their text: two instructions with the same text share one, and object
code is cached under the text, the target, the LLVM version and a hash of the compiler's sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from importlib.resources import files

import llvmlite.binding as llvm

from alpenglow.base import deadline
from alpenglow.base.store import Store
from alpenglow.ir.target import Target
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.stoppable import STOP
from alpenglow.machines.api import Artifact, Entry, Progress
from alpenglow.machines.choice import ChosenKernel, dims_of, signature, with_stop
from alpenglow.machines.cpu.assemble import assemble, assembly, optimise
from alpenglow.machines.cpu.legal import legal
from alpenglow.machines.proof import admitted
from alpenglow.machines.vector.select import choose
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.render.c.render import render as render_c
from alpenglow.render.llvm.render import render


def emit(
    program: Program, target: Target, strict: bool, store: Store, progress: Progress
) -> Artifact:
    """Compile what has a compiled form that is proved to be safe; the rest is interpreted.

    LLVM makes code of one kernel while the next ones are built and proved.
    """
    ahead = ThreadPoolExecutor(1, "alpenglow-llvm")
    try:
        return _emitted(program, target, strict, store, progress, ahead)
    finally:
        ahead.shutdown(cancel_futures=True)


def _emitted(
    program: Program, target: Target, strict: bool, store: Store, progress: Progress,
    ahead: Executor,
) -> Artifact:  # fmt: skip
    table: list[Entry] = []
    objects: dict[str, Callable[[], bytes]] = {}
    chosen: dict[str, ChosenKernel | None] = {}
    for instr in program.instrs():
        deadline.check("the next kernel")
        if isinstance(instr.op, Jump):
            table.append(Entry("", 1))
            continue
        like = signature(instr)
        if like not in chosen:
            choice = choose(instr, target, strict)
            if choice is not None:
                choice = with_stop(choice, instr)
            chosen[like] = choice if choice and admitted(choice.kernel, instr) else None
        pick = chosen[like]
        if pick is None:
            table.append(Entry("", 1))
            continue
        name = pick.kernel.name
        if name not in objects:
            make = partial(_object, pick, target)
            objects[name] = _begun(ahead, partial(store.get_or_make, _key(name, target), make))
        stops, faults = (b in pick.kernel.buffers for b in (STOP, FAULT))
        dims = dims_of(pick.kernel)
        table.append(Entry(pick.kernel.name, pick.extent, dims, stops, faults))
    done: dict[str, bytes] = {}
    for name, code in objects.items():
        deadline.check(f"kernel {name}")
        progress("compiling kernels", len(done), len(objects))
        done[name] = code()
    progress("compiling kernels", len(done), len(objects))
    return Artifact(target, program, done, tuple(table))


def _begun(ahead: Executor, make: Callable[[], bytes]) -> Callable[[], bytes]:
    """Return what waits for the result of `make`, or calls it where no thread can be started.

    Extents stand for what they stand for here.
    """
    try:
        return ahead.submit(copy_context().run, make).result
    except RuntimeError:
        return make


def _object(choice: ChosenKernel, target: Target) -> bytes:
    return assemble(_rendered(choice, target), target)


def _rendered(choice: ChosenKernel, target: Target) -> str:
    return render(legal(choice.kernel, target), fast=not choice.exact, aliased=choice.aliased)


LANGUAGES = ("llvm", "llvm-optimized", "assembly", "c")


def code(instr: Instr, target: Target, strict: bool, language: str) -> str:
    """Return the code of the kernel of an instruction in one of `LANGUAGES`, for reading."""
    choice = choose(instr, target, strict)
    assert choice is not None, "only instructions with a kernel are asked for"
    choice = with_stop(choice, instr)
    if language == "c":
        return render_c(choice.kernel, fast=not choice.exact)
    text = _rendered(choice, target)
    match language:
        case "llvm":
            return text
        case "llvm-optimized":
            return optimise(text, target)
    return assembly(text, target)


def _key(name: str, target: Target) -> str:
    version = ".".join(map(str, llvm.llvm_version_info))
    features = ",".join(target.features)
    return f"kernel {name} {target.triple} {target.cpu} {features} llvm{version} {_sources()}"


_MAKERS = (
    "alpenglow.machines.cpu", "alpenglow.render.llvm", "alpenglow.kernel",
    "alpenglow.kernel.legalise",
)  # fmt: skip
"""The packages that make code of the text of a kernel."""


@cache
def _sources() -> str:
    """Return a hash of all sources between the text of a kernel and its code."""
    digest = hashlib.sha256()
    for package in _MAKERS:
        for file in sorted(files(package).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
