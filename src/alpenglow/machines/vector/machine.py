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
    ("exact", "blocks", "what is rounded by groups is multiplied in integers"),
    ("round_blocks", "blocks", "what is rounded by groups is multiplied in integers"),
    ("round", "groups", "what is rounded by groups is multiplied in integers"),
    ("quantized", "round", "what is of integers already is not rounded again"),
    ("groups", "few_bits", "what is not multiplied in integers is in floats"),
    ("quantized", "few_bits", "integers are multiplied as such where both operands are"),
    ("few_bits", "widen", "what stays in few bits does not become floats"),
    ("widen_few_bits", "precision", "weights that are floats are rounded"),
    ("precision", "promote", "contractions that keep f16 are computed in f32"),
    ("merge", "signs", "algorithms and layouts are chosen once for each value"),
    ("settle", "winograd", "only constant weights are transformed"),
    ("promote", "condense", "contractions of f16 are of f32 then"),
    ("condense", "winograd", "windows of 3x3 become smaller ones by phases"),
    ("promote", "winograd", "contractions of f16 are of f32 then, and may go that way"),
    ("blocks", "fold", "what is stored in few bits would be spelled out"),
    ("winograd", "phases", "what needs fewer multiplications is interleaved as it is"),
    ("settle", "phases", "only constant weights are packed"),
    ("phases", "layout", "what stays a plain convolution is computed directly"),
    ("ungroup", "layout", "what stays a plain convolution is computed directly"),
    ("settle", "layout", "only constant weights are packed"),
    ("layout", "unpacks", "a layout begins with packing and ends with unpacking"),
    ("unpacks", "borders", "padding of blocked tensors is written as strips of these"),
    ("unpacks", "separate", "a blocked tensor is pooled as it lies"),
    ("separate", "prepare", "parts of a batch hold all that is pooled"),
    ("layout", "prepare", "packing weights is work on constants"),
    ("prepare", "batch", "packed weights tell what reading them again costs"),
    ("batch", "bands", "parts of a batch may fit the cache as they are"),
    ("bands", "fuse", "what is fused treats rows alike"),
    ("share", "pitch", "only dense buffers are taken over"),
    ("pitch", "unfold", "what regions work on stays dense"),
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
