"""Converters that make many elements one, or weigh rows, of integers that stand for reals."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.presume import Needed
from alpenglow.frontends.tflite.convert_reduction import axes_of
from alpenglow.frontends.tflite.gemmlowp import (
    between,
    divided,
    exponential,
    limited,
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
    one,
    result_grid,
    rounded,
    scales_of,
)
from alpenglow.frontends.tflite.singles import exp
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.frontends.tflite.tabulated import interpolated, interpolation_of
from alpenglow.frontends.tflite.wide import Wide, bit_length, maximum
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.dims import product as dims_product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.lookup import Lookup
from alpenglow.ops.movement import Reshape, Slice, Transpose, stretch
from alpenglow.ops.quantize import Requantize
from alpenglow.ops.reduction import ReduceMax, ReduceSum, SumBytes
from alpenglow.ops.scan import CumSum
from alpenglow.ops.select import Cast

# ── sums ──


@on_quantised("MEAN")
def mean(s: Site) -> Made:
    sums, count = _sums(s), _count(s)
    if is_delegated(s):
        return _by_xnnpack(s, sums, count, count)
    return _in_fixed(s, sums, count, count)


@on_quantised("SUM")
def total(s: Site) -> Made:
    """LiteRT's reference kernel reads i8 and i16 as u8; firmware's does what is done here."""
    sums, count = _sums(s), _count(s)
    if is_delegated(s):
        return _by_xnnpack(s, sums, count, 1)
    if s.rounding == "reference":
        return _in_fixed(s, sums, count, 1)
    a, b = scales_of(s, 0)
    offset = np.float32(-one(s, grid(s, 0))[1]) * (a / b) * np.float32(count)
    return rounded(s, _moved(s, sums, a / b, offset))


def is_delegated(s: Site) -> bool:
    """Whether XNNPACK takes a reduction: that of bytes, along some axis."""
    return not is_reference(s) and bool(axes_of(s))


def _count(s: Site) -> int:
    """Return of how many elements one is made."""
    shape = s.input(0).type.shape
    count = dims_product([shape[a] for a in axes_of(s)])
    if not known(count):
        raise Needed("")
    return int(count)


def _sums(s: Site) -> Value:
    """Return the sums of the elements of operand 0 as they stand, in i32."""
    dtype, x = alike(s, "i8", "u8", "i16", operands=[0]), s.input(0)
    axes, keep = axes_of(s), s.option("keep_dims")
    if dtype == "i16":
        return s.g(ReduceSum(axes, keep), s.g(Cast("i32"), x))
    return s.g(SumBytes(axes, keep), x)


def _moved(s: Site, sums: Value, factor: np.float32, offset: np.float32) -> Value:
    """Return sums times a factor and an offset, in f32."""
    x = s.g(Cast("f32"), sums)
    return s.g(Add(), s.g(Mul(), x, s.filled(float(factor), x)), s.filled(float(offset), x))


def _by_xnnpack(s: Site, sums: Value, count: int, parts: int) -> Value:
    """Return sums over parts; the zero points are one offset, before halves go to even."""
    a, b = scales_of(s, 0)
    (_, zero), (_, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    factor = a / b * (np.float32(1) / np.float32(parts))
    x = _moved(s, sums, factor, np.float32(to) - np.float32(count * zero) * factor)
    none = s.g.constant(np.zeros((), DTYPES[s.output().dtype]))
    op = Requantize(s.output().dtype, *limits(s))
    return s.g(op, x, s.filled(1, x), stretch(s.g, none, x.type.shape))


def _in_fixed(s: Site, sums: Value, count: int, parts: int) -> Value:
    """Return sums over parts, of which there are as many as what divides the multiplier."""
    (a, zero), (b, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    held, exponent = multiplier(a / b)
    shift = min(parts.bit_length() - 1, 32, 31 + exponent)
    held, exponent = (held << shift) // parts, exponent - shift
    steps = times(Wide.of(s.g, sums) - count * zero, held, exponent) + to
    return limited(steps, *limits(s)).narrow(s.output().dtype)


@on_quantised("REDUCE_PROD")
def reduced_product(s: Site) -> Made:
    """Each product is scaled on its way, by a multiplier of 15 bits, shifted once."""
    dtype = alike(s, "i8", "i16", operands=[0])
    (a, zero), (b, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    rows, shape = _rows(s)
    count = _count(s)
    if count > MANY:
        raise s.refuse(f"one is made of {count} elements, expected {MANY} at most")
    held, exponent = multiplier(a / b ** (1 / count))
    short = min((held + (1 << 15)) >> 16, 0x7FFF)

    def scaled(x: Wide) -> Wide:
        return (x * short + (1 << (14 - exponent))) >> (15 - exponent)

    x = Wide.of(s.g, rows) - zero
    y = None
    for i in range(count):
        extent = x.value.type.shape[0]
        column = Wide(s.g, s.g(Slice((0, i), (extent, 1), (1, 1)), x.value))
        y = column if y is None else scaled(y * column)
    assert y is not None, "the count is not 0"
    steps = limited(scaled(y) + to, *limits(s)).narrow(dtype)
    return s.g(Reshape(shape), steps)


MANY = 64
"""Of how many elements a product is built into a graph."""


def _rows(s: Site) -> tuple[Value, tuple[Dim, ...]]:
    """Return operand 0 with the elements of which one is made in a row, and the result's shape."""
    x, axes = s.input(0), axes_of(s)
    rank, shape = x.type.rank, x.type.shape
    outer = [i for i in range(rank) if i not in axes]
    turned = s.g(Transpose((*outer, *axes)), x)
    extent = dims_product([shape[i] for i in outer])
    kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
    left = kept if s.option("keep_dims") else tuple(shape[i] for i in outer)
    return s.g(Reshape((extent, _count(s))), turned), left


# ── rows ──


@on_quantised("SOFTMAX")
def softmax(s: Site) -> Made:
    """XNNPACK has none for integers; what LiteRT has beside its reference kernel is in floats."""
    source, dtype = s.declared(0).dtype, s.output().dtype
    if (source, dtype) not in SOFTMAXES:
        raise s.refuse(f"there is nothing from {source} to {dtype}")
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
        raise s.refuse(f"its result has scale {given:g} and zero point {offset}, "
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


def _row_sum(s: Site, x: Value) -> Value:
    return s.g(ReduceSum((x.type.rank - 1,), True), x)


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
    sums = _row_sum(s, _of_table(s, below, rescaled(table, 12), "i32"))
    scale, bits = reciprocal(Wide.of(s.g, sums), 12)
    weights = Wide(s.g, _of_table(s, below, table, "i64"))
    low, high = limits(s)
    down = bits + (31 - (high - low).bit_length())
    steps = divided(product(scale.across(weights), weights), down.across(weights))
    return limited(steps + low, low, high).narrow(s.output().dtype)


def _softmax_in_floats(s: Site, below: Value) -> Value:
    """Sums are those of f32 one after another, as a kernel that is no reference makes them."""
    scale = scales_of(s, 0)[0] * np.float32(s.option("beta"))
    weights = _of_table(s, below, exp(-scale * between(0, 255).astype(np.float32)), "f32")
    (to, zero), sums = one(s, result_grid(s)), _sum_in_order(s, weights)
    steps = s.g(Mul(), sums, s.filled(to, sums))
    inverse = s.g(Div(), s.filled(1, steps), steps)
    shares = s.g(Mul(), weights, stretch(s.g, inverse, weights.type.shape))
    whole = s.g(Cast("i32"), s.g(Add(), shares, s.filled(0.5, shares)))
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
    sums = Wide(s.g, _row_sum(s, weights.value))
    room = 31 - bit_length(sums)
    shifted = ((sums << room) + (1 << 13)) >> 14
    inverses = interpolation_of(lambda v: 1 / (1 + v), real(1 / 65535), -32768, real(2 / 65535), 0)
    inverse = interpolated(s, limited(shifted - (3 << 15), -32768, 32767), inverses)
    down = (30 - room).across(weights)
    half = (down * 0 + 1) << (down - 1)
    return limited((weights * inverse.across(weights) + half) >> down, 0, 32767).narrow("i16")


@on_quantised("L2_NORMALIZATION")
def l2_normalization(s: Site) -> Made:
    dtype = alike(s, "i8", "u8")
    _check_result(s, 2.0**-7, 0 if dtype == "i8" else 128)
    x = Wide.of(s.g, s.input(0)) - one(s, grid(s, 0))[1]
    squares = (x * x).narrow("i32")
    inverse, down = reciprocal_root(Wide.of(s.g, _row_sum(s, squares)))
    inverse, down = inverse.across(x), down.across(x)
    if dtype == "u8":
        steps = divided(product(x * 128, inverse), down) + 128
    else:
        moved = x << maximum(7 - down, 0)
        steps = divided(product(moved, inverse), maximum(down - 7, 0))
    return limited(steps, *limits(s)).narrow(dtype)
