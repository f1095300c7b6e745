"""Choosing the kernel of an instruction: a tuned template where one applies, else loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from alpenglow.backends import loops
from alpenglow.backends.cpu.templates.conv import conv_blocked
from alpenglow.backends.cpu.templates.depthwise import depthwise_blocked
from alpenglow.backends.cpu.templates.depthwise_planar import (
    depthwise_planar,
    depthwise_planar_fits,
)
from alpenglow.backends.cpu.templates.few_bits import mat_mul_few_bits
from alpenglow.backends.cpu.templates.matmul import fits_scratch, mat_mul, mat_mul_packed
from alpenglow.backends.cpu.templates.planar import conv_planar, planar_fits, words_fit
from alpenglow.backends.cpu.templates.products import dot
from alpenglow.backends.cpu.templates.transpose import interleaves, pack, transposes, unpack
from alpenglow.backends.cpu.templates.winograd import (
    winograd_input,
    winograd_output,
    winograd_product,
)
from alpenglow.backends.cpu.templates.words import mat_mul_words, multiplies_words
from alpenglow.backends.loops.instruction import Frame, heavy_node
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import open_extents
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.blocked import (
    ConvBlocked,
    ConvPlanar,
    DepthwiseBlocked,
    DepthwisePlanar,
    MatMulPacked,
)
from alpenglow.ops.contraction import Conv, MatMul
from alpenglow.ops.few_bits import MatMulFewBits
from alpenglow.ops.movement import Pack, Unpack
from alpenglow.ops.winograd import WinogradInput, WinogradOutput, WinogradProduct
from alpenglow.program import Instr, Region


def _mat_mul(k: Frame, op: MatMul, target: Target) -> None:
    """Build a product of computed matrices, of f32 or of narrow types."""
    (mat_mul if k.inputs[0].buffer.dtype == "f32" else mat_mul_words)(k, op, target)


Template = Callable[[Frame, Any, Target], None]

IMPLEMENTED: tuple[tuple[type[Op], Template, str], ...] = (
    (ConvBlocked, conv_blocked, "channels outputs lanes strides dilations group bands edges"),
    (DepthwiseBlocked, depthwise_blocked, "strides dilations taps"),
    (DepthwisePlanar, depthwise_planar, "strides pads dilations"),
    (Conv, conv_planar, "strides pads dilations group wide"),
    (ConvPlanar, conv_planar, "strides dilations"),
    (MatMul, _mat_mul, "wide"),
    (Pack, pack, "lanes"),
    (Unpack, unpack, "channels"),
    (MatMulPacked, mat_mul_packed, "columns"),
    (MatMulFewBits, mat_mul_few_bits, "columns size middle"),
    (WinogradInput, winograd_input, "block"),
    (WinogradOutput, winograd_output, "outputs height width"),
    (WinogradProduct, winograd_product, "channels outputs"),
)
"""The templates, each with the attributes that it implements, or that `_fits` leaves to loops.

Who gives an operator another attribute has to look at its template before anything runs again.
"""


def _templates() -> dict[type[Op], Template]:
    for cls, template, names in IMPLEMENTED:
        unread = {f.name for f in fields(cls)} ^ set(names.split())  # type: ignore[arg-type]
        assert not unread, f"{template.__name__} and {cls.__name__} differ in {unread}"
    return {cls: template for cls, template, _ in IMPLEMENTED}


TEMPLATES = _templates()


def compiles(op: Op) -> bool:
    """Whether there is a template or a loop form for `op`."""
    return type(op) in TEMPLATES or loops.has_form(op)


def kernel_for(instr: Instr, target: Target, strict: bool = False) -> Kernel:
    """Return the kernel of an instruction, under a name that says what it does.

    Halves are computed in f32; if `strict`, the result of each operator is rounded.

    Under an assumption it has the open extents as run-time extents.
    """
    with open_extents() as found:
        kernel = _kernel_for(instr, target, strict)
    return replace(kernel, extents=(*kernel.extents, *found.values()))


def _kernel_for(instr: Instr, target: Target, strict: bool) -> Kernel:
    lookup = target.has("avx512f")
    heavy = instr.op if instr.body is None else _heavy(instr)
    if heavy is not None and type(heavy) in TEMPLATES and _fits(instr, heavy, target):
        frame = Frame(heavy.name, instr, target.lanes, strict, lookup)
        TEMPLATES[type(heavy)](frame, heavy, target)
        return frame.b.done()
    name = heavy.name if heavy is not None else "elementwise"
    return loops.build(name, instr, target.lanes, strict, lookup, dot(target)).done()


def _heavy(instr: Instr) -> Op | None:
    assert instr.body is not None
    node = heavy_node(instr.body)
    return None if node is None else node.op


def _operands(instr: Instr) -> list[Region | Value]:
    """Return the operands of the heavy part of an instruction that are there."""
    if instr.body is None:
        return [r for r in instr.ins if r is not None]
    node = heavy_node(instr.body)
    assert node is not None, "only heavy parts have templates"
    return [v for v in node.inputs if v is not None]


def _left(instr: Instr) -> Region:
    """Return the first operand of the heavy part of an instruction."""
    if instr.body is None:
        return next(instr.reads())
    node = heavy_node(instr.body)
    assert node is not None, "only heavy parts have templates"
    own = zip(instr.body.inputs.values(), instr.ins, strict=True)
    return next(r for v, r in own if v is node.inputs[0] and r is not None)


def _alone(instr: Instr) -> bool:
    """Whether nothing is computed of halves that are moved, which are f32 to what computes."""
    return instr.body is None or instr.outs[0].type.dtype not in ("f16", "bf16")


def _fits(instr: Instr, op: Op, target: Target) -> bool:
    t = instr.outs[0].type
    if isinstance(op, MatMul):
        # What follows the product may make another type of it.
        x, y = (v.type for v in _operands(instr)[:2])
        if x.dtype == "f32":
            inner = x.extents[-1]
            return 0 not in t.shape and fits_scratch(inner, 2 if is_open(inner) else 1)
        return 0 not in t.shape and multiplies_words(x, y, target)
    if isinstance(op, MatMulPacked):  # a program may have been made for another machine
        return _operands(instr)[1].type.shape[2] % target.lanes == 0
    if isinstance(op, MatMulFewBits):
        return _operands(instr)[1].type.shape[-1] % target.lanes == 0
    left = _left(instr)
    if isinstance(op, Conv):
        plain = len(_operands(instr)) == 2  # a bias that is computed stays with the loops
        return plain and planar_fits(op, left, instr.outs[0], target)
    if isinstance(op, ConvPlanar):
        return words_fit(op, left, instr.outs[0], target)
    if isinstance(op, DepthwisePlanar):
        return depthwise_planar_fits(op, left, instr.outs[0])
    if isinstance(op, Pack):
        if op.lanes != target.lanes:
            return instr.body is None and interleaves(instr.outs[0], left, target)
        return _alone(instr) and transposes(instr.outs[0], left, target)
    if isinstance(op, Unpack):
        return _alone(instr) and transposes(left, instr.outs[0], target)
    return True
