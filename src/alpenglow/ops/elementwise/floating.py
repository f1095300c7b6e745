"""Floating-point numbers by their parts: sign, exponent, fraction, and the number next to one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise, Examples, of_one_type
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Floor, Mul, Neg, Sub
from alpenglow.ops.elementwise.logarithm import BIAS, Exp2
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.elementwise.series import dtype_of
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats

EDGES = np.array([0, -0.0, 1, -1, 2.5, -2.5, 1e-40, -1e-40, 3e38, np.inf, -np.inf], np.float32)


class Trunc(Elementwise):
    """x without its fraction: the integer next to it towards 0."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        return m.where(m.lt(x, 0.0), m.ceil(x), m.floor(x))


class SignBit(Elementwise):
    """Whether the sign of x is set, as it is of -0.  NumPy signbit."""

    dtypes = FLOATS
    result = "bool"
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        return m.lt(m.bits(x, BIAS[dtype_of(x)][2]), 0)


class NextAfter(Elementwise):
    """The number next to x in the direction of y; y if they are equal, NaN if either is."""

    dtypes = frozenset({"f32", "f64"})

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        _, _, whole = BIAS[dtype_of(x)]
        bits = m.bits(x, whole)
        # Numbers of one sign are in the order of their bits.
        away = m.bit_not(m.bit_xor(m.lt(x, y), m.gt(x, 0.0)))
        moved = m.bits(m.where(away, m.add(bits, 1), m.sub(bits, 1)), dtype_of(x))
        least = 2.0**-149 if whole == "i32" else 2.0**-1074
        beside = m.where(m.eq(x, 0.0), m.mul(m.sign(y), least), moved)
        undefined = m.bit_or(m.isnan(x), m.isnan(y))
        return m.where(undefined, math.nan, m.where(m.eq(x, y), y, beside))

    def gradient(self, b: Graph, dy: Value, x: Value, y: Value) -> tuple[Value, Value]:
        raise UnsupportedError("gradient: operator next_after is not supported")

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), {"f32", "f64"})
        yield cls(), EDGES, EDGES[::-1].copy()
        yield cls(), EDGES, EDGES


class Fraction(Elementwise):
    """x over 2 raised to `Exponent`(x), at least 1/2 and less than 1 in size.  NumPy frexp.

    0, infinities and NaN are their own fractions.
    """

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        bias, place, whole = BIAS[dtype_of(x)]
        _, normal = _normal(m, x)
        rest = m.bit_and(m.bits(normal, whole), ~((2 * bias + 1) << place))
        halved = m.bits(m.bit_or(rest, (bias - 1) << place), dtype_of(x))
        return m.where(_has_parts(m, x), halved, x)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Divide by the power of 2 that x is divided by, in two steps: it may be no number."""
        wide = in_floats(b, dy)
        power = b(Neg(), b(Cast(wide.type.dtype), b(Exponent(), x)))
        half = b(Floor(), b(Mul(), power, filled(b, 0.5, power)))
        first = b(Mul(), wide, b(Exp2(), half))
        total = b(Mul(), first, b(Exp2(), b(Sub(), power, half)))
        return as_type(b, total, x.type.dtype)


class Exponent(Elementwise):
    """The power of 2 that `Fraction`(x) is multiplied by, as i32; 0 of 0, infinities and NaN."""

    dtypes = FLOATS
    result = "i32"
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        bias, place, whole = BIAS[dtype_of(x)]
        small, normal = _normal(m, x)
        exponent = m.shift_right(m.bits(m.abs(normal), whole), place)
        power = m.sub(exponent, bias - 1)
        power = m.where(small, m.sub(power, place + 2), power)
        return m.cast(m.where(_has_parts(m, x), power, 0), "i32")


def _normal(m: Any, x: Any) -> tuple[Any, Any]:
    """Return if x is subnormal, and x, then multiplied so that it is not."""
    bias, place, _ = BIAS[dtype_of(x)]
    small = m.lt(m.abs(x), 2.0 ** (1 - bias))
    return small, m.where(small, m.mul(x, 2.0 ** (place + 2)), x)


def _has_parts(m: Any, x: Any) -> Any:
    """Whether x is a number other than 0."""
    return m.bit_and(m.ne(x, 0.0), m.lt(m.abs(x), math.inf))
