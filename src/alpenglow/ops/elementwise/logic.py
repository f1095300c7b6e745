"""Logic on bool and on the bits of integers, element by element (ONNX And, BitwiseAnd, …)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.ir.op import Elementwise, Examples
from alpenglow.ir.types import DTYPES, INTS

BITS = INTS | {"bool"}


class BitAnd(Elementwise):
    """The bits set in x and in y; on bool, whether both hold.  ONNX BitwiseAnd, And."""

    dtypes = BITS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.bit_and(x, y)


class BitOr(Elementwise):
    """The bits set in x or in y; on bool, whether either holds.  ONNX BitwiseOr, Or."""

    dtypes = BITS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.bit_or(x, y)


class BitXor(Elementwise):
    """The bits set in one of x and y; on bool, whether they differ.  ONNX BitwiseXor, Xor."""

    dtypes = BITS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.bit_xor(x, y)


class BitNot(Elementwise):
    """The bits not set in x; on bool, the opposite.  ONNX BitwiseNot, Not."""

    dtypes = BITS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.bit_not(x)


class ShiftLeft(Elementwise):
    """x with its bits moved up by y places; 0 where y is the width or more.  ONNX BitShift LEFT."""

    dtypes = INTS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.shift_left(x, y)

    @classmethod
    def examples(cls) -> Examples:
        yield from _shifts(cls())


class ShiftRight(Elementwise):
    """x with its bits moved down by y places, filled with 0 or the sign.  ONNX BitShift RIGHT."""

    dtypes = INTS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.shift_right(x, y)

    @classmethod
    def examples(cls) -> Examples:
        yield from _shifts(cls())


def _shifts(op: Elementwise) -> Examples:
    """Yield shifts of every type by nothing, by some, and by more than the width."""
    for dtype in sorted(INTS):
        x = np.array([1, 3, 100, 127, 5, 0], DTYPES[dtype])
        yield op, x, np.array([0, 1, 3, 7, 70, 2], DTYPES[dtype])
    yield op, np.array([-1, -100], np.int32), np.array([1, 40], np.int32)
    yield op, "u32[0,3]", "u32[0,3]"
