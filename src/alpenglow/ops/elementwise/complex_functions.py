"""Functions of complex numbers, each with its derivative: roots, exponentials and their inverses.

The functions are formulas on parts.  Where a formula passes from one branch to the next, as on both
axes, differentiating it gives another slope or NaN, so each operator states its derivative.  The
gradient of the operand is dy times the conjugate of the derivative, as in PyTorch.

Inverses follow W. Kahan, Branch cuts for complex elementary functions, 1987: roots of 1 + z and
1 - z keep the digits that a formula by squares and logarithms loses.  Where squares overflow, an
inverse is replaced by its limit.  Derivatives divide by one factor after the other, so that no
product of factors overflows, and lie on the same side of a cut as the function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise import comparison, floating, logarithm, select
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Div, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.complex import (
    ComplexAbs,
    ComplexDiv,
    ComplexExp,
    ComplexMul,
    ComplexNeg,
    ComplexSub,
    ComplexUnary,
    Conjugate,
    Pair,
    RealQuotient,
    exponential,
    joined,
    of_some_shapes,
    parts,
)
from alpenglow.ops.elementwise.complex import logarithm as logarithm_of
from alpenglow.ops.elementwise.transcendental import (
    Asinh,
    Atan2,
    Cos,
    Cosh,
    Exp,
    Hypot,
    LogHypot,
    Sin,
    Sinh,
    Sqrt,
)
from alpenglow.ops.reduction.reduction import filled


class ComplexFunction(ComplexUnary, ABC, kind=True):
    """A function by its formula on parts, `of_parts`, and its derivative on values, `slope`."""

    @abstractmethod
    def of_parts(self, b: Graph, z: Pair) -> Pair:
        """Return the parts of the function of a number whose parts are `z`."""

    @abstractmethod
    def slope(self, b: Graph, x: Value) -> Value:
        """Return the derivative at x."""

    def lower(self, b: Graph, x: Value) -> Value:
        return joined(b, *self.of_parts(b, parts(b, x)))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(ComplexMul(), dy, b(Conjugate(), self.slope(b, x)))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_some_shapes(cls())


class ComplexSqrt(ComplexFunction):
    """The root of complex x whose real part is not negative, cut along the negative reals."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return root(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexDiv(), filled(b, 0.5, x), b(ComplexSqrt(), x))


class ComplexSin(ComplexFunction):
    """The sine of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return sine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexCos(), x)


class ComplexCos(ComplexFunction):
    """The cosine of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return cosine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexNeg(), b(ComplexSin(), x))


class ComplexTan(ComplexFunction):
    """The tangent of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return tangent(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return squared_secant(b, x)


class ComplexSinh(ComplexFunction):
    """The hyperbolic sine of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return hyperbolic_sine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexCosh(), x)


class ComplexCosh(ComplexFunction):
    """The hyperbolic cosine of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return hyperbolic_cosine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexSinh(), x)


class ComplexTanh(ComplexFunction):
    """The hyperbolic tangent of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return hyperbolic_tangent(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return squared_secant(b, times_i(b, x))


class ComplexAsin(ComplexFunction):
    """The inverse of the sine, cut along the reals beyond -1 and 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return arc_sine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return one_over_one_less_square(b, ComplexSqrt(), x)


class ComplexAcos(ComplexFunction):
    """The inverse of the cosine, cut along the reals beyond -1 and 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return arc_cosine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexNeg(), ComplexAsin().slope(b, x))


class ComplexAtan(ComplexFunction):
    """The inverse of the tangent, cut along i times the reals beyond -1 and 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return arc_tangent(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return one_over_one_less_square(b, None, times_i(b, x))


class ComplexAsinh(ComplexFunction):
    """The inverse of the hyperbolic sine, cut along i times the reals beyond -1 and 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return inverse_hyperbolic_sine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return one_over_one_less_square(b, ComplexSqrt(), times_i(b, x))


class ComplexAcosh(ComplexFunction):
    """The inverse of the hyperbolic cosine, cut along the reals below 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return inverse_hyperbolic_cosine(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        less = b(ComplexSub(), x, filled(b, 1, x))
        return one_over(b, b(ComplexSqrt(), less), b(ComplexSqrt(), more_than_one(b, x)))


class ComplexAtanh(ComplexFunction):
    """The inverse of the hyperbolic tangent, cut along the reals beyond -1 and 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return inverse_hyperbolic_tangent(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return one_over_one_less_square(b, None, x)


class ComplexLog2(ComplexFunction):
    """The logarithm of complex x to base 2, cut along the negative reals."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return logarithm_to(2, b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexDiv(), filled(b, 1 / math.log(2), x), x)


class ComplexLog10(ComplexFunction):
    """The logarithm of complex x to base 10, cut along the negative reals."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return logarithm_to(10, b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexDiv(), filled(b, 1 / math.log(10), x), x)


class ComplexLog1p(ComplexFunction):
    """log(1 + x) of complex x, also of x too small to add to 1."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return logarithm_beside_one(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexDiv(), filled(b, 1, x), more_than_one(b, x))


class ComplexExp2(ComplexFunction):
    """2 raised to complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return power_of_two(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexMul(), b(ComplexExp2(), x), filled(b, math.log(2), x))


class ComplexExpm1(ComplexFunction):
    """e raised to complex x, less 1, also of x too small to differ from that."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return exponential_less_one(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        return b(ComplexExp(), x)


class ComplexSigmoid(ComplexFunction):
    """1 / (1 + e raised to -x) of complex x."""

    def of_parts(self, b: Graph, z: Pair) -> Pair:
        return sigmoid(b, z)

    def slope(self, b: Graph, x: Value) -> Value:
        quarter = filled(b, 0.25, x)
        half = b(ComplexMul(), x, filled(b, 0.5, x))
        return b(ComplexMul(), squared_secant(b, times_i(b, half)), quarter)


# ── formulas on parts ──


def times(g: Graph, x: Value, number: float) -> Value:
    return g(Mul(), x, filled(g, number, x))


def plus(g: Graph, x: Value, number: float) -> Value:
    return g(Add(), x, filled(g, number, x))


def turned(z: Pair, g: Graph) -> Pair:
    """Return i z."""
    return g(Neg(), z[1]), z[0]


def turned_back(z: Pair, g: Graph) -> Pair:
    """Return -i z."""
    return z[1], g(Neg(), z[0])


def sine(g: Graph, z: Pair) -> Pair:
    a, b = z
    return (g(Mul(), g(Sin(), a), g(Cosh(), b)), g(Mul(), g(Cos(), a), g(Sinh(), b)))


def cosine(g: Graph, z: Pair) -> Pair:
    a, b = z
    return (g(Mul(), g(Cos(), a), g(Cosh(), b)),
            g(Neg(), g(Mul(), g(Sin(), a), g(Sinh(), b))))  # fmt: skip


def hyperbolic_sine(g: Graph, z: Pair) -> Pair:
    return turned_back(sine(g, turned(z, g)), g)


def hyperbolic_cosine(g: Graph, z: Pair) -> Pair:
    return cosine(g, turned(z, g))


def tangent(g: Graph, z: Pair) -> Pair:
    """(sin a cos a + i sinh b cosh b) / (cos² a + sinh² b); beyond 40 nothing changes with b."""
    a, b = z[0], g(Clip(-40.0, 40.0), z[1])
    sin, cos, sinh, cosh = g(Sin(), a), g(Cos(), a), g(Sinh(), b), g(Cosh(), b)
    below = g(Add(), g(Mul(), cos, cos), g(Mul(), sinh, sinh))
    return (g(Div(), g(Mul(), sin, cos), below), g(Div(), g(Mul(), sinh, cosh), below))


def hyperbolic_tangent(g: Graph, z: Pair) -> Pair:
    return turned_back(tangent(g, turned(z, g)), g)


def far(g: Graph, z: Pair) -> Value:
    """Return a mask of the elements with a part so large that its square may overflow."""
    a, b = z
    limits = np.finfo(DTYPES[a.type.dtype])
    size = g(Maximum(), g(Abs(), a), g(Abs(), b))
    return g(comparison.Greater(), size, filled(g, float(np.sqrt(limits.max)) / 8, a))


def chosen(g: Graph, where: Value, x: Pair, y: Pair) -> Pair:
    """Return x where a condition holds, else y."""
    return g(select.Where(), where, x[0], y[0]), g(select.Where(), where, x[1], y[1])


def root(g: Graph, z: Pair) -> Pair:
    """Return the root whose real part is not negative; large numbers are made smaller before."""
    large = far(g, z)
    quarter = chosen(g, large, (times(g, z[0], 0.25), times(g, z[1], 0.25)), z)
    made = _root(g, quarter)
    return chosen(g, large, (times(g, made[0], 2.0), times(g, made[1], 2.0)), made)


def _root(g: Graph, z: Pair) -> Pair:
    """Return the root of what is not too large: its larger part first, then the other."""
    a, b = z
    size = times(g, g(Add(), g(Hypot(), a, b), g(Abs(), a)), 0.5)
    large = g(Sqrt(), size)
    nothing = g(comparison.Equal(), large, filled(g, 0, large))
    divisor = g(select.Where(), nothing, filled(g, 1, large), large)
    small = times(g, g(Div(), b, divisor), 0.5)
    left = g(comparison.Less(), a, filled(g, 0, a))
    below = g(floating.SignBit(), b)
    signed = g(select.Where(), below, g(Neg(), large), large)
    return (g(select.Where(), left, g(Abs(), small), large),
            g(select.Where(), left, signed, small))  # fmt: skip


def _roots(g: Graph, z: Pair) -> tuple[Pair, Pair]:
    """Return the roots of 1 - z and of 1 + z."""
    minus = plus(g, g(Neg(), z[0]), 1.0), g(Neg(), z[1])
    return root(g, minus), root(g, (plus(g, z[0], 1.0), z[1]))


def doubled_logarithm(g: Graph, z: Pair) -> Value:
    """Return the logarithm of |2z|, of large z."""
    return plus(g, g(LogHypot(), *z), math.log(2))


def signed_as(g: Graph, x: Value, sign: Value) -> Value:
    """Return x, which is not negative, with the sign of another."""
    return g(select.Where(), g(floating.SignBit(), sign), g(Neg(), x), x)


def arc_sine(g: Graph, z: Pair) -> Pair:
    """Far out the imaginary part is the logarithm of |2z|, and the real one an angle."""
    (p, q), (r, t) = _roots(g, z)
    real = g(Sub(), g(Mul(), p, r), g(Mul(), q, t))
    imaginary = g(Sub(), g(Mul(), p, t), g(Mul(), q, r))
    near = g(Atan2(), z[0], real), g(Asinh(), imaginary)
    away = g(Atan2(), z[0], g(Abs(), z[1])), signed_as(g, doubled_logarithm(g, z), z[1])
    return chosen(g, far(g, z), away, near)


def arc_cosine(g: Graph, z: Pair) -> Pair:
    (p, q), (r, t) = _roots(g, z)
    imaginary = g(Sub(), g(Mul(), r, q), g(Mul(), t, p))
    near = times(g, g(Atan2(), p, r), 2.0), g(Asinh(), imaginary)
    size = signed_as(g, doubled_logarithm(g, z), g(Neg(), z[1]))
    return chosen(g, far(g, z), (g(Atan2(), g(Abs(), z[1]), z[0]), size), near)


def inverse_hyperbolic_sine(g: Graph, z: Pair) -> Pair:
    return turned_back(arc_sine(g, turned(z, g)), g)


def inverse_hyperbolic_cosine(g: Graph, z: Pair) -> Pair:
    p, q = root(g, (plus(g, z[0], -1.0), z[1]))
    r, t = root(g, (plus(g, z[0], 1.0), z[1]))
    real = g(Asinh(), g(Add(), g(Mul(), p, r), g(Mul(), q, t)))
    near = real, times(g, g(Atan2(), q, r), 2.0)
    return chosen(g, far(g, z), (doubled_logarithm(g, z), g(Atan2(), z[1], z[0])), near)


def inverse_hyperbolic_tangent(g: Graph, z: Pair) -> Pair:
    """log(1 + 4a / ((1 - a)² + b²)) / 4, and half the angle of (1 - a) (1 + a) - b² + 2bi.

    The logarithm is computed from |a| and gets the sign of a: near a = -1 it would lose all digits.
    """
    a, b = z
    size = g(Abs(), a)
    away = plus(g, g(Neg(), size), 1.0)
    square = g(Mul(), b, b)
    ratio = g(Div(), times(g, size, 4.0), g(Add(), g(Mul(), away, away), square))
    real = times(g, g(logarithm.Log1p(), ratio), 0.25)
    real = g(select.Where(), g(floating.SignBit(), a), g(Neg(), real), real)
    along = g(Sub(), g(Mul(), away, plus(g, size, 1.0)), square)
    near = real, times(g, g(Atan2(), times(g, b, 2.0), along), 0.5)
    quarter = signed_as(g, filled(g, math.pi / 2, b), b)
    return chosen(g, far(g, z), (g(RealQuotient(), *_one(g, z), a, b), quarter), near)


def _one(g: Graph, z: Pair) -> Pair:
    return filled(g, 1, z[0]), filled(g, 0, z[0])


def arc_tangent(g: Graph, z: Pair) -> Pair:
    return turned_back(inverse_hyperbolic_tangent(g, turned(z, g)), g)


def logarithm_to(base: float, g: Graph, z: Pair) -> Pair:
    real, imaginary = logarithm_of(g, z)
    return times(g, real, 1 / math.log(base)), times(g, imaginary, 1 / math.log(base))


def logarithm_beside_one(g: Graph, z: Pair) -> Pair:
    """Return log(1 + z): where z is small, log(1 + a (2 + a) + b²) / 2."""
    a, b = z
    square = g(Add(), g(Mul(), a, plus(g, a, 2.0)), g(Mul(), b, b))
    near = times(g, g(logarithm.Log1p(), square), 0.5)
    far, angle = logarithm_of(g, (plus(g, a, 1.0), b))
    small = g(comparison.Less(), g(Hypot(), a, b), filled(g, 0.5, a))
    return g(select.Where(), small, near, far), angle


def power_of_two(g: Graph, z: Pair) -> Pair:
    return exponential(g, (times(g, z[0], math.log(2)), times(g, z[1], math.log(2))))


def exponential_less_one(g: Graph, z: Pair) -> Pair:
    """(exp(a) - 1) cos b - 2 sin² (b / 2), and exp(a) sin b."""
    a, b = z
    half = g(Sin(), times(g, b, 0.5))
    less = times(g, g(Mul(), half, half), 2.0)
    real = g(Sub(), g(Mul(), g(logarithm.Expm1(), a), g(Cos(), b)), less)
    return real, g(Mul(), g(Exp(), a), g(Sin(), b))


def sigmoid(g: Graph, z: Pair) -> Pair:
    """(1 + tanh(z / 2)) / 2"""
    real, imaginary = hyperbolic_tangent(g, (times(g, z[0], 0.5), times(g, z[1], 0.5)))
    return plus(g, times(g, real, 0.5), 0.5), times(g, imaginary, 0.5)


# ── derivatives, on values ──


def times_i(b: Graph, x: Value) -> Value:
    return joined(b, *turned(parts(b, x), b))


def more_than_one(b: Graph, x: Value) -> Value:
    """Return 1 + x; the imaginary part keeps its sign, even if it is 0."""
    real, imaginary = parts(b, x)
    return joined(b, plus(b, real, 1.0), imaginary)


def less_from_one(b: Graph, x: Value) -> Value:
    """Return 1 - x; the imaginary part changes its sign, even if it is 0."""
    return more_than_one(b, b(ComplexNeg(), x))


def one_over(b: Graph, x: Value, y: Value) -> Value:
    """Return 1 / (x y)."""
    return b(ComplexDiv(), b(ComplexDiv(), filled(b, 1, x), x), y)


def one_over_one_less_square(b: Graph, function: ComplexUnary | None, x: Value) -> Value:
    """Return 1 / f(1 - x²), where f(x y) = f(x) f(y), or 1 / (1 - x²) without a function f.

    Small x are squared, else the derivative of this loses x next to 1.  Large x would overflow, and
    near 1 the difference would lose digits: the factors are 1 - x and 1 + x.
    """

    def of(v: Value) -> Value:
        return v if function is None else b(function, v)

    one, zero = filled(b, 1, x), filled(b, 0, x)
    size = b(ComplexAbs(), x)
    small = b(comparison.Less(), size, filled(b, 0.5, size))
    near = b(select.Where(), small, x, zero)
    square = b(ComplexMul(), near, near)
    by_square = b(ComplexDiv(), one, of(b(ComplexSub(), one, square)))
    far = b(select.Where(), small, zero, x)
    by_factors = one_over(b, of(less_from_one(b, far)), of(more_than_one(b, far)))
    return b(select.Where(), small, by_square, by_factors)


def squared_secant(b: Graph, x: Value) -> Value:
    """Return 1 / cos² x, and 0 where |Im x| > 40, for cos² may overflow there."""
    real, imaginary = parts(b, x)
    most = filled(b, 40.0, imaginary)
    away = b(comparison.Greater(), b(Abs(), imaginary), most)
    nothing = filled(b, 0, real)
    near = joined(b, real, b(select.Where(), away, nothing, imaginary))
    cos = b(ComplexCos(), near)
    return joined(b, *chosen(b, away, (nothing, nothing), parts(b, one_over(b, cos, cos))))
