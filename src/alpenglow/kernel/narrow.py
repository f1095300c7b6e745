"""Conversions to and from element types of a byte or less, by arithmetic on their codes.

A kernel moves such elements as opaque bytes.  Where a formula casts them, their code becomes an
f32 or i32, or is made of one; no machine instruction is needed, and vectors have it too.  Floats
are rounded to nearest even.  What is too large becomes infinity, NaN where there is none, and the
largest number where there is neither: as ml_dtypes has it, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.ir.types import DTYPES, NARROW_FLOATS, width
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Expr

ROUNDINGS = ("up", "down", "nearest")
"""How to come to a power of two; ``nearest`` takes the larger of two that are as near."""

NAN = 0x7FC00000
INFINITY = 0x7F800000


@dataclass(frozen=True)
class Format:
    """A sign, then bits of exponent and mantissa; codes here are without the sign.

    `largest` is the code of the largest number, `beyond` that of what is larger.  A `single` NaN
    stands in the place of -0.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    single: bool = False

    @property
    def sign(self) -> int:
        """The bit that holds the sign."""
        return 1 << (self.exponent + self.mantissa)


FORMATS = {
    "f8e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "f8e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, single=True),
    "f8e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "f8e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, single=True),
    # Without NaN; ml_dtypes turns one into a zero of the other sign.
    "f6e2m3": Format(2, 3, 1, 0x1F, 0x1F, 0x20),
    "f6e3m2": Format(3, 2, 3, 0x1F, 0x1F, 0x20),
    "f4e2m1": Format(2, 1, 1, 0x7, 0x7, 0x8),
}


def largest(dtype: str) -> float:
    """Return the largest number of a narrow float type."""
    return float(np.array(FORMATS[dtype].largest, np.uint8).view(DTYPES[dtype]))


def widened(m: Arithmetic, x: Expr) -> Expr:
    """Return narrow elements as f32, or i32 if they are integers; both hold all their values."""
    code = m.cast(m.bits(x, "u8"), "i32")
    if x.dtype not in NARROW_FLOATS:
        above = 32 - width(x.dtype)
        if x.dtype[0] == "i":
            return m.shift_right(m.shift_left(code, above), above)
        return m.bit_and(code, (1 << width(x.dtype)) - 1)
    if x.dtype == "f8e8m0":
        power = m.where(m.eq(code, 0), 1 << 22, m.shift_left(code, 23))
        return m.bits(m.where(m.eq(code, 255), NAN, power), "f32")
    return _number(m, FORMATS[x.dtype], code)


def _number(m: Arithmetic, form: Format, code: Expr) -> Expr:
    size = m.bit_and(code, form.sign - 1)
    # Below the least exponent, codes count steps; above, they are the upper bits of an f32.
    steps = m.mul(m.cast(size, "f32"), 2.0 ** (1 - form.bias - form.mantissa))
    moved = m.add(m.shift_left(size, 23 - form.mantissa), (127 - form.bias) << 23)
    bits = m.where(m.lt(size, 1 << form.mantissa), m.bits(steps, "i32"), moved)
    if form.largest < form.sign - 1:
        bits = m.where(m.gt(size, form.largest), NAN, bits)
        if form.beyond != form.nan:
            bits = m.where(m.eq(size, form.beyond), INFINITY, bits)
    sign = m.bit_and(code, form.sign)
    signed = m.bit_or(bits, m.shift_left(sign, 31 - form.exponent - form.mantissa))
    if form.single:
        signed = m.where(m.eq(code, form.nan), NAN - (1 << 31), signed)
    return m.bits(signed, "f32")


def narrowed(m: Arithmetic, x: Expr, dtype: str) -> Expr:
    """Return x, a number of any type, as narrow elements."""
    if dtype not in NARROW_FLOATS:
        whole = m.cast(x, "i32")
        return m.bits(m.cast(m.bit_and(whole, (1 << width(dtype)) - 1), "u8"), dtype)
    x = m.cast(x, "f32")
    if dtype == "f8e8m0":
        code = power_of_two(m, x, "nearest", saturate=False)
    else:
        code = m.cast(_code(m, FORMATS[dtype], x), "u8")
    return m.bits(code, dtype)


def _code(m: Arithmetic, form: Format, x: Expr) -> Expr:
    bits = m.bits(x, "i32")
    size = m.bit_and(bits, 0x7FFFFFFF)
    # Of a mantissa that is cut short the last bit is raised by what is cut off, if that is more
    # than half of it, or half and the bit is odd.
    cut = 23 - form.mantissa
    odd = m.bit_and(m.shift_right(size, cut), 1)
    raised = m.shift_right(m.add(m.add(size, (1 << (cut - 1)) - 1), odd), cut)
    normal = m.sub(raised, (127 - form.bias) << form.mantissa)
    # Adding a number whose last bit is worth one step leaves the steps in the last bits.
    steps = 2.0 ** (24 - form.bias - form.mantissa)
    small = m.sub(m.bits(m.plus(m.bits(size, "f32"), steps), "i32"), _bits(steps))
    code = m.where(m.lt(size, _bits(2.0 ** (1 - form.bias))), small, normal)
    # Infinity is larger than all else; NaN, larger still, is found by itself.
    code = m.where(m.gt(code, form.largest), form.beyond, code)
    code = m.where(m.ge(size, INFINITY), form.beyond, code)
    nan = m.gt(size, INFINITY)
    sign = m.bit_and(m.shift_right(bits, 31), form.sign)
    if form.single:
        signed = m.where(m.eq(code, 0), 0, m.bit_or(code, sign))
        return m.where(nan, form.nan, signed)
    code = m.where(nan, form.nan, code)
    return m.bit_xor(code, sign)


def _bits(value: float) -> int:
    """Return the bits of an f32 as an i32."""
    return int(np.float32(value).view(np.int32))


def power_of_two(m: Any, x: Any, rounding: str, saturate: bool) -> Any:
    """Return the code, a u8, of the power of two that the f32 `x` rounds to; of any vocabulary.

    Powers go from 2^-127, code 0, to 2^127, code 254.  What is smaller or larger becomes the
    least or the largest of them, or NaN, code 255, if `saturate` is false.  Negative numbers and
    NaN are NaN.
    """
    assert rounding in ROUNDINGS, rounding
    bits = m.bits(x, "i32")
    size = m.bit_and(bits, 0x7FFFFFFF)
    # 2^-127 is half of the least number with an exponent of its own.
    tiny = m.lt(size, 1 << 23)
    more, more_tiny = {
        "up": ((1 << 23) - 1, (1 << 22) - 1),
        "down": (0, 0),
        "nearest": (1 << 22, 1 << 21),
    }[rounding]
    code = m.shift_right(m.where(tiny, m.add(size, more_tiny), m.add(size, more)), 23)
    code = m.where(m.gt(code, 254), 254 if saturate else 255, code)
    if not saturate:
        code = m.where(m.lt(size, 1 << 22), 255, code)
    negative = m.bit_and(m.lt(bits, 0), m.ne(size, 0))
    return m.cast(m.where(m.bit_or(m.gt(size, INFINITY), negative), 255, code), "u8")
