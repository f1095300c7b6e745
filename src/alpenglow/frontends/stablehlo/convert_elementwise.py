"""Converters of elementwise arithmetic, for integers, floats, truth values and complex numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alpenglow.frontends.stablehlo.complex_values import by_parts, lexical, of_parts, parts_of
from alpenglow.frontends.stablehlo.table import Made, Site, both, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, DTYPES, INTS, SIGNED, UNSIGNED
from alpenglow.ops.activation import Sigmoid, Tanh
from alpenglow.ops.arithmetic import (
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
from alpenglow.ops.comparison import Equal, GreaterOrEqual, IsInf, IsNaN
from alpenglow.ops.complex import (
    ComplexAbs,
    ComplexAdd,
    ComplexDiv,
    ComplexExp,
    ComplexLog,
    ComplexMul,
    ComplexNeg,
    ComplexPow,
    ComplexSub,
)
from alpenglow.ops.floating import Trunc
from alpenglow.ops.logarithm import Expm1, Log1p
from alpenglow.ops.logic import BitAnd, BitNot, BitOr, BitXor
from alpenglow.ops.movement import unstretched
from alpenglow.ops.select import Where
from alpenglow.ops.transcendental import Atan2, Cos, Exp, Log, Sin, Sqrt, Tan

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
"""Functions of reals by name; of those that complex numbers have, too, `complex_values` knows."""

BINARY: Mapping[str, tuple[type[Op], type[Op], type[Op] | None]] = {
    "add": (Add, ComplexAdd, BitOr),
    "subtract": (Sub, ComplexSub, None),
    "multiply": (Mul, ComplexMul, BitAnd),
}
"""Operators on numbers, on complex numbers, and on truth values."""

BITWISE: Mapping[str, type[Op]] = {"and": BitAnd, "or": BitOr, "xor": BitXor}


@on(*(f"stablehlo.{name}" for name in UNARY), "chlo.tan", pointwise=True)
def unary(s: Site) -> Made:
    s.count(1)
    x = s.wide(0)
    op = UNARY[s.plain]
    if x.type.dtype not in COMPLEX:
        return s.g(op(), x)
    if op is Exp:
        return s.g(ComplexExp(), x)
    if op is Log:
        return s.g(ComplexLog(), x)
    return by_parts(s, op, x)


@on(*both(*BINARY), pointwise=True)
def binary(s: Site) -> Made:
    x, y = s.pair()
    real, of_complex, of_bool = BINARY[s.plain]
    if x.type.dtype in COMPLEX:
        return s.g(of_complex(), x, y)
    if x.type.dtype == "bool":
        if of_bool is None:
            raise s.refuse("operands are truth values")
        return s.g(of_bool(), x, y)
    return s.g(real(), x, y)


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
    if x.type.dtype in COMPLEX:
        return s.g(ComplexAbs(), x)
    return x if x.type.dtype in UNSIGNED else s.g(Abs(), x)


@on("stablehlo.negate", pointwise=True)
def negate(s: Site) -> Made:
    x = s.wide(0)
    if x.type.dtype in COMPLEX:
        return s.g(ComplexNeg(), x)
    if x.type.dtype in UNSIGNED:
        return s.g(Sub(), s.filled(0, x), x)
    return s.g(Neg(), x)


@on("stablehlo.sign", pointwise=True)
def sign(s: Site) -> Made:
    """A zero keeps its sign, and a complex number is divided by its size."""
    x = s.wide(0)
    if x.type.dtype in COMPLEX:
        size = s.g(ComplexAbs(), x)
        nothing = s.g(Equal(), size, s.filled(0, size))
        real, imaginary = parts_of(s, x)
        below = s.g(Where(), nothing, s.filled(1, size), size)
        return of_parts(s, s.g(Div(), real, below), s.g(Div(), imaginary, below))
    made = s.g(Sign(), x)
    if x.type.dtype in INTS:
        return made
    return s.g(Where(), s.g(Equal(), x, s.filled(0, x)), x, made)


@on(*both("divide"), pointwise=True)
def divide(s: Site) -> Made:
    """Integers by 0 give -1, all bits set, as XLA has it."""
    x, y = s.pair()
    if x.type.dtype in COMPLEX:
        return s.g(ComplexDiv(), x, y)
    quotient = s.g(Div(), x, y)
    if x.type.dtype not in INTS or not may_be_zero(y):
        return quotient
    ones = s.filled(-1 if x.type.dtype in SIGNED else np.iinfo(DTYPES[x.type.dtype]).max, x)
    return s.g(Where(), s.g(Equal(), y, s.filled(0, y)), ones, quotient)


@on(*both("remainder"), pointwise=True)
def remainder(s: Site) -> Made:
    """What is left has the sign of the dividend; an integer by 0 leaves all of it."""
    x, y = s.pair()
    if x.type.dtype in COMPLEX:
        raise s.refuse("operands are complex")
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
    """Integers to a negative power are 0, but for 1 and -1."""
    x, y = s.pair()
    if x.type.dtype in COMPLEX:
        return s.g(ComplexPow(), x, y)
    raised = s.g(Pow(), x, y)
    if x.type.dtype not in SIGNED:
        return raised
    none = s.g(BitAnd(), s.g(Equal(), x, s.filled(0, x)), s.g(BitNot(), at_least(s, y, 0)))
    return s.g(Where(), none, s.filled(0, x), raised)


def at_least(s: Site, x: Value, bound: float) -> Value:
    """Return where x is at least a number."""
    return s.g(GreaterOrEqual(), x, s.filled(bound, x))


@on(*both("maximum", "minimum"), pointwise=True)
def extreme(s: Site) -> Made:
    """Complex numbers are compared by their real parts first."""
    x, y = s.pair()
    larger = s.plain == "maximum"
    if x.type.dtype == "bool":
        return s.g(BitOr() if larger else BitAnd(), x, y)
    if x.type.dtype in COMPLEX:
        return s.g(Where(), lexical(s, "GT" if larger else "LT", x, y), x, y)
    return s.g(Maximum() if larger else Minimum(), x, y)


@on("stablehlo.clamp", pointwise=True)
def clamp(s: Site) -> Made:
    """Bounds may be scalars."""
    s.count(3)
    x = s.wide(1)
    low, high = s.broadcast(s.wide(0), x)[0], s.broadcast(s.wide(2), x)[0]
    if x.type.dtype == "bool":
        return s.g(BitAnd(), s.g(BitOr(), x, low), high)
    if x.type.dtype in COMPLEX:
        above = s.g(Where(), lexical(s, "GT", low, x), low, x)
        return s.g(Where(), lexical(s, "LT", high, above), high, above)
    return s.g(Minimum(), s.g(Maximum(), x, low), high)


@on(*both("atan2"), pointwise=True)
def atan2(s: Site) -> Made:
    y, x = s.pair()
    if x.type.dtype in COMPLEX:
        raise s.refuse("operands are complex")
    return s.g(Atan2(), y, x)


@on("stablehlo.rsqrt", pointwise=True)
def rsqrt(s: Site) -> Made:
    x = s.wide(0)
    if x.type.dtype not in COMPLEX:
        return s.g(Reciprocal(), s.g(Sqrt(), x))
    one = s.full(1, x.type.dtype, x.type.shape)
    return s.g(ComplexDiv(), one, by_parts(s, Sqrt, x))


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
    s.count(3)
    chosen, x, y = s.broadcast(*s.required())
    return s.g(Where(), chosen, x, y)
