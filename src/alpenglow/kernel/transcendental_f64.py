"""Transcendental functions of f64: what they do not share with those of f32.

Polynomials interpolate at Chebyshev nodes.  They are summed by plain products and sums, which may
be contracted: many machines have no fused product of f64, and `fma`, which computes it there at
length, is only where its exactness is needed.

All are within 2 ulp, `asin`, and with the logarithm `asinh` and `atanh`, within 3; see
`tests/kernel/test_kernel_math.py`.
"""

from __future__ import annotations

import itertools
import math

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Const, Expr
from alpenglow.kernel.transcendental import Precision, log_edges

LN2_HIGH, LN2_LOW = 0.6931471804855391, 7.440617110012397e-11
"""The first has 33 digits: times the exponent of a number it is exact."""
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
THIRDS_HIGH, THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17

EXP = (
    0.5, 0.16666666666666666, 0.04166666666666668, 0.008333333333333333, 0.0013888888888878858,
    0.0001984126984126422, 2.4801587337013845e-05, 2.755731924533702e-06, 2.755726266900427e-07,
    2.5052072769029797e-08, 2.091836282638008e-09, 1.6086088737169356e-10,
)  # fmt: skip
LOG = (
    0.6666666666666666, 0.4000000000000091, 0.2857142857078221, 0.22222222396552982,
    0.18181795124476754, 0.15386267672882226, 0.1326802614042874, 0.13094416666525344,
)  # fmt: skip
LOG_REST = (
    0.4000000000000003, 0.28571428571335483, 0.2222222227246897, 0.18181808025080376,
    0.1538559095957839, 0.13285421679017204, 0.12920221324272918,
)  # fmt: skip
SIN = (
    -0.16666666666666666, 0.008333333333333331, -0.00019841269841265017, 2.7557319219301453e-06,
    -2.505210621936022e-08, 1.6058529546693786e-10, -7.586575083656759e-13,
)  # fmt: skip
COS = (
    0.041666666666666664, -0.0013888888888888887, 2.4801587301584618e-05, -2.7557319221381855e-07,
    2.0876755783804152e-09, -1.1470459735456913e-11, 4.7458040532767695e-14,
)  # fmt: skip
TANH = (
    -0.3333333333333333, 0.1333333333333331, -0.05396825396822027, 0.021869488534068168,
    -0.008863235462984688, 0.0035921267673025663, -0.0014558190700396025, 0.0005899051200674843,
    -0.00023847198564355907, 9.454941758935152e-05, -3.3718010044053525e-05,
    7.872519584876026e-06,
)  # fmt: skip
SINH = (
    0.16666666666666666, 0.008333333333333333, 0.0001984126984126984, 2.7557319223985825e-06,
    2.505210838547607e-08, 1.605904382690051e-10, 7.647165414593481e-13, 2.8112909646770106e-15,
    8.309171941866942e-18,
)  # fmt: skip
ASIN = (
    0.16666666666666666, 0.07500000000000119, 0.04464285714255019, 0.030381944475693704,
    0.022372157435623815, 0.017352816768546473, 0.013963775787848137, 0.011566511821890942,
    0.009621402747344831, 0.009322101501082774, 0.0030350071727267636, 0.019579201619744684,
    -0.019277545928584553, 0.029635026263548546,
)  # fmt: skip
ATAN = (
    -0.3333333333333333, 0.1999999999999992, -0.14285714285701234, 0.11111111110268297,
    -0.0909090906193528, 0.07692307078827029, -0.06666657934573768, 0.05882264416776449,
    -0.052624922290256754, 0.04758080083637821, -0.043306538430670664, 0.03938687540798632,
    -0.035271331066871296, 0.030330719265790507, -0.024191345810140718, 0.01718398172211335,
    -0.010412153260359241, 0.005140912856746939, -0.0019612554271685326, 0.0005376839297396244,
    -9.371186345052626e-05, 7.767624330289919e-06,
)  # fmt: skip
ERF_NEAR = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954883, -0.026866170645077767,
    0.005223977624827462, -0.0008548326981372573, 0.00012055331131095124, -1.4925595728778298e-05,
    1.6461007798616222e-06, -1.6350389177738938e-07, 1.4660282276898368e-08,
    -1.1374779605974658e-09, 5.960392912763878e-11,
)  # fmt: skip
ERF_FAR = (
    0.2108063640611436, -0.37173673394897333, 0.2517131932174493, -0.12503305237882914,
    0.039922539075584275, -0.0039937011658721, -0.0026423659642727786, 0.0008759154506278834,
    0.00022838037830054056, -0.00012887718068816634, -3.418223005286688e-05,
    1.8614558234410217e-05, 7.5525352759400535e-06, -2.2987282846601692e-06,
    -1.801780569748727e-06, 7.974961409830222e-08, 3.4384797728358517e-07, 6.689897325794053e-08,
)  # fmt: skip
TWO_OVER_PI = (
    0x00000000, 0x00000145, 0xF306DC9C, 0x882A53F8, 0x4EAFA3EA, 0x69BB81B6, 0xC52B3278, 0x872083FC,
    0xA2C757BD, 0x778AC36E, 0x48DC7484, 0x9BA5C00C, 0x925DD413, 0xA32439FC, 0x3BD63962, 0x534E7DD1,
    0x046BEA5D, 0x768909D3, 0x38E04D68, 0xBEFC8273, 0x23AC7306, 0xA673E939, 0x08BF177B, 0xF250763F,
    0xF12FFFBC, 0x0B301FDE, 0x5E2316B4, 0x14DA3EDA, 0x6CFD9E4F, 0x96136E9E, 0x8C7ECD3C, 0xBFD45AEA,
    0x4F758FD7, 0xCBE2F67A, 0x0E73EF14, 0xA525D4D7, 0xF6BF623F, 0x1ABA10AC, 0x06608DF8,
)  # fmt: skip
"""2/pi in words of 32 bits, behind 55 zeros: a window of it begins at each exponent."""

_ONE, _ROOT = 0x3FF0000000000000, 0x3FE6A09E667F3BCD


def _polynomial(m: Arithmetic, x: Expr, coefficients: tuple[float, ...]) -> Expr:
    *rest, last = coefficients
    total: Expr = Const(last, x.dtype, x.lanes)
    for c in reversed(rest):
        total = m.add(m.mul(total, x), c)
    return total


def _series(m: Arithmetic, x: Expr, z: Expr, coefficients: tuple[float, ...]) -> Expr:
    return m.add(m.mul(m.mul(x, z), _polynomial(m, z, coefficients)), x)


# ── exponential and logarithm ──


def exp(m: Arithmetic, x: Expr, halved: bool = False) -> Expr:
    """e^x, or half of it, which overflows later."""
    return _exp(m, x, None, halved)


def _exp(m: Arithmetic, x: Expr, rest: Expr | None, halved: bool = False) -> Expr:
    """e^(x + rest), where `rest` is far below x."""
    magic = 1.5 * 2.0**52
    y = m.minimum(m.maximum(x, -760.0), 720.0)
    shifted = m.plus(m.times(y, 1 / math.log(2)), magic)
    n = m.plus(shifted, -magic)
    r = m.plus(m.times(n, -LN2_LOW), m.plus(m.times(n, -LN2_HIGH), y))
    if rest is not None:
        r = m.plus(r, rest)
    power = m.plus(m.add(m.mul(m.mul(r, r), _polynomial(m, r, EXP)), r), 1.0)
    exponent = m.sub(m.bits(shifted, "i64"), 0x4338000000000000 + halved)
    # In two steps, since 2^n alone may be beyond the numbers where the result is not.
    half = m.shift_right(exponent, 1)
    for part in (half, m.sub(exponent, half)):
        power = m.times(power, m.bits(m.shift_left(m.add(part, 1023), 52), "f64"))
    return power


def _taken_apart(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """Return e and f such that x = 2^e (1 + f), 1 + f around 1."""
    small = m.lt(x, 2.0**-1022)
    scaled = m.where(small, m.mul(x, 2.0**54), x)
    offset = m.add(m.bits(scaled, "i64"), _ONE - _ROOT)
    biased = m.shift_right(offset, 52)
    e = m.where(small, m.sub(biased, 1023 + 54), m.sub(biased, 1023))
    f = m.plus(m.bits(m.add(m.bit_and(offset, (1 << 52) - 1), _ROOT), "f64"), -1.0)
    return m.cast(e, "f64"), f


def log(m: Arithmetic, x: Expr) -> Expr:
    """With s = f / (2 + f), log(1 + f) = 2 s + s^3 LOG(s^2) = f - (f^2 / 2 - s (f^2 / 2 + …))."""
    e, f = _taken_apart(m, x)
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    square = m.mul(m.mul(f, f), 0.5)
    tail = m.mul(s, m.add(square, m.mul(z, _polynomial(m, z, LOG))))
    low = m.add(tail, m.mul(e, LN2_LOW))
    value = m.plus(m.times(e, LN2_HIGH), m.plus(f, m.plus(low, m.neg(square))))
    return log_edges(m, x, value)


def _log_pair(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """The logarithm to 64 digits: a number and what it lacks."""
    e, f = _taken_apart(m, x)
    t = m.plus(f, 2.0)
    below = m.plus(f, m.neg(m.plus(t, -2.0)))
    s = m.div(f, t)
    lost = m.div(m.fma(m.neg(s), below, m.fma(m.neg(s), t, f)), t)
    z = m.times(s, s)
    z_low = m.fma(m.add(s, s), lost, m.fma(s, s, m.neg(z)))
    cube = m.times(s, z)
    cube_low = m.fma(s, z_low, m.fma(lost, z, m.fma(s, z, m.neg(cube))))
    third = m.times(cube, THIRDS_HIGH)
    third_low = m.fma(cube, THIRDS_HIGH, m.neg(third))
    third_low = m.fma(cube_low, THIRDS_HIGH, m.fma(cube, THIRDS_LOW, third_low))
    rest = m.mul(m.mul(cube, z), _polynomial(m, z, LOG_REST))
    twice = m.plus(s, s)
    total, low = _sum(m, m.times(e, LN2_HIGH), twice)
    total, low_too = _sum(m, total, third)
    low = m.plus(m.plus(low, low_too), m.plus(m.plus(third_low, m.plus(lost, lost)), rest))
    total, low = _sum(m, total, m.plus(low, m.times(e, LN2_LOW)))
    return log_edges(m, x, total), low


def _sum(m: Arithmetic, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """Return x + y and what it lacks, for |x| >= |y| or x = 0."""
    total = m.plus(x, y)
    return total, m.plus(y, m.neg(m.plus(total, m.neg(x))))


def _power_of_size(m: Arithmetic, size: Expr, y: Expr) -> Expr:
    """size^y = e^(y log size)."""
    high, low = _log_pair(m, size)
    # 1 to any power, infinite or NaN, is 1.
    product = m.where(m.eq(size, 1.0), 0.0, m.times(high, y))
    rest = m.fma(low, y, m.fma(high, y, m.neg(product)))
    rest = m.where(m.lt(m.abs(product), 800.0), rest, 0.0)
    rest = m.where(m.eq(size, 1.0), 0.0, rest)
    return _exp(m, product, rest)


# ── circular functions ──


def _window(m: Arithmetic, start: Expr) -> list[Expr]:
    """Return 192 digits of 2/pi as six words, from digit `start` of TWO_OVER_PI on."""
    word, bit = m.shift_right(start, 5), m.bit_and(start, 31)
    words: list[Expr] = [Const(w, "u64", start.lanes) for w in TWO_OVER_PI]
    last = words[32:]
    for step in (16, 8, 4, 2, 1):
        on = m.ne(m.bit_and(word, step), 0)
        # Those that may still be among the seven, shifted by less than `step` from here on.
        words = [m.where(on, words[i + step], words[i]) for i in range(7 + step - 1)]
    far = m.ge(word, 32)
    words = [m.where(far, a, b) for a, b in zip(last, words, strict=True)]
    both = [m.bit_or(m.shift_left(a, 32), b) for a, b in itertools.pairwise(words)]
    down = m.sub(32, bit)
    return [m.bit_and(m.binary("shr", pair, down), 0xFFFFFFFF) for pair in both]


def _product(m: Arithmetic, digits: Expr, window: list[Expr]) -> tuple[Expr, Expr]:
    """Return the upper 128 of 192 bits of a product: 53 binary digits with six words."""
    low, high = m.bit_and(digits, 0xFFFFFFFF), m.shift_right(digits, 32)
    limbs: list[Expr] = []
    carry: Expr = Const(0, "u64", digits.lanes)
    before: Expr | None = None
    for word in reversed(window):
        products = [m.mul(low, word)] + ([] if before is None else [m.mul(high, before)])
        total = carry
        carry = m.shift_right(products[0], 32)
        for p in products:
            total = m.add(total, m.bit_and(p, 0xFFFFFFFF))
        for p in products[1:]:
            carry = m.add(carry, m.shift_right(p, 32))
        carry = m.add(carry, m.shift_right(total, 32))
        limbs.append(m.bit_and(total, 0xFFFFFFFF))
        before = word
    third, fourth, fifth, sixth = limbs[2:]
    return m.bit_or(m.shift_left(sixth, 32), fifth), m.bit_or(m.shift_left(fourth, 32), third)


def _turn(m: Arithmetic, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Return r, what it lacks, and q such that |x| = r + q pi / 2, |r| <= pi / 4; q modulo 4.

    |x| is an integer times a power of two.  Of 2/pi only some digits matter: those before them
    make multiples of 4, those behind less than r lacks.  Their product is exact in integers.
    """
    size = m.abs(x)
    bits = m.bits(size, "u64")
    exponent = m.shift_right(bits, 52)
    # The least number that does not stay as it is has exponent -1.
    start = m.where(m.gt(exponent, 1022), m.sub(exponent, 1022), 0)
    start = m.minimum(start, 1024)
    digits = m.bit_or(m.bit_and(bits, (1 << 52) - 1), 1 << 52)
    high, low = _product(m, digits, _window(m, start))
    q = m.shift_right(m.add(high, 1 << 61), 62)
    above = m.bits(m.sub(high, m.shift_left(q, 62)), "i64")
    # The digits of the fraction in order, in parts that are exact: the first may cancel.
    first = m.cast(above, "f64")
    second = m.cast(m.sub(above, m.cast(first, "i64")), "f64")
    third = m.times(m.cast(m.shift_right(low, 32), "f64"), 2.0**-32)
    fourth = m.times(m.cast(m.bit_and(low, 0xFFFFFFFF), "f64"), 2.0**-64)
    first, second = _sum(m, first, m.plus(second, third))
    first, second = _sum(m, first, m.plus(second, fourth))
    first, second = m.times(first, 2.0**-62), m.times(second, 2.0**-62)
    r = m.times(first, HALF_PI_HIGH)
    lost = m.fma(first, HALF_PI_HIGH, m.neg(r))
    lost = m.plus(lost, m.add(m.mul(first, HALF_PI_LOW), m.mul(second, HALF_PI_HIGH)))
    plain = m.lt(size, math.pi / 4)
    finite = m.where(m.lt(size, math.inf), r, math.nan)
    return (
        m.where(plain, size, finite), m.where(plain, 0.0, lost),
        m.where(plain, 0, m.bit_and(q, 3)),
    )  # fmt: skip


def _sine(m: Arithmetic, r: Expr, lost: Expr) -> Expr:
    z = m.mul(r, r)
    more = m.add(m.mul(m.mul(r, z), _polynomial(m, z, SIN)), lost)
    return m.plus(r, m.plus(more, m.mul(m.mul(z, lost), -0.5)))


def _cosine(m: Arithmetic, r: Expr, lost: Expr) -> Expr:
    z = m.times(r, r)
    half = m.times(z, 0.5)
    w = m.plus(1.0, m.neg(half))
    rest = m.plus(m.plus(1.0, m.neg(w)), m.neg(half))
    more = m.sub(m.mul(m.mul(z, z), _polynomial(m, z, COS)), m.mul(r, lost))
    return m.plus(w, m.plus(rest, more))


# ── the error function ──


def erf(m: Arithmetic, x: Expr) -> Expr:
    """x + x ERF_NEAR(x^2); from 1 on, 1 - e^-x^2 ERF_FAR((x - 2.5) / (x + 2.5)), 1 from 6 on."""
    size = m.abs(x)
    near = m.fma(m.polynomial(m.mul(x, x), ERF_NEAR), x, x)
    y = m.minimum(size, 6.0)
    t = m.div(m.sub(y, 2.5), m.add(y, 2.5))
    power = exp(m, m.neg(m.mul(y, y)))
    far = m.sub(1.0, m.mul(power, m.polynomial(t, ERF_FAR)))
    return m.where(m.lt(size, 1.0), near, m.copysign(far, x))


F64 = Precision(
    bits="i64", half_pi=(HALF_PI_HIGH, HALF_PI_LOW),
    asin=ASIN, atan=ATAN, tanh=TANH, sinh=SINH, erf=erf, exp=exp, exp_below=exp, log=log,
    power=_power_of_size, turn=_turn, sine=_sine, cosine=_cosine, series=_series,
    half_rest=lambda m, x: m.times(m.plus(1.0, m.neg(x)), 0.5),
)  # fmt: skip
