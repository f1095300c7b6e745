"""Transcendental functions of f32: what they do not share with those of f64.

Polynomials are fitted to the least largest error (weighted least squares on Chebyshev nodes, the
weights raised where the error was large) and rounded to f32 coefficient by coefficient, the others
fitted anew.

All are within 2 ulp, `asin` within 3 and `tan` within 4, some by way of f64; see
`tests/kernel/test_kernel_math.py`.
"""

from __future__ import annotations

import math

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Expr, Lookup
from alpenglow.kernel.transcendental import Precision, log_edges

MAGIC = 1.5 * 2.0**23
"""What is added to it is rounded to an integer, in the last bits of the sum."""

LN2_HIGH, LN2_LOW = 0.6931471824645996, -1.9046542121259336e-09

EXP = (0.5, 0.16666513681411743, 0.041666414588689804, 0.008369526825845242, 0.0013939628843218088)
EXP2 = (
    0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.00961843691766262,
    0.0013398875016719103, 0.00015353361959569156,
)  # fmt: skip
EXP2_OF_HALVES = (0.6932829022407532, 0.2422109693288803, 0.05500893294811249)
"""2^f = 1 + f P(f), |f| <= 1/2, to 1.6e-8; and to 1e-4, a twentieth of what bf16 is off by."""
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


def exp(m: Arithmetic, x: Expr, halved: bool) -> Expr:
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


def share(m: Arithmetic, x: Expr, halves: bool = False) -> Expr:
    """e^x of x <= 0 for a softmax: it is off by 1e-7 of the largest, which is 1.

    What is rounded to `halves` afterwards is off by 1e-4 of its own.  This takes 9 multiplications,
    and 6 then, where `exp_below` takes 10.
    """
    t = m.mul(x, 1 / math.log(2))
    # The last bits of this are those of an exponent.
    shifted = m.plus(t, MAGIC + 127)
    f = m.plus(t, m.neg(m.plus(shifted, -MAGIC - 127)))
    power = m.fma(f, m.polynomial(f, EXP2_OF_HALVES if halves else EXP2), 1.0)
    scale = m.bits(m.shift_left(m.bits(shifted, "i32"), 23), "f32")
    return m.where(m.lt(t, -126.0), 0.0, m.mul(power, scale))


def _power(m: Arithmetic, x: Expr) -> tuple[Expr, Expr]:
    """Return an i32 that ends with the bits of n, and e^r."""
    shifted = m.fma(x, 1 / math.log(2), MAGIC)
    n = m.plus(shifted, -MAGIC)
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
    return log_edges(m, x, value)


def log_wide(m: Arithmetic, x: Expr) -> Expr:
    """The logarithm of a normal f64, to 13 digits: with s = f / (2 + f) it is 2 s + s^3 …"""
    root, one = 0x3FE6A09E667F3BCD, 0x3FF0000000000000
    offset = m.add(m.bits(x, "i64"), one - root)
    e = m.cast(m.sub(m.shift_right(offset, 52), 1023), "f64")
    f = m.plus(m.bits(m.add(m.bit_and(offset, (1 << 52) - 1), root), "f64"), -1.0)
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    value = m.fma(m.mul(z, s), m.polynomial(z, LOG_WIDE), m.add(s, s))
    return log_edges(m, x, m.fma(e, math.log(2), value))


def exp_wide(m: Arithmetic, x: Expr) -> Expr:
    """e^x of an f64 to 12 digits, up to the powers that f32 knows."""
    magic = 1.5 * 2.0**52
    y = m.minimum(m.maximum(x, -200.0), 200.0)
    shifted = m.fma(y, 1 / math.log(2), magic)
    r = m.fma(m.plus(shifted, -magic), -math.log(2), y)
    power = m.plus(m.fma(m.mul(r, r), m.polynomial(r, EXP_WIDE), r), 1.0)
    exponent = m.sub(m.bits(shifted, "i64"), 0x4338000000000000 - 1023)
    return m.mul(power, m.bits(m.shift_left(exponent, 52), "f64"))


def _power_of_size(m: Arithmetic, size: Expr, y: Expr) -> Expr:
    """size^y = e^(y log size) by way of f64."""
    magnitude = log_wide(m, m.cast(size, "f64"))
    # 1 to any power, infinite or NaN, is 1.
    scaled = m.where(m.eq(size, 1.0), 0.0, m.mul(magnitude, m.cast(y, "f64")))
    return m.cast(exp_wide(m, scaled), "f32")


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


def _series(m: Arithmetic, x: Expr, z: Expr, coefficients: tuple[float, ...]) -> Expr:
    return m.fma(m.mul(x, z), m.polynomial(z, coefficients), x)


def _sine(m: Arithmetic, r: Expr) -> Expr:
    return _series(m, r, m.mul(r, r), SIN)


def _cosine(m: Arithmetic, r: Expr) -> Expr:
    z = m.mul(r, r)
    return m.fma(m.mul(z, z), m.polynomial(z, COS), m.fma(z, -0.5, 1.0))


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
    size = m.minimum(m.abs(x), 3.8125)
    shifted = m.fma(size, 4.0, MAGIC)
    r = m.fma(m.plus(shifted, -MAGIC), -0.25, size)
    n = m.bits(shifted, "i32")
    first, *others, total = [m.b.let(Lookup(row, n)) for row in ERF_TABLE]
    for c in reversed(others):
        total = m.fma(total, r, c)
    return m.copysign(m.fma(total, r, m.plus(first, r)), x)


F32 = Precision(
    bits="i32", half_pi=(1.5707963705062866, -4.371138828673793e-08),
    asin=ASIN, atan=ATAN, tanh=TANH, sinh=SINH, erf=erf, exp=exp, exp_below=exp_below, log=log,
    power=_power_of_size, turn=_turn, sine=_sine, cosine=_cosine, series=_series,
    half_rest=lambda m, x: m.fma(x, -0.5, 0.5),
)  # fmt: skip
