"""Converters for reductions of quantized tensors."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.convert.reduction import axes_of
from alpenglow.frontends.tflite.gemmlowp import limited, multiplier, times
from alpenglow.frontends.tflite.quantised import (
    alike,
    grid,
    is_reference,
    limits,
    once,
    one,
    result_grid,
    rounded,
    scales_of,
)
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.frontends.tflite.wide import Wide
from alpenglow.ir.dims import Dim
from alpenglow.ir.dims import product as dims_product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.reduction.reduction import ReduceSum, SumBytes
from alpenglow.ops.tensor.movement import Reshape, Slice, Transpose


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
    """True if XNNPACK takes a reduction: of bytes, along at least one axis."""
    return not is_reference(s) and bool(axes_of(s))


def _count(s: Site) -> int:
    """Return of how many elements one is made."""
    shape = s.input(0).type.shape
    return fixed(dims_product([shape[a] for a in axes_of(s)]))


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
    product = once(s, Mul(), x, s.filled(float(factor), x))
    return once(s, Add(), product, s.filled(float(offset), x))


def _by_xnnpack(s: Site, sums: Value, count: int, parts: int) -> Value:
    """Return sums over parts; the zero points are one offset, before halves go to even."""
    a, b = scales_of(s, 0)
    (_, zero), (_, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    factor = a / b * (np.float32(1) / np.float32(parts))
    x = _moved(s, sums, factor, np.float32(to) - np.float32(count * zero) * factor)
    dtype = s.output().dtype
    none = s.full(0, dtype, x.type.shape)
    return s.g(Requantize(dtype, *limits(s)), x, s.filled(1, x), none)


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
        raise s.refuse(f"each product has {count} factors, expected at most {MANY}")
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
"""The most factors of a product that is built into a graph."""


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
