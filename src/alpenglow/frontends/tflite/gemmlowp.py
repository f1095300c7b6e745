"""Fixed-point arithmetic of TFLite's reference kernels, that of the library gemmlowp.

A number of n integer bits is an integer of 32 bits over 2^(31 - n).  Nothing here wraps: callers
keep to ranges in which the kernels do not either.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.frontends.tflite.wide import Integers, bit_length, maximum, minimum, where, zero
from alpenglow.ir.types import Array

MOST = (1 << 31) - 1
"""The number that stands for 1 where there are no integer bits."""

EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1), … exp(-16), without integer bits."""


def multiplier(ratio: float) -> tuple[int, int]:
    """Return a ratio as 31 bits and an exponent, TFLite's `QuantizeMultiplier`."""
    digits, exponent = math.frexp(ratio)
    held = math.floor(abs(digits) * 2.0**31 + 0.5)
    if held == 1 << 31:
        held, exponent = held // 2, exponent + 1
    if exponent < -31:
        return 0, 0
    return (held if ratio >= 0 else -held), exponent


def product(a: Integers, b: Integers | int) -> Integers:
    """Return numbers multiplied; halves go up."""
    both: Integers = a * b
    return (both + (1 << 30)) >> 31


def divided(x: Integers, bits: Integers | int) -> Integers:
    """Return x / 2^bits, rounded, halves away from zero."""
    size = ((maximum(x, -x) << 1 >> bits) + 1) >> 1
    return where(x < 0, -size, size)


def times(x: Integers, held: int, exponent: int) -> Integers:
    """Return x times a multiplier, rounded twice, `MultiplyByQuantizedMultiplier`."""
    moved = x * (1 << exponent) if exponent > 0 else x
    near = product(moved, held)
    return divided(near, -exponent) if exponent < 0 else near


def rescaled(x: Integers, more: int) -> Integers:
    """Return numbers with `more` integer bits than they have, saturated where that is negative."""
    if more >= 0:
        return divided(x, more) if more else x
    limit = (1 << (31 + more)) - 1
    near = where(x > limit, MOST, x * (1 << -more))
    return where(x < -limit, -MOST - 1, near)


def exponential(x: Integers, bits: int) -> Integers:
    """Return exp(x), without integer bits, of numbers none of which is above 0."""
    quarter = 1 << (31 - bits - 2)
    within = (x & (quarter - 1)) - quarter
    y = _exponential_of_quarter(rescaled(within, -bits))
    rest = within - x
    for i, factor in enumerate(EXPONENTIALS[: bits + 2]):
        y = where(zero(rest & (quarter << i)), y, product(y, factor))
    return where(zero(x), MOST, y)


def _exponential_of_quarter(x: Integers) -> Integers:
    """Return exp(x) from -1/4 to 0, by its series at -1/8."""
    a = x + (1 << 28)
    a2 = product(a, a)
    a3, a4 = product(a2, a), product(a2, a2)
    series = divided(product(divided(a4, 2) + a3, 715827883) + a2, 1)
    return product(a + series, 1895147668) + 1895147668


def reciprocal_of_one_and(x: Integers) -> Integers:
    """Return 1 / (1 + x), without integer bits, of numbers from 0 to 1: Newton's method."""
    half = (x + MOST + 1) >> 1
    y = product(half, -1010580540) + 1515870810
    for _ in range(3):
        y = y + rescaled(product(y, (1 << 29) - product(half, y)), -2)
    return rescaled(y, -1)


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


def limited(x: Integers, low: int, high: int) -> Integers:
    """Return integers within bounds."""
    return minimum(maximum(x, low), high)


def between(low: int, high: int) -> Array:
    """Return integers from low to high."""
    return np.arange(low, high + 1, dtype=np.int64)
