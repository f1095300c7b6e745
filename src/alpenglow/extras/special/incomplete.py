"""Sums without end that are taken until they converge: the incomplete gamma function, zeta."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.extras.special.gamma import BERNOULLI, STIRLING, Lgamma
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise, Examples, Op, check_dtype
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.elementwise.iterated import Iterated, State, narrowed
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.normal import Erfc
from alpenglow.ops.elementwise.series import dtype_of, polynomial
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats

TURNS = 100_000.0
"""After so many turns a sum that has not converged is given up: the result is NaN."""

DONE = 2 * TURNS
"""The counter of iterations is set to this when a sum has converged."""

PRECISION = 2.0**-53
BIG = 2.0**52
HUGE = 1e8
"""From this a on the incomplete gamma function is the first terms of an expansion."""

NINE = 9.0
"""From where on the formula of Euler and Maclaurin has the rest of zeta."""


class IncompleteGamma(Iterated):
    """The share of the gamma function of a that is below x or, with `upper`, above it.

    Up to x = a + 1 it is a sum of x^k / (a (a + 1) … (a + k)), beyond it a continued fraction, each
    times x^a exp(-x) / gamma(a).  It is NaN where a or x is negative, or both are 0 or infinite.
    """

    upper: bool = False

    def infer(self, a: TensorType, x: TensorType) -> TensorType:
        return alike(self, a, x)

    def first(self, m: Any, *xs: Any) -> State:
        a, x = (m.cast(v, "f64") for v in xs)
        factor = _peak(m, a, x)
        edge = m.bit_or(m.bit_not(m.gt(x, 0.0)), m.bit_not(m.gt(a, 0.0)))
        edge = m.bit_or(edge, m.bit_or(m.ge(a, HUGE), m.isinf(x)))
        turns = m.where(edge, DONE, m.mul(m.add(a, x), 0.0))
        p, q = m.add(x, 1.0), m.mul(m.add(m.sub(x, a), 2.0), x)
        share = m.div(1.0, a)
        return a, x, factor, turns, share, share, 1.0, x, p, q, m.div(p, q)

    def goes_on(self, m: Any, state: State) -> Any:
        return m.lt(state[3], TURNS)

    def turn(self, m: Any, state: State) -> State:
        a, x, factor, turns, term, total, p2, q2, p1, q1, fraction = state
        k = m.add(turns, 1.0)
        term = m.mul(term, m.div(x, m.add(a, k)))
        total = m.add(total, term)
        z = m.add(m.add(m.sub(x, a), 2.0), m.add(k, k))
        yc = m.mul(m.sub(m.add(k, 1.0), a), k)
        p = m.sub(m.mul(p1, z), m.mul(p2, yc))
        q = m.sub(m.mul(q1, z), m.mul(q2, yc))
        value = m.div(p, q)
        near = self._near(m, a, x)
        left = m.where(near, term, m.abs(m.sub(fraction, value)))
        whole = m.where(near, total, m.abs(value))
        turns = m.where(m.le(left, m.mul(whole, PRECISION)), DONE, k)
        big = m.gt(m.abs(p), BIG)
        p1, q1, p, q = (m.where(big, m.mul(v, 1 / BIG), v) for v in (p1, q1, p, q))
        return a, x, factor, turns, term, total, p1, q1, p, q, value

    def last(self, m: Any, state: State) -> Any:
        a, x, factor, turns, _, total, *_, fraction = state
        near = self._near(m, a, x)
        value = m.mul(factor, m.where(near, total, fraction))
        value = m.where(near if self.upper else m.bit_not(near), m.sub(1.0, value), value)
        value = m.where(m.lt(turns, DONE), math.nan, value)
        value = m.where(m.ge(a, HUGE), self._of_huge(m, a, x), value)
        none, every = (1.0, 0.0) if self.upper else (0.0, 1.0)
        value = m.where(m.bit_or(m.eq(a, 0.0), m.isinf(x)), every, value)
        value = m.where(m.bit_or(m.eq(x, 0.0), m.isinf(a)), none, value)
        negative = m.bit_or(m.lt(a, 0.0), m.lt(x, 0.0))
        ends = m.bit_and(m.isinf(a), m.isinf(x))
        nothing = m.bit_and(m.eq(a, 0.0), m.bit_not(m.gt(x, 0.0)))
        return m.where(m.bit_or(negative, m.bit_or(ends, nothing)), math.nan, value)

    def _of_huge(self, m: Any, a: Any, x: Any) -> Any:
        """Return the share by the first terms of N. M. Temme's expansion, whose next are 1 / a."""
        step = m.div(m.sub(x, a), a)
        half = m.sub(step, Log1p().scalar(m, step))
        eta = m.sqrt(m.add(half, half))
        eta = m.where(m.lt(step, 0.0), m.neg(eta), eta)
        bell = m.div(m.exp(m.neg(m.mul(a, half))), m.sqrt(m.mul(a, 2 * math.pi)))
        slope = m.maximum(m.minimum(eta, 1.0), -1.0)  # beyond, nothing is left of the bell
        rest = m.mul(bell, m.sub(m.mul(slope, 1 / 12), 1 / 3))
        side = m.mul(eta, m.sqrt(m.mul(a, 0.5)))
        above = m.add(m.mul(Erfc().scalar(m, side), 0.5), rest)
        return above if self.upper else m.sub(1.0, above)

    def _near(self, m: Any, a: Any, x: Any) -> Any:
        return m.lt(x, m.add(a, 1.0))

    def gradient(self, b: Graph, dy: Value, a: Value, x: Value) -> tuple[UnsupportedError, Value]:
        density = b(Mul(), dy, b(GammaDensity(), a, x))
        error = UnsupportedError("gradient of incomplete_gamma: a is not supported; supported: x")
        return error, b(Neg(), density) if self.upper else density

    @classmethod
    def examples(cls) -> Examples:
        a = np.array([0.5, 1, 3, 30, 200, 0, 0, 2, 2, -1, np.inf, np.inf, 5], np.float32)
        x = np.array([0.1, 2.5, 2, 33, 150, 1, 0, 0, np.inf, 1, 1, np.inf, np.nan], np.float32)
        for upper in (False, True):
            yield cls(upper), a, x
            yield cls(upper), a[::-1].copy(), x
        yield from some(cls())


class GammaDensity(Elementwise):
    """x^(a - 1) exp(-x) / gamma(a): what the share of the gamma function below x grows by with x.

    It is NaN where a or x is negative.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, *operands: Any) -> Any:
        a, x = (m.cast(v, "f64") for v in operands)
        none = m.eq(x, 0.0)  # where the logarithm would make NaN of slopes
        power = m.mul(m.sub(a, 1.0), m.log(m.where(none, 1.0, x)))
        small = m.exp(m.sub(m.sub(power, x), Lgamma().scalar(m, a)))
        large = m.div(_large_peak(m, a, x), x)
        value = m.where(m.gt(a, 100.0), large, small)
        flat = m.where(
            m.gt(a, 1.0), 0.0, m.where(m.lt(a, 1.0), math.inf, m.where(m.eq(a, 1.0), 1.0, a))
        )
        value = m.where(none, flat, value)
        value = m.where(m.isinf(m.maximum(a, x)), 0.0, value)
        value = m.where(m.lt(m.minimum(a, x), 0.0), math.nan, value)
        return m.cast(value, narrowed(dtype_of(operands[0])))

    @classmethod
    def examples(cls) -> Examples:
        a = np.array([0.5, 1, 3, 30, 200, 0, 2, 200, 1, -1, np.inf, 5], np.float32)
        x = np.array([0.1, 2.5, 2, 33, 150, 1, 0, 0, 0, 1, 1, np.nan], np.float32)
        yield cls(), a, x
        yield from some(cls())


def _peak(m: Any, a: Any, x: Any) -> Any:
    """Return x^a exp(-x) / gamma(a)."""
    small = m.exp(m.sub(m.sub(m.mul(a, m.log(x)), x), Lgamma().scalar(m, a)))
    return m.where(m.gt(a, 100.0), _large_peak(m, a, x), small)


def _large_peak(m: Any, a: Any, x: Any) -> Any:
    """Return x^a exp(-x) / gamma(a) where a is large.

    The exponents are so large, too, that their difference has no digits; with x = a (1 + s) it
    follows from a (log(1 + s) - s) and the remainder of Stirling's formula.
    """
    step = m.div(m.sub(x, a), a)
    fall = m.mul(a, m.sub(Log1p().scalar(m, step), step))
    inverse = m.div(1.0, a)
    series = m.mul(polynomial(m, m.mul(inverse, inverse), STIRLING), inverse)
    return m.mul(m.sqrt(m.mul(a, 0.5 / math.pi)), m.exp(m.sub(fall, series)))


class Zeta(Iterated):
    """The sum of 1 / (q + k)^x over k from 0 on; infinite where x is 1 or q is 0, -1, -2 and so on.

    It is NaN where x is less than 1, and where q is negative and x has a fraction.  Terms are added
    up to where q + k is beyond 9, and the rest by the formula of Euler and Maclaurin.
    """

    def infer(self, x: TensorType, q: TensorType) -> TensorType:
        return alike(self, x, q)

    def first(self, m: Any, *xs: Any) -> State:
        x, q = (m.cast(v, "f64") for v in xs)
        term = m.pow(q, m.neg(x))
        return x, q, q, term, term, 0.0

    def goes_on(self, m: Any, state: State) -> Any:
        x, q, a, total, term, turns = state
        early = m.bit_or(m.lt(turns, NINE), m.le(a, NINE))
        more = m.bit_not(m.lt(m.abs(term), m.mul(m.abs(total), PRECISION)))
        return m.bit_and(m.bit_and(early, m.lt(turns, TURNS)), m.bit_and(more, _is_sum(m, x, q)))

    def turn(self, m: Any, state: State) -> State:
        x, q, a, total, _, turns = state
        a = m.add(a, 1.0)
        term = m.pow(a, m.neg(x))
        return x, q, a, m.add(total, term), term, m.add(turns, 1.0)

    def last(self, m: Any, state: State) -> Any:
        x, q, w, total, term, turns = state
        terms = total
        total = m.add(total, m.div(m.mul(term, w), m.sub(x, 1.0)))
        total = m.sub(total, m.mul(term, 0.5))
        part = m.div(m.mul(term, x), w)
        for k, c in enumerate(BERNOULLI):
            total = m.add(total, m.mul(part, c))
            rise = m.mul(m.add(x, 2.0 * k + 1), m.add(x, 2.0 * k + 2))
            part = m.div(m.div(m.mul(part, rise), w), w)
        total = m.where(m.isinf(terms), terms, m.where(m.lt(turns, TURNS), total, math.nan))
        pole = m.bit_and(m.le(q, 0.0), m.eq(q, m.floor(q)))
        total = m.where(m.bit_or(_is_sum(m, x, q), pole), total, math.nan)
        total = m.where(m.bit_or(pole, m.eq(x, 1.0)), math.inf, total)
        return m.where(m.bit_or(m.lt(x, 1.0), m.isnan(m.add(x, q))), math.nan, total)

    def gradient(self, b: Graph, dy: Value, x: Value, q: Value) -> tuple[UnsupportedError, Value]:
        """Each term 1 / (q + k)^x changes by -x / (q + k)^(x + 1) with q."""
        change, power, first = (in_floats(b, v) for v in (dy, x, q))
        higher = b(self, b(Add(), power, filled(b, 1, power)), first)
        slope = b(Neg(), b(Mul(), change, b(Mul(), power, higher)))
        error = UnsupportedError("gradient of zeta: exponent x is not supported; supported: q")
        return error, as_type(b, slope, q.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        x = np.array([2, 3, 2.5, 1, 0.5, 4, 4, 2.5, 30, 3, np.nan], np.float32)
        q = np.array([1, 0.25, 7, 2, 2, -3.5, -2, -0.5, 12, 1e6, 1], np.float32)
        yield cls(), x, q
        yield cls(), np.flip(x).copy(), q
        yield from some(cls())


def _is_sum(m: Any, x: Any, q: Any) -> Any:
    """True where the terms have a sum, and are real."""
    whole = m.bit_and(m.eq(x, m.floor(x)), m.ne(q, m.floor(q)))
    return m.bit_and(m.gt(x, 1.0), m.bit_or(m.gt(q, 0.0), whole))


def alike(op: Op, x: TensorType, y: TensorType) -> TensorType:
    """Return the type that two operands have; raise TypeRuleError unless it is one, of floats."""
    check_dtype(op, "operand", x, FLOATS)
    if x != y:
        raise TypeRuleError(f"{op.name}: operands are {x} and {y}, expected one type")
    return x


def some(op: Op) -> Examples:
    """Yield applications to few shapes: each element takes turns."""
    for dtype in sorted(FLOATS):
        yield op, f"{dtype}[2,3]", f"{dtype}[2,3]"
    yield op, "f32[]", "f32[]"
    yield op, "f32[0,3]", "f32[0,3]"
