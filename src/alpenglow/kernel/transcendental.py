"""Transcendental functions by arithmetic alone, without branches, so that vectors have them too.

No library is asked, so machines agree with each other bit by bit wherever they round alike, and
bundles have these functions, too.  Each reduces its argument to a small interval and evaluates a
polynomial there.  Steps whose rounding matters are `fma`, `plus` and `times`: a renderer leaves
those as they are.  Zeros keep their sign; infinities, NaN and subnormal numbers are treated as
IEEE 754 wants it.

Here stand the formulas of f32 and f64 alike; a `Precision` says what they differ in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Expr

Function = Callable[[Arithmetic, Expr], Expr]
Coefficients = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Precision:
    """What the formulas of f32 and those of f64 differ in."""

    bits: str
    """Integers of the same length."""
    half_pi: tuple[float, float]
    """pi / 2 and what that lacks."""

    asin: Coefficients
    atan: Coefficients
    tanh: Coefficients
    sinh: Coefficients

    erf: Function
    log: Function
    exp: Callable[[Arithmetic, Expr, bool], Expr]
    """e^x, or half of it, which overflows later."""
    exp_below: Function
    """e^x of x <= 0, to which subnormal numbers may be 0."""
    power: Callable[[Arithmetic, Expr, Expr], Expr]
    """x^y of x >= 0."""

    turn: Callable[[Arithmetic, Expr], tuple[Expr, ...]]
    """r, perhaps what it lacks, and q modulo 4, so that |x| = r + q pi / 2, |r| <= pi / 4."""
    sine: Callable[..., Expr]
    cosine: Callable[..., Expr]
    """Of r, and what it lacks."""
    series: Callable[[Arithmetic, Expr, Expr, Coefficients], Expr]
    """x + x z P(z) of a polynomial P."""
    half_rest: Function
    """(1 - x) / 2, for x > 1 / 2."""


def log_edges(m: Arithmetic, x: Expr, value: Expr) -> Expr:
    """Return `value`, or what the logarithm of 0, of less, and of infinity is."""
    positive = m.where(m.eq(x, math.inf), x, value)
    return m.where(m.eq(x, 0.0), -math.inf, m.where(m.gt(x, 0.0), positive, math.nan))


def pow(m: Arithmetic, p: Precision, x: Expr, y: Expr) -> Expr:
    """|x|^y with the sign and the edges as in IEEE 754."""
    size = m.abs(x)
    value = p.power(m, size, y)
    whole = m.eq(m.floor(y), y)
    half = m.mul(y, 0.5)
    odd = m.bit_and(whole, m.ne(m.floor(half), half))
    value = m.where(odd, m.copysign(value, x), value)
    # A negative number has roots only if it is infinite.
    rootless = m.bit_and(m.bit_and(m.lt(x, 0.0), m.bit_not(whole)), m.lt(size, math.inf))
    value = m.where(rootless, math.nan, value)
    return m.where(m.bit_or(m.eq(y, 0.0), m.eq(x, 1.0)), 1.0, value)


# ── circular functions ──


def sin(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    *r, q = p.turn(m, x)
    value = _quarter(m, p, r, q)
    return m.where(_negative(m, p, x), m.neg(value), value)


def cos(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    *r, q = p.turn(m, x)
    return _quarter(m, p, r, m.add(q, 1))


def _quarter(m: Arithmetic, p: Precision, r: list[Expr], q: Expr) -> Expr:
    """sin(r + q pi / 2)"""
    odd = m.ne(m.bit_and(q, 1), 0)
    value = m.where(odd, p.cosine(m, *r), p.sine(m, *r))
    return m.where(m.ne(m.bit_and(q, 2), 0), m.neg(value), value)


def tan(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    *r, q = p.turn(m, x)
    s, c = p.sine(m, *r), p.cosine(m, *r)
    odd = m.ne(m.bit_and(q, 1), 0)
    value = m.div(m.where(odd, m.neg(c), s), m.where(odd, s, c))
    return m.where(_negative(m, p, x), m.neg(value), value)


def _negative(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    """Whether the sign of x is set, that of -0 too."""
    return m.lt(m.bits(x, p.bits), 0)


def asin(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    """x + x^3 P(x^2); beyond a half, pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    far, value = _asin(m, p, m.abs(x))
    high, low = p.half_pi
    rest = m.plus(m.plus(low, m.mul(value, -2.0)), high)
    return m.copysign(m.where(far, rest, value), x)


def acos(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    far, value = _asin(m, p, m.abs(x))
    high, low = p.half_pi
    twice, minus = m.add(value, value), m.neg(m.copysign(value, x))
    near = m.plus(m.plus(low, minus), high)
    left = m.plus(m.plus(2 * low, m.neg(twice)), 2 * high)
    return m.where(far, m.where(m.lt(x, 0.0), left, twice), near)


def _asin(m: Arithmetic, p: Precision, x: Expr) -> tuple[Expr, Expr]:
    """Return if x >= 0 is more than a half, and asin of x or then of sqrt((1 - x) / 2)."""
    far = m.gt(x, 0.5)
    z = m.where(far, p.half_rest(m, x), m.mul(x, x))
    s = m.where(far, m.sqrt(z), x)
    return far, p.series(m, s, z, p.asin)


def atan(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    """x + x^3 P(x^2); beyond 1, pi/2 - atan(1 / x)."""
    size = m.abs(x)
    far = m.gt(size, 1.0)
    s = m.where(far, m.div(1.0, size), size)
    value = p.series(m, s, m.mul(s, s), p.atan)
    high, low = p.half_pi
    rest = m.plus(m.plus(low, m.neg(value)), high)
    return m.copysign(m.where(far, rest, value), x)


# ── hyperbolic functions ──


def tanh(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    """x + x^3 P(x^2); from 0.55 on, with e = e^-2x, 1 - 2 e / (1 + e)."""
    size = m.abs(x)
    near = p.series(m, x, m.mul(x, x), p.tanh)
    power = p.exp_below(m, m.mul(size, -2.0))
    far = m.sub(1.0, m.div(m.mul(power, 2.0), m.add(power, 1.0)))
    return m.copysign(m.where(m.lt(size, 0.55), near, far), x)


def sinh(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    size = m.abs(x)
    near = p.series(m, x, m.mul(x, x), p.sinh)
    half = p.exp(m, size, True)
    far = m.sub(half, m.div(0.25, half))
    return m.where(m.lt(size, 1.0), near, m.copysign(far, x))


def cosh(m: Arithmetic, p: Precision, x: Expr) -> Expr:
    half = p.exp(m, m.abs(x), True)
    return m.add(half, m.div(0.25, half))


def asinh(m: Arithmetic, x: Expr, ln: Function) -> Expr:
    """log(x + sqrt(x^2 + 1)) of an f64, by the logarithm `ln`."""
    size = m.abs(x)
    z = m.mul(size, size)
    near = _log1p(m, m.add(size, m.div(z, m.add(m.sqrt(m.add(z, 1.0)), 1.0))), ln)
    far = m.add(ln(m, size), math.log(2))
    return m.copysign(m.where(m.gt(size, 2.0**28), far, near), x)


def acosh(m: Arithmetic, x: Expr, ln: Function) -> Expr:
    """log(x + sqrt(x^2 - 1)) of an f64."""
    t = m.plus(x, -1.0)
    near = _log1p(m, m.add(t, m.sqrt(m.mul(t, m.add(t, 2.0)))), ln)
    value = m.where(m.gt(x, 2.0**28), m.add(ln(m, x), math.log(2)), near)
    return m.where(m.lt(x, 1.0), math.nan, value)


def atanh(m: Arithmetic, x: Expr, ln: Function) -> Expr:
    """log((1 + x) / (1 - x)) / 2 of an f64."""
    size = m.abs(x)
    ratio = m.div(m.add(size, size), m.sub(1.0, size))
    return m.copysign(m.mul(_log1p(m, ratio, ln), 0.5), x)


def _log1p(m: Arithmetic, x: Expr, ln: Function) -> Expr:
    """log(1 + x): what rounding 1 + x lost is made good in proportion."""
    w = m.plus(x, 1.0)
    kept = m.plus(w, -1.0)
    value = m.mul(ln(m, w), m.div(x, kept))
    return m.where(m.bit_or(m.eq(kept, 0.0), m.eq(x, math.inf)), x, value)
