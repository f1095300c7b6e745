"""Fixed-point arithmetic of TFLite's reference kernels, from the library gemmlowp.

A number of n integer bits is an integer of 32 bits over 2^(31 - n); of another width it has fewer
bits below.  Nothing here wraps: callers keep to ranges in which the kernels do not either.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.tflite.wide import Integers, bit_length, maximum, minimum, where, zero
from alpenglow.ir.types import Array

MOST = (1 << 31) - 1
"""The fixed-point number for 1 without integer bits."""

EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1), … exp(-16), without integer bits."""


def multiplier(ratio: float) -> tuple[int, int]:
    """Return a ratio as 31 bits and an exponent, TFLite's `QuantizeMultiplier`."""
    if not abs(ratio) < 2.0**30:
        raise ModelError(f"ratio of scales is {ratio:g}, expected a size of less than 2^30")
    digits, exponent = math.frexp(ratio)
    held = math.floor(abs(digits) * 2.0**31 + 0.5)
    if held == 1 << 31:
        held, exponent = held // 2, exponent + 1
    if exponent < -31:
        return 0, 0
    return (held if ratio >= 0 else -held), exponent


def product(a: Integers, b: Integers | int, width: int = 32) -> Integers:
    """Return numbers multiplied; halves go up."""
    both: Integers = a * b
    return (both + (1 << (width - 2))) >> (width - 1)


def divided(x: Integers, bits: Integers | int) -> Integers:
    """Return x / 2^bits, rounded, halves away from zero."""
    size = ((maximum(x, -x) << 1 >> bits) + 1) >> 1
    return where(x < 0, -size, size)


def times(x: Integers, held: int, exponent: int) -> Integers:
    """Return x times a multiplier, rounded twice, `MultiplyByQuantizedMultiplier`."""
    moved = x * (1 << exponent) if exponent > 0 else x
    near = product(moved, held)
    return divided(near, -exponent) if exponent < 0 else near


def rescaled(x: Integers, more: int, width: int = 32) -> Integers:
    """Return numbers with `more` integer bits than they have, saturated where that is negative."""
    if more >= 0:
        return divided(x, more) if more else x
    return saturated(x << -more, width)


def saturated(x: Integers, width: int = 32) -> Integers:
    """Return numbers limited to what a width holds."""
    return limited(x, -1 << (width - 1), (1 << (width - 1)) - 1)


def exponential(x: Integers, bits: int, width: int = 32) -> Integers:
    """Return exp(x), without integer bits, of numbers none of which is above 0."""
    quarter = 1 << (width - bits - 3)
    within = (x & (quarter - 1)) - quarter
    y = _exponential_of_quarter(rescaled(within, -bits, width), width)
    rest = within - x
    for i, factor in enumerate(EXPONENTIALS[: bits + 2]):
        factors = product(y, _held(factor, width), width)
        y = where(zero(rest & (quarter << i)), y, factors)
    return where(zero(x), MOST >> (32 - width), y)


def _exponential_of_quarter(x: Integers, width: int) -> Integers:
    """Return exp(x) from -1/4 to 0, by its series at -1/8."""
    a = x + (1 << (width - 4))
    a2 = product(a, a, width)
    a3, a4 = product(a2, a, width), product(a2, a2, width)
    third, middle = _held(715827883, width), _held(1895147668, width)
    series = divided(product(divided(a4, 2) + a3, third, width) + a2, 1)
    return saturated(product(a + series, middle, width) + middle, width)


def _held(constant: int, width: int) -> int:
    """Return a number of 32 bits in a width."""
    return constant if width == 32 else (constant + (1 << (31 - width))) >> (32 - width)


def reciprocal_of_one_and(x: Integers, width: int = 32) -> Integers:
    """Return 1 / (1 + x), without integer bits, of numbers from 0 to 1."""
    return rescaled(_twice_reciprocal(x, width), -1, width)


def _twice_reciprocal(x: Integers, width: int) -> Integers:
    """Return 2 / (1 + x), of two integer bits, by Newton's method."""
    half = (x + (1 << (width - 1))) >> 1
    y = product(half, _held(-1010580540, width), width) + _held(1515870810, width)
    for _ in range(3):
        rest = (1 << (width - 3)) - product(half, y, width)
        y = y + rescaled(product(y, rest, width), -2, width)
    return y


def logistic(x: Integers, bits: int, width: int) -> Integers:
    """Return 1 / (1 + exp(-x)), without integer bits."""
    y = reciprocal_of_one_and(exponential(-maximum(x, -x), bits, width), width)
    sided = where(x < 0, (MOST >> (32 - width)) - y, y)
    return where(zero(x), 1 << (width - 2), sided)


def tangent(x: Integers, bits: int, width: int) -> Integers:
    """Return tanh(x), without integer bits: (1 - e) / (1 + e) of e = exp(-2 |x|)."""
    y = _twice_reciprocal(exponential(-maximum(x, -x), bits + 1, width), width)
    size = rescaled(y - (1 << (width - 3)), -2, width)
    return where(zero(x), 0, where(x < 0, -size, size))


def reciprocal(x: Integers, bits: int) -> tuple[Integers, Integers]:
    """Return 2^e / x without integer bits, and e, of positive numbers of integer bits."""
    room = 32 - bit_length(x)
    return reciprocal_of_one_and((x << room) - (1 << 31)), bits - room


def reciprocal_root(x: Integers) -> tuple[Integers, Integers]:
    """Return y and e, of which y / 2^(31 + e) is 1 / sqrt(x), of integers that are not negative."""
    over = maximum(bit_length(x) - 28, 0) >> 1
    pairs = ((31 - bit_length(x >> (over * 2))) >> 1) - 1
    # Three integer bits are enough for Newton's method.
    whole = (x >> (over * 2) << (pairs * 2)) >> 1
    half = divided(whole, 1)
    y = x * 0 + (1 << 28)
    for _ in range(5):
        cube = rescaled(product(product(y, y), y), -6)
        y = rescaled(product(y, (1 << 28) + (1 << 27)) - product(half, cube), -3)
    e = over - pairs + 11
    root = product(y, 1518500250) << maximum(-e, 0)
    return where(x > 1, root, MOST), where(x > 1, maximum(e, 0), 0)


def logarithm(x: Integers, bits: int) -> Integers:
    """Return log(x), of 5 integer bits, of numbers that are 1 at least.

    Of x * 2^n / sqrt(2) and x * 2^m the lesser is near 2^(-1/4), where a quotient serves.
    """
    room = 31 - bit_length(x)
    a = saturated(product(saturated(x << room), ROOT_OF_HALF) << 1)
    a_power = ((bits - 1 - room) << 25) + (1 << 23)
    other = 31 - bit_length(product(x, ROOT_OF_HALF))
    b = saturated(x << other)
    b_power = ((bits - other) << 25) - (1 << 23)
    r, power = minimum(a, b), maximum(a_power, b_power)
    p, q = (r + FOURTH_ROOT + 1) >> 1, (r - FOURTH_ROOT) << 1
    square = product(q, q)
    above = product(q, r) + product(product(q, square), 117049297)
    below = product(p, q + 1057819769 + product(square, 127690142)) + product(q, 638450708)
    quotient = product(rescaled(above, 6), reciprocal_of_one_and(below))
    return rescaled(product(power, 1488522236) + quotient, -1)


ROOT_OF_HALF, FOURTH_ROOT = 1518500250, 1805811301
"""2^(-1/2) and 2^(-1/4), without integer bits."""


def limited(x: Integers, low: int, high: int) -> Integers:
    """Return integers within bounds."""
    return minimum(maximum(x, low), high)


def between(low: int, high: int) -> Array:
    """Return integers from low to high."""
    return np.arange(low, high + 1, dtype=np.int64)
