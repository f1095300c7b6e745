"""Transcendental functions, element by element (ONNX Exp, Log, Sin, …), and lengths and angles."""

from __future__ import annotations

import math
from typing import Any

from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS


class Exp(Elementwise):
    """e raised to x.  ONNX Exp."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.exp(x)


class Log(Elementwise):
    """The natural logarithm of x; NaN below 0.  ONNX Log."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.log(x)


class Sqrt(Elementwise):
    """The square root of x; NaN below 0.  ONNX Sqrt."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sqrt(x)


class Sin(Elementwise):
    """The sine of x, in radians.  ONNX Sin."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sin(x)


class Cos(Elementwise):
    """The cosine of x, in radians.  ONNX Cos."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.cos(x)


class Tan(Elementwise):
    """The tangent of x, in radians.  ONNX Tan."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.tan(x)


class Asin(Elementwise):
    """The angle from -pi/2 to pi/2 whose sine is x.  ONNX Asin."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.asin(x)


class Acos(Elementwise):
    """The angle from 0 to pi whose cosine is x.  ONNX Acos."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.acos(x)


class Atan(Elementwise):
    """The angle from -pi/2 to pi/2 whose tangent is x.  ONNX Atan."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.atan(x)


class Sinh(Elementwise):
    """The hyperbolic sine of x.  ONNX Sinh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.sinh(x)


class Cosh(Elementwise):
    """The hyperbolic cosine of x.  ONNX Cosh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.cosh(x)


class Asinh(Elementwise):
    """The number whose hyperbolic sine is x.  ONNX Asinh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.asinh(x)


class Acosh(Elementwise):
    """The number of at least 0 whose hyperbolic cosine is x; NaN below 1.  ONNX Acosh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.acosh(x)


class Atanh(Elementwise):
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1].  ONNX Atanh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.atanh(x)


class Erf(Elementwise):
    """The error function: the share of a normal distribution within x sqrt(2).  ONNX Erf."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.erf(x)


class Hypot(Elementwise):
    """sqrt(x * x + y * y), which neither over- nor underflows on the way; NaN if x or y is.

    C's hypot is infinite where one is infinite and the other NaN; this is NaN.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        large, ratio = _by_larger(m, m.abs(x), m.abs(y))
        return m.mul(large, m.sqrt(m.add(m.mul(ratio, ratio), 1.0)))


class LogHypot(Elementwise):
    """log(hypot(x, y)), also where hypot overflows; -inf where both are 0, NaN if x or y is.

    It is log(l) + log(1 + r * r) / 2 with l the larger of |x| and |y| and r their ratio, and
    log(1 + s) = 2 atanh(s / (s + 2)) keeps its digits where s is small.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        large, ratio = _by_larger(m, m.abs(x), m.abs(y))
        square = m.mul(ratio, ratio)
        return m.add(m.log(large), m.atanh(m.div(square, m.add(square, 2.0))))


class Atan2(Elementwise):
    """The angle from -pi to pi of the point (x, y); a zero counts as of its sign, as in C."""

    dtypes = FLOATS

    def scalar(self, m: Any, y: Any, x: Any) -> Any:
        across, along = m.abs(y), m.abs(x)
        _, ratio = _by_larger(m, across, along)
        angle = m.atan(ratio)
        angle = m.where(m.gt(across, along), m.sub(math.pi / 2, angle), angle)
        angle = m.where(_negative(m, x), m.sub(math.pi, angle), angle)
        return m.where(_negative(m, y), m.neg(angle), angle)


def _by_larger(m: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the larger of two numbers that are not negative, and what the other is of it.

    That is 0 of 0, and 1 where both are infinite.
    """
    large, small = m.maximum(x, y), m.minimum(x, y)
    ratio = m.div(small, m.where(m.eq(large, 0.0), 1.0, large))
    return large, m.where(m.isinf(small), 1.0, ratio)


def _negative(m: Any, x: Any) -> Any:
    """True where x is below 0 or -0: there its reciprocal, limited for infinities, is."""
    return m.lt(m.div(1.0, m.maximum(m.minimum(x, 1.0), -1.0)), 0.0)
