"""A machine whose kernels keep vectors in registers: its rows of the pass table, its kernels.

The CPU is one, and so is a device that is driven through OpenCL and is a CPU itself.  What such a
machine adds is its targets, and code made of the kernels that stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from alpenglow.ir.graph import Node
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.reduction.reduction import Reduction
from alpenglow.passes.table import Choices, Pass, Reason
from alpenglow.program import Instr

REASONS: tuple[Reason, ...] = (
    ("exact", "blocks", "group-quantized activations are multiplied in integers"),
    ("round_blocks", "blocks", "group-quantized activations are multiplied in integers"),
    ("round", "groups", "group-quantized activations are multiplied in integers"),
    ("quantized", "round", "operators in integers are not quantized again"),
    ("groups", "low_bit_matmul", "matmuls that are not in integers are in floats"),
    ("quantized", "low_bit_matmul", "two integer operands are multiplied in integers"),
    ("low_bit_matmul", "dequantize_rest", "packed low-bit weights are not dequantized"),
    ("dequantize_low_bit", "precision", "dequantized weights are rounded to half precision"),
    ("precision", "f16_to_f32", "convolutions and matmuls that stay in f16 are computed in f32"),
    ("merge", "to_u8_i8", "algorithms and layouts are chosen once for each value"),
    ("fold_again", "winograd", "only constant weights are transformed"),
    ("f16_to_f32", "fold_upsample", "convolutions are in f32 from there on"),
    ("fold_upsample", "winograd", "folding makes smaller kernels of 3×3 ones"),
    ("f16_to_f32", "winograd", "convolutions in f32 may use Winograd"),
    ("blocks", "fold", "folding would dequantize blocks of weights"),
    ("winograd", "phases", "Winograd convolutions are not split into phases"),
    ("fold_again", "phases", "only constant weights are packed"),
    ("phases", "layout", "the remaining convolutions are computed directly"),
    ("ungroup", "layout", "the remaining convolutions are computed directly"),
    ("fold_again", "layout", "only constant weights are packed"),
    ("layout", "propagate_layout", "each convolution packs its input and unpacks its result"),
    ("propagate_layout", "expand_padding", "padding of blocked tensors joins slices of them"),
    ("propagate_layout", "separate", "blocked tensors are pooled in their layout"),
    ("separate", "prepare", "a part of a batch holds all rows that are pooled"),
    ("layout", "prepare", "packing weights is arithmetic on constants"),
    ("prepare", "tile_batch", "the size of packed weights is the cost of reading them again"),
    ("tile_batch", "tile_rows", "parts of a batch may fit the cache without tiled rows"),
    ("tile_rows", "fuse", "fused operators read the same rows"),
    ("share", "pitch", "only dense buffers are reused in place"),
    ("pitch", "unfold", "buffers of regions stay dense"),
)


class VectorMachine:
    """What machines have in common that compute in vectors."""

    family = "vector"
    reasons = REASONS

    @property
    def _making(self) -> Any:
        """What makes kernels, which is imported with the first that is made."""
        return import_module("alpenglow.machines.vector.making")

    def passes(self, choices: Choices) -> Sequence[Pass]:
        rows: Sequence[Pass] = self._making.passes(choices)
        return rows

    def stays_in_f32(self, node: Node, dtype: str, target: Target) -> bool:
        return bool(self._making.faster_in_f32(node, dtype, target))

    def takes_epilogue(self, op: Op) -> bool:
        return bool(self._making.takes_epilogue(op))

    def takes_prologue(self, op: Op) -> bool:
        return isinstance(op, Reduction)

    def takes_attention(
        self, scores: Node, product: Node, target: Target, dtype: str | None = None
    ) -> bool:
        return bool(self._making.takes_attention(scores, product, target, dtype))

    def lacks(self, op: Op) -> str:
        why: str = self._making.lacks(op)
        return why

    def refuses(self, instr: Instr, target: Target) -> str:
        return ""

    def kernel(self, instr: Instr, target: Target) -> Kernel | None:
        kernel: Kernel | None = self._making.kernel(instr, target)
        return kernel
