"""Looking values up in a sorted list of keys."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank, is_half
from alpenglow.ir.types import DTYPES, NUMBERS, Array, TensorType
from alpenglow.ops.elementwise.select import BitCast, Cast
from alpenglow.ops.tensor.gather import summed_at


class Find(Primitive):
    """The position of each element of x among the sorted `keys`, or their number if it is none.

    NaN stands behind all numbers and equals itself; of equal keys the last is found.  For unsorted
    keys the result is some position or the number of keys.
    """

    def infer(self, x: TensorType, keys: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        check_rank(self, "keys", keys, 1, 1)
        if keys.dtype != x.dtype:
            raise TypeRuleError(f"find: keys are {keys}, expected the element type of {x}")
        return x.with_dtype("i64")

    def reference(self, x: Array, keys: Array) -> Array:
        if is_half(x.dtype):
            x, keys = x.astype(np.float32), keys.astype(np.float32)
        if not len(keys):
            return np.zeros(x.shape, np.int64)
        at = np.maximum(np.searchsorted(keys, x, "right") - 1, 0)
        there = (keys[at] == x) | ((keys[at] != keys[at]) & (x != x))
        return np.where(there, at, len(keys)).astype(np.int64)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "i64[3,7]", np.array([-4, -3, 0, 2, 5])
        yield cls(), "i32[40]", np.arange(-2, 6, dtype=np.int32)
        yield cls(), "i16[5]", np.array([3], np.int16)
        yield cls(), "u8[2,0]", np.array([3, 3], np.uint8)
        yield cls(), "f32[4]", np.array([], np.float32)
        for dtype in (np.float16, np.float32, np.float64):
            x = np.array([1.5, np.nan, -np.inf, 0, -0.0, 7], dtype)
            yield cls(), x, np.array([-np.inf, -1, 0, 1.5, 2, np.nan], dtype)
            yield cls(), x, np.array([-1, 0, np.inf], dtype)


class Lookup(Primitive):
    """table[x] for each byte x, by its bits: a negative i8 finds the upper half of the table."""

    layouts = "first"

    def infer(self, x: TensorType, table: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"i8", "u8"})
        check_dtype(self, "table", table, NUMBERS)
        if table.shape != (256,):
            raise TypeRuleError(f"lookup: table is {table}, expected 256 elements")
        return x.with_dtype(table.dtype)

    def reference(self, x: Array, table: Array) -> Array:
        return np.asarray(table[x.view(np.uint8)])

    def gradient(self, b: Graph, dy: Value, x: Value, table: Value) -> tuple[None, Value]:
        place = b(Cast("i32"), b(BitCast("u8"), x))
        return None, summed_at(b, dy, place, 0, 256)

    @classmethod
    def examples(cls) -> Examples:
        table = np.arange(256, dtype=np.int32)[::-1].copy()
        for dtype in ("i8", "u8"):
            yield cls(), np.arange(256, dtype=np.uint8).view(DTYPES[dtype]), table
            yield cls(), f"{dtype}[3,37]", table
        yield cls(), "u8[2,20/16,3,16]", "i32[256]"
        yield cls(), "u8[]", "f32[256]"
        for dtype in sorted(NUMBERS - {"i32", "f32"}):
            yield cls(), "u8[5]", f"{dtype}[256]"
