"""Transcendental functions by arithmetic alone, without branches, so that vectors have them too.

Each reduces its argument to a small interval and evaluates a polynomial there, fitted to the
least largest error (weighted least squares on Chebyshev nodes, the weights raised where the error
was large) and rounded to the element type coefficient by coefficient, the others fitted anew.
Steps whose rounding matters are `fma`, `plus` and `times`: a renderer leaves those as they are.

Functions of f32 are within 2 ulp, `asin` within 3 and `tan` within 4, some by way of f64; see
`tests/test_kernel_math.py`.  Zeros keep their sign; infinities, NaN and subnormal numbers are
treated as IEEE 754 wants it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from alpenglow.kernel import transcendental_f64
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Expr, Lookup

Function = Callable[[Arithmetic, Expr], Expr]

LN2_HIGH, LN2_LOW = 0.6931471824645996, -1.9046542121259336e-09
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963705062866, -4.371138828673793e-08

EXP = (0.5, 0.16666513681411743, 0.041666414588689804, 0.008369526825845242, 0.0013939628843218088)
LOG = (
    0.3333331048488617, -0.24999986588954926, 0.20002223551273346, -0.16669246554374695,
    0.14218713343143463, -0.12384480983018875, 0.11872739344835281, -0.11788845807313919,
    0.06914613395929337,
)  # fmt: skip
SIN = (-0.1666666716337204, 0.008333379402756691, -0.00019853028061334044, 2.831773826983408e-06)
COS = (0.0416666679084301, -0.0013888981193304062, 2.4822447812766768e-05, -2.8918151429024874e-07)
TANH = (
    -0.33333319425582886, 0.13332636654376984, -0.053856849670410156, 0.021088311448693275,
    -0.006295665167272091,
)  # fmt: skip
SINH = (0.1666666716337204, 0.008333311416208744, 0.00019842635083477944, 2.7839264475915115e-06)
ASIN = (
    0.16666659712791443, 0.0750051811337471, 0.04451465234160423, 0.031824689358472824,
    0.0143808638677001, 0.037590477615594864,
)  # fmt: skip
ATAN = (
    -0.33333301544189453, 0.1999862641096115, -0.1426510512828827, 0.10956811159849167,
    -0.0841715931892395, 0.05819430947303772, -0.03141488507390022, 0.011042195372283459,
    -0.0018221744103357196,
)  # fmt: skip
ERF_NEAR = (
    0.12837916612625122, -0.3761262893676758, 0.11283618211746216, -0.02685512602329254,
    0.005190733354538679, -0.0008030750905163586, 7.920309872133657e-05,
)  # fmt: skip
ERF_FAR = (
    0.00040695263305678964, -0.00217818864621222, 0.005445677321404219, -0.008351718075573444,
    0.00862268079072237, -0.006109295412898064, 0.002797360299155116, -0.0005600748700089753,
    -0.00025849355733953416, 0.00027040575514547527, -8.12490179669112e-05,
    -1.768440051819198e-05, 1.576573049533181e-05, -5.089707428851398e-07,
    -8.958673447523324e-07,
)  # fmt: skip
ERF_NEAR_F64 = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954883, -0.026866170645077767,
    0.005223977624827462, -0.0008548326981372573, 0.00012055331131095124, -1.4925595728778298e-05,
    1.6461007798616222e-06, -1.6350389177738938e-07, 1.4660282276898368e-08,
    -1.1374779605974658e-09, 5.960392912763878e-11,
)  # fmt: skip
ERF_FAR_F64 = (
    0.2108063640611436, -0.37173673394897333, 0.2517131932174493, -0.12503305237882914,
    0.039922539075584275, -0.0039937011658721, -0.0026423659642727786, 0.0008759154506278834,
    0.00022838037830054056, -0.00012887718068816634, -3.418223005286688e-05,
    1.8614558234410217e-05, 7.5525352759400535e-06, -2.2987282846601692e-06,
    -1.801780569748727e-06, 7.974961409830222e-08, 3.4384797728358517e-07, 6.689897325794053e-08,
)  # fmt: skip
ERF_TABLE = (
    (
        0.0, 0.27632638812065125, 0.5204998850822449, 0.7111556529998779, 0.8427007794380188,
        0.9229001402854919, 0.9661051630973816, 0.9866716861724854, 0.9953222870826721,
        0.9985373020172119, 0.9995930194854736, 0.9998993873596191, 0.9999778866767883,
        0.9999957084655762, 0.9999992847442627, 0.9999998807907104,
    ),
    (
        0.12837916612625122, 0.06001421436667442, -0.1212172880768776, -0.3570689260959625,
        -0.5848925113677979, -0.7634788751602173, -0.8810697197914124, -0.9472249746322632,
        -0.9793330430984497, -0.9928576946258545, -0.9978216886520386, -0.9994137287139893,
        -0.9998607635498047, -0.9999707937240601, -0.9999945759773254, -0.9999988079071045,
    ),
    (
        0.0, -0.26499876379966736, -0.43938836455345154, -0.4822046458721161,
        -0.41510117053985596, -0.2956598699092865, -0.17840611934661865, -0.09236494451761246,
        -0.04134530574083328, -0.016079362481832504, -0.005430818535387516,
        -0.0016167962457984686, -0.00040601452928967774, -0.00010057919280370697,
        -3.310636384412646e-05, 6.704582483507693e-05,
    ),
    (
        -0.376123309135437, -0.30918896198272705, -0.1464988738298416, 0.026785381138324738,
        0.1383688896894455, 0.16753490269184113, 0.13875441253185272, 0.09015203267335892,
        0.04822884872555733, 0.021727226674556732, 0.008344778791069984, 0.0027614363934844732,
        0.0007922477670945227, 0.0001924832904478535, 3.756846854230389e-05,
        0.0003171889402437955,
    ),
    (
        0.0, 0.12607555091381073, 0.1821235567331314, 0.15067271888256073, 0.06885185092687607,
        -0.005287530831992626, -0.04361490160226822, -0.047405906021595, -0.03371325880289078,
        -0.018544605001807213, -0.009616841562092304, -0.0029945410788059235,
        -0.0018058023415505886, 7.442472997354344e-05, 0.0008382500382140279,
        -0.012774128466844559,
    ),
    (
        0.11224132031202316, 0.08067604154348373, 0.009216663427650928, -0.05275808647274971,
        -0.06889486312866211, -0.047077905386686325, -0.015057316049933434, 0.006745683029294014,
        0.01277618296444416, 0.010531808249652386, 0.006354890298098326, 0.002723177894949913,
        0.0008890112512744963, 0.0004587894363794476, 0.0002850671880878508, -0.08874968439340591,
    ),
)  # fmt: skip
EXP_WIDE = (
    0.49999999999482, 0.16666666794129578, 0.04166666707594818, 0.008333279133359104,
    0.0013888793041115914, 0.0001991062129533578, 2.4889160914852466e-05,
)  # fmt: skip
LOG_WIDE = (
    0.6666666667627873, 0.3999999543984386, 0.28572130311314864, 0.22175233826033044,
    0.19598836743352366,
)  # fmt: skip
TWO_OVER_PI = (170891318, 240010261, 44024437, 131200308, 232525238, 43358524, 70845471)
"""The first 196 binary digits of 2/pi, 28 in each: times an f32 they are exact in f64."""


# ── exponential and logarithm ──


def exp(m: Arithmetic, x: Expr, halved: bool = False) -> Expr:
    """e^x, or half of it, which overflows later.

    x = n ln 2 + r, n an integer, |r| <= ln 2 / 2, so e^x = 2^n e^r; e^r = 1 + r + r^2 EXP(r).
    Adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum then are.
    """
    shifted, power = _power(m, m.minimum(m.maximum(x, -104.0), 90.0))
    exponent = m.sub(shifted, 0x4B400000 + halved)
    # In two steps, since 2^n alone may be beyond the numbers where the result is not.
    half = m.shift_right(exponent, 1)
    for part in (half, m.sub(exponent, half)):
        power = m.times(power, m.bits(m.shift_left(m.add(part, 127), 23), "f32"))
    return power


def exp_below(m: Arithmetic, x: Expr) -> Expr:
    """e^x of x <= 0, and 0 for what is less than all normal numbers: two thirds of the work."""
    shifted, power = _power(m, x)
    scale = m.bits(m.add(m.shift_left(shifted, 23), 127 << 23), "f32")
    return m.where(m.lt(x, -87.0), 0.0, m.mul(power, scale))


def _power(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """Return an i32 that ends with the bits of n, and e^r."""
    magic = 1.5 * 2.0**23
    shifted = m.fma(x, 1 / math.log(2), magic)
    n = m.plus(shifted, -magic)
    r = m.fma(n, -LN2_LOW, m.fma(n, -LN2_HIGH, x))
    power = m.plus(m.fma(m.mul(r, r), m.polynomial(r, EXP), r), 1.0)
    return m.bits(shifted, "i32"), power


def log(m: Arithmetic, x: Expr) -> Expr:
    """x = 2^e (1 + f), 1 + f around 1; log(1 + f) = f - f^2 / 2 + f^3 LOG(f)."""
    root, one = 0x3F3504F3, 0x3F800000
    small = m.lt(x, 2.0**-126)
    scaled = m.where(small, m.mul(x, 2.0**23), x)
    offset = m.add(m.bits(scaled, "i32"), one - root)
    biased = m.shift_right(offset, 23)
    exponent = m.where(small, m.sub(biased, 127 + 23), m.sub(biased, 127))
    e = m.cast(exponent, "f32")
    f = m.plus(m.bits(m.add(m.bit_and(offset, 0x7FFFFF), root), "f32"), -1.0)
    square = m.mul(f, f)
    tail = m.fma(e, LN2_LOW, m.mul(m.mul(square, f), m.polynomial(f, LOG)))
    value = m.fma(e, LN2_HIGH, m.plus(f, m.fma(square, -0.5, tail)))
    return _log_edges(m, x, value)


def _log_edges(m: Arithmetic, x: Expr, value: Expr) -> Expr:
    """Return `value`, or what the logarithm of 0, of less, and of infinity is."""
    positive = m.where(m.eq(x, math.inf), x, value)
    return m.where(m.eq(x, 0.0), -math.inf, m.where(m.gt(x, 0.0), positive, math.nan))


def log_wide(m: Arithmetic, x: Expr) -> Expr:
    """The logarithm of a normal f64, to 13 digits: with s = f / (2 + f) it is 2 s + s^3 …"""
    root, one = 0x3FE6A09E667F3BCD, 0x3FF0000000000000
    offset = m.add(m.bits(x, "i64"), one - root)
    e = m.cast(m.sub(m.shift_right(offset, 52), 1023), "f64")
    f = m.plus(m.bits(m.add(m.bit_and(offset, (1 << 52) - 1), root), "f64"), -1.0)
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    value = m.fma(m.mul(z, s), m.polynomial(z, LOG_WIDE), m.add(s, s))
    return _log_edges(m, x, m.fma(e, math.log(2), value))


def exp_wide(m: Arithmetic, x: Expr) -> Expr:
    """e^x of an f64 to 12 digits, up to the powers that f32 knows."""
    magic = 1.5 * 2.0**52
    y = m.minimum(m.maximum(x, -200.0), 200.0)
    shifted = m.fma(y, 1 / math.log(2), magic)
    r = m.fma(m.plus(shifted, -magic), -math.log(2), y)
    power = m.plus(m.fma(m.mul(r, r), m.polynomial(r, EXP_WIDE), r), 1.0)
    exponent = m.sub(m.bits(shifted, "i64"), 0x4338000000000000 - 1023)
    return m.mul(power, m.bits(m.shift_left(exponent, 52), "f64"))


def pow(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    """x^y = e^(y log |x|) by way of f64; the sign and the edges as in IEEE 754."""
    size = m.abs(x)
    magnitude = log_wide(m, m.cast(size, "f64"))
    # 1 to any power, infinite or NaN, is 1.
    scaled = m.where(m.eq(size, 1.0), 0.0, m.mul(magnitude, m.cast(y, "f64")))
    value = m.cast(exp_wide(m, scaled), "f32")
    whole = m.eq(m.floor(y), y)
    half = m.mul(y, 0.5)
    odd = m.bit_and(whole, m.ne(m.floor(half), half))
    value = m.where(odd, m.copysign(value, x), value)
    # A negative number has roots only if it is infinite.
    rootless = m.bit_and(m.bit_and(m.lt(x, 0.0), m.bit_not(whole)), m.lt(size, math.inf))
    value = m.where(rootless, math.nan, value)
    return m.where(m.bit_or(m.eq(y, 0.0), m.eq(x, 1.0)), 1.0, value)


# ── circular functions ──


def _turn(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """Return r and q such that |x| = r + q pi / 2, |r| <= pi / 4; q is modulo 4, as an i32.

    |x| * 2 / pi is summed from exact products, of which multiples of 4 are dropped first; so it
    holds for the largest numbers as well.
    """
    size = m.cast(m.abs(x), "f64")
    total: Expr | None = None
    for i, digits in enumerate(TWO_OVER_PI):
        part = m.mul(size, math.ldexp(digits, -28 * (i + 1)))
        if 28 * i < 128:
            part = m.fma(m.round(m.mul(part, 0.25)), -4.0, part)
        total = part if total is None else m.plus(total, part)
    assert total is not None
    n = m.round(total)
    r = m.cast(m.mul(m.plus(total, m.neg(n)), math.pi / 2), "f32")
    return r, m.cast(n, "i32")


def _sine(m: Arithmetic, r: Expr) -> Expr:
    z = m.mul(r, r)
    return m.fma(m.mul(r, z), m.polynomial(z, SIN), r)


def _cosine(m: Arithmetic, r: Expr) -> Expr:
    z = m.mul(r, r)
    return m.fma(m.mul(z, z), m.polynomial(z, COS), m.fma(z, -0.5, 1.0))


def _quarter(m: Arithmetic, r: Expr, q: Expr) -> Expr:
    """sin(r + q pi / 2)"""
    odd = m.ne(m.bit_and(q, 1), 0)
    value = m.where(odd, _cosine(m, r), _sine(m, r))
    return m.where(m.ne(m.bit_and(q, 2), 0), m.neg(value), value)


def sin(m: Arithmetic, x: Expr) -> Expr:
    value = _quarter(m, *_turn(m, x))
    return m.where(_negative(m, x), m.neg(value), value)


def cos(m: Arithmetic, x: Expr) -> Expr:
    r, q = _turn(m, x)
    return _quarter(m, r, m.add(q, 1))


def tan(m: Arithmetic, x: Expr) -> Expr:
    r, q = _turn(m, x)
    s, c = _sine(m, r), _cosine(m, r)
    odd = m.ne(m.bit_and(q, 1), 0)
    value = m.div(m.where(odd, m.neg(c), s), m.where(odd, s, c))
    return m.where(_negative(m, x), m.neg(value), value)


def _negative(m: Arithmetic, x: Expr) -> Expr:
    """Whether the sign of x is set, that of -0 too."""
    return m.lt(m.bits(x, "i32"), 0)


def asin(m: Arithmetic, x: Expr) -> Expr:
    """x + x^3 ASIN(x^2); beyond a half, pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    far, value = _asin(m, m.abs(x))
    rest = m.plus(m.plus(HALF_PI_LOW, m.mul(value, -2.0)), HALF_PI_HIGH)
    return m.copysign(m.where(far, rest, value), x)


def acos(m: Arithmetic, x: Expr) -> Expr:
    far, value = _asin(m, m.abs(x))
    twice, minus = m.add(value, value), m.neg(m.copysign(value, x))
    near = m.plus(m.plus(HALF_PI_LOW, minus), HALF_PI_HIGH)
    left = m.plus(m.plus(2 * HALF_PI_LOW, m.neg(twice)), 2 * HALF_PI_HIGH)
    return m.where(far, m.where(m.lt(x, 0.0), left, twice), near)


def _asin(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """Return if x >= 0 is more than a half, and asin of x or then of sqrt((1 - x) / 2)."""
    far = m.gt(x, 0.5)
    z = m.where(far, m.fma(x, -0.5, 0.5), m.mul(x, x))
    s = m.where(far, m.sqrt(z), x)
    return far, m.fma(m.mul(s, z), m.polynomial(z, ASIN), s)


def atan(m: Arithmetic, x: Expr) -> Expr:
    """x + x^3 ATAN(x^2); beyond 1, pi/2 - atan(1 / x)."""
    size = m.abs(x)
    far = m.gt(size, 1.0)
    s = m.where(far, m.div(1.0, size), size)
    z = m.mul(s, s)
    value = m.fma(m.mul(s, z), m.polynomial(z, ATAN), s)
    rest = m.plus(m.plus(HALF_PI_LOW, m.neg(value)), HALF_PI_HIGH)
    return m.copysign(m.where(far, rest, value), x)


# ── hyperbolic functions ──


def tanh(m: Arithmetic, x: Expr) -> Expr:
    """x + x^3 TANH(x^2); from 0.55 on, 1 - 2 / (e^2x + 1)."""
    size = m.abs(x)
    z = m.mul(x, x)
    near = m.fma(m.mul(x, z), m.polynomial(z, TANH), x)
    power = exp(m, m.mul(m.minimum(size, 10.0), 2.0))
    far = m.sub(1.0, m.div(2.0, m.add(power, 1.0)))
    return m.copysign(m.where(m.lt(size, 0.55), near, far), x)


def sinh(m: Arithmetic, x: Expr) -> Expr:
    size = m.abs(x)
    z = m.mul(x, x)
    near = m.fma(m.mul(x, z), m.polynomial(z, SINH), x)
    half = exp(m, size, halved=True)
    far = m.sub(half, m.div(0.25, half))
    return m.where(m.lt(size, 1.0), near, m.copysign(far, x))


def cosh(m: Arithmetic, x: Expr) -> Expr:
    half = exp(m, m.abs(x), halved=True)
    return m.add(half, m.div(0.25, half))


def widely(m: Arithmetic, x: Expr, function: Callable[[Arithmetic, Expr, Function], Expr]) -> Expr:
    """Call a function of f64 that takes a logarithm, for an f32 with our own."""
    if x.dtype == "f32":
        return m.cast(function(m, m.cast(x, "f64"), log_wide), "f32")
    return function(m, x, transcendental_f64.log)


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


# ── the error function ──


def erf(m: Arithmetic, x: Expr) -> Expr:
    """x + x ERF_NEAR(x^2); from 1 on, 1 - ERF_FAR(x - 2.5), and 1 from 4 on."""
    if m.lookup and x.lanes == len(ERF_TABLE[0]):
        return _erf_by_table(m, x)
    size = m.abs(x)
    near = m.fma(m.polynomial(m.mul(x, x), ERF_NEAR), x, x)
    t = m.sub(m.minimum(size, 4.0), 2.5)
    far = m.sub(1.0, m.polynomial(t, ERF_FAR))
    return m.where(m.lt(size, 1.0), near, m.copysign(far, x))


def _erf_by_table(m: Arithmetic, x: Expr) -> Expr:
    """erf(n / 4 + r) = r + a polynomial of r, with coefficients by n from ERF_TABLE; 1 from 3.8 on.

    Row i of the table holds those of r^i.  That is half the work.  Without the r beside the
    polynomial, rounding its largest coefficient would cost small numbers their last digit.
    """
    magic = 1.5 * 2.0**23
    size = m.minimum(m.abs(x), 3.8125)
    shifted = m.fma(size, 4.0, magic)
    r = m.fma(m.plus(shifted, -magic), -0.25, size)
    n = m.bits(shifted, "i32")
    first, *others, total = [m.b.let(Lookup(row, n)) for row in ERF_TABLE]
    for c in reversed(others):
        total = m.fma(total, r, c)
    return m.copysign(m.fma(total, r, m.plus(first, r)), x)


def erf_wide(m: Arithmetic, x: Expr) -> Expr:
    """The same for f64; from 1 on, 1 - e^-x^2 ERF_FAR_F64((x - 2.5) / (x + 2.5)), 1 from 6 on."""
    size = m.abs(x)
    near = m.fma(m.polynomial(m.mul(x, x), ERF_NEAR_F64), x, x)
    y = m.minimum(size, 6.0)
    t = m.div(m.sub(y, 2.5), m.add(y, 2.5))
    power = transcendental_f64.exp(m, m.neg(m.mul(y, y)))
    far = m.sub(1.0, m.mul(power, m.polynomial(t, ERF_FAR_F64)))
    return m.where(m.lt(size, 1.0), near, m.copysign(far, x))
