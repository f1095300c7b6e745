"""What makes kernels of vectors: rows of the pass table, and a kernel for each instruction.

It is imported when something is compiled: what was compiled before runs without.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.loops.form import PULLS
from alpenglow.machines.vector import loop_forms
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.operators.winograd import WinogradOutput
from alpenglow.machines.vector.passes.activations import round_groups
from alpenglow.machines.vector.passes.bands import split_bands
from alpenglow.machines.vector.passes.batch import split_batches
from alpenglow.machines.vector.passes.blocks import has_blocks, read_blocks, stored
from alpenglow.machines.vector.passes.borders import borders
from alpenglow.machines.vector.passes.condense import condense
from alpenglow.machines.vector.passes.few_bits import keep_few_bits, weights, widen_few_bits
from alpenglow.machines.vector.passes.groups import multiply_groups
from alpenglow.machines.vector.passes.in_f32 import faster_in_f32
from alpenglow.machines.vector.passes.layout import layout
from alpenglow.machines.vector.passes.phases import phases
from alpenglow.machines.vector.passes.pitch import spread_rows
from alpenglow.machines.vector.passes.promote import promote
from alpenglow.machines.vector.passes.separate import separate
from alpenglow.machines.vector.passes.signs import signs
from alpenglow.machines.vector.passes.ungroup import ungroup
from alpenglow.machines.vector.passes.unpacks import sink_unpacks
from alpenglow.machines.vector.passes.winograd import winograd
from alpenglow.machines.vector.select import compiles, kernel_for
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.attention_parts import takes_attention
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.reduction.reduction import ArgReduction
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Pad
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.ops.window.pooling import AveragePool, MaxPool
from alpenglow.passes.table import Choices, Pass, ignoring_target, properties
from alpenglow.program import Instr

__all__ = [
    "faster_in_f32",
    "kernel",
    "lacks",
    "loop_forms",
    "passes",
    "takes_attention",
    "takes_epilogue",
]


def passes(choices: Choices) -> Sequence[Pass]:
    """Return the rows in the pass table of a machine that computes in vectors."""
    primitive, program = properties("primitive"), properties("program")

    def in_bytes(chosen: Choices) -> bool:
        return chosen.activations == "int8"

    return (
        Pass("round_blocks", lambda g, t: round_groups(g, t, choices.keep, stored),
             "activations that meet weights in blocks are rounded by groups",
             after="exact", redefines=True, ahead=has_blocks,
             when=in_bytes, only='activations="int8"'),
        Pass("blocks", read_blocks, "weights that are stored in blocks are read as they are",
             after="round_blocks", fast=True, ahead=has_blocks, on=(Dequantize,)),
        Pass("round", lambda g, t: round_groups(g, t, choices.keep, weights),
             "activations that meet other weights of few bits are, too",
             after="quantized", redefines=True, when=in_bytes, only='activations="int8"'),
        Pass("groups", multiply_groups,
             "products of what is rounded by groups are of integers where weights are",
             after="round", fast=True, on=(Dequantize,)),
        Pass("few_bits", keep_few_bits, "products by quantised weights keep these in few bits",
             after="groups", fast=True, on=(Dequantize,)),
        Pass("widen_few_bits", widen_few_bits,
             "products of many rows by weights of few bits are of bf16",
             needs=primitive, after="merge", fast=True,
             when=lambda choices: choices.precision == "bf16", only='precision="bf16"'),
        Pass("signs", ignoring_target(signs), "contractions of bytes become those of u8 by i8",
             needs=primitive, after="precision", fast=True, on=(Conv, MatMul)),
        Pass("promote", ignoring_target(promote), "contractions of f16 are computed in f32",
             needs=primitive, after="signs", fast=True, on=(Conv, MatMul)),
        Pass("condense", condense, "convolutions of upsampled images are those of small ones",
             needs=primitive, after="promote", fast=True, on=(Gather,)),
        Pass("winograd", winograd, "fewer multiplications for convolutions by 3x3",
             needs=primitive, after="condense", fast=True, on=(Conv, ConvFilter)),
        Pass("phases", phases, "transposed convolutions are computed phase by phase",
             needs=primitive, after="winograd", on=(Conv,)),
        Pass("ungroup", ungroup, "groups that are too narrow to fill vectors are joined",
             needs=primitive, after="phases", fast=True, on=(Conv,)),
        Pass("layout", layout, "blocked tensors, packed weights",
             needs=primitive, after="ungroup"),
        Pass("unpacks", ignoring_target(sink_unpacks),
             "tensors stay blocked from one convolution to the next",
             needs=primitive, after="layout", on=(Pack, Unpack)),
        Pass("borders", ignoring_target(borders),
             "padding with what is inside becomes strips beside it",
             needs=primitive, after="unpacks", on=(Pad,)),
        Pass("separate", lambda g, t: separate(g, t, choices.numerics == "fast"),
             "pooling by large windows goes along one axis after the other",
             needs=primitive, after="borders", when=lambda choices: choices.memory_nbytes is None,
             only="no limit of memory", on=(MaxPool, AveragePool)),
        Pass("batch", split_batches, "samples that do not fit the cache run in parts",
             needs=primitive, after="prepare"),
        Pass("bands", split_bands, "images whose patches do not fit the cache, in bands",
             needs=primitive, after="batch", on=(WinogradOutput,)),
        Pass("pitch", spread_rows,
             "rows and planes that would fall into one cache set are moved apart",
             needs=program, after="share", when=lambda choices: choices.memory_nbytes is None,
             only="no limit of memory"),
    )  # fmt: skip


def takes_epilogue(op: Op) -> bool:
    """Return whether elementwise operators that follow `op` can be computed with it."""
    return type(op) in PULLS or type(op) in templates or isinstance(op, ArgReduction)


def lacks(op: Op) -> str:
    """Return why there is no code for `op`; "" if there is."""
    return "" if compiles(op) else "there is no template and no loop form for it"


def kernel(instr: Instr, target: Target) -> Kernel | None:
    """Return the kernel of an instruction; None if it is interpreted."""
    return kernel_for(instr, target) if all(map(compiles, instr.operators())) else None
