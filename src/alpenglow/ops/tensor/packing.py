"""Weights in the order in which a register tile reads them: panels of columns, block after block.

Narrow types are multiplied a few neighbours at once, `dots` of them (`DOTS`): so many weights of
one output stand side by side in what is packed, with zeros where there are no more.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.base.memory import aligned_bytes, forget
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Primitive, check_dtype, check_positive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.logic import BitAnd, ShiftRight
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch

DOTS = {"u8": 4, "bf16": 2}
"""How many neighbours of x a multiply-add takes in, where it is not one."""

CHUNK = 8 << 20
"""Bytes of weights that are packed at a time."""


class PackConv(Primitive):
    """w[O, I, …] as [O/width, I/lanes, …, lanes, width], zeros where a block is not full.

    With several `dots` as [O/width, I/lanes, …, lanes/dots, width, dots].
    """

    lanes: int
    width: int
    dots: int = 1

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 3)
        check_positive(self, lanes=self.lanes, width=self.width, dots=self.dots)
        o, i, *taps = w.shape
        blocks = (ceil_div(o, self.width), ceil_div(i, self.lanes))
        if self.lanes % self.dots:
            raise TypeRuleError(
                f"pack_conv: lanes is {self.lanes}, expected a multiple of dots {self.dots}"
            )
        inner = (self.width,) if self.dots == 1 else (self.width, self.dots)
        return w.with_shape((*blocks, *taps, self.lanes // self.dots, *inner))

    def reference(self, w: Array) -> Array:
        o, i, *taps = w.shape
        ob, ib = -(-o // self.width), -(-i // self.lanes)
        full = np.zeros((ob * self.width, ib * self.lanes, *taps), w.dtype)
        full[:o, :i] = w
        split = full.reshape(ob, self.width, ib, self.lanes, *taps)
        order = (0, 2, *range(4, 4 + len(taps)), 3, 1)
        packed = np.ascontiguousarray(split.transpose(order))
        if self.dots == 1:
            return packed
        *outer, lanes, width = packed.shape
        grouped = packed.reshape(*outer, lanes // self.dots, self.dots, width)
        return np.ascontiguousarray(grouped.swapaxes(-1, -2))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(16, 32, 4), "i8[40,20,3,3]"
        yield cls(4, 16, 4), "i8[7,3,5]"
        yield cls(16, 16, 2), "bf16[16,20,1,1]"
        yield cls(16, 32), "f32[40,20,3,3]"
        yield cls(1, 16), "f32[7,3,5]"


class PackMatrix(Primitive):
    """w[K, N] as [N/width, K, width], zeros where the last panel is not full.

    With several `dots` as [N/width, K/dots, width, dots].
    """

    width: int
    dots: int = 1

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 2, 2)
        check_positive(self, width=self.width, dots=self.dots)
        inner = (self.width,) if self.dots == 1 else (self.width, self.dots)
        panels, steps = ceil_div(w.shape[1], self.width), ceil_div(w.shape[0], self.dots)
        return w.with_shape((panels, steps, *inner))

    def reference(self, w: Array) -> Array:
        k, n = w.shape
        panels, steps = -(-n // self.width), -(-k // self.dots)
        packed = aligned_bytes(panels * steps * self.width * self.dots * w.itemsize)
        view = packed.view(w.dtype).reshape(panels, steps, self.width, self.dots)
        # A few rows at a time: weights may be as large as memory, and lie in a file.
        rows = self.dots * max(1, CHUNK // max(1, n * self.dots * w.itemsize))
        for start in range(0, k, rows):
            taken = w[start : start + rows]
            count = -(-len(taken) // self.dots)
            full = taken
            if taken.shape != (count * self.dots, panels * self.width):
                full = np.zeros((count * self.dots, panels * self.width), w.dtype)
                full[: len(taken), :n] = taken
            split = full.reshape(count, self.dots, panels, self.width).transpose(2, 0, 3, 1)
            view[:, start // self.dots :][:, :count] = split
            forget(taken)
        return view if self.dots > 1 else view[..., 0]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32, 4), "i8[7,40]"
        yield cls(16, 2), "bf16[8,16]"
        yield cls(32), "f32[7,40]"


class UnpackBits(Composite):
    """The numbers of `bits` bits in bytes[…, n], low bits first, as u8[…, n · 8/bits]."""

    bits: int

    def infer(self, packed: TensorType) -> TensorType:
        check_dtype(self, "packed", packed, {"u8"})
        check_rank(self, "packed", packed, 1)
        if self.bits not in (1, 2, 4):
            raise TypeRuleError(f"unpack_bits: bits is {self.bits}, expected 1, 2 or 4")
        *outer, size = packed.shape
        return packed.with_shape((*outer, size * (8 // self.bits)))

    def lower(self, b: Graph, packed: Value) -> Value:
        *outer, size = packed.type.shape
        each = 8 // self.bits
        shape = (*outer, size, each)
        wide = b(Broadcast(shape), b(Reshape((*outer, size, 1)), packed))
        shifts = stretch(b, b.constant(np.arange(0, 8, self.bits, dtype=np.uint8)), shape)
        low = stretch(b, b.constant(np.uint8((1 << self.bits) - 1)), shape)
        numbers = b(BitAnd(), b(ShiftRight(), wide, shifts), low)
        return b(Reshape((*outer, size * each)), numbers)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(4), "u8[3,2,8]"
        yield cls(2), "u8[5,3]"
        yield cls(1), "u8[7]"
