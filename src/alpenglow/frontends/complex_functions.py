"""Functions of complex numbers by their parts, for which there is no operator of ours.

Inverses are those of W. Kahan, Branch cuts for complex elementary functions, 1987: roots of 1 + z
and 1 - z keep the digits that a formula by squares and logarithms loses.  Where squares overflow
they are what they come near to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise import (
    activation,
    comparison,
    floating,
    logarithm,
    select,
    transcendental,
)
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Div, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.complex import RealQuotient, exponential
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

Pair = tuple[Value, Value]
"""The real parts and the imaginary ones."""


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
    """Return where a part is so large that its square may overflow."""
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

    The logarithm is that of |a|, with the sign of a: where a is near -1 it would lose all digits.
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


def to_base(base: float) -> Callable[[Graph, Pair], Pair]:
    """Return the logarithm to a base."""

    def function(g: Graph, z: Pair) -> Pair:
        real, imaginary = logarithm_of(g, z)
        return times(g, real, 1 / math.log(base)), times(g, imaginary, 1 / math.log(base))

    return function


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


FUNCTIONS: Mapping[type[Op], Callable[[Graph, Pair], Pair]] = {
    transcendental.Sin: sine,
    transcendental.Cos: cosine,
    transcendental.Tan: tangent,
    transcendental.Sinh: hyperbolic_sine,
    transcendental.Cosh: hyperbolic_cosine,
    activation.Tanh: hyperbolic_tangent,
    transcendental.Sqrt: root,
    transcendental.Asin: arc_sine,
    transcendental.Acos: arc_cosine,
    transcendental.Atan: arc_tangent,
    transcendental.Asinh: inverse_hyperbolic_sine,
    transcendental.Acosh: inverse_hyperbolic_cosine,
    transcendental.Atanh: inverse_hyperbolic_tangent,
    logarithm.Log2: to_base(2),
    logarithm.Log10: to_base(10),
    logarithm.Log1p: logarithm_beside_one,
    logarithm.Exp2: power_of_two,
    logarithm.Expm1: exponential_less_one,
    activation.Sigmoid: sigmoid,
}
"""Operators on reals, and the functions of the same name of complex numbers."""
