"""From a planned program to an artifact: a kernel for every instruction, compiled once each.

Kernels are told apart by their text: two instructions with the same text share one, and object
code is cached under the text, the target, the LLVM version and a hash of the compiler's sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files

import llvmlite.binding as llvm

from alpenglow.base.store import Store
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Index
from alpenglow.kernel.faults import FAULT
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP, stoppable
from alpenglow.kernel.text import print_kernel
from alpenglow.loops.form import UNPROVED
from alpenglow.machines.api import Artifact, Entry, Progress
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.legal import legal
from alpenglow.machines.cpu.select import compiles, kernel_for
from alpenglow.machines.proof import admitted
from alpenglow.ops.quantize import Quantize, Requantize
from alpenglow.ops.recurrent_integer import LstmInteger
from alpenglow.program import Instr, Program
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
        like = _signature(instr)
        if like not in chosen:
            choice = choose(instr, target, strict)
            if choice is not None:
                choice = _stoppable(choice, instr)
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
        dims = _dims(pick.kernel)
        table.append(Entry(pick.kernel.name, pick.extent, dims, stops, faults))
    done: dict[str, bytes] = {}
    for name, code in objects.items():
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


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """The kernel of an instruction, named by its content.

    `aliased` names the operands that lie in a buffer that it writes; `extent` is that of its
    parallel loop, 1 without one.  If `exact`, floats are added and multiplied as written.
    """

    kernel: Kernel
    aliased: frozenset[str]
    extent: Dim
    exact: bool


def choose(instr: Instr, target: Target, strict: bool) -> ChosenKernel | None:
    """Return what runs an instruction on `target`; None if nothing compiled does."""
    if not all(compiles(op) for op in instr.operators()):
        return None
    kernel = kernel_for(instr, target, strict)
    aliased = _aliased(instr)
    exact = strict or _quantizes(instr)
    named = replace(kernel, name=_name(kernel, aliased, exact))
    return ChosenKernel(named, aliased, _extent(kernel), exact)


def _stoppable(choice: ChosenKernel, instr: Instr) -> ChosenKernel:
    """Return what runs an instruction and looks at the stop word, if that takes long.

    Where a kernel stays within bounds by its form, not by proof, no part of it may be left out.
    """
    if any(type(op) in UNPROVED for op in instr.operators()):
        return choice
    kernel = stoppable(choice.kernel)
    if kernel is choice.kernel:
        return choice
    plain = replace(kernel, name=kernel.name.rpartition("_")[0])
    named = replace(kernel, name=_name(plain, choice.aliased, choice.exact))
    return replace(choice, kernel=named, extent=_extent(kernel))


def _signature(instr: Instr) -> str:
    """Return a text of all that the kernel of an instruction depends on.

    Where regions begin is no part of it: bands of rows differ in nothing else.  Text, because to
    compare extents that are open may be to assume something of them.
    """
    numbers: dict[str, int] = {}
    regions = [
        r and (numbers.setdefault(r.buffer, len(numbers)), r.type, r.strides)
        for r in (*instr.outs, *instr.ins)
    ]
    inner = None if instr.body is None else _body_signature(instr.body)
    return f"{instr.op!r} {len(instr.outs)} {regions} {inner}"


def _body_signature(body: Graph) -> str:
    """Return what a body computes, as text without names."""
    numbers: dict[Value, int] = {v: i for i, v in enumerate(body.inputs.values())}
    lines = [f"{v.type}" for v in numbers]
    for v in body.constants():
        numbers[v] = len(numbers)
        lines.append(v.digest)
    for node in body.nodes:
        read = [None if v is None else numbers[v] for v in node.inputs]
        lines.append(f"{node.op!r} {read} {[v.type for v in node.results]}")
        lines += map(_body_signature, node.regions)
        for v in node.results:
            numbers[v] = len(numbers)
    return "; ".join([*lines, str([numbers[v] for v in body.outputs.values()])])


def _quantizes(instr: Instr) -> bool:
    """Whether an instruction rounds floats to integers, which the last bit may decide."""
    return any(isinstance(op, Quantize | Requantize | LstmInteger) for op in instr.operators())


def _object(choice: ChosenKernel, target: Target) -> bytes:
    text = render(legal(choice.kernel, target), fast=not choice.exact, aliased=choice.aliased)
    return assemble(text, target)


def _aliased(instr: Instr) -> frozenset[str]:
    """Return the operands that lie in a buffer that the kernel writes."""
    written = {r.buffer for r in instr.outs}
    return frozenset(
        f"x{i}" for i, r in enumerate(instr.ins) if r is not None and r.buffer in written
    )


def _extent(kernel: Kernel) -> Dim:
    loop = kernel.parallel
    if loop is None:
        return 1
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    extent = loop.extent
    assert isinstance(extent, Index) and extent.dim is not None, "its callers know the extent"
    return extent.dim


def _dims(kernel: Kernel) -> tuple[Sym, ...]:
    """Return what the run-time extents of a kernel stand for."""
    dims = tuple(e.dim for e in kernel.extents if e.dim is not None)
    assert len(dims) == len(kernel.extents), "a kernel has an extent that nobody knows"
    return dims


def _name(kernel: Kernel, aliased: frozenset[str], exact: bool) -> str:
    text = f"{print_kernel(kernel)}\n{sorted(aliased)}\n{exact}"
    return f"{kernel.name}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


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
