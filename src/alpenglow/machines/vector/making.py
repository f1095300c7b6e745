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
from alpenglow.machines.vector.passes.blocks import has_blocks, read_blocks, stored
from alpenglow.machines.vector.passes.expand_padding import expand_padding
from alpenglow.machines.vector.passes.f16_to_f32 import f16_to_f32
from alpenglow.machines.vector.passes.fold_upsample import fold_upsample
from alpenglow.machines.vector.passes.groups import multiply_groups
from alpenglow.machines.vector.passes.in_f32 import faster_in_f32
from alpenglow.machines.vector.passes.layout import layout
from alpenglow.machines.vector.passes.low_bit_matmul import (
    dequantize_low_bit,
    low_bit_matmul,
    weights,
)
from alpenglow.machines.vector.passes.phases import phases
from alpenglow.machines.vector.passes.pitch import spread_rows
from alpenglow.machines.vector.passes.propagate_layout import propagate_layout
from alpenglow.machines.vector.passes.separate import separate
from alpenglow.machines.vector.passes.tile_batch import split_batches
from alpenglow.machines.vector.passes.tile_rows import split_bands
from alpenglow.machines.vector.passes.to_u8_i8 import to_u8_i8
from alpenglow.machines.vector.passes.ungroup import ungroup
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
             "quantize activations in groups, where weights are stored in blocks",
             after="exact", redefines=True, ahead=has_blocks,
             when=in_bytes, only='activations="int8"'),
        Pass("blocks", read_blocks,
             "multiply by block-quantized weights without dequantizing them first",
             after="round_blocks", fast=True, ahead=has_blocks, on=(Dequantize,)),
        Pass("round", lambda g, t: round_groups(g, t, choices.keep, weights),
             "quantize activations in groups, for other low-bit weights",
             after="quantized", redefines=True, when=in_bytes, only='activations="int8"'),
        Pass("groups", multiply_groups,
             "multiply group-quantized activations by integer weights in integers",
             after="round", fast=True, on=(Dequantize,)),
        Pass("low_bit_matmul", low_bit_matmul,
             "weight-only quantization: keep low-bit weights of matmuls packed",
             after="groups", fast=True, on=(Dequantize,)),
        Pass("dequantize_low_bit", dequantize_low_bit,
             "dequantize low-bit weights to bf16 for matmuls of many rows",
             needs=primitive, after="merge", fast=True,
             when=lambda choices: choices.precision == "bf16", only='precision="bf16"'),
        Pass("to_u8_i8", ignoring_target(to_u8_i8),
             "write int8 convolutions and matmuls as u8 × i8",
             needs=primitive, after="precision", fast=True, on=(Conv, MatMul)),
        Pass("f16_to_f32", ignoring_target(f16_to_f32),
             "compute f16 convolutions and matmuls in f32",
             needs=primitive, after="to_u8_i8", fast=True, on=(Conv, MatMul)),
        Pass("fold_upsample", fold_upsample, "fold upsampling into the convolution that reads it",
             needs=primitive, after="f16_to_f32", fast=True, on=(Gather,)),
        Pass("winograd", winograd, "Winograd convolution for 3×3 kernels",
             needs=primitive, after="fold_upsample", fast=True, on=(Conv, ConvFilter)),
        Pass("phases", phases, "split transposed convolutions into one convolution per phase",
             needs=primitive, after="winograd", on=(Conv,)),
        Pass("ungroup", ungroup, "join groups of convolutions that are narrower than a vector",
             needs=primitive, after="phases", fast=True, on=(Conv,)),
        Pass("layout", layout, "choose layouts: blocked tensors (NCHWc), packed weights",
             needs=primitive, after="ungroup"),
        Pass("propagate_layout", ignoring_target(propagate_layout),
             "keep tensors in the blocked layout between convolutions",
             needs=primitive, after="layout", on=(Pack, Unpack)),
        Pass("expand_padding", ignoring_target(expand_padding),
             "write reflect and edge padding as slices that are concatenated",
             needs=primitive, after="propagate_layout", on=(Pad,)),
        Pass("separate", lambda g, t: separate(g, t, choices.numerics == "fast"),
             "pool by large windows along one axis after the other",
             needs=primitive, after="expand_padding",
             when=lambda choices: choices.memory_nbytes is None,
             only="no memory limit", on=(MaxPool, AveragePool)),
        Pass("tile_batch", split_batches, "tiling: run a batch in parts that fit the cache",
             needs=primitive, after="prepare"),
        Pass("tile_rows", split_bands,
             "tiling: run Winograd convolutions on groups of rows that fit the cache",
             needs=primitive, after="tile_batch", on=(WinogradOutput,)),
        Pass("pitch", spread_rows,
             "pad rows and planes that would share a cache set",
             needs=program, after="share", when=lambda choices: choices.memory_nbytes is None,
             only="no memory limit"),
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
