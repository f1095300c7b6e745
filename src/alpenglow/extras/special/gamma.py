"""The logarithm of the gamma function, and its derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Elementwise, Examples, of_one_type
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.series import polynomial

STIRLING = (
    -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12
)  # fmt: skip
"""The difference of lgamma(x) and Stirling's formula, in powers of 1 / x² over x."""

NEAR = (
    6.379047507619774e-08, -1.3412819758517287e-07, 2.0304806751615227e-07,
    -4.303558760359961e-07, 9.578663334114758e-07, -2.0449201467015115e-06,
    4.374374916915131e-06, -9.438458716242811e-06, 2.050726741605779e-05,
    -4.4926351103833334e-05, 9.945750909889392e-05, -0.00022315475074520367,
    0.0005096695248853096, -0.0011927539120010226, 0.002890510330738737, -0.0073855510286681535,
    0.02058080842778457, -0.06735230105319814, 0.3224670334241132, 0.42278433509846713,
)  # fmt: skip
"""lgamma(2 + t) / t of t from -1/2 to 1/2 as a polynomial, fitted at Chebyshev nodes."""

PSI = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
"""log(x) - 1 / 2x less digamma(x), in powers of 1 / x² over x²."""

BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)  # fmt: skip
"""The coefficients of the Euler-Maclaurin formula: Bernoulli numbers over factorials."""

HIGHEST = 100
"""The order of a derivative: the factorial of a higher one is beyond many a float."""

EDGES = np.array(
    [0, -0.0, 1, 2, 3, 0.5, -0.5, -1.5, -3, 1e-3, 7.5, 8, 30, 1e6, np.inf, -np.inf, np.nan],
    np.float32,
)


class Lgamma(Elementwise):
    """The logarithm of |gamma(x)|: inf where x is 0 or a negative integer.

    From 8 on by Stirling's formula.  Below, factors of x bring it to 2 … 3.  A negative x is
    reflected: lgamma(x) = log(pi / |x sin(pi x)|) - lgamma(-x).
    """

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        size = m.abs(x)
        part = m.abs(m.sub(x, m.round(x)))
        sine = m.log(m.mul(m.sin(m.mul(part, math.pi)), m.mul(size, 1 / math.pi)))
        small = m.lt(size, 8.0)
        positive = m.where(small, _small(m, size), _stirling(m, m.where(small, 8.0, size)))
        value = m.where(m.lt(x, 0.0), m.neg(m.add(sine, positive)), positive)
        return m.where(m.isinf(x), math.inf, value)


def _small(m: Any, x: Any) -> Any:
    """Return lgamma(x) of x from 0 to 8: factors are taken off or added until it is 1.5 to 2.5."""
    one = m.add(m.mul(x, 0.0), 1.0)
    above, below, u = one, one, x
    for _ in range(6):
        far = m.ge(u, 2.5)
        u = m.where(far, m.sub(u, 1.0), u)
        above = m.where(far, m.mul(above, u), above)
    for _ in range(2):
        near = m.lt(u, 1.5)
        below = m.where(near, m.mul(below, u), below)
        u = m.where(near, m.add(u, 1.0), u)
    beside = m.sub(x, 1.0)  # from u it would have lost the digits that were rounded off
    rest = m.where(m.lt(m.abs(beside), 0.5), beside, m.sub(u, 2.0))
    between = m.mul(rest, polynomial(m, rest, NEAR))
    return m.add(m.sub(m.log(above), m.log(below)), between)


def _stirling(m: Any, x: Any) -> Any:
    """Return lgamma(x) of x from 8 on."""
    inverse = m.div(1.0, x)
    series = m.mul(polynomial(m, m.mul(inverse, inverse), STIRLING), inverse)
    ln = m.log(x)
    main = m.sub(m.mul(x, m.sub(ln, 1.0)), m.mul(ln, 0.5))
    return m.add(m.add(main, 0.5 * math.log(2 * math.pi)), series)


class Digamma(Elementwise):
    """The derivative of lgamma: -inf of 0, inf of -0, NaN where x is a negative integer.

    digamma(x) = digamma(x + 1) - 1 / x brings x to 10 and beyond, where a series has it, and
    digamma(1 - x) - pi / tan(pi x) a negative x to there.
    """

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        negative = m.lt(x, 0.0)
        u = m.where(negative, m.sub(1.0, x), x)
        total = m.mul(u, 0.0)
        for _ in range(10):
            near = m.lt(u, 10.0)
            total = m.where(near, m.sub(total, m.div(1.0, u)), total)
            u = m.where(near, m.add(u, 1.0), u)
        square = m.div(1.0, m.mul(u, u))
        series = m.mul(square, polynomial(m, square, PSI))
        value = m.sub(m.sub(m.log(u), m.div(0.5, u)), series)
        value = m.add(m.where(m.isinf(u), 0.0, total), value)
        part = m.sub(x, m.round(x))
        turned = m.sub(value, m.div(math.pi, m.tan(m.mul(part, math.pi))))
        whole = m.bit_and(negative, m.eq(part, 0.0))
        turned = m.where(whole, math.nan, turned)
        at_zero = m.neg(m.div(1.0, x))
        return m.where(m.eq(x, 0.0), at_zero, m.where(negative, turned, value))


class Polygamma(Elementwise):
    """The derivative of order n of digamma, n from 1 on; infinite where x is 0 or below and whole.

    It is n! times the sum of 1 / (x + k)^(n + 1) over k from 0 on, of alternate sign: nine terms,
    and the rest by the formula of Euler and Maclaurin.  A negative x is reflected, by derivatives
    of pi cot(pi x), which are polynomials of the cotangent; where n is 1 the angle is pi x rounded,
    as PyTorch has it, else that of the fraction of x.
    """

    n: int = 1
    dtypes = FLOATS

    def infer(self, *xs: TensorType) -> TensorType:
        if not 1 <= self.n <= HIGHEST:
            raise TypeRuleError(f"polygamma: n is {self.n}, expected 1 to {HIGHEST}")
        return super().infer(*xs)

    def scalar(self, m: Any, x: Any) -> Any:
        negative = m.lt(x, 0.0)
        positive = self._positive(m, m.where(negative, m.sub(1.0, x), x))
        part = m.sub(x, m.round(x))
        whole = m.eq(part, 0.0)
        cotangent = self._cotangent(m, x, m.where(whole, 0.5, part))
        slope = polynomial(m, cotangent, cotangent_slope(self.n))
        mirrored = positive if self.n % 2 == 0 else m.neg(positive)
        value = m.where(negative, m.sub(mirrored, slope), positive)
        pole = math.inf if self.n % 2 else -math.inf
        return m.where(m.bit_and(m.le(x, 0.0), whole), pole, value)

    def _cotangent(self, m: Any, x: Any, part: Any) -> Any:
        """Return cot(pi x), by the part of x beyond a whole number; of 1/2 it is 0 itself."""
        if self.n == 1:
            angle = m.mul(x, math.pi)
            return m.div(m.cos(angle), m.sin(angle))
        beyond = m.sub(0.5, m.abs(part))  # the sine of what is left to 1/2 is the cosine
        return m.div(m.sin(m.mul(beyond, math.pi)), m.sin(m.mul(part, math.pi)))

    def _positive(self, m: Any, x: Any) -> Any:
        """Return the derivative at x from 0 on."""
        total = power(m, x, self.n + 1)
        for k in range(1, 9):
            total = m.add(total, power(m, m.add(x, float(k)), self.n + 1))
        w = m.add(x, 9.0)
        last = power(m, w, self.n + 1)
        total = m.add(total, m.mul(last, m.add(m.mul(w, 1 / self.n), 0.5)))
        inverse = m.div(1.0, w)
        term = m.mul(m.mul(last, inverse), float(self.n + 1))
        for k, c in enumerate(BERNOULLI):
            total = m.add(total, m.mul(term, c))
            rise = (self.n + 2 * k + 2) * (self.n + 2 * k + 3)
            term = m.mul(term, m.mul(m.mul(inverse, inverse), float(rise)))
        factor = float(math.factorial(self.n))
        return m.mul(total, factor if self.n % 2 else -factor)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        for n in (1, 2, 3, 4):
            yield cls(n), EDGES


def power(m: Any, x: Any, n: int) -> Any:
    """Return 1 over x raised to a positive integer."""
    square, y = m.div(1.0, x), None
    while n:
        if n & 1:
            y = square if y is None else m.mul(y, square)
        square, n = m.mul(square, square), n >> 1
    return y


def cotangent_slope(n: int) -> list[float]:
    """Return the derivative of order n of pi cot(pi x) as a polynomial of the cotangent.

    The derivative of the cotangent c is -pi (1 + c²).
    """
    ascending = [0.0, math.pi]
    for _ in range(n):
        slope = [-math.pi * i * c for i, c in enumerate(ascending)][1:]
        ascending = [0.0] * (len(slope) + 2)
        for i, c in enumerate(slope):
            ascending[i] += c
            ascending[i + 2] += c
    return ascending[::-1]
