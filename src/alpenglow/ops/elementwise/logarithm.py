"""Exponentials and logarithms that keep the digits of small numbers, and those with bases 2 and 10.

PyTorch has them in addition to `Exp` and `Log`; ONNX does not have them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Div, Mul
from alpenglow.ops.elementwise.series import dtype_of
from alpenglow.ops.tensor.movement import Broadcast

BIAS = {"f32": (127, 23, "i32"), "f64": (1023, 52, "i64")}
"""Of a float: what is added to its exponent, where that begins, and integers of its width."""


class Expm1(Elementwise):
    """exp(x) - 1, with all digits where x is near 0: there it is 2 t / (1 - t), t = tanh(x / 2)."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        t = m.tanh(m.mul(x, 0.5))
        near = m.div(m.add(t, t), m.sub(1.0, t))
        return m.where(m.lt(m.abs(x), 1.0), near, m.sub(m.exp(x), 1.0))


class Log1p(Elementwise):
    """log(1 + x), with all digits where x is near 0; NaN below -1.

    With u = 1 + x rounded it is x log(u) / (u - 1), for the error of u cancels (W. Kahan).
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        u = m.add(x, 1.0)
        rest = m.sub(u, 1.0)
        lost = m.eq(rest, 0.0)
        near = m.mul(m.log(u), m.div(x, m.where(lost, 1.0, rest)))
        return m.where(lost, x, m.where(m.eq(u, math.inf), u, near))


class Exp2(Elementwise):
    """2 raised to x, exactly where x is an integer: x is split at the nearest integer."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        low, high = (-152.0, 129.0) if dtype_of(x) == "f32" else (-1080.0, 1025.0)
        limited = m.minimum(m.maximum(x, low), high)
        n = m.round(limited)
        # In two steps, since 2^n alone may be beyond the numbers where the result is not.
        half = m.floor(m.mul(n, 0.5))
        part = m.mul(m.exp(m.mul(m.sub(limited, n), math.log(2))), power_of_two(m, half))
        return m.mul(part, power_of_two(m, m.sub(n, half)))


class Log2(Elementwise):
    """The logarithm of x to base 2, exactly where x is a power of 2; NaN below 0."""

    dtypes = FLOATS
    edges = np.array([0.25, 1, 2, 3, 8, 100], np.float32)

    def scalar(self, m: Any, x: Any) -> Any:
        y = m.mul(m.log(x), 1 / math.log(2))
        most = 127.0 if dtype_of(x) == "f32" else 1023.0
        n = m.minimum(m.maximum(m.round(y), 1 - most), most)
        return m.where(m.eq(power_of_two(m, n), x), n, y)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Divide by x log(2): the formula is flat where x is a power of 2."""
        slope = b(Mul(), x, b(Broadcast(x.type.shape), b.constant(x.type.numpy.type(math.log(2)))))
        return b(Div(), dy, slope)


class Log10(Elementwise):
    """The logarithm of x to base 10; NaN below 0."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(m.log(x), math.log(10))


def power_of_two(m: Any, n: Any) -> Any:
    """Return 2 raised to floats n, integers that are the exponents of normal numbers."""
    bias, place, whole = BIAS[dtype_of(n)]
    exponent = m.cast(m.add(n, float(bias)), whole)
    return m.bits(m.shift_left(exponent, place), dtype_of(n))


class XLogY(Elementwise):
    """x log(y), and 0 where x is 0 unless y is NaN.  PyTorch xlogy."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return _of_no_zero(m, x, y, m.log(y))


class XLog1pY(Elementwise):
    """x log(1 + y), and 0 where x is 0 unless y is NaN.  PyTorch special.xlog1py."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return _of_no_zero(m, x, y, Log1p().scalar(m, y))


def _of_no_zero(m: Any, x: Any, y: Any, log: Any) -> Any:
    """Return x times a function of y, and 0 where x is 0."""
    return m.where(m.isnan(y), math.nan, m.where(m.eq(x, 0.0), 0.0, m.mul(x, log)))
