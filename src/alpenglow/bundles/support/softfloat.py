"""IEEE 754 arithmetic on the bits of floats, for machines that lack an instruction.

Each function takes and returns words that hold a float's bits, is free of branches but for the
loops of division and square root, rounds to the nearest, ties to even, and knows subnormal numbers,
infinities and NaN (all NaNs that are made are the same one).

A finite number is (sign, exponent, significand): significand * 2 ** exponent.  The significand of
zero is 0, that of others has been shifted up so far that its top bit is where one expects it.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.bundles.support.integer import Word


@dataclass(frozen=True, slots=True)
class BinaryFormat:
    """A binary format: all bits, and those of the significand with the one that is implied."""

    bits: int
    precision: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.precision - 1)) - 1

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << (self.precision - 1)

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.precision - 2)

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


F16, BF16, F32, F64 = (
    BinaryFormat(16, 11),
    BinaryFormat(16, 8),
    BinaryFormat(32, 24),
    BinaryFormat(64, 53),
)

EXPONENT = 32
"""Bits of an exponent."""

NOWHERE = -(1 << 20)
"""The exponent of zero: below that of any number."""


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A finite number; its sign is a condition."""

    sign: Word
    exponent: Word
    significand: Word


def sign_of(f: BinaryFormat, x: Word) -> Word:
    return (x >> (f.bits - 1)).wide(1)


def magnitude(f: BinaryFormat, x: Word) -> Word:
    return x & (f.sign - 1)


def is_nan(f: BinaryFormat, x: Word) -> Word:
    return magnitude(f, x) > f.infinity


def is_infinite(f: BinaryFormat, x: Word) -> Word:
    return magnitude(f, x).equals(f.infinity)


def unpack(f: BinaryFormat, x: Word, width: int, top: int) -> Number:
    """Return the number whose bits are x, its significand `width` bits wide, the top bit `top`."""
    field = (magnitude(f, x) >> (f.precision - 1)).wide(EXPONENT)
    fraction = (x & ((1 << (f.precision - 1)) - 1)).wide(max(f.bits, width))
    subnormal = field.equals(0)
    plain = subnormal.where(fraction, fraction | 1 << (f.precision - 1))
    exponent = subnormal.where(1, field) - (f.bias + f.precision - 1)
    return normal(Number(sign_of(f, x), exponent, plain.wide(width)), top)


def normal(n: Number, top: int) -> Number:
    """Return the number with bit `top` the highest that is set."""
    bits = n.significand.bits
    shift = n.significand.zeros()
    up = n.significand << shift.least(bits - 1)
    down = bits - 1 - top
    exponent = n.exponent - shift.wide(EXPONENT) + down
    zero = n.significand.equals(0)
    return Number(n.sign, zero.where(NOWHERE, exponent), up >> down if down else up)


def jammed(x: Word, shift: Word) -> Word:
    """Return x shifted right; its last bit is set if a one was lost."""
    by = shift.least(x.bits - 1).wide(x.bits)
    lost = (x & ((x.like(1) << by) - 1)).equals(0)
    return (x >> by) | (~lost).wide(x.bits)


def pack(f: BinaryFormat, n: Number) -> Word:
    """Return the bits of a number, rounded."""
    width = n.significand.bits
    assert width >= f.precision + 2, "there is no room to round"
    n = normal(n, width - 1)
    field = n.exponent + (width - 1 + f.bias)
    below = field.less(1)
    shifted = below.where(jammed(n.significand, below.where(1 - field, 0)), n.significand)
    down = width - f.precision
    rest = shifted & ((1 << down) - 1)
    kept = shifted >> down
    half = 1 << (down - 1)
    up = (rest > half) | (rest.equals(half) & (kept & 1).equals(1))
    rounded = (kept + up.wide(width)).wide(f.bits)
    limit = 2 * f.bias + 1
    most = (field.less(limit)).where(field, limit)
    base = below.where(0, most - 1).wide(f.bits) << (f.precision - 1)
    packed = (base + rounded).least(f.infinity)
    packed = n.significand.equals(0).where(0, packed)
    return signed(f, packed, n.sign)


def signed(f: BinaryFormat, x: Word, sign: Word) -> Word:
    return x | sign.wide(f.bits) << (f.bits - 1)


def total(a: Number, b: Number) -> Number:
    """Return a + b; both significands leave their uppermost bit free."""
    less = a.exponent.less(b.exponent)
    less = less | (a.exponent.equals(b.exponent) & (a.significand < b.significand))
    sign, other = less.where(b.sign, a.sign), less.where(a.sign, b.sign)
    high = less.where(b.exponent, a.exponent)
    low = less.where(a.exponent, b.exponent)
    large = less.where(b.significand, a.significand)
    small = jammed(less.where(a.significand, b.significand), high - low)
    alike = sign.equals(other)
    significand = alike.where(large + small, large - small)
    # What cancels is +0; the sum of two zeros keeps a sign that they share.
    return Number(significand.equals(0).where(a.sign & b.sign, sign), high, significand)


def add(f: BinaryFormat, x: Word, y: Word) -> Word:
    width = f.bits
    a, b = unpack(f, x, width, width - 2), unpack(f, y, width, width - 2)
    finite = pack(f, total(a, b))
    return _sum(f, finite, x, y)


def _sum(f: BinaryFormat, value: Word, x: Word, y: Word) -> Word:
    """Return what a finite sum is if operands are not finite."""
    value = is_infinite(f, y).where(y, value)
    value = is_infinite(f, x).where(x, value)
    opposite = is_infinite(f, x) & is_infinite(f, y) & ~x.equals(y)
    return (is_nan(f, x) | is_nan(f, y) | opposite).where(f.nan, value)


def negated(f: BinaryFormat, x: Word) -> Word:
    return x ^ f.sign


def product(f: BinaryFormat, x: Word, y: Word) -> Number:
    """Return the exact product of two finite numbers, with a top bit free."""
    width = 2 * f.bits
    a, b = unpack(f, x, f.bits, f.precision - 1), unpack(f, y, f.bits, f.precision - 1)
    whole = a.significand.wide(width) * b.significand.wide(width)
    exact = Number(a.sign ^ b.sign, a.exponent + b.exponent, whole)
    return normal(exact, width - 2)


def _product(f: BinaryFormat, value: Word, x: Word, y: Word) -> Word:
    """Return what a finite product is if operands are not finite."""
    endless = is_infinite(f, x) | is_infinite(f, y)
    zero = magnitude(f, x).equals(0) | magnitude(f, y).equals(0)
    sign = sign_of(f, x) ^ sign_of(f, y)
    value = endless.where(signed(f, x.like(f.infinity), sign), value)
    return (is_nan(f, x) | is_nan(f, y) | (endless & zero)).where(f.nan, value)


def multiply(f: BinaryFormat, x: Word, y: Word) -> Word:
    a, b = unpack(f, x, f.bits, f.bits - 1), unpack(f, y, f.bits, f.bits - 1)
    whole = a.significand.wide(2 * f.bits) * b.significand.wide(2 * f.bits)
    # Half of it is enough if it tells whether there is more: shorter words, less work.
    more = ~whole.wide(f.bits).equals(0)
    high = (whole >> f.bits).wide(f.bits) | more.wide(f.bits)
    exact = Number(a.sign ^ b.sign, a.exponent + b.exponent + f.bits, high)
    return _product(f, pack(f, exact), x, y)


def fma(f: BinaryFormat, x: Word, y: Word, z: Word) -> Word:
    """Return x * y + z, rounded once."""
    width = 2 * f.bits
    finite = pack(f, total(product(f, x, y), unpack(f, z, width, width - 2)))
    sign = (sign_of(f, x) ^ sign_of(f, y)).wide(f.bits) << (f.bits - 1)
    # Of a product only whether it is infinite or NaN counts from here on.
    through = _product(f, sign, x, y)
    return _sum(f, finite, through, z)


def divide(f: BinaryFormat, x: Word, y: Word) -> Word:
    a, b = unpack(f, x, f.bits, f.precision - 1), unpack(f, y, f.bits, f.precision - 1)

    def step(state: list[Word]) -> list[Word]:
        rest, quotient = state
        fits = rest >= b.significand
        rest = fits.where(rest - b.significand, rest)
        return [rest << 1, quotient << 1 | fits.wide(f.bits)]

    digits = f.precision + 3
    rest, quotient = x.of.repeat(digits, [a.significand, x.like(0)], step)
    sticky = quotient | (~rest.equals(0)).wide(f.bits)
    exact = Number(a.sign ^ b.sign, a.exponent - b.exponent - (digits - 1), sticky)
    value = pack(f, exact)
    nothing, endless = magnitude(f, y).equals(0), is_infinite(f, x)
    sign = a.sign ^ b.sign
    value = is_infinite(f, y).where(signed(f, x.like(0), sign), value)
    value = (nothing | endless).where(signed(f, x.like(f.infinity), sign), value)
    undefined = (nothing & magnitude(f, x).equals(0)) | (endless & is_infinite(f, y))
    return (is_nan(f, x) | is_nan(f, y) | undefined).where(f.nan, value)


def square_root(f: BinaryFormat, x: Word) -> Word:
    width = 2 * f.bits
    # An even exponent, and a radicand whose root has two bits more than are kept.
    a = unpack(f, x, width, 2 * f.precision + 2)
    odd = (a.exponent & 1).equals(1)
    radicand = odd.where(a.significand << 1, a.significand)
    exponent = odd.where(a.exponent - 1, a.exponent)
    digits = f.precision + 2

    def step(state: list[Word]) -> list[Word]:
        rest, root, bit = state
        trial = root + bit
        fits = rest >= trial
        rest = fits.where(rest - trial, rest)
        root = fits.where((root >> 1) + bit, root >> 1)
        return [rest, root, bit >> 2]

    first = x.of.word(1 << (2 * (digits - 1)), width)
    rest, root, _ = x.of.repeat(digits, [radicand, radicand.like(0), first], step)
    sticky = root | (~rest.equals(0)).wide(width)
    half = Word(x.of, x.of.emit(f"ashr i32 {exponent.name}, 1"), EXPONENT)
    value = pack(f, Number(x.of.word(0, 1), half, sticky))
    value = (magnitude(f, x).equals(0) | x.equals(f.infinity)).where(x, value)
    below = sign_of(f, x) & ~magnitude(f, x).equals(0)
    return (is_nan(f, x) | below).where(f.nan, value)


def remainder(f: BinaryFormat, x: Word, y: Word) -> Word:
    """Return x - y * trunc(x / y), which is exact: C's fmod."""
    a, b = unpack(f, x, f.bits, f.precision - 1), unpack(f, y, f.bits, f.precision - 1)
    ahead = a.exponent - b.exponent

    def step(state: list[Word]) -> list[Word]:
        rest, left = state
        fits = rest >= b.significand
        rest = fits.where(rest - b.significand, rest)
        more = ~left.less(1)
        return [more.where(rest << 1, rest), more.where(left - 1, left)]

    # One step for each power of two that x is ahead of y, and a last one without a shift.
    steps = ahead.less(0).where(0, ahead) + 1
    rest, _ = x.of.repeat(steps, [a.significand, ahead], step)
    value = pack(f, Number(a.sign, b.exponent, rest.wide(2 * f.bits)))
    value = (magnitude(f, x) < magnitude(f, y)).where(x, value)
    undefined = is_infinite(f, x) | magnitude(f, y).equals(0)
    return (is_nan(f, x) | is_nan(f, y) | undefined).where(f.nan, value)


def to_format(f: BinaryFormat, g: BinaryFormat, x: Word) -> Word:
    """Return x, of format f, in format g."""
    width = max(f.bits, g.bits) * 2
    value = pack(g, unpack(f, x, width, width - 1))
    sign = sign_of(f, x)
    value = is_infinite(f, x).where(signed(g, value.like(g.infinity), sign), value)
    return is_nan(f, x).where(signed(g, value.like(g.nan), sign), value)


def from_integer(f: BinaryFormat, x: Word, is_signed: bool) -> Word:
    width = max(x.bits, f.bits)
    below = x.negative if is_signed else x.of.word(0, 1)
    plain = below.where(0 - x, x).wide(max(width, f.precision + 8))
    return pack(f, Number(below, x.of.word(0, EXPONENT), plain))


def to_integer(f: BinaryFormat, x: Word, bits: int, is_signed: bool) -> Word:
    """Return x without its fraction; what does not fit is left open."""
    width = max(bits, f.bits)
    a = unpack(f, x, width, width - 1)
    down = (0 - a.exponent).least(width - 1)
    whole = a.significand >> down.wide(width)
    small = a.exponent.less(1 - width)
    whole = small.where(0, whole).wide(bits)
    return (a.sign.where(0 - whole, whole)) if is_signed else whole


def truncate(f: BinaryFormat, x: Word) -> Word:
    return _cut(f, x)[0]


def _cut(f: BinaryFormat, x: Word) -> tuple[Word, Word]:
    """Return x without its fraction, and the value of its last bit before the point."""
    field = (magnitude(f, x) >> (f.precision - 1)).wide(EXPONENT)
    behind = f.bias + f.precision - 1 - field
    whole = behind.less(1)
    small = field < f.bias
    unit = x.like(1) << behind.least(f.bits - 1).wide(f.bits)
    cut = whole.where(x, x & (0 - unit))
    return small.where(x & f.sign, cut), unit


def round_away(f: BinaryFormat, x: Word, negative: bool) -> Word:
    """Return the floor (`negative`) or the ceiling of x."""
    cut, unit = _cut(f, x)
    one = x.like(f.bias << (f.precision - 1))
    further = (magnitude(f, cut).equals(0)).where((x & f.sign) | one, cut + unit)
    sign = sign_of(f, x)
    outward = sign if negative else ~sign
    move = outward & ~cut.equals(x) & ~is_nan(f, x)
    return move.where(further, cut)


def round_even(f: BinaryFormat, x: Word) -> Word:
    """Return the integer next to x, of two the even one."""
    cut, unit = _cut(f, x)
    half = unit >> 1
    low = (x & unit).equals(0).where(x.like(0), x.like(1))
    near = (x + (half - 1) + low) & (0 - unit)
    near = cut.equals(x).where(x, near)
    size = magnitude(f, x)
    one = x.like(f.bias << (f.precision - 1))
    a_half = (f.bias - 1) << (f.precision - 1)
    small = size < one
    fraction = (size > a_half).where((x & f.sign) | one, x & f.sign)
    return (small & ~is_nan(f, x)).where(fraction, near)


def ordered(f: BinaryFormat, x: Word) -> Word:
    """Return an integer that grows, signed, with the number; both zeros are 0."""
    size = magnitude(f, x)
    return sign_of(f, x).where(0 - size, size)


def extreme(f: BinaryFormat, x: Word, y: Word, largest: bool) -> Word:
    """Return the smaller or larger number, -0 before +0; NaN if either is."""
    less = ordered(f, x).less(ordered(f, y))
    same = ordered(f, x).equals(ordered(f, y))
    tie = (x & y) if largest else (x | y)
    choice = less.where(y, x) if largest else less.where(x, y)
    return (is_nan(f, x) | is_nan(f, y)).where(f.nan, same.where(tie, choice))


def compare(f: BinaryFormat, op: str, x: Word, y: Word) -> Word:
    """Return whether x op y, op one of eq, lt, le, ge, gt and un (either is NaN)."""
    nan = is_nan(f, x) | is_nan(f, y)
    if op == "un":
        return nan
    a, b = ordered(f, x), ordered(f, y)
    holds = {
        "eq": lambda: a.equals(b),
        "lt": lambda: a.less(b),
        "le": lambda: ~b.less(a),
        "ge": lambda: ~a.less(b),
        "gt": lambda: b.less(a),
    }[op]()
    return holds & ~nan
