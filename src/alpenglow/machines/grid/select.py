"""Choosing the kernel of an instruction for a grid: a tuned template where one fits, else loops.

Loop forms are asked for one lane, so that each element of a result is a thread's.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow import loops
from alpenglow.ir.graph import Node
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import open_extents
from alpenglow.kernel.stmt import Kernel
from alpenglow.loops.form import PULLS
from alpenglow.loops.instruction import Frame
from alpenglow.machines.choice import ChosenKernel, chosen
from alpenglow.machines.grid.templates import (
    attention,
    conv,
    matmul,
    norm,
    reduction,
    skinny,
    softmax,
    templates,
)
from alpenglow.program import Instr

FAMILIES = (attention, conv, matmul, norm, reduction, skinny, softmax)
"""The modules that register templates."""


def takes_epilogue(op: Op) -> bool:
    """Return whether elementwise operators that follow `op` can be computed with it."""
    return type(op) in PULLS or type(op) in templates


def takes_attention(scores: Node, product: Node, target: Target, dtype: str | None = None) -> bool:
    """Return whether a kernel computes all from `scores` to `product`, with operands of `dtype` if
    that is not the one they have."""
    return attention.takes_attention(scores, product, target, dtype)


def lacks(op: Op) -> str:
    """Return why there is no kernel for `op`; "" if there is."""
    compiles = type(op) in templates or loops.has_form(op)
    return "" if compiles else "there is no template and no loop form for it"


def choose(instr: Instr, target: Target, strict: bool) -> ChosenKernel | None:
    """Return what runs an instruction on `target`; None if nothing compiled does."""
    if any(map(lacks, instr.operators())):
        return None
    with open_extents() as extents:
        kernel = _kernel_for(instr, target, strict)
    kernel = replace(kernel, extents=(*kernel.extents, *extents.values()))
    return chosen(kernel, instr, strict)


def _kernel_for(instr: Instr, target: Target, strict: bool) -> Kernel:
    anchor = instr.anchor()
    template = templates.choose(anchor, instr, target)
    if anchor is not None and template is not None:
        frame = Frame(anchor, instr, target.facts, strict)
        template.build(frame, anchor.op, target)
        return frame.b.done()
    name = anchor.op.name if anchor is not None else "elementwise"
    return loops.build(name, instr, target.facts, strict).done()
