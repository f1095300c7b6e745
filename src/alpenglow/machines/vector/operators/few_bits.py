"""Matrix products whose weights stay in few bits, and become floats where they are multiplied.

Weights are whole numbers of 8 or 4 bits; a *grid* says which reals they stand for: a scale for each
output and group of inputs, and maybe a zero point.  What a product of few rows costs is reading its
weights, so fewer bits are less time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.base.memory import aligned_bytes, forget
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_positive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.product.contraction import MatMul, work_of_product
from alpenglow.ops.tensor.packing import PackMatrix

NIBBLES = 8
"""How many weights of four bits a word holds."""

WORD = 4
"""How many numbers of 8 bits a word holds."""

CHUNK = 1 << 20
"""Bytes of stored weights that are packed at a time: they stay in the cache of a core."""


def shift_of(n: int) -> int:
    """Return where in a word number `n` of its eight lies."""
    return n % 4 * 8 + n // 4 * 4


def unpacked(q: Array) -> Array:
    """Return the whole numbers [N/width, K, width] of panels of bytes or of words of four bits."""
    if q.ndim == 4:
        return q.swapaxes(2, 3).reshape(len(q), -1, q.shape[2])
    if q.dtype != np.uint32:
        return q
    shifts = np.array([shift_of(n) for n in range(NIBBLES)], np.uint32)[:, None]
    return (q[:, :, None] >> shifts & 15).reshape(len(q), -1, q.shape[-1])


class PackNibbles(Primitive):
    """w[K, N], numbers below 16, as words [N/width, K/8, width] of 8 neighbours of K.

    The lower half of each byte holds one of the first four, the upper half one of the others: both
    halves of a vector are bytes in order, lowest first.  What is past the end is zero.
    """

    width: int

    def infer(self, w: TensorType) -> TensorType:
        check_dtype(self, "w", w, {"u8"})
        check_rank(self, "w", w, 2, 2)
        check_positive(self, width=self.width)
        panels, words = ceil_div(w.shape[1], self.width), ceil_div(w.shape[0], NIBBLES)
        return TensorType("u32", (panels, words, self.width))

    def reference(self, w: Array) -> Array:
        parts = PackMatrix(self.width, NIBBLES).reference(w & 15)
        halves = parts[..., : NIBBLES // 2] | parts[..., NIBBLES // 2 :] << np.uint8(4)
        return np.ascontiguousarray(halves).view("<u4")[..., 0].astype(np.uint32, copy=False)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(16), "u8[9,20]"
        yield cls(4), "u8[8,4]"


def nibbles_of_columns(stored: Array, inner: int, width: int) -> Array:
    """Return what PackNibbles makes of stored[N, bytes]: `inner` numbers each, low half first."""
    words = _panels(stored.view("<u4")[:, : ceil_div(inner, NIBBLES)], width, _halved)
    if inner % NIBBLES:
        words[:, -1] &= sum(15 << shift_of(n) for n in range(inner % NIBBLES))
    return words


def bytes_of_columns(stored: Array, inner: int, width: int) -> Array:
    """Return what PackMatrix makes of numbers stored[N, bytes] less 128, `inner` a column."""
    return _panels(stored[:, :inner], width, _signed).view(np.int8)


def words_of_columns(stored: Array, inner: int, width: int) -> Array:
    """Return what PackMatrix makes, by words, of numbers stored[N, bytes], `inner` a column."""
    words = _panels(stored.view("<u4")[:, : inner // WORD], width)
    return words.view(np.uint8).reshape(*words.shape, WORD)


def _signed(numbers: Array) -> None:
    """Make u8 the i8 that are less by 128, in place."""
    numbers ^= 128


def _halved(words: Array) -> None:
    """Move numbers that follow each other to where PackNibbles has them, in place."""
    high = words >> 16
    words &= 0xFFFF
    for part in (words, high):  # each fourth of a half becomes the lower half of a byte
        for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F)):
            part |= part << shift
            part &= mask
    high <<= 4
    words |= high


def _panels(columns: Array, width: int, change: Callable[[Array], None] | None = None) -> Array:
    """Return columns[N, K], each a row, as panels [N/width, K, width], zeros past the end.

    What is packed goes through `change`, in place, a few panels at a time.
    """
    n, k = columns.shape
    dtype, count = columns.dtype.newbyteorder("="), ceil_div(n, width)
    packed = aligned_bytes(count * k * width * dtype.itemsize).view(dtype).reshape(count, k, width)
    step = max(1, CHUNK // max(1, width * k * dtype.itemsize))
    for first in range(0, count, step):
        part = columns[first * width : (first + step) * width]
        panels = packed[first : first + step]
        full = len(part) // width
        panels[:full] = part[: full * width].reshape(full, width, k).transpose(0, 2, 1)
        if full < len(panels):
            rest = part[full * width :]
            panels[full, :, : len(rest)] = rest.T
            panels[full, :, len(rest) :] = 0
        if change is not None:
            change(panels)
        forget(part)  # all of it may be as large as memory, and lie in a file
    if change is not None and n % width:
        packed[-1, :, n % width :] = 0
    return packed


class MatMulFewBits(Primitive):
    """x[…, M, K] times (q - middle - zero) * scale, a matrix of `columns` columns, summed in f32.

    q holds its whole numbers in panels: i8[N/width, K, width] from PackMatrix, or words of four
    bits u32[N/width, K/8, width] from PackNibbles.  The grid f32[N/width, groups, 1|2, width] holds
    the scale, and behind it the zero point if there is one, of each column for each group of `size`
    neighbours of K, the last of which may be smaller.
    """

    walks = "rows"
    by_rows = True

    columns: int
    size: int
    middle: int = 0

    def infer(self, x: TensorType, q: TensorType, grid: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"f32"})
        check_dtype(self, "q", q, {"i8", "u32"})
        check_dtype(self, "grid", grid, {"f32"})
        check_rank(self, "x", x, 2)
        check_rank(self, "q", q, 3, 3)
        check_rank(self, "grid", grid, 4, 4)
        panels, steps, width = q.shape
        inner, held = x.shape[-1], NIBBLES if q.dtype == "u32" else 1
        wanted = ceil_div(self.columns, width), ceil_div(inner, held)
        if wanted != (panels, steps):
            raise TypeRuleError(
                f"mat_mul_few_bits: x is {x} and q is {q}, expected {wanted[0]} panels of "
                f"{wanted[1]} steps in q"
            )
        if self.size < 1 or (self.size % held and self.size < inner):
            raise TypeRuleError(
                f"mat_mul_few_bits: size is {self.size}, expected a positive multiple of {held}, "
                f"or at least {inner}"
            )
        shape = (panels, ceil_div(inner, self.size), grid.shape[2], width)
        if grid.shape != shape or grid.shape[2] not in (1, 2):
            raise TypeRuleError(f"mat_mul_few_bits: the grid is {grid}, expected {shape} with {q}")
        return x.with_shape((*x.shape[:-1], self.columns))

    def reference(self, x: Array, q: Array, grid: Array) -> Array:
        w = self.matrix(q, grid, x.shape[-1])
        return MatMul().reference(x, np.broadcast_to(w, (*x.shape[:-2], *w.shape)))

    def matrix(self, q: Array, grid: Array, inner: int) -> Array:
        """Return the matrix w[K, N] that numbers and their grid stand for, with `inner` rows."""
        steps = unpacked(q)[:, :inner].astype(np.float32) - np.float32(self.middle)
        spread = np.repeat(grid, self.size, axis=1)[:, :inner]
        if grid.shape[2] == 2:
            steps -= spread[:, :, 1]
        w: Array = (steps * spread[:, :, 0]).transpose(1, 0, 2).reshape(inner, -1)
        return w[:, : self.columns]

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        return work_of_product(ins, outs)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(40, 7), "f32[3,7]", "i8[2,7,32]", "f32[2,1,1,32]"
        yield cls(40, 9, 8), "f32[1,9]", "u32[2,2,32]", "f32[2,1,2,32]"
        for rows, columns, width in ((1, 130, 128), (2, 100, 64), (5, 70, 64), (13, 33, 32)):
            panels = -(-columns // width)
            for zeros in (1, 2):
                grid = f"f32[{panels},3,{zeros},{width}]"
                yield cls(columns, 16, 3), f"f32[{rows},44]", f"i8[{panels},44,{width}]", grid
                yield cls(columns, 16, 8), f"f32[{rows},44]", f"u32[{panels},6,{width}]", grid
        yield cls(140, 12, 3), "f32[50,12]", "i8[9,12,16]", "f32[9,1,2,16]"
        yield cls(20, 8), "f32[2,3,24]", "i8[2,24,16]", "f32[2,3,1,16]"
        yield cls(20, 24, -1), "f32[2,3,24]", "u32[2,3,16]", "f32[2,1,1,16]"
