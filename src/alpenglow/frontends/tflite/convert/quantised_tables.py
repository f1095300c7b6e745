"""Converters for functions of one quantized operand.

Functions of bytes are tables, made by the rule of TFLite's kernels: in floats, or in integers.
Functions of i16 are computed, or interpolated between 513 values.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.gemmlowp import (
    divided,
    limited,
    multiplier,
    product,
    reciprocal_root,
    tangent,
    times,
)
from alpenglow.frontends.tflite.gemmlowp import logistic as exact_logistic
from alpenglow.frontends.tflite.quantised import (
    alike,
    grid,
    is_reference,
    limits,
    one,
    result_grid,
    scales_of,
)
from alpenglow.frontends.tflite.singles import (
    Function,
    elu,
    exp,
    gelu,
    gelu_by_tanh,
    log,
    logistic,
    single,
    tanh,
)
from alpenglow.frontends.tflite.table import Converter, Made, Site, on_quantised
from alpenglow.frontends.tflite.tabulated import (
    by_floats,
    by_sigmoid,
    by_xnnpack,
    entered,
    half_away,
    interpolated,
    interpolation,
    logistic_of_shorts,
    mapped,
    numbers,
    reals,
    tanh_of_shorts,
)
from alpenglow.frontends.tflite.wide import Wide, maximum, where
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.quantized.quantize import bounds
from alpenglow.ops.tensor.gather import Gather


@on_quantised("LOGISTIC")
def quantised_logistic(s: Site) -> Made:
    dtype = alike(s, "i8", "u8", "i16")
    if dtype == "i16":
        return by_sigmoid(s, logistic_of_shorts, {-12: exact_logistic})
    if one(s, result_grid(s))[0] != 2.0**-8:
        raise s.refuse(f"scale of the result is {one(s, result_grid(s))[0]:g}, expected 1/256")
    if is_reference(s):
        return by_floats(s, logistic)
    return by_xnnpack(s, single(lambda x: 1 / (1 + np.exp(-np.clip(x, -100, 100)))))


@on_quantised("TANH")
def quantised_tanh(s: Site) -> Made:
    if alike(s, "i8", "u8", "i16") == "i16":
        return by_sigmoid(s, tanh_of_shorts, {-12: tangent, -11: tangent})
    return by_floats(s, tanh) if is_reference(s) else by_xnnpack(s, tanh)


@on_quantised("ELU")
def quantised_elu(s: Site) -> Made:
    alike(s, "i8")
    return by_floats(s, elu) if is_reference(s) else by_xnnpack(s, elu)


@on_quantised("GELU")
def quantised_gelu(s: Site) -> Made:
    alike(s, "i8", "u8", "i16")
    return by_floats_or_between(s, gelu_by_tanh if s.option("approximate") else gelu)


@on_quantised("EXP")
def quantised_exp(s: Site) -> Made:
    alike(s, "i8", "i16")
    return by_floats_or_between(s, exp)


@on_quantised("LOG")
def quantised_log(s: Site) -> Made:
    """The logarithm of what is not above 0 is the least real of the result."""
    dtype = alike(s, "i8", "i16")
    scale, zero = one(s, result_grid(s))
    least = np.float32(bounds(dtype)[0] - zero) * np.float32(scale)
    return by_floats_or_between(s, lambda x: np.where(x > 0, log(x), least))


def by_floats_or_between(s: Site, function: Function) -> Value:
    """Return a function of bytes by floats, of i16 interpolated."""
    if s.declared(0).dtype == "i16":
        return between_entries(s, function)
    return by_floats(s, function)


def between_entries(s: Site, function: Function) -> Value:
    """Return a function of i16, interpolated."""
    table = interpolation(s, function)
    return interpolated(s, Wide.of(s.g, s.input(0)), table).narrow("i16")


@on_quantised("SQRT")
def quantised_sqrt(s: Site) -> Made:
    """Roots are cut off, not rounded."""
    dtype = alike(s, "i8", "i16")
    scale, zero = one(s, result_grid(s))
    not_negative(s)
    roots = np.sqrt(np.maximum(reals(s), 0)) / np.float32(scale)
    entries = np.trunc(np.minimum(roots, np.float32(2.0**30))) + zero
    if dtype != "i16":
        return entered(s, entries)
    table = s.g.constant(np.clip(numbers(s, entries), *limits(s)).astype(np.int16))
    return s.g(Gather(), table, (Wide.of(s.g, s.input(0)) + (1 << 15)).value)


@on_quantised("RSQRT")
def quantised_rsqrt(s: Site) -> Made:
    """The result for 0 is the greatest integer."""
    dtype = alike(s, "i8", "i16")
    scale, to = scales_of(s, 0)
    not_negative(s)
    if dtype == "i16":
        most = np.float32(32767) * to
        return between_entries(s, lambda x: np.where(x > 0, np.float32(1) / np.sqrt(x), most))
    held, exponent = multiplier(1 / float(np.sqrt(scale) * to))

    def rule(x: Array) -> Array:
        y, e = reciprocal_root(maximum(x, 0))
        steps = times(product(1 << (20 - e), y), held, exponent - 20)
        return where(x > 0, steps, 1 << 20)

    return mapped(s, rule)


def not_negative(s: Site) -> None:
    """Let a call end in an error if an element of operand 0 has a negative real value."""
    zero = one(s, grid(s, 0))[1]
    low, high = map(int, bounds(s.declared(0).dtype))
    if zero > low:
        x = s.within((Wide.of(s.g, s.input(0)) - zero).value, 0, high - zero, "operand 0")
        s.inputs[0] = (Wide(s.g, x) + zero).narrow(s.declared(0).dtype)


def ratio(s: Site) -> tuple[int, int]:
    """Return the multiplier from steps of operand 0 to steps of the result, divided in f32."""
    a, b = scales_of(s, 0)
    return multiplier(float(a / b))


def rectified(low: float | None, high: float | None, *dtypes: str) -> Converter:
    """Return the converter for an operator that limits reals; XNNPACK has none for integers."""

    def convert(s: Site) -> Made:
        alike(s, *dtypes)
        zero, scale = one(s, result_grid(s))[1], scales_of(s)[0]
        least, most = (None if b is None else zero + _steps(b, scale) for b in (low, high))
        bottom, top = limits(s)
        bottom = bottom if least is None else max(bottom, least)
        top = top if most is None else min(top, most)
        held = ratio(s)
        return mapped(s, lambda x: times(x, *held), (bottom, top))

    return convert


def _steps(real: float, scale: np.float32) -> int:
    """Return how many steps a real is, if not very many."""
    return int(np.clip(half_away(np.array(real, np.float32) / scale), -(2.0**20), 2.0**20))


on_quantised("RELU")(rectified(0, None, "i8", "u8", "i16"))
on_quantised("RELU6")(rectified(0, 6, "i8", "u8", "i16"))
on_quantised("RELU_N1_TO_1")(rectified(-1, 1, "i8", "u8"))
on_quantised("RELU_0_TO_1")(rectified(0, 1, "i8", "u8"))


@on_quantised("LEAKY_RELU")
def quantised_leaky_relu(s: Site) -> Made:
    alike(s, "i8", "u8", "i16")
    alpha = np.float32(s.option("alpha"))
    a, b = scales_of(s, 0)
    above, below = a / b, a / b * alpha
    if not is_reference(s) and _is_delegated(above, below, alpha):
        up, down = (int(np.rint(np.float32(256) * f)) for f in (above, below))
        return mapped(s, lambda x: (x * where(x < 0, down, x * 0 + up) + 128) >> 8)
    up_held, down_held = multiplier(float(above)), multiplier(float(a * alpha / b))
    sign = -1 if down_held[0] < 0 else 1
    held, exponent = abs(down_held[0]), down_held[1]
    return mapped(s, lambda x: where(x < 0, times(x, held, exponent) * sign, times(x, *up_held)))


def _is_delegated(above: np.float32, below: np.float32, alpha: np.float32) -> bool:
    """Whether XNNPACK has multipliers for what is above 0 and below."""
    normal = abs(alpha) >= np.finfo(np.float32).tiny
    return bool(
        normal and 2.0**-8 <= above <= 128 and -127.99609375 <= below <= 128
        and abs(below) >= 2.0**-8
    )  # fmt: skip


@on_quantised("HARD_SWISH")
def quantised_hard_swish(s: Site) -> Made:
    """A product of x and of x + 3 over 6, both in i16."""
    alike(s, "i8", "u8")
    a, b = scales_of(s, 0)
    fine = np.float32(1 / 128) * a
    out, out_exponent = _short(float(fine / b))
    relu, exponent = _short(float(fine / (np.float32(3) / np.float32(32768))))
    if out_exponent > 0:
        raise s.refuse(f"scale of the result is {b:g}, expected more than {fine:g}")

    def rule(x: Array) -> Array:
        x = x << 7
        y = x if exponent <= 0 else limited(x << (exponent - 1), -32768, 32767)
        y = (y * relu + (1 << 14)) >> 15
        y = limited(y << 1, -32768, 32767) if exponent > 0 else _divided_short(y, -exponent)
        y = (y + (1 << 15)) >> 1
        both = y * ((x * out + (1 << 14)) >> 15)
        cut = where(both < 0, -(-both >> 15), both >> 15)
        zero = one(s, result_grid(s))[1]
        return ((_divided_short(cut, -out_exponent) + zero + (1 << 15)) & 0xFFFF) - (1 << 15) - zero

    return mapped(s, rule)


def _divided_short(x: Array, bits: int) -> Array:
    """Return x / 2^bits of i16, whose mask of 16 bits and more makes 1 or -1 of anything."""
    return divided(x, bits) if bits < 16 else where(x < 0, -1, x * 0 + 1)


def _short(factor: float) -> tuple[int, int]:
    """Return a multiplier of 15 bits."""
    held, exponent = multiplier(factor)
    return min((held + (1 << 15)) >> 16, 32767), exponent


@on_quantised("ABS")
def quantised_abs(s: Site) -> Made:
    alike(s, "i8", "i16")
    a, b = scales_of(s, 0)
    held = ratio(s)
    return mapped(s, lambda x: maximum(x, -x) if a == b else times(maximum(x, -x), *held))


@on_quantised("NEG")
def quantised_neg(s: Site) -> Made:
    """TFLite's kernel knows nothing of zero points."""
    alike(s, "i8", "i16")
    return s.g(Neg(), s.input(0))
