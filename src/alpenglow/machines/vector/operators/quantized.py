"""Matrix products of integers, of activations that are quantized by groups and weights of few bits.

Activations are quantized in a step of their own, once for all columns.  What a product reads of a
group then stands together: its numbers, its scale, and its sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_positive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.few_bits import NIBBLES, WORD, unpacked
from alpenglow.ops.quantized.groups import LEAST, STEPS

BESIDE = 2
"""Words of a group behind its numbers: the scale and the sum."""


def words_of(size: int) -> int:
    """Return how many words a group of `size` numbers takes."""
    return size // WORD + BESIDE


def grouped(x: Array, size: int) -> tuple[Array, Array]:
    """Return the whole numbers of x[…, K], i32[…, G, size], and the scale of each group, f32[…, G].

    A group that holds NaN or an infinity is zeros with the scale NaN.
    """
    *outer, inner = x.shape
    count = ceil_div(inner, size)
    full = np.zeros((*outer, count * size), np.float32)
    full[..., :inner] = x
    full = full.reshape(*outer, count, size)
    largest = np.abs(full).max(axis=-1)
    fits = np.isfinite(largest)
    with np.errstate(all="ignore"):
        factor = np.where(fits & (largest >= LEAST), np.float32(STEPS) / largest, np.float32(0))
    scale = np.where(fits, largest / np.float32(STEPS), np.float32(np.nan))
    steps = np.rint(np.where(fits[..., None], full, np.float32(0)) * factor[..., None])
    return steps.astype(np.int32), scale


class QuantizeGroups(Primitive):
    """x[…, M, K] by groups of `size` neighbours, as words i32[…, M, groups * (size/4 + 2)].

    For each group there are its numbers of 8 bits, as `RoundGroups` finds them, by fours, lowest
    byte first, zeros past the end of x; then its scale, the bits of an f32; then the sum of its
    numbers times -`middle`.
    """

    walks = "rows"
    by_rows = True

    size: int
    middle: int

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"f32"})
        check_rank(self, "x", x, 2)
        check_positive(self, size=self.size)
        if self.size % WORD:
            raise TypeRuleError(
                f"quantize_groups: size is {self.size}, expected a multiple of {WORD}"
            )
        count = ceil_div(x.shape[-1], self.size)
        return TensorType("i32", (*x.shape[:-1], count * words_of(self.size)))

    def reference(self, x: Array) -> Array:
        steps, scale = grouped(x, self.size)
        parts = [
            steps.astype(np.int8).view(np.int32),
            scale.view(np.int32)[..., None],
            -self.middle * steps.sum(-1, dtype=np.int32, keepdims=True),
        ]
        words: Array = np.concatenate(parts, axis=-1).reshape(*x.shape[:-1], -1)
        return words

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32, 8), "f32[3,64]"
        yield cls(16, 128), "f32[2,3,37]"
        yield cls(64, -1), "f32[5,9]"


class MatMulGroups(Primitive):
    """x[…, M, K] from QuantizeGroups times (q - middle - zero) * scale, a matrix of `columns`.

    q holds its whole numbers, none below zero, in panels: u8[N/width, K/4, width, 4] from
    PackMatrix, or words of four bits u32[N/width, K/8, width] from PackNibbles; K is full groups.
    The grid f32[N/width, groups, 1|2, width] holds the scale, and behind it the zero point if there
    is one; then x has been made with a middle of 1, else with that of the weights.  Sums are exact
    within a group, and those of groups are taken in f32.
    """

    walks = "rows"
    by_rows = True

    columns: int
    size: int

    def infer(self, x: TensorType, q: TensorType, grid: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"i32"})
        check_dtype(self, "q", q, {"u8", "u32"})
        check_dtype(self, "grid", grid, {"f32"})
        check_rank(self, "x", x, 2)
        check_rank(self, "q", q, 4 if q.dtype == "u8" else 3, 4 if q.dtype == "u8" else 3)
        check_rank(self, "grid", grid, 4, 4)
        panels, steps, width = q.shape[:3]
        held = NIBBLES if q.dtype == "u32" else WORD
        groups = grid.shape[1]
        if self.size < 1 or self.size % held or q.shape[3:] not in ((), (WORD,)):
            rule = f"a positive multiple of {held}, and words of {WORD} in q of u8"
            raise TypeRuleError(f"mat_mul_groups: size is {self.size}, q is {q}, expected {rule}")
        found = f"mat_mul_groups: x is {x}, q is {q} and grid is {grid}"
        if x.shape[-1] != groups * words_of(self.size) or steps * held != groups * self.size:
            raise TypeRuleError(f"{found}, expected {groups} groups of {self.size} in x and q")
        wanted = ceil_div(self.columns, width)
        if wanted != panels or grid.shape[2] not in (1, 2):
            raise TypeRuleError(f"{found}, expected {wanted} panels, and 1 or 2 rows in the grid")
        if grid.shape != (panels, groups, grid.shape[2], width):
            raise TypeRuleError(f"{found}, expected {panels} panels of {width} in the grid")
        return TensorType("f32", (*x.shape[:-1], self.columns))

    def reference(self, x: Array, q: Array, grid: Array) -> Array:
        panels, groups, shifted, width = grid.shape
        words = x.reshape(*x.shape[:-1], groups, words_of(self.size))
        steps = np.ascontiguousarray(words[..., :-BESIDE]).view(np.int8)
        scale = np.ascontiguousarray(words[..., -BESIDE]).view(np.float32)
        by_column = unpacked(q).reshape(panels, groups, self.size, width)
        matrix = by_column.transpose(1, 2, 0, 3).reshape(groups, self.size, panels * width)
        scales, zeros = grid.transpose(2, 1, 0, 3).reshape(shifted, groups, -1)[[0, -1]]
        # f64 holds the sums of a group exactly.
        rows = np.moveaxis(steps.astype(np.float64), -2, 0)
        inside = np.matmul(rows, matrix.reshape(groups, *(1,) * (x.ndim - 2), *matrix.shape[1:]))
        past = np.moveaxis(words[..., -1], -1, 0)[..., None].astype(np.float64)
        column = (groups, *(1,) * (x.ndim - 1), -1)
        sums = inside + (past if shifted == 1 else past * zeros.reshape(column))
        parts = sums.astype(np.float32) * scales.reshape(column)
        with np.errstate(all="ignore"):
            total = (parts * np.moveaxis(scale, -1, 0)[..., None]).sum(0, dtype=np.float32)
        y: Array = total[..., : self.columns]
        return y

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        grid = ins[2]
        assert grid is not None, "the grid is there"
        return outs[0].size * grid.extents[1] * self.size

    @classmethod
    def examples(cls) -> Examples:
        rng = np.random.default_rng(0)
        for rows, columns, width in ((1, 130, 64), (2, 40, 64), (5, 70, 32), (29, 33, 32)):
            panels, x = -(-columns // width), rng.standard_normal((rows, 80)).astype(np.float32)
            for zeros in (1, 2):
                grid = f"f32[{panels},5,{zeros},{width}]"
                words = QuantizeGroups(16, 8 if zeros == 1 else 1).reference(x)
                yield cls(columns, 16), words, f"u8[{panels},20,{width},4]", grid
                yield cls(columns, 16), words, f"u32[{panels},10,{width}]", grid
        words = QuantizeGroups(40, 8).reference(x.reshape(2, 29, 40)[:, :3])
        yield cls(20, 40), words, "u32[2,5,16]", "f32[2,1,1,16]"
        yield cls(20, 40), words, "u32[3,5,8]", "f32[3,1,2,8]"
        yield cls(20, 40), words, "u8[3,10,8,4]", "f32[3,1,1,8]"
