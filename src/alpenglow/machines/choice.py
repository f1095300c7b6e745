"""From an instruction to the kernel that runs it, named by its content.

Kernels are told apart by their text: two instructions with the same text share one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.region import deep
from alpenglow.kernel.expr import Const, Index
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import stoppable
from alpenglow.kernel.text import print_kernel
from alpenglow.loops.form import UNPROVED
from alpenglow.ops.quantized.fake_quantize import FakeQuantize, StraightThrough, SymmetricScale
from alpenglow.ops.quantized.quantize import Quantize, Requantize
from alpenglow.ops.sequence.recurrent_integer import LstmInteger
from alpenglow.program import Instr


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


ROUNDING = (Quantize, Requantize, FakeQuantize, StraightThrough, SymmetricScale, LstmInteger)
"""Operators that round floats to integers, or say in which steps."""


def chosen(kernel: Kernel, instr: Instr, strict: bool) -> ChosenKernel:
    """Return a kernel as the one that runs an instruction."""
    aliased = _aliased(instr)
    exact = strict or _quantizes(instr)
    named = replace(kernel, name=_name(kernel, aliased, exact))
    return ChosenKernel(named, aliased, _extent(kernel), exact)


def with_stop(choice: ChosenKernel, instr: Instr) -> ChosenKernel:
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


def signature(instr: Instr) -> str:
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
    inner = () if instr.body is None else (n.op for g in deep(instr.body) for n in g.nodes)
    return any(isinstance(op, ROUNDING) for op in (instr.op, *inner))


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


def dims_of(kernel: Kernel) -> tuple[Sym, ...]:
    """Return what the run-time extents of a kernel stand for."""
    dims = tuple(e.dim for e in kernel.extents if e.dim is not None)
    assert len(dims) == len(kernel.extents), "a kernel has an extent that nobody knows"
    return dims


def _name(kernel: Kernel, aliased: frozenset[str], exact: bool) -> str:
    text = f"{print_kernel(kernel)}\n{sorted(aliased)}\n{exact}"
    return f"{kernel.name}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
