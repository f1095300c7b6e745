"""Running totals along an axis (ONNX CumSum, CumProd)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, normal_axis
from alpenglow.ir.types import NUMBERS, Array, TensorType
from alpenglow.ops.reduction import widened


class Scan(Primitive, kind=True):
    """A primitive whose element i along `axis` combines the elements of x up to i.

    With `exclusive` element i itself is left out, so that the first result is the neutral
    element; with `reverse` the axis is read from its end.  Half precision is accumulated in f32.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False
    neutral: ClassVar[int] = 0

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        normal_axis(self, self.axis, x.rank)
        return x.with_shape(x.shape)

    def accumulated(self, x: Array, accumulate: Any) -> Array:
        """Return the running totals by `accumulate`, the method of a NumPy ufunc."""
        wide = np.flip(widened(x), self.axis) if self.reverse else widened(x)
        if self.exclusive:
            before = np.full_like(wide, self.neutral)
            np.moveaxis(before, self.axis, 0)[1:] = np.moveaxis(wide, self.axis, 0)[:-1]
            wide = before
        with np.errstate(all="ignore"):
            total = accumulate(wide, self.axis, wide.dtype).astype(x.dtype)
        return np.flip(total, self.axis) if self.reverse else np.asarray(total)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0), "f32[17]"
        yield cls(1, True), "f32[3,5,2]"
        yield cls(-1, False, True), "f32[3,5]"
        yield cls(0, True, True), "f32[4,3]"
        yield cls(0), "f32[0,3]"
        yield cls(1, True), "f32[3,1]"
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls(1), f"{dtype}[2,5]"


class CumSum(Scan):
    """The sum of the elements so far.  ONNX CumSum."""

    def reference(self, x: Array) -> Array:
        return self.accumulated(x, np.add.accumulate)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(CumSum(self.axis, self.exclusive, not self.reverse), dy)


class CumProd(Scan):
    """The product of the elements so far.  ONNX CumProd."""

    neutral = 1

    def reference(self, x: Array) -> Array:
        return self.accumulated(x, np.multiply.accumulate)
