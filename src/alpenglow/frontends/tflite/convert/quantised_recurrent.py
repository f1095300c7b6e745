"""The converter of filters with a memory (SVDF) on quantized tensors.

Features are remembered in i16; sums go by the rule of the reference kernels in both ways, since
XNNPACK has none.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.convert.quantised_products import biased
from alpenglow.frontends.tflite.convert.recurrent import rank_of, svdf
from alpenglow.frontends.tflite.quantised import (
    check_ratio,
    fixed,
    grid,
    one,
    result_grid,
    zeros_of,
)
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.quantized.integer import MatMulInteger
from alpenglow.ops.quantized.quantize import Requantize, bounds
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose, stretch


@on_quantised("SVDF")
def quantised_svdf(s: Site) -> Made:
    """Whatever the activation, a result is limited by its type alone, as in the kernels."""
    if s.declared(0).dtype == "f32":
        return svdf(s)
    x, w, over_time, state = s.rank(0, 2), s.rank(1, 2), s.rank(2, 2), s.input(4)
    dtypes = [*(v.type.dtype for v in (x, w, over_time, state)), s.output().dtype]
    if dtypes != ["i8", "i8", "i16", "i16", "i8"]:
        raise s.unsupported(f"{', '.join(dtypes)} as dtypes of input, weights_feature, "
                            "weights_time, state and result", "i8, i8, i16, i16, i8")  # fmt: skip
    filters, memory = over_time.type.shape
    rank, batch = rank_of(s, filters), x.type.shape[0]
    if any(grid(s, i).zeros[0] for i in (1, 2, 4)):
        raise s.unsupported("a zero point other than 0 of weights or state", "zero point 0")
    flat = s.g(Transpose((1, 0)), w)
    zeros = zeros_of(s, grid(s, 0), x, 0), zeros_of(s, grid(s, 1), flat, 0)
    sums = s.g(MatMulInteger(), x, flat, *zeros)
    feature = _scaled(s, sums, "i16", _scale(s, 0) * _scale(s, 1) / _scale(s, 4), 0)
    before = s.reshaped(state, (batch, filters, memory))
    kept = s.g(Slice((0, 0, 1), (batch, filters, memory - 1), (1, 1, 1)), before)
    after = s.g(Concat(2), kept, s.reshaped(feature, (batch, filters, 1)))
    s.assign(4, s.reshaped(after, state.type.shape))
    wide = s.g(Cast("i32"), after)
    weights = stretch(s.g, s.g(Cast("i32"), over_time), wide.type.shape)
    products = s.reshaped(s.g(Mul(), wide, weights), (batch, filters // rank, rank * memory))
    units = s.g(ReduceSum((2,), False), products)
    bias = s.optional(3)
    total = units if bias is None else biased(s, units, bias)
    step, zero = one(s, result_grid(s))
    return _scaled(s, total, "i8", _scale(s, 4) * _scale(s, 2) / np.float32(step), zero)


def _scale(s: Site, i: int) -> np.float32:
    return np.float32(one(s, grid(s, i))[0])


def _scaled(s: Site, sums: Value, dtype: str, ratio: np.floating, zero: int) -> Value:
    """Return sums times a ratio, which kernels have in f32, as integers."""
    check_ratio(s, float(ratio), "double")
    low, high = map(int, bounds(dtype))
    multiplier = s.g.constant(fixed(np.array(ratio, np.float64)))
    offset = s.g.constant(np.array(zero, DTYPES[dtype]))
    wide = (stretch(s.g, v, sums.type.shape) for v in (multiplier, offset))
    return s.g(Requantize(dtype, low, high, rounding="double"), sums, *wide)
