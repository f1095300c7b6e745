"""Choosing the kernel of an instruction: a tuned template where one fits, else loops."""

from __future__ import annotations

from dataclasses import replace

from alpenglow import loops
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import open_extents
from alpenglow.kernel.stmt import Kernel
from alpenglow.loops.instruction import Frame
from alpenglow.machines.choice import ChosenKernel, chosen
from alpenglow.machines.proof import proved
from alpenglow.machines.vector.templates import (
    attention,
    conv,
    depthwise,
    depthwise_planar,
    few_bits,
    filters,
    matmul,
    packing,
    phases,
    planar,
    quantized,
    resample,
    templates,
    transpose,
    vectors,
    windows,
    winograd,
    winograd_back,
    words,
)
from alpenglow.machines.vector.templates.products import dot
from alpenglow.machines.vector.templates.turn import build_turned
from alpenglow.program import Instr

FAMILIES = (
    attention, conv, depthwise, depthwise_planar, few_bits, filters, vectors, matmul, packing,
    phases, planar, quantized, resample, transpose, windows, winograd, winograd_back, words,
)  # fmt: skip
"""The modules that register templates."""


def compiles(op: Op) -> bool:
    """Return whether there is a template or a loop form for `op`."""
    return type(op) in templates or loops.has_form(op)


def choose(instr: Instr, target: Target, strict: bool) -> ChosenKernel | None:
    """Return what runs an instruction on `target`; None if nothing compiled does."""
    if not all(compiles(op) for op in instr.operators()):
        return None
    return chosen(kernel_for(instr, target, strict), instr, strict)


def kernel_for(instr: Instr, target: Target, strict: bool = False) -> Kernel:
    """Return the kernel of an instruction, under a name that says what it does.

    Halves are computed in f32; if `strict`, the result of each operator is rounded.

    Under an assumption it has the open extents as run-time extents.
    """
    turned = _turned(instr, target, strict)
    if turned is not None:
        return turned
    with open_extents() as extents:
        kernel = _kernel_for(instr, target, strict)
    return replace(kernel, extents=(*kernel.extents, *extents.values()))


def _turned(instr: Instr, target: Target, strict: bool) -> Kernel | None:
    """Return the kernel that turns operands over, if some lie across; plain loops serve all else.

    Where many extents are open a proof that it stays within its operands may be too long.
    """
    with open_extents() as extents:
        builder = build_turned("transpose", instr, target, strict)
    if builder is None:
        return None
    kernel = builder.done()
    if not extents:
        return kernel
    kernel = replace(kernel, extents=(*kernel.extents, *extents.values()))
    return kernel if all(a.proved for a in proved(kernel, instr)) else None


def _kernel_for(instr: Instr, target: Target, strict: bool) -> Kernel:
    anchor = instr.anchor()
    template = templates.choose(anchor, instr, target)
    if anchor is not None and template is not None:
        frame = Frame(anchor, instr, target.facts, strict)
        template.build(frame, anchor.op, target)
        return frame.b.done()
    name = anchor.op.name if anchor is not None else "elementwise"
    return loops.build(name, instr, target.facts, strict, dot(target)).done()
