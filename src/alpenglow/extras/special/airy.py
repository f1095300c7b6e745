"""The Airy function Ai, by the approximations of Cephes (S. L. Moshier, 1989)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.series import polynomial, rational

RIGHT = (
    (0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058,
     159.75639135016442, 70.53609068404442, 14.026469116338967, 1.0),
    (0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045,
     164.2346928715297, 71.47784008255756, 14.095913560783403, 1.0),
)  # fmt: skip
SINE = (
    (-0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191,
     -0.04919001326095003, -0.004062659235948854, -0.0001592764962392621,
     -2.776491081552329e-06, -1.6778769848911465e-08),
    (1.0, 13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596,
     1.4752914677166642, 0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05,
     4.5185009297058035e-07),
)  # fmt: skip
COSINE = (
    (0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502,
     0.35146565610554764, 0.06338889196289255, 0.005858041130483885, 0.000282851600836737,
     6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10),
    (1.0, 9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755,
     0.9542936116189619, 0.08645808263523921, 0.004126565238242226, 0.00010125908511650914,
     1.1716673321441352e-06, 4.9183457006293e-09),
)  # fmt: skip

ROOT = 0.564189583547756286948
"""1 / sqrt(pi)"""

AT_ZERO, SLOPE = 0.355028053887817239260, -0.258819403792806798405
"""Ai and its derivative at 0."""

TERMS = 16
"""Terms of the power series up to 2.09; the next one is below the precision of f64."""

EDGES = np.array([0, 1, -1, 2, -2, 2.1, -2.1, -7.3, 9, 104, np.inf, -np.inf, np.nan], np.float32)


class AiryAi(Elementwise):
    """The Airy function Ai; NaN of infinities, as PyTorch has it.

    Near 0 it is a power series; beyond 2.09 exp(-2/3 x^1.5), and below -2.09 the sine and cosine of
    2/3 |x|^1.5, each times quotients of polynomials.
    """

    dtypes = FLOATS
    edges = EDGES

    def scalar(self, m: Any, x: Any) -> Any:
        size = m.abs(x)
        root = m.sqrt(size)
        zeta = m.mul(m.mul(m.mul(size, 2.0), root), 1 / 3)
        z = m.div(1.0, zeta)
        quarter = m.sqrt(root)
        decay = m.mul(m.div(rational(m, z, *RIGHT), quarter), m.mul(m.exp(m.neg(zeta)), ROOT / 2))
        square = m.mul(z, z)
        p = m.add(m.mul(square, rational(m, square, *SINE)), 1.0)
        q = m.mul(z, rational(m, square, *COSINE))
        angle = m.add(zeta, math.pi / 4)
        wave = m.sub(m.mul(m.sin(angle), p), m.mul(m.cos(angle), q))
        wave = m.mul(m.div(ROOT, quarter), wave)
        far = m.where(m.lt(x, 0.0), wave, m.where(m.gt(x, 103.892), 0.0, decay))
        value = m.where(m.lt(size, 2.09), _near(m, x), far)
        return m.where(m.isinf(x), math.nan, value)


def _near(m: Any, x: Any) -> Any:
    """Return the sum of two power series of x³."""
    cube = m.mul(m.mul(x, x), x)
    even, odd = 1.0, 1.0
    evens, odds = [even], [odd]
    for k in range(1, TERMS):
        even /= (3 * k - 1) * (3 * k)
        odd /= (3 * k) * (3 * k + 1)
        evens.append(even)
        odds.append(odd)
    f, g = (polynomial(m, cube, terms[::-1]) for terms in (evens, odds))
    return m.add(m.mul(f, AT_ZERO), m.mul(m.mul(g, x), SLOPE))
