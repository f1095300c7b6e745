"""Softmax and its kin: what turns a row of numbers into shares of 1 (ONNX Softmax, Hardmax, …).

All compute in f32 at least and round once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, Primitive, check_dtype, normal_axis
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp, Log
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ReduceMax,
    ReduceSum,
    as_type,
    filled,
    in_floats,
    widened,
)
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast

ZEROS = ("masked", "undefined")
"""Rows that give zeros where a softmax has no shares."""


class Softmax(Primitive):
    """exp(x) divided by its sum along `axis`; the largest x is subtracted first.  ONNX Softmax.

    A row without shares gives NaN.  Zeros instead are for a row that is `masked`, nothing but -inf,
    or for any that is `undefined`, because of NaN or infinity in it, too (PyTorch _safe_softmax).
    """

    axis: int
    zeros: str = ""

    def infer(self, x: TensorType) -> TensorType:
        if self.zeros not in ("", *ZEROS):
            raise TypeRuleError(
                f"softmax: zeros is '{self.zeros}', expected '', {', '.join(ZEROS)}"
            )
        return along(self, x, self.axis)

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        with np.errstate(all="ignore"):
            top = wide.max(axis=self.axis, keepdims=True, initial=-np.inf)
            y = np.exp(wide - top)
            share = y / y.sum(axis=self.axis, keepdims=True)
            if self.zeros == "masked":
                share = np.where(top == -np.inf, 0, share)
            elif self.zeros == "undefined":
                share = np.where(np.isnan(share), 0, share)
            return np.asarray(share).astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Return y (dy - the sum of y dy).

        A row whose shares are NaN and that is not read has a gradient of 0: models put zeros in
        place of the result of a query without keys.
        """
        y, wide = b(self, in_floats(b, x)), in_floats(b, dy)
        total = b(ReduceSum((self.axis % x.type.rank,)), self._times(b, y, wide))
        centred = b(Sub(), wide, b(Broadcast(x.type.shape), total))
        return as_type(b, self._times(b, y, centred), x.type.dtype)

    def _times(self, b: Graph, y: Value, d: Value) -> Value:
        """Return y d, and 0 where d is: of a y that may be NaN, too."""
        if self.zeros == "undefined":
            return b(Mul(), y, d)
        zero = filled(b, 0, d)
        return b(Where(), b(Equal(), d, zero), zero, b(Mul(), y, d))

    @classmethod
    def examples(cls) -> Examples:
        yield from rows(cls)
        low, high = -np.inf, np.inf
        strange = [[low] * 5, [0, low, 1, 2, low], [0, np.nan, 1, 2, low], [low, 0, high, 1, 2]]
        for zeros in ("", *ZEROS):
            yield cls(1, zeros), np.array(strange, np.float32)
            yield cls(0, zeros), np.array(strange, np.float32).T.copy()
            yield cls(-1, zeros), "f16[3,8]"


class LogSoftmax(Composite):
    """The logarithm of softmax along `axis`.  ONNX LogSoftmax."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        return along(self, x, self.axis)

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        axes = (self.axis % x.type.rank,)
        top = b(Broadcast(x.type.shape), b(ReduceMax(axes), wide))
        shifted = b(Sub(), wide, top)
        total = b(Log(), b(ReduceSum(axes), b(Exp(), shifted)))
        return as_type(b, b(Sub(), shifted, b(Broadcast(x.type.shape), total)), x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield from rows(cls)


class Hardmax(Composite):
    """1 where the first largest x along `axis` is, else 0; NaN is the largest.  ONNX Hardmax."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        return along(self, x, self.axis)

    def lower(self, b: Graph, x: Value) -> Value:
        axis = self.axis % x.type.rank
        if x.type.shape[axis] == 0:
            return x
        first = b(Broadcast(x.type.shape), b(ArgMax(axis), x))
        return as_type(b, b(Equal(), b(Iota(x.type.shape, axis)), first), x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield from rows(cls)
        yield cls(1), np.array([[1, 3, 3], [2, 2, 1]], np.float32)


def along(op: Op, x: TensorType, axis: int) -> TensorType:
    """Return the type of x, a tensor of floats that must have the axis `axis`."""
    check_dtype(op, "x", x, FLOATS)
    normal_axis(op, axis, x.rank)
    return x


def rows(cls: Any) -> Examples:
    """Yield applications of an operator with an `axis` to floats."""
    yield cls(-1), "f32[17]"
    yield cls(1), "f32[3,40]"
    yield cls(1), "f32[2,3,5]"
    yield cls(0), "f32[0,3]"
    yield cls(1), "f32[3,1,2]"
    for dtype in sorted(FLOATS - {"f32"}):
        yield cls(-1), f"{dtype}[3,8]"
