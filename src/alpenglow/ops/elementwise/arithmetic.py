"""Arithmetic on numbers, element by element (ONNX Add, Sub, Mul, Div, Mod, Pow, …)."""

from __future__ import annotations

import math
from typing import Any

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Elementwise, Examples, of_one_type
from alpenglow.ir.types import FLOATS, NUMBERS, SIGNED, TensorType, holds


class Add(Elementwise):
    """x + y.  ONNX Add."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.add(x, y)


class Sub(Elementwise):
    """x - y.  ONNX Sub."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.sub(x, y)


class Mul(Elementwise):
    """x * y.  ONNX Mul."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.mul(x, y)


class Div(Elementwise):
    """x / y; integers truncate towards zero, and x / 0 is 0 for them.  ONNX Div."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.div(x, y)


class Mod(Elementwise):
    """The remainder of x / y with the sign of y; 0 where an integer y is 0.  ONNX Mod, fmod=0."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.mod(x, y)


class Fmod(Elementwise):
    """The remainder of x / y with the sign of x; 0 where an integer y is 0.  ONNX Mod, fmod=1."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.fmod(x, y)


class Pow(Elementwise):
    """x raised to y; negative exponents of integers truncate.  ONNX Pow."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.pow(x, y)


class Minimum(Elementwise):
    """The smaller of x and y; NaN if either is.  ONNX Min of two."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.minimum(x, y)


class Maximum(Elementwise):
    """The larger of x and y; NaN if either is.  ONNX Max of two."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.maximum(x, y)


class Neg(Elementwise):
    """-x.  ONNX Neg."""

    dtypes = FLOATS | SIGNED

    def scalar(self, m: Any, x: Any) -> Any:
        return m.neg(x)


class Abs(Elementwise):
    """|x|.  ONNX Abs."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.abs(x)


class Sign(Elementwise):
    """-1, 0 or 1 as x is below, at or above 0; NaN stays.  ONNX Sign."""

    dtypes = NUMBERS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sign(x)


class Reciprocal(Elementwise):
    """1 / x.  ONNX Reciprocal."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(1.0, x)


class Floor(Elementwise):
    """The largest integer at most x.  ONNX Floor."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.floor(x)


class Ceil(Elementwise):
    """The smallest integer at least x.  ONNX Ceil."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.ceil(x)


class Round(Elementwise):
    """The nearest integer, halves to even.  ONNX Round."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.round(x)


class Clip(Elementwise):
    """x limited to the closed interval [low, high]; NaN stays.  ONNX Clip with constant bounds.

    At a limit the gradient is 0, as for a relu; if `closed`, the gradient passes there.
    """

    low: float = float("-inf")
    high: float = float("inf")
    closed: bool = False
    dtypes = NUMBERS

    def infer(self, *xs: TensorType) -> TensorType:
        t = super().infer(*xs)
        if not all(holds(t.dtype, b) for b in (self.low, self.high) if math.isfinite(b)):
            raise TypeRuleError(
                f"clip: low is {self.low} and high {self.high}, expected values of {t.dtype}"
            )
        return t

    def scalar(self, m: Any, x: Any) -> Any:
        if self.low != float("-inf"):
            x = m.maximum(x, self.low)
        if self.high != float("inf"):
            x = m.minimum(x, self.high)
        return x

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(0, 6), NUMBERS)
        yield from of_one_type(cls(low=-0.5), FLOATS)
        yield from of_one_type(cls(high=0.25), FLOATS)
        yield cls(-1, 1, closed=True), "f32[17]"
