"""Converters for softmax, log-softmax and L2 normalization of quantized rows.

XNNPACK has none.  The reference kernels take exponentials in fixed point, LiteRT's other kernels in
f32, both from a table of how far a byte may be below the greatest of its row.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.gemmlowp import (
    MOST,
    between,
    divided,
    exponential,
    limited,
    logarithm,
    multiplier,
    product,
    reciprocal,
    reciprocal_root,
    rescaled,
    times,
)
from alpenglow.frontends.tflite.quantised import (
    alike,
    grid,
    is_reference,
    limits,
    narrowed,
    once,
    one,
    result_grid,
    scales_of,
)
from alpenglow.frontends.tflite.singles import exp
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.frontends.tflite.tabulated import interpolated, interpolation_of
from alpenglow.frontends.tflite.wide import Wide, bit_length, maximum, minimum, where
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.lookup import Lookup
from alpenglow.ops.tensor.movement import Slice, stretch


@on_quantised("SOFTMAX")
def softmax(s: Site) -> Made:
    """XNNPACK has none for integers; LiteRT's own kernel, not its reference, is in floats."""
    source, dtype = s.declared(0).dtype, s.output().dtype
    if (source, dtype) not in SOFTMAXES:
        known = [" to ".join(pair) for pair in SOFTMAXES]
        raise s.unsupported(f"input and result of dtypes {source} to {dtype}", *known)
    _check_result(s, *SOFTMAXES[source, dtype])
    if source == "i16":
        return _softmax_of_shorts(s)
    below = _below_greatest(s)
    if s.rounding == "reference":
        return _softmax_in_fixed(s, below)
    return _softmax_in_floats(s, below)


SOFTMAXES = {("i8", "i8"): (2.0**-8, -128), ("u8", "u8"): (2.0**-8, 0),
             ("i8", "i16"): (2.0**-16, -32768), ("u8", "i16"): (2.0**-16, -32768),
             ("i16", "i16"): (2.0**-15, 0)}  # fmt: skip
"""Between which types there are kernels, and what grids their results have."""


def _check_result(s: Site, scale: float, zero: int) -> None:
    """Raise UnsupportedError unless the result has the grid that kernels presume."""
    given, offset = one(s, result_grid(s))
    if abs(given - scale) > 0.001 * scale or offset != zero:
        raise s.refuse(f"result has scale {given:g} and zero point {offset}, "
                       f"expected {scale:g} and {zero}")  # fmt: skip


def _greatest(s: Site, x: Value) -> Value:
    """Return the greatest element of each row, stretched over it."""
    most = s.g(ReduceMax((x.type.rank - 1,), True), x)
    return stretch(s.g, most, x.type.shape)


def _below_greatest(s: Site) -> Value:
    """Return how many steps each byte of operand 0 is below the greatest of its row, as a u8."""
    x = s.g(Cast("i32"), s.input(0))
    return s.g(Cast("u8"), s.g(Sub(), _greatest(s, x), x))


def _of_table(s: Site, below: Value, table: Array, dtype: str) -> Value:
    return s.g(Lookup(), below, s.g.constant(table.astype(DTYPES[dtype])))


def _row_sum(s: Site, x: Value) -> Wide:
    """Return the sum of each row of i64."""
    return Wide(s.g, s.g(ReduceSum((x.type.rank - 1,), True), x))


def _exponentials(s: Site, beta: float) -> tuple[Array, tuple[int, int], int]:
    """Return exp of what bytes are below the greatest, 0 where that is too little.

    Beside these are the multiplier to 5 integer bits, and how many steps are too many.
    """
    held, exponent = multiplier(min(beta * one(s, grid(s, 0))[0] * 2.0**26, 2.0**31 - 1))
    steps = between(0, 255)
    far = int(np.floor(31 * 2.0**26 / 2.0**exponent))
    exact = exponential(times(-np.minimum(steps, far), held, exponent), 5)
    return np.where(steps <= far, exact, 0), (held, exponent), far


def _softmax_in_fixed(s: Site, below: Value) -> Value:
    table = _exponentials(s, s.option("beta"))[0]
    # Of more than 4096 each has a share of 0, whatever more there are.
    sums = minimum(_row_sum(s, _of_table(s, below, rescaled(table, 12), "i64")), MOST)
    scale, bits = reciprocal(sums, 12)
    weights = Wide(s.g, _of_table(s, below, table, "i64"))
    low, high = limits(s)
    down = bits + (31 - (high - low).bit_length())
    steps = divided(product(scale.across(weights), weights), down.across(weights))
    return limited(steps + low, low, high).narrow(s.output().dtype)


def _softmax_in_floats(s: Site, below: Value) -> Value:
    """Sums add f32 one after another, as LiteRT's optimized kernel does."""
    scale = scales_of(s, 0)[0] * np.float32(s.option("beta"))
    weights = _of_table(s, below, _in_floats(scale), "f32")
    (to, zero), sums = one(s, result_grid(s)), _sum_in_order(s, weights)
    steps = s.g(Mul(), sums, s.filled(to, sums))
    inverse = s.g(Div(), s.filled(1, steps), steps)
    shares = s.g(Mul(), weights, stretch(s.g, inverse, weights.type.shape))
    # The kernel of u8 adds a half in f32, others round for themselves.
    shares = s.g(Cast("f64"), shares)
    moved = s.g(Add(), shares, s.filled(0.5, shares))
    whole = s.g(Cast("i32"), s.cast(moved, "f32") if s.output().dtype == "u8" else moved)
    return narrowed(s, s.g(Add(), whole, s.filled(zero, whole)))


def _sum_in_order(s: Site, x: Value) -> Value:
    """Return the sum of each row, of which one float is added after another."""
    running = s.g(CumSum(x.type.rank - 1), x)
    shape = x.type.shape
    last = Slice((*[0] * (len(shape) - 1), shape[-1] - 1), (*shape[:-1], 1), (1,) * len(shape))
    return s.g(last, running)


def _softmax_of_shorts(s: Site) -> Value:
    """Exponentials and the reciprocal of their sum are interpolated."""
    real, x = np.float64, Wide.of(s.g, s.input(0))
    scale = scales_of(s, 0)[0] * np.float32(s.option("beta"))
    held, exponent = multiplier(float(scale) / (10.0 / 65535.0))
    most = Wide(s.g, _greatest(s, x.value))
    places = limited(times(x - most, held, exponent) + 32767, -32768, 32767)
    table = interpolation_of(np.exp, real(10 / 65535), 32767, real(2 / 65535), 0)
    weights = interpolated(s, places, table)
    sums = minimum(_row_sum(s, weights.value), MOST)
    room = 31 - bit_length(sums)
    shifted = ((sums << room) + (1 << 13)) >> 14
    inverses = interpolation_of(lambda v: 1 / (1 + v), real(1 / 65535), -32768, real(2 / 65535), 0)
    inverse = interpolated(s, limited(shifted - (3 << 15), -32768, 32767), inverses)
    down = (30 - room).across(weights)
    half = (down * 0 + 1) << (down - 1)
    return limited((weights * inverse.across(weights) + half) >> down, 0, 32767).narrow("i16")


@on_quantised("LOG_SOFTMAX")
def log_softmax(s: Site) -> Made:
    dtype = alike(s, "i8", "u8")
    _check_result(s, 2.0**-4, limits(s)[1])
    if is_reference(s):
        return _log_softmax_in_fixed(s).narrow(dtype)
    return _log_softmax_in_floats(s)


def _log_softmax_in_fixed(s: Site) -> Wide:
    below, (low, high) = _below_greatest(s), limits(s)
    table, factor, far = _exponentials(s, 1.0)
    extent = s.input(0).type.shape[-1]
    if not is_open(extent) and extent > 4096:
        raise s.refuse(f"last axis has {extent} elements, expected at most 4096")
    sums = minimum(_row_sum(s, _of_table(s, below, rescaled(table, 12), "i64")), MOST)
    log = logarithm(sums, 12)
    inverse = multiplier(2.0 ** (31 - factor[1]) / factor[0])
    least = maximum(times(log - (1 << 31), *inverse), -far - 1)
    scaled = Wide(s.g, _of_table(s, below, times(-between(0, 255), *factor), "i64"))
    steps = limited(divided(scaled - log.across(scaled), 22) + high, low, high)
    return where(-Wide.of(s.g, below) > least.across(scaled), steps, low)


def _log_softmax_in_floats(s: Site) -> Value:
    scale, step = scales_of(s, 0)
    weights = _of_table(s, _below_greatest(s), _in_floats(scale), "f32")
    exact = s.g(Log(), s.g(Cast("f64"), _sum_in_order(s, weights)))
    log, x = s.g(Cast("f32"), exact), s.g(Cast("f32"), s.input(0))
    most = s.g(ReduceMax((x.type.rank - 1,), True), x)
    offset = once(s, Add(), once(s, Mul(), most, s.filled(float(scale), most)), log)
    offset = once(s, Div(), offset, s.filled(float(step), offset))
    steps = once(s, Mul(), x, s.filled(float(scale / step), x))
    steps = once(s, Sub(), steps, stretch(s.g, offset, x.type.shape))
    zero = s.g.constant(np.array(one(s, result_grid(s))[1], DTYPES[s.output().dtype]))
    op = Requantize(s.output().dtype, *limits(s))
    return s.g(op, steps, s.filled(1, x), stretch(s.g, zero, x.type.shape))


def _in_floats(scale: np.floating) -> Array:
    """Return exp of what bytes are below the greatest, in f32."""
    return exp(-scale * between(0, 255).astype(np.float32))


@on_quantised("L2_NORMALIZATION")
def l2_normalization(s: Site) -> Made:
    dtype = alike(s, "i8", "u8")
    _check_result(s, 2.0**-7, 0 if dtype == "i8" else 128)
    x = Wide.of(s.g, s.input(0)) - one(s, grid(s, 0))[1]
    inverse, down = reciprocal_root(_row_sum(s, (x * x).value))
    inverse, down = inverse.across(x), down.across(x)
    if dtype == "u8":
        steps = divided(product(x * 128, inverse), down) + 128
    else:
        moved = x << maximum(7 - down, 0)
        steps = divided(product(moved, inverse), maximum(down - 7, 0))
    return limited(steps, *limits(s)).narrow(dtype)
