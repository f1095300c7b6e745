"""Norms of any power."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Mul, Pow, Sign
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.logic import BitOr
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import (
    Norm,
    ReduceSum,
    as_type,
    filled,
    in_floats,
    over,
    reduced,
)
from alpenglow.ops.tensor.movement import Broadcast, Reshape


class ReduceLp(Norm):
    """The p-th root of the sum of |x|^p; p is finite and not 0.  PyTorch linalg.vector_norm."""

    p: float = 3.0

    def infer(self, x: TensorType) -> TensorType:
        if self.p == 0 or abs(self.p) == float("inf") or self.p != self.p:
            raise TypeRuleError(f"{self.name}: p is {self.p}, expected a finite number, not 0")
        return super().infer(x)

    def lower(self, b: Graph, x: Value) -> Value:
        size = b(Abs(), in_floats(b, x))
        powers = b(Pow(), size, filled(b, self.p, size))
        total = b(ReduceSum(self.axes, self.keepdims), powers)
        return as_type(b, b(Pow(), total, filled(b, 1 / self.p, total)), x.type.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """sign(x) · (|x| / y)^(p - 1), 0 where x or y is 0, as in PyTorch."""
        wide, shape = in_floats(b, x), x.type.shape
        kept = reduced(self, x.type, self.axes, True).shape
        y, down = (
            b(Broadcast(shape), b(Reshape(kept), v))
            for v in (b(self, wide), as_type(b, dy, wide.type.dtype))
        )
        zero = filled(b, 0, wide)
        none = b(BitOr(), b(Equal(), wide, zero), b(Equal(), y, zero))
        share = b(Where(), none, filled(b, 1, wide), over(b, b(Abs(), wide), y))
        slope = b(Mul(), b(Sign(), wide), b(Pow(), share, filled(b, self.p - 1, share)))
        return as_type(b, b(Where(), none, zero, b(Mul(), down, slope)), x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        for p in (0.5, 1.5, 3.0, -2.0):
            yield cls((1,), False, p), "f32[3,17]"
        yield cls((0, 2)), "f32[2,3,5,2]"
        yield cls((1,), True, 2.5), "f32[3,0]"
        yield cls((0,), False, 4.0), np.array([[0, 1], [0, -2]], np.float32)
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((1,), False, 1.5), f"{dtype}[3,6]"
