"""Tables of functions of one quantized operand.

Functions of bytes are looked up.  Some functions of i16 are computed in the graph, others are
interpolated between 513 values, or taken from what TFLite's kernels know of the logistic function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alpenglow.frontends.tflite.gemmlowp import between, limited, saturated
from alpenglow.frontends.tflite.quantised import grid, limits, one, power_of_two, result_grid
from alpenglow.frontends.tflite.singles import Function
from alpenglow.frontends.tflite.table import Site
from alpenglow.frontends.tflite.wide import Wide, maximum, minimum, where
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.quantized.quantize import bounds
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.lookup import Lookup

Exact = Callable[[Wide, int, int], Wide]
"""A function of numbers with so many integer bits in a width."""

Rule = Callable[[Any], Any]
"""A function of steps, either an array or a value of a graph."""


def looked_up(s: Site, i: int, entries: Array) -> Value:
    """Return the entry of each element of operand i; the first entry is for the least element."""
    shift = 128 if s.declared(i).dtype == "i8" else 0
    return s.g(Lookup(), s.input(i), s.g.constant(np.roll(entries, shift)))


def reals(s: Site) -> Array:
    """Return the real values of all bytes of operand 0, from the least byte on."""
    scale, zero = one(s, grid(s, 0))
    low, high = map(int, bounds(s.declared(0).dtype))
    return np.float32(scale) * (between(low, high) - zero).astype(np.float32)


def half_away(x: Array) -> Array:
    """Return reals rounded, halves away from zero."""
    return np.asarray(np.trunc(x + np.copysign(x.dtype.type(0.5), x)))


def by_floats(s: Site, function: Function) -> Value:
    """Return a function of bytes, rounded before the zero point is added, as LiteRT does."""
    scale, zero = one(s, result_grid(s))
    near = half_away(function(reals(s)) * (np.float32(1) / np.float32(scale)))
    return entered(s, near + np.float32(zero))


def by_xnnpack(s: Site, function: Function) -> Value:
    """Return a function of bytes, rounded with the zero point, halves to even."""
    scale, zero = one(s, result_grid(s))
    steps = function(reals(s)) * (np.float32(1) / np.float32(scale))
    return entered(s, np.rint(steps + np.float32(zero)))


def entered(s: Site, steps: Array, i: int = 0) -> Value:
    """Return operand i looked up in a table of steps, which begins with the least byte."""
    entries = np.clip(numbers(s, steps), *limits(s))
    return looked_up(s, i, entries.astype(DTYPES[s.output().dtype]))


def numbers(s: Site, table: Array) -> Array:
    """Return a table; raise UnsupportedError if it contains NaN."""
    if np.isnan(table).any():
        raise s.refuse("scales of operand and result make a result NaN, expected less extreme ones")
    return table


def mapped(s: Site, rule: Rule, within: tuple[int, int] | None = None) -> Value:
    """Return a rule applied to the steps of operand 0, by a table if they are bytes.

    The result is limited to what it holds, or to bounds.
    """
    (_, zero), (_, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    low, high = within or limits(s)
    dtype = s.declared(0).dtype
    if dtype != "i16":
        least, most = map(int, bounds(dtype))
        return entered(s, limited(rule(between(least, most) - zero) + to, low, high))
    steps: Wide = rule(Wide.of(s.g, s.input(0)) - zero)
    return limited(steps + to, low, high).narrow(s.output().dtype)


# ── of i16 ──

SIGMOID = 256
"""The number of entries of the logistic table of i16 kernels, one each 1/24 from 0 on."""


def sigmoid_table() -> Array:
    """Return the logistic function at i/24 in steps of 2^-16, the last as if it were 1.

    Each is moved by half of what is lost in the middle up to the next.
    """
    at = np.arange(2 * SIGMOID + 1) / 48
    exact = 65536 / (1 + np.exp(-at))
    here, middle, there = exact[:-1:2], exact[1::2], exact[2::2]
    table = np.floor(here + (middle - (here + there) / 2) / 2 + 0.5).astype(np.int64)
    table[-1] = 65535
    return table


def by_sigmoid(s: Site, rule: Callable[[Site, Wide], Wide], powers: Mapping[int, Exact]) -> Value:
    """Return a function of i16 by the table of the logistic one.

    A rule takes what is 3 * 4096 at 1.  Powers of two that scales may be are exact; for them LiteRT
    has a second kernel that computes in fixed point.
    """
    scale, zero = one(s, grid(s, 0))
    to, to_zero = one(s, result_grid(s))
    if zero or to_zero or to != 2.0**-15:
        raise s.refuse(f"zero points are {zero} and {to_zero} and the result has scale {to:g}, "
                       "expected 0, 0 and 2^-15 for i16")  # fmt: skip
    x, power = Wide.of(s.g, s.input(0)), power_of_two(np.float32(scale))
    if power is not None and power in powers:
        x = x << (power + 12)
        if s.rounding != "reference":
            return powers[power](saturated(x, 16), 3, 16).narrow("i16")
        x = x * 3
    else:
        factor, shift = scale * 3 * 4096, 0
        while factor <= 32767 / 2 and shift <= 30:
            factor, shift = factor * 2, shift + 1
        x = (x * int(factor) + ((1 << shift) >> 1)) >> shift
    return rule(s, x).narrow("i16")


def logistic_of_shorts(s: Site, x: Wide) -> Wide:
    """Return the logistic function in steps of 2^-15."""
    y = _on_sigmoid(s, maximum(x, -x), 9, 0x7FFF << 10)
    return where(x < 0, (1 << 25) - y + (1 << 9) - 1, y + (1 << 9)) >> 10


def tanh_of_shorts(s: Site, x: Wide) -> Wide:
    """Return the hyperbolic tangent in steps of 2^-15."""
    y = _on_sigmoid(s, maximum(x, -x), 8, 0xFFFF << 8)
    return where(x < 0, (1 << 23) - y + (1 << 7) - 1, y - (1 << 23) + (1 << 7)) >> 8


def _on_sigmoid(s: Site, size: Wide, bits: int, most: int) -> Wide:
    """Interpolate at a position with `bits` fraction bits; behind the table return `most`."""
    place = size >> bits
    at = minimum(place, SIGMOID - 2)
    first, step = _between(s, sigmoid_table(), at)
    y = (first << bits) + (size & ((1 << bits) - 1)) * step
    return where(place > SIGMOID - 2, most, y)


def _between(s: Site, table: Array, at: Wide) -> tuple[Wide, Wide]:
    """Return entries of a table, and the steps from each to the next."""
    table = table.astype(np.int64)
    steps = np.append(np.diff(table), 0)
    first, step = (Wide(s.g, s.g(Gather(), s.g.constant(t), at.value)) for t in (table, steps))
    return first, step


def interpolation(s: Site, function: Function) -> Array:
    """Return a function of operand 0 at each 128th step of i16, and at the last.

    Each is moved by half of what is lost in the middle up to the next.
    """
    (a, zero), (b, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    return numbers(s, interpolation_of(function, np.float32(a), zero, np.float32(b), to))


def interpolation_of(
    function: Function, a: np.floating, zero: int, b: np.floating, to: int
) -> Array:
    """Return the table of a function from a grid to another, in the type of its scales."""
    real = type(a)
    low, high = (a * real(v - zero) for v in (-32768, 32767))
    inverse = real(65536) / (b * real(32767 - to) - b * real(-32768 - to))
    step = (high - low) / real(512)
    places = low + np.arange(512).astype(real) * step
    ends = low + np.arange(1, 513).astype(real) * step
    values, middles, nexts = (
        function(v) * inverse for v in (places, places + step / real(2), ends)
    )
    lost = half_away((nexts + half_away(values)) / real(2)) - half_away(middles)
    last = half_away(function(np.array([high])) * inverse)
    table = np.append(half_away(values) - half_away(lost / real(2)), last)
    return np.asarray(np.clip(table, -32768, 32767))


def interpolated(s: Site, x: Wide, table: Array) -> Wide:
    """Interpolate between entries of a table of 513 over all i16."""
    first, step = _between(s, table, (x >> 7) + 256)
    return first + ((step * (x & 127) + 64) >> 7)
