"""Converters about the bits of numbers: shifts, counts, and rounding to fewer."""

from __future__ import annotations

from alpenglow.frontends.stablehlo.table import Made, Site, both, on
from alpenglow.ir.graph import Value
from alpenglow.ir.types import NARROW_INTS, width
from alpenglow.ops.elementwise.arithmetic import Add, Minimum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Greater, IsNaN, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd, BitOr, ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import BitCast, Cast, Where


@on(*both("shift_left", "shift_right_logical", "shift_right_arithmetic"), pointwise=True)
def shift(s: Site) -> Made:
    """By the width of the element or more nothing is left but, if it counts, the sign.

    A number of places that is negative counts as too large.
    """
    dtype = s.input(0).type.dtype
    x, y = s.pair()
    if dtype in NARROW_INTS:
        return _narrow_shift(s, x, y, dtype)
    bits = width(x.type.dtype)
    unsigned = f"u{bits}"
    places = s.g(BitCast(unsigned), y)
    if s.plain == "shift_right_arithmetic":
        most = s.g(Minimum(), places, s.filled(bits - 1, places))
        signed = f"i{bits}"
        made = s.g(ShiftRight(), s.g(BitCast(signed), x), s.g(BitCast(signed), most))
        return s.g(BitCast(x.type.dtype), made)
    op = ShiftLeft() if s.plain == "shift_left" else ShiftRight()
    return s.g(BitCast(x.type.dtype), s.g(op, s.g(BitCast(unsigned), x), places))


def _narrow_shift(s: Site, x: Value, y: Value, dtype: str) -> Value:
    """Return shifts of elements of few bits, which are held in more."""
    bits = width(dtype)
    places = s.g(BitCast("u8"), y)
    if s.plain == "shift_right_arithmetic":
        most = s.g(BitCast("i8"), s.g(Minimum(), places, s.filled(bits - 1, places)))
        signed = s.g(Cast("i8"), s.g(Cast(f"i{bits}"), x))
        return s.g(Cast(x.type.dtype), s.g(ShiftRight(), signed, most))
    whole = s.g(BitAnd(), s.g(BitCast("u8"), x), s.full((1 << bits) - 1, "u8", x.type.shape))
    op = ShiftLeft() if s.plain == "shift_left" else ShiftRight()
    return s.g(BitCast(x.type.dtype), s.g(op, whole, places))


@on("stablehlo.popcnt", pointwise=True)
def popcnt(s: Site) -> Made:
    return s.cast(ones(s, _bits(s)), s.wide(0).type.dtype)


@on("stablehlo.count_leading_zeros", pointwise=True)
def count_leading_zeros(s: Site) -> Made:
    """Below the first bit all are set, and those that are not are counted."""
    x = _bits(s)
    bits = width(s.input(0).type.dtype)
    step = 1
    while step < width(x.type.dtype):
        x = s.g(BitOr(), x, s.g(ShiftRight(), x, s.filled(step, x)))
        step *= 2
    count = ones(s, x)
    made = s.g(Sub(), s.filled(bits, count), count)
    return s.cast(made, s.wide(0).type.dtype)


def _bits(s: Site) -> Value:
    """Return the operand as an unsigned integer, which is 0 above its own bits."""
    dtype = s.input(0).type.dtype
    x = s.wide(0)
    whole = s.g(BitCast(f"u{width(x.type.dtype)}"), x)
    if dtype in NARROW_INTS:
        return s.g(BitAnd(), whole, s.filled((1 << width(dtype)) - 1, whole))
    return whole


def ones(s: Site, x: Value) -> Value:
    """Return how many bits are set: in pairs, in fours, in bytes, and then all bytes together."""
    bits = width(x.type.dtype)
    full = (1 << bits) - 1

    def masked(v: Value, pattern: int) -> Value:
        return s.g(BitAnd(), v, s.filled(pattern & full, v))

    def right(v: Value, places: int) -> Value:
        return s.g(ShiftRight(), v, s.filled(places, v))

    fives, threes, low = int("5" * 16, 16), int("3" * 16, 16), int("0f" * 8, 16)
    x = s.g(Sub(), x, masked(right(x, 1), fives))
    x = s.g(Add(), masked(x, threes), masked(right(x, 2), threes))
    x = masked(s.g(Add(), x, right(x, 4)), low)
    if bits == 8:
        return x
    x = s.g(Mul(), x, s.filled(int("01" * 8, 16) & full, x))
    return right(x, bits - 8)


@on("stablehlo.reduce_precision", pointwise=True)
def reduce_precision(s: Site) -> Made:
    """A float rounded to fewer bits: the fraction to even, then what is beyond the exponents."""
    x = s.wide(0)
    exponent, mantissa = s.number("exponent_bits"), s.number("mantissa_bits")
    if exponent < 1 or mantissa < 0:
        raise s.refuse(
            f"exponent_bits is {exponent} and mantissa_bits is {mantissa}, "
            "expected at least 1 and at least 0"
        )
    own = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}[x.type.dtype]
    whole = s.g(BitCast(f"u{width(x.type.dtype)}"), x)
    made = whole
    if mantissa < own[1]:
        last = own[1] - mantissa
        odd = s.g(BitAnd(), s.g(ShiftRight(), made, s.filled(last, made)), s.filled(1, made))
        half = s.g(Add(), odd, s.filled((1 << last - 1) - 1, made))
        keep = ((1 << width(x.type.dtype)) - 1) & ~((1 << last) - 1)
        made = s.g(BitAnd(), s.g(Add(), made, half), s.filled(keep, made))
    if exponent < own[0]:
        made = _within(s, made, exponent, own)
    rounded = s.g(BitCast(x.type.dtype), made)
    if not mantissa:  # no bit is left to tell NaN from infinity
        return s.g(Where(), s.g(IsNaN(), x), s.filled(float("inf"), x), rounded)
    return s.g(Where(), s.g(IsNaN(), x), x, rounded)


def _within(s: Site, x: Value, exponent: int, own: tuple[int, int]) -> Value:
    """Return the bits of floats, infinite or 0 where there are no such exponents."""
    bits, (_, fraction) = width(x.type.dtype), own
    sign = s.g(BitAnd(), x, s.filled(1 << bits - 1, x))
    field = ((1 << own[0]) - 1) << fraction
    power = s.g(BitAnd(), x, s.filled(field, x))
    bias, narrow = (1 << own[0] - 1) - 1, (1 << exponent - 1) - 1
    most, least = (bias + narrow) << fraction, (bias - narrow) << fraction
    beyond = s.g(Greater(), power, s.filled(most, x))
    below = s.g(LessOrEqual(), power, s.filled(least, x))
    x = s.g(Where(), beyond, s.g(BitOr(), sign, s.filled(field, x)), x)
    return s.g(Where(), below, sign, x)
