"""Choosing between tensors, and changing their element type (ONNX Where, Cast)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Elementwise, Examples, check_arity
from alpenglow.ir.types import ALL, DTYPES, INTS, UNSIGNED, TensorType
from alpenglow.ops.sample import SHAPES, unary


class Where(Elementwise):
    """x where the condition holds, else y; all three of one shape.  ONNX Where."""

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        condition, x, y = xs
        if condition != x.with_dtype("bool"):
            raise TypeRuleError(f"where: condition is {condition}, expected {x.with_dtype('bool')}")
        if x != y:
            raise TypeRuleError(f"where: operands differ: {x} and {y}")
        return x

    def scalar(self, m: Any, condition: Any, x: Any, y: Any) -> Any:
        return m.where(condition, x, y)

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls(), f"bool[{shape}]", f"f32[{shape}]", f"f32[{shape}]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(), "bool[3,7]", f"{dtype}[3,7]", f"{dtype}[3,7]"


class Cast(Elementwise):
    """x as elements of type `dtype`.  ONNX Cast.

    Floats become integers by truncation, and bool by being other than 0; what an integer type
    cannot hold is unspecified from floats and wraps from integers.  f16 and bf16 are reached by
    way of f32.
    """

    dtype: str

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        if self.dtype not in DTYPES:
            raise TypeRuleError(f"cast: '{self.dtype}' is none of {' '.join(DTYPES)}")
        return xs[0].with_dtype(self.dtype)

    def scalar(self, m: Any, x: Any) -> Any:
        # A formula sees the short floats as f32; storing its result rounds it.
        return m.cast(x, "f32" if self.dtype in ("f16", "bf16") else self.dtype)

    @classmethod
    def examples(cls) -> Examples:
        for dtype in ("f32", "i32", "bool"):
            yield from unary(cls(dtype), ALL - UNSIGNED if dtype == "i32" else ALL)
        for dtype in sorted(ALL - UNSIGNED):
            yield cls(dtype), "f32[17]"
            yield cls(dtype), "bool[17]"
            yield cls(dtype), "f64[2,0]"
        for dtype in sorted(UNSIGNED):
            yield cls(dtype), np.array([0, 0.5, 1.75, 100.99], np.float32)
        for dtype in sorted(INTS):
            yield cls(dtype), np.array([0, -1, 300, -70000, 1 << 40], np.int64)
