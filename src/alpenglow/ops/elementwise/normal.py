"""The complement and inverse of `Erf`, and quantiles of the normal distribution.

Complements are by W. J. Cody, Rational Chebyshev approximations for the error function, 1969;
quantiles are by M. J. Wichura, Algorithm AS 241, 1988.  Both keep all digits of an f64.
"""

from __future__ import annotations

import math
from typing import Any

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Div, Mul, Neg
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.series import rational
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats

MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)  # fmt: skip
FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)  # fmt: skip
TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
     4.63033784615654529590, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
     2.05319162663775882187, 1.0),
)  # fmt: skip
END = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
     5.46378491116411436990, 6.65790464350110377720),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


class Erfc(Elementwise):
    """1 - erf(x), with all digits where x is large."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        far = m.mul(_bell(m, x), _scaled(m, m.abs(x)))
        beyond = m.where(m.lt(x, 0.0), m.sub(2.0, far), far)
        return m.where(m.gt(m.abs(x), 0.46875), beyond, m.sub(1.0, m.erf(x)))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Multiply by -2 / sqrt(pi) exp(-x²): the formula divides by an infinite x."""
        wide = in_floats(b, x)
        bell = b(Exp(), b(Neg(), b(Mul(), wide, wide)))
        slope = b(Mul(), bell, filled(b, -2 / math.sqrt(math.pi), wide))
        return as_type(b, b(Mul(), in_floats(b, dy), slope), x.type.dtype)


class Erfcx(Elementwise):
    """exp(x²) erfc(x), which does not underflow where x is large."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        bell = _bell(m, x)
        far = _scaled(m, m.abs(x))
        beyond = m.where(m.lt(x, 0.0), m.sub(m.div(2.0, bell), far), far)
        near = m.div(m.sub(1.0, m.erf(x)), bell)
        return m.where(m.gt(m.abs(x), 0.46875), beyond, near)


class LogNdtr(Elementwise):
    """The logarithm of the share of a normal distribution that is below x, however far out."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        t = m.mul(x, math.sqrt(0.5))
        below = m.sub(m.log(m.mul(Erfcx().scalar(m, m.neg(t)), 0.5)), m.mul(t, t))
        above = Log1p().scalar(m, m.mul(Erfc().scalar(m, t), -0.5))
        return m.where(m.lt(x, 1.0), below, above)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """The density over the share, which the formula would divide 0 by 0 for."""
        wide = in_floats(b, x)
        scaled = b(Erfcx(), b(Mul(), wide, filled(b, -math.sqrt(0.5), wide)))
        slope = b(Div(), filled(b, math.sqrt(2 / math.pi), wide), scaled)
        return as_type(b, b(Mul(), in_floats(b, dy), slope), x.type.dtype)


class Erfinv(Elementwise):
    """The number whose error function is x: ±inf of ±1, NaN beyond."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        rest = m.mul(m.sub(1.0, m.abs(x)), 0.5)
        return m.mul(_quantile(m, m.mul(x, 0.5), rest), math.sqrt(0.5))


class Ndtri(Elementwise):
    """The number that a share x of a normal distribution is below; NaN outside of [0, 1]."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return _quantile(m, m.sub(x, 0.5), m.minimum(x, m.sub(1.0, x)))


def _bell(m: Any, x: Any) -> Any:
    """Return exp(-x²): x is split at a sixteenth, whose square is exact, so that digits stay."""
    size = m.minimum(m.abs(x), 40.0)
    high = m.mul(m.floor(m.mul(size, 16.0)), 1 / 16)
    low = m.mul(m.sub(size, high), m.add(size, high))
    return m.mul(m.exp(m.neg(m.mul(high, high))), m.exp(m.neg(low)))


def _scaled(m: Any, x: Any) -> Any:
    """Return exp(x²) erfc(x) of x from 0.46875 on."""
    near = rational(m, m.where(m.gt(x, 4.0), 4.0, x), *MIDDLE)
    square = m.div(1.0, m.mul(x, x))
    small = m.mul(square, rational(m, square, *FAR))
    far = m.div(m.sub(1 / math.sqrt(math.pi), small), x)
    return m.where(m.gt(x, 4.0), far, near)


def _quantile(m: Any, middle: Any, rest: Any) -> Any:
    """Return the quantile of 0.5 + middle, from which the nearer end, 0 or 1, is `rest` away."""
    square = m.sub(0.180625, m.mul(middle, middle))
    near = m.mul(middle, rational(m, square, *CENTRE))
    r = m.sqrt(m.neg(m.log(rest)))
    tail = m.where(
        m.gt(r, 5.0),
        rational(m, m.sub(m.minimum(r, 40.0), 5.0), *END),
        rational(m, m.sub(r, 1.6), *TAIL),
    )
    tail = m.where(m.eq(rest, 0.0), math.inf, tail)
    return m.where(m.le(m.abs(middle), 0.425), near, m.where(m.lt(middle, 0.0), m.neg(tail), tail))
