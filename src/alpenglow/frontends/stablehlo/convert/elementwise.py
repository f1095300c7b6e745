"""Converters of elementwise arithmetic, for integers, floats, truth values and complex numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alpenglow.frontends.numbers import apply, of_parts, parts_of
from alpenglow.frontends.stablehlo.table import Made, Site, both, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, DTYPES, INTS, SIGNED, UNSIGNED
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Ceil,
    Div,
    Floor,
    Fmod,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Round,
    Sign,
    Sub,
)
from alpenglow.ops.elementwise.comparison import Equal, Greater, GreaterOrEqual, IsInf, IsNaN, Less
from alpenglow.ops.elementwise.floating import Trunc
from alpenglow.ops.elementwise.logarithm import Expm1, Log1p
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, BitXor
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Atan2, Cos, Exp, Log, Sin, Sqrt, Tan
from alpenglow.ops.tensor.movement import unstretched

UNARY: Mapping[str, type[Op]] = {
    "ceil": Ceil,
    "cosine": Cos,
    "exponential": Exp,
    "exponential_minus_one": Expm1,
    "floor": Floor,
    "log": Log,
    "log_plus_one": Log1p,
    "logistic": Sigmoid,
    "round_nearest_even": Round,
    "sine": Sin,
    "sqrt": Sqrt,
    "tan": Tan,
    "tanh": Tanh,
}
"""Functions of one number by name."""

BINARY: Mapping[str, type[Op]] = {"add": Add, "subtract": Sub, "multiply": Mul}
"""Operators on two numbers by name."""

BITWISE: Mapping[str, type[Op]] = {"and": BitAnd, "or": BitOr, "xor": BitXor}


@on(*(f"stablehlo.{name}" for name in UNARY), "chlo.tan", pointwise=True)
def unary(s: Site) -> Made:
    s.count(1)
    return apply(s.g, UNARY[s.plain](), s.wide(0))


@on(*both(*BINARY), pointwise=True)
def binary(s: Site) -> Made:
    x, y = s.pair()
    if x.type.dtype == "bool" and s.plain == "subtract":
        raise s.refuse_dtype(x, "integers, floats and complex numbers")
    return apply(s.g, BINARY[s.plain](), x, y)


@on(*both(*BITWISE), pointwise=True)
def bitwise(s: Site) -> Made:
    return s.g(BITWISE[s.plain](), *s.pair())


@on("stablehlo.not", pointwise=True)
def invert(s: Site) -> Made:
    s.count(1)
    return s.g(BitNot(), s.wide(0))


@on("stablehlo.abs", pointwise=True)
def absolute(s: Site) -> Made:
    x = s.wide(0)
    return x if x.type.dtype in UNSIGNED else apply(s.g, Abs(), x)


@on("stablehlo.negate", pointwise=True)
def negate(s: Site) -> Made:
    return apply(s.g, Neg(), s.wide(0))


@on("stablehlo.sign", pointwise=True)
def sign(s: Site) -> Made:
    """A zero keeps its sign, and a complex number is divided by its size."""
    x = s.wide(0)
    if x.type.dtype in COMPLEX:
        size = apply(s.g, Abs(), x)
        nothing = s.g(Equal(), size, s.filled(0, size))
        real, imaginary = parts_of(s.g, x)
        below = s.g(Where(), nothing, s.filled(1, size), size)
        return of_parts(s.g, s.g(Div(), real, below), s.g(Div(), imaginary, below))
    made = s.g(Sign(), x)
    if x.type.dtype in INTS:
        return made
    return s.g(Where(), s.g(Equal(), x, s.filled(0, x)), x, made)


@on(*both("divide"), pointwise=True)
def divide(s: Site) -> Made:
    """Integers by 0 give -1, all bits set, as XLA has it."""
    x, y = s.pair()
    quotient = apply(s.g, Div(), x, y)
    if x.type.dtype not in INTS or not may_be_zero(y):
        return quotient
    ones = s.filled(-1 if x.type.dtype in SIGNED else np.iinfo(DTYPES[x.type.dtype]).max, x)
    return s.g(Where(), s.g(Equal(), y, s.filled(0, y)), ones, quotient)


@on(*both("remainder"), pointwise=True)
def remainder(s: Site) -> Made:
    """The remainder has the sign of the dividend; of an integer by 0 it is the dividend."""
    x, y = s.pair()
    if x.type.dtype in COMPLEX:
        raise s.refuse_dtype(x, "integers and floats")
    rest = s.g(Fmod(), x, y)
    if x.type.dtype not in INTS or not may_be_zero(y):
        return rest
    return s.g(Where(), s.g(Equal(), y, s.filled(0, y)), x, rest)


def may_be_zero(v: Value) -> bool:
    """Whether an element of integers may be 0."""
    array = unstretched(v).array
    return array is None or not bool(array.all())


@on(*both("power"), pointwise=True)
def power(s: Site) -> Made:
    """Integers to a negative power are 0, except 1 and -1."""
    x, y = s.pair()
    raised = apply(s.g, Pow(), x, y)
    if x.type.dtype not in SIGNED:
        return raised
    none = s.g(BitAnd(), s.g(Equal(), x, s.filled(0, x)), s.g(BitNot(), at_least(s, y, 0)))
    return s.g(Where(), none, s.filled(0, x), raised)


def at_least(s: Site, x: Value, bound: float) -> Value:
    """Return a bool per element: True if it is at least `bound`."""
    return s.g(GreaterOrEqual(), x, s.filled(bound, x))


@on(*both("maximum", "minimum"), pointwise=True)
def extreme(s: Site) -> Made:
    """Complex numbers are compared by their real parts first."""
    x, y = s.pair()
    larger = s.plain == "maximum"
    if x.type.dtype in COMPLEX:
        return s.g(Where(), lexical(s, "GT" if larger else "LT", x, y), x, y)
    return apply(s.g, Maximum() if larger else Minimum(), x, y)


def lexical(s: Site, direction: str, x: Value, y: Value) -> Value:
    """Return a bool per element: True if x < y (LT) or x > y (GT) by real, then imaginary part."""
    op = Less() if direction == "LT" else Greater()
    (a, b), (c, d) = parts_of(s.g, x), parts_of(s.g, y)
    within = s.g(BitAnd(), s.g(Equal(), a, c), s.g(op, b, d))
    return s.g(BitOr(), s.g(op, a, c), within)


@on("stablehlo.clamp", pointwise=True)
def clamp(s: Site) -> Made:
    """Bounds may be scalars."""
    s.count(3)
    x = s.wide(1)
    low, high = s.broadcast(s.wide(0), x)[0], s.broadcast(s.wide(2), x)[0]
    if x.type.dtype in COMPLEX:
        above = s.g(Where(), lexical(s, "GT", low, x), low, x)
        return s.g(Where(), lexical(s, "LT", high, above), high, above)
    return apply(s.g, Minimum(), apply(s.g, Maximum(), x, low), high)


@on(*both("atan2"), pointwise=True)
def atan2(s: Site) -> Made:
    y, x = s.pair()
    if x.type.dtype in COMPLEX:
        raise s.refuse_dtype(x, "floats")
    return s.g(Atan2(), y, x)


@on("stablehlo.rsqrt", pointwise=True)
def rsqrt(s: Site) -> Made:
    return apply(s.g, Reciprocal(), apply(s.g, Sqrt(), s.wide(0)))


@on("stablehlo.round_nearest_afz", pointwise=True)
def round_away(s: Site) -> Made:
    """The nearest integer, halves away from zero."""
    x = s.wide(0)
    whole = s.g(Trunc(), x)
    rest = s.g(Abs(), s.g(Sub(), x, whole))
    further = s.g(Add(), whole, s.g(Sign(), x))
    return s.g(Where(), at_least(s, rest, 0.5), further, whole)


@on("stablehlo.is_finite", pointwise=True)
def is_finite(s: Site) -> Made:
    x = s.wide(0)
    return s.g(BitNot(), s.g(BitOr(), s.g(IsNaN(), x), s.g(IsInf(), x)))


@on(*both("select"), pointwise=True)
def select(s: Site) -> Made:
    chosen, x, y = s.broadcast(*s.required(3))
    return s.g(Where(), chosen, x, y)
