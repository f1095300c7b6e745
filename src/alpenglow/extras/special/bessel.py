"""Bessel functions of orders 0 and 1, and the spherical one of order 0.

By the approximations of Cephes (S. L. Moshier, 1989): up to 5 a quotient of polynomials of x²,
beyond it the cosine and the sine of a shifted x, each times a quotient of polynomials of 25 / x².
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.series import polynomial, rational

NEAR_0 = (
    (-4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0),
    (1.0, 499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683,
     2112775201154.892, 310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18),
)  # fmt: skip
SECOND_0 = (
    (15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115,
     87590639439536.7, -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16),
    (1.0, 1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935,
     20297961275010.555, 3171577528429750.5, 2.5059625617265306e+17),
)  # fmt: skip
COSINE_0 = (
    (0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687,
     8.74716500199817, 5.303240382353949, 1.0),
    (0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171,
     8.761908832370695, 5.306052882353947, 1.0),
)  # fmt: skip
SINE_0 = (
    (-0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683,
     -177.68116798048806, -147.07750515495118, -51.41053267665993, -6.050143506007285),
    (1.0, 64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525,
     5930.727011873169, 2062.0933166032783, 242.0057402402914),
)  # fmt: skip
NEAR_1 = (
    (-899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0),
    (1.0, 620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925,
     4749141220799.914, 784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18),
)  # fmt: skip
SECOND_1 = (
    (1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0,
     2.024394757135949e+17, -7.788771962659501e+17),
    (1.0, 594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617,
     3882312774962.3857, 620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18),
)  # fmt: skip
COSINE_1 = (
    (0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076,
     8.424045901417724, 5.214515986823615, 1.0),
    (0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015,
     8.399855543276042, 5.209828486823619, 1.0),
)  # fmt: skip
SINE_1 = (
    (0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508,
     710.8563049989261, 597.4896124006136, 211.68875710057213, 25.207020585802372),
    (1.0, 74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562,
     7997.041604473507, 2826.1927851763908, 336.0936078106983),
)  # fmt: skip
ROOTS_0 = (5.78318596294678452118, 30.4712623436620863991)
ROOTS_1 = (14.6819706421238932572, 49.2184563216469036703)
"""The squares of the first two places where the functions of the first kind are 0."""

SPHERICAL = (1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0)

EDGES = np.array(
    [0, -0.0, 1, -1, 2.4048, 3.8317, -3.5, 5, 5.1, 14, 1e-6, 80, 300, np.inf, np.nan], np.float32
)


class BesselJ0(Elementwise):
    """The Bessel function of the first kind of order 0."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        size = m.abs(x)
        return m.where(m.le(size, 5.0), _first_0(m, size), _wave(m, size, 0, False))


class BesselJ1(Elementwise):
    """The Bessel function of the first kind of order 1."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        size = m.abs(x)
        far = _wave(m, size, 1, False)
        far = m.where(m.lt(x, 0.0), m.neg(far), far)
        return m.where(m.le(size, 5.0), _first_1(m, x), far)


class BesselY0(Elementwise):
    """The Bessel function of the second kind of order 0: -inf of 0, NaN below."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        square = m.mul(x, x)
        rest = m.mul(m.mul(m.log(x), 2 / math.pi), _first_0(m, x))
        near = m.add(rational(m, square, *SECOND_0), rest)
        return m.where(m.le(x, 5.0), near, _wave(m, x, 0, True))


class BesselY1(Elementwise):
    """The Bessel function of the second kind of order 1: -inf of 0, NaN below."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        square = m.mul(x, x)
        inverse = m.div(1.0, x)
        rest = m.sub(m.mul(_first_1(m, x), m.log(x)), inverse)
        near = m.add(m.mul(x, rational(m, square, *SECOND_1)), m.mul(rest, 2 / math.pi))
        near = m.where(m.eq(x, 0.0), -math.inf, near)
        return m.where(m.le(x, 5.0), near, _wave(m, x, 1, True))


class SphericalBesselJ0(Elementwise):
    """sin(x) / x, which is 1 of 0 and 0 of infinities."""

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        near = polynomial(m, m.mul(x, x), SPHERICAL)
        far = m.where(m.isinf(x), 0.0, m.div(m.sin(x), x))
        return m.where(m.lt(m.abs(x), 0.5), near, far)


def _first_0(m: Any, x: Any) -> Any:
    """Return the function of the first kind of order 0 up to 5."""
    square = m.mul(x, x)
    zeros = m.mul(m.sub(square, ROOTS_0[0]), m.sub(square, ROOTS_0[1]))
    return m.mul(zeros, rational(m, square, *NEAR_0))


def _first_1(m: Any, x: Any) -> Any:
    """Return the function of the first kind of order 1 up to 5."""
    square = m.mul(x, x)
    zeros = m.mul(m.sub(square, ROOTS_1[0]), m.sub(square, ROOTS_1[1]))
    return m.mul(m.mul(rational(m, square, *NEAR_1), x), zeros)


def _wave(m: Any, x: Any, order: int, second: bool) -> Any:
    """Return a function from 5 on, of the first kind or the second, which are a quarter apart."""
    ratio = m.div(5.0, x)
    square = m.mul(ratio, ratio)
    p = rational(m, square, *(COSINE_1 if order else COSINE_0))
    q = m.mul(ratio, rational(m, square, *(SINE_1 if order else SINE_0)))
    angle = m.sub(x, math.pi * (0.75 if order else 0.25))
    cosine, sine = m.cos(angle), m.sin(angle)
    wave = m.sub(m.mul(p, cosine), m.mul(q, sine))
    if second:
        wave = m.add(m.mul(p, sine), m.mul(q, cosine))
    return m.div(m.mul(wave, math.sqrt(2 / math.pi)), m.sqrt(x))
