"""Indices that must lie in a range: a call whose data breaks that ends in an error.

Operators that read or write at computed positions keep within their tensors whatever they are given
(`ops.tensor.gather` clamps).  If a format says that an index out of range is an error, as ONNX
does, its front end puts `in_range` before them.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import FeedError, TypeRuleError
from alpenglow.ir.dims import Dim, is_open, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype
from alpenglow.ir.types import Array, TensorType


class InRange(Primitive):
    """x, each element of which is from `low` to `high`: if one is not, the call raises FeedError.

    0 is in range, unless x is known to have no elements.  `of` says what the elements are, and to
    which operator.
    """

    low: Dim
    high: Dim
    of: str = "index"

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"i32", "i64"})
        is_empty = any(not is_open(d) and d == 0 for d in x.shape)
        too_high = not is_open(self.low) and self.low > 0
        if is_empty:
            return x
        if too_high or (not is_open(self.high) and self.high < 0):
            raise TypeRuleError(
                f"in_range: low is {self.low} and high {self.high}, expected low ≤ 0 ≤ high"
            )
        return x

    def reference(self, x: Array) -> Array:
        assert known(self.low) and known(self.high), "extents are known where something runs"
        limits = np.iinfo(x.dtype)
        out = np.zeros(x.shape, bool)
        if self.low > limits.min:
            out |= x < min(int(self.low), limits.max)
        if self.high < limits.max:
            out |= x > max(int(self.high), limits.min)
        if out.any():
            raise self.fault(int(x[out][0]))
        return x

    def fault(self, element: int) -> FeedError:
        """Return the error of a call in which an element is out of range."""
        assert known(self.low) and known(self.high), "extents are known where something runs"
        extent = f" (extent {self.high + 1})" if self.low < 0 else ""
        return FeedError(f"{self.of} is {element}, expected {self.low} to {self.high}{extent}")

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return dy

    @classmethod
    def examples(cls) -> Examples:
        yield cls(-5, 4), np.array([[0, -5, 4], [2, 3, -1]])
        yield cls(0, 16, "length"), np.arange(17, dtype=np.int32)
        yield cls(0, (1 << 63) - 1), np.array([0, (1 << 63) - 1])
        yield cls(-(1 << 40), 1 << 40), np.array([5], np.int32)
        yield cls(0, 0), np.array(0)
        yield cls(0, 0), "i64[0]"
