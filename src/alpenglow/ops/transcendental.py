"""Transcendental functions, element by element (ONNX Exp, Log, Sin, …)."""

from __future__ import annotations

from typing import Any

from alpenglow.ir.op import Elementwise, Examples
from alpenglow.ir.types import FLOATS
from alpenglow.ops.sample import unary


class Exp(Elementwise):
    """e raised to x.  ONNX Exp."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.exp(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Log(Elementwise):
    """The natural logarithm of x; NaN below 0.  ONNX Log."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.log(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Sqrt(Elementwise):
    """The square root of x; NaN below 0.  ONNX Sqrt."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sqrt(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Sin(Elementwise):
    """The sine of x, in radians.  ONNX Sin."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sin(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Cos(Elementwise):
    """The cosine of x, in radians.  ONNX Cos."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.cos(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Tan(Elementwise):
    """The tangent of x, in radians.  ONNX Tan."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.tan(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Asin(Elementwise):
    """The angle from -pi/2 to pi/2 whose sine is x.  ONNX Asin."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.asin(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Acos(Elementwise):
    """The angle from 0 to pi whose cosine is x.  ONNX Acos."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.acos(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Atan(Elementwise):
    """The angle from -pi/2 to pi/2 whose tangent is x.  ONNX Atan."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.atan(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Sinh(Elementwise):
    """The hyperbolic sine of x.  ONNX Sinh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sinh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Cosh(Elementwise):
    """The hyperbolic cosine of x.  ONNX Cosh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.cosh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Asinh(Elementwise):
    """The number whose hyperbolic sine is x.  ONNX Asinh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.asinh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Acosh(Elementwise):
    """The number of at least 0 whose hyperbolic cosine is x; NaN below 1.  ONNX Acosh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.acosh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Atanh(Elementwise):
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1].  ONNX Atanh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.atanh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Erf(Elementwise):
    """The error function: the share of a normal distribution within x sqrt(2).  ONNX Erf."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.erf(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)
