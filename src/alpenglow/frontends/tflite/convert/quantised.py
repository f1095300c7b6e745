"""Converters between floats and quantized integers."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.gemmlowp import multiplier, times
from alpenglow.frontends.tflite.quantised import (
    grid,
    is_reference,
    limits,
    one,
    real,
    result_grid,
    rounded,
    spread,
)
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.frontends.tflite.tabulated import mapped
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.arithmetic import Div
from alpenglow.ops.quantized.quantize import Requantize


@on_quantised("DEQUANTIZE")
def dequantize(s: Site) -> Made:
    return s.cast(real(s, 0), s.output().dtype)


@on_quantised("QUANTIZE")
def quantize(s: Site) -> Made:
    if s.input(0).type.dtype != "f32":
        return requantize(s)
    scale, zero = one(s, result_grid(s))
    x, dtype = s.input(0), s.output().dtype
    if s.rounding == "reference":
        return rounded(s, s.g(Div(), x, spread(s, np.array(scale, np.float32), x, 0)))
    offset = spread(s, np.array(zero, DTYPES[dtype]), x, 0)
    reciprocal = spread(s, np.float32(1) / np.array(scale, np.float32), x, 0)
    return s.g(Requantize(dtype, *limits(s)), x, reciprocal, offset)


def requantize(s: Site) -> Made:
    """Integers on another grid; XNNPACK multiplies by 8 bits behind the point, and halves go up."""
    (a, _), (b, _) = one(s, grid(s, 0)), one(s, result_grid(s))
    ratio = np.float32(a) / np.float32(b)
    alike = s.declared(0).dtype == s.output().dtype
    if is_reference(s) or not alike or not 2.0**-8 <= ratio <= 2.0**7:
        share = multiplier(a / b)
        return mapped(s, lambda x: times(x, *share))
    factor = int(np.rint(ratio * np.float32(256)))
    return mapped(s, lambda x: (x * factor + 128) >> 8)
