"""Converters between floats and integers that stand for reals."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.quantised import (
    grid,
    is_reference,
    less_zero,
    limits,
    narrowed,
    one,
    real,
    requantised,
    result_grid,
    rounded,
    spread,
)
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.ir.types import DTYPES
from alpenglow.ops.arithmetic import Add, Div, Mul
from alpenglow.ops.logic import ShiftRight
from alpenglow.ops.quantize import Requantize


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
    (a, _), (b, to) = one(s, grid(s, 0)), one(s, result_grid(s))
    moved = less_zero(s, 0)
    ratio = np.float32(a) / np.float32(b)
    alike = s.declared(0).dtype == s.output().dtype
    if is_reference(s) or not alike or not 2.0**-8 <= ratio <= 2.0**7:
        return requantised(s, moved, [[a]], reference=True)
    # XNNPACK multiplies by 8 bits behind the point, and halves go up.
    product = s.g(Mul(), moved, s.filled(int(np.rint(ratio * np.float32(256))), moved))
    steps = s.g(ShiftRight(), s.g(Add(), product, s.filled(128, moved)), s.filled(8, moved))
    return narrowed(s, s.g(Add(), steps, s.filled(to, steps)))
