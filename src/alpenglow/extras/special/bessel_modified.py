"""Modified Bessel functions of orders 0 and 1, as they are and without their exponentials.

By the Chebyshev series of Cephes (S. L. Moshier, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Elementwise, Examples, of_one_type
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.series import chebyshev, dtype_of

I0_NEAR = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16,
    1.715391285555133e-15, -1.1685332877993451e-14, 7.676185498604936e-14,
    -4.856446783111929e-13, 2.95505266312964e-12, -1.726826291441556e-11, 9.675809035373237e-11,
    -5.189795601635263e-10, 2.6598237246823866e-09, -1.300025009986248e-08,
    6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05,
    0.00018850288509584165, -0.0005763755745385824, 0.0016394756169413357,
    -0.004324309995050576, 0.010546460394594998, -0.02373741480589947, 0.04930528423967071,
    -0.09490109704804764, 0.17162090152220877, -0.3046826723431984, 0.6767952744094761,
)  # fmt: skip
I0_FAR = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15,
    3.8116806693526224e-15, -9.554846698828307e-15, -4.150569347287222e-14,
    1.54008621752141e-14, 3.8527783827421426e-13, 7.180124451383666e-13,
    -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05,
    0.0033691164782556943, 0.8044904110141088,
)  # fmt: skip
I1_NEAR = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16,
    -1.1055969477353862e-15, 7.600684294735408e-15, -5.042185504727912e-14,
    3.223793365945575e-13, -1.9839743977649436e-12, 1.1736186298890901e-11,
    -6.663489723502027e-11, 3.625590281552117e-10, -1.8872497517228294e-09,
    9.381537386495773e-09, -4.445059128796328e-08, 2.0032947535521353e-07,
    -8.568720264695455e-07, 3.4702513081376785e-06, -1.3273163656039436e-05,
    4.781565107550054e-05, -0.00016176081582589674, 0.0005122859561685758,
    -0.0015135724506312532, 0.004156422944312888, -0.010564084894626197, 0.024726449030626516,
    -0.05294598120809499, 0.1026436586898471, -0.17641651835783406, 0.25258718644363365,
)  # fmt: skip
I1_FAR = (
    7.517296310842105e-18, 4.414348323071708e-18, -4.6503053684893586e-17,
    -3.209525921993424e-17, 2.96262899764595e-16, 3.3082023109209285e-16,
    -1.8803547755107825e-15, -3.8144030724370075e-15, 1.0420276984128802e-14,
    4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13, 2.0356285441470896e-12, 1.4125807436613782e-11,
    3.2526035830154884e-11, -1.8974958123505413e-11, -5.589743462196584e-10,
    -3.835380385964237e-09, -2.6314688468895196e-08, -2.512236237870209e-07,
    -3.882564808877691e-06, -0.00011058893876262371, -0.009761097491361469, 0.7785762350182801,
)  # fmt: skip
K0_NEAR = (
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
    2.5347910790261494e-07, 2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615,
    0.3442898999246285, -0.5353273932339028,
)  # fmt: skip
K0_FAR = (
    5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17,
    -1.678231096805412e-16, 5.512055978524319e-16, -1.848593377343779e-15,
    6.3400764774050706e-15, -2.2275133269916698e-14, 8.032890775363575e-14,
    -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10,
    -1.69753450938906e-09, 8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07,
    -1.8317555227191195e-06, 1.39498137188765e-05, -0.00012849549581627802,
    0.0015698838857300533, -0.0314481013119645, 2.4403030820659555,
)  # fmt: skip
K1_NEAR = (
    -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13,
    -1.4114883926335278e-10, -2.213387630734726e-08, -2.4334061415659684e-06,
    -0.0001730288957513052, -0.006975723859639864, -0.12261118082265715, -0.3531559607765449,
    1.5253002273389478,
)  # fmt: skip
K1_FAR = (
    -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17,
    1.838093544366639e-16, -6.057047248373319e-16, 2.038703165624334e-15,
    -7.019837090418314e-15, 2.4771544244813043e-14, -8.976705182324994e-14,
    3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10,
    2.015049755197033e-09, -1.0345762465678097e-08, 5.7410841254500495e-08,
    -3.5019606030878126e-07, 2.406484947837217e-06, -1.936197974166083e-05,
    0.00019521551847135162, -0.002857816859622779, 0.10392373657681724, 2.7206261904844427,
)  # fmt: skip

NEGLIGIBLE = 1e-10
"""Coefficients below it change no digit of an f32."""

EDGES = np.array(
    [0, -0.0, 1, -1, 1e-6, 2, 2.1, 7.5, -8, 8.5, 50, -50, 100, np.inf, -np.inf, np.nan], np.float32
)


class BesselI(Elementwise):
    """The modified Bessel function of the first kind of an order, 0 or 1; `scaled` by exp(-|x|)."""

    order: int = 0
    scaled: bool = False
    dtypes = FLOATS

    def infer(self, *xs: TensorType) -> TensorType:
        check_order(self, self.order)
        return super().infer(*xs)

    def scalar(self, m: Any, x: Any) -> Any:
        # An odd function takes its slope at 0 from the right; |x| would have none there.
        size = m.where(m.lt(x, 0.0), m.neg(x), x) if self.order else m.abs(x)
        y = first(m, size, self.order)
        y = m.where(m.lt(x, 0.0), m.neg(y), y) if self.order else y
        return y if self.scaled else m.mul(m.exp(size), y)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        for order in (0, 1):
            for scaled in (False, True):
                yield cls(order, scaled), EDGES


class BesselK(Elementwise):
    """The modified Bessel function of the second kind of an order; `scaled` by exp(x).

    The order is 0 or 1.  It is inf of 0 and NaN below.
    """

    order: int = 0
    scaled: bool = False
    dtypes = FLOATS

    def infer(self, *xs: TensorType) -> TensorType:
        check_order(self, self.order)
        return super().infer(*xs)

    def scalar(self, m: Any, x: Any) -> Any:
        near = self._near(m, x)
        inverse = m.sub(m.div(8.0, x), 2.0)
        far = m.div(series(m, inverse, K1_FAR if self.order else K0_FAR), m.sqrt(x))
        if self.scaled:
            near = m.mul(near, m.exp(x))
        else:
            far = m.mul(m.exp(m.neg(x)), far)
        y = m.where(m.le(x, 2.0), near, far)
        return m.where(m.eq(x, 0.0), math.inf, m.where(m.lt(x, 0.0), math.nan, y))

    def _near(self, m: Any, x: Any) -> Any:
        """Return the function up to 2, not scaled."""
        square = m.sub(m.mul(x, x), 2.0)
        line = m.mul(m.mul(m.exp(x), first(m, x, self.order)), m.log(m.mul(x, 0.5)))
        if self.order:
            return m.add(line, m.div(series(m, square, K1_NEAR), x))
        return m.sub(series(m, square, K0_NEAR), line)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        for order in (0, 1):
            for scaled in (False, True):
                yield cls(order, scaled), EDGES


def check_order(op: Elementwise, order: int) -> None:
    if order not in (0, 1):
        raise TypeRuleError(f"{op.name}: order is {order}, expected 0 or 1")


def first(m: Any, x: Any, order: int) -> Any:
    """Return exp(-x) times the function of the first kind of x from 0 on."""
    near = series(m, m.sub(m.mul(x, 0.5), 2.0), I1_NEAR if order else I0_NEAR)
    near = m.mul(near, x) if order else near
    inverse = m.sub(m.div(32.0, m.maximum(x, 8.0)), 2.0)
    far = m.div(series(m, inverse, I1_FAR if order else I0_FAR), m.sqrt(x))
    return m.where(m.le(x, 8.0), near, far)


def series(m: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """Return a Chebyshev series with those coefficients that a float has digits for."""
    if dtype_of(x) == "f32":
        count = next(i for i, c in enumerate(coefficients) if abs(c) >= NEGLIGIBLE)
        coefficients = coefficients[count:]
    return chebyshev(m, x, coefficients)
