"""Converters for quantized tensors: what PT2E leaves around operators of floats.

Where scales and zero points are constants and elements have 8 or 16 bits, they become `Quantize`
and `Dequantize`, which passes make integer operators of (`passes/quantized.py`).  PyTorch
multiplies by the reciprocal of a scale there, and `Quantize` divides: what lies next to the middle
between two steps may be rounded to the other one.  All else is the arithmetic that PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.torch.promote import Number, shared
from alpenglow.frontends.torch.table import Made, Site, axis_of, on
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS, INTS, Array
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Clip,
    Div,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Round,
    Sub,
)
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.quantized.quantize import STEPS, Dequantize, Quantize
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMin
from alpenglow.ops.tensor.movement import append_axes, stretch

EPSILON = float(np.finfo(np.float32).eps)

Spread = Callable[[Value], Value]
"""A function that stretches scales and zero points to the shape of their tensor."""

Real = Number | Value


# ── one scale a tensor ──


@on("quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2")  # fmt: skip
def quantize_per_tensor(
    s: Site, input: Value, scale: Real, zero_point: Real, quant_min: Real, quant_max: Real,
    dtype: str,
) -> Made:  # fmt: skip
    limits = limit(quant_min), limit(quant_max)
    return quantized(s, input, one(s, scale), one(s, zero_point), limits, dtype, over(s, input))


@on("quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2")  # fmt: skip
def dequantize_per_tensor(
    s: Site, input: Value, scale: Real, zero_point: Real, quant_min: Real, quant_max: Real,
    dtype: str, out_dtype: str | None = None,
) -> Made:  # fmt: skip
    steps, zero, to = one(s, scale), one(s, zero_point), out_dtype or "f32"
    if (made := bytes_dequantized(s, input, steps, zero, to, over(s, input))) is not None:
        return made
    moved = s.g(Sub(), s.cast(input, to), spread(s, zero, to, over(s, input)))
    return s.cast(s.g(Mul(), s.cast(moved, "f32"), spread(s, steps, "f32", over(s, input))), to)


def one(s: Site, number: Real) -> Value:
    """Return a number, or a tensor of one element, as a tensor without axes."""
    if isinstance(number, Value):
        if any(d != 1 for d in number.type.shape):
            raise ModelError(f"a scale or zero point is {number.type}, expected one element")
        if number.array is not None:
            return s.g.constant(number.array.reshape(()))
        # PyTorch takes it for a number of Python's.
        dtype = "f64" if number.type.dtype in FLOATS else "i64"
        return s.cast(s.reshaped(number, ()), dtype)
    return s.constant(number, "f64" if isinstance(number, float) else "i64")


def limit(number: Real) -> int:
    """Return the least or greatest step, which is known."""
    if isinstance(number, Value) and number.array is not None and number.array.size == 1:
        return int(number.array.reshape(()))
    if not isinstance(number, int):
        raise UnsupportedError("quant_min or quant_max is computed, "
                               "expected an integer or a constant")  # fmt: skip
    return number


def over(s: Site, x: Value) -> Spread:
    """Return the function that stretches a scalar to the shape of x."""
    return lambda v: stretch(s.g, v, x.type.shape)


# ── one scale an index of an axis ──


@on("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    s: Site, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int,
    quant_max: int, dtype: str,
) -> Made:  # fmt: skip
    place = along(s, input, scales, axis)
    return quantized(s, input, scales, zero_points, (quant_min, quant_max), dtype, place)


@on("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    s: Site, input: Value, scales: Value, zero_points: Value | None, axis: int, quant_min: int,
    quant_max: int, dtype: str, out_dtype: str | None = None,
) -> Made:  # fmt: skip
    place, zero = along(s, input, scales, axis), zero_points or zeros_for(s, scales)
    return s.cast(real(s, input, scales, zero, place), out_dtype or "f32")


@on("quantized_decomposed.fake_quant_per_channel.default")
def fake_quant_per_channel(
    s: Site, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int,
    quant_max: int,
) -> Made:  # fmt: skip
    place = along(s, input, scales, axis)
    zero = spread(s, zero_points, "f32", place)
    steps = stepped(s, input, spread(s, scales, "f32", place), zero, (quant_min, quant_max))
    return s.g(Mul(), s.g(Sub(), steps, zero), spread(s, scales, "f32", place))


def along(s: Site, x: Value, scales: Value, axis: int) -> Spread:
    """Return the function that stretches a vector along an axis to the shape of x."""
    at = axis_of(axis, x.type.rank)
    if scales.type.shape != x.type.shape[at : at + 1]:
        raise ModelError(f"scales is {scales.type}, "
                         f"expected one entry for each index of axis {at} of {x}")  # fmt: skip
    return lambda v: stretch(s.g, append_axes(s.g, v, x.type.rank - 1 - at), x.type.shape)


# ── one scale a row, or a group of a row ──


@on("quantized_decomposed.quantize_per_token.default")
def quantize_per_token(
    s: Site, input: Value, scales: Value, zero_points: Value, quant_min: int, quant_max: int,
    dtype: str,
) -> Made:  # fmt: skip
    return s.cast(rows(s, input, scales, zero_points, (quant_min, quant_max)), dtype)


@on("quantized_decomposed.quantize_per_channel_group.default")
def quantize_per_channel_group(
    s: Site, input: Value, scales: Value, zero_points: Value, quant_min: int, quant_max: int,
    dtype: str, group_size: int,
) -> Made:  # fmt: skip
    x, steps, zero = grouped(s, input, scales, zero_points, group_size)
    made = rows(s, x, steps, zero, (quant_min, quant_max))
    return s.reshaped(s.cast(made, dtype), input.type.shape)


def rows(s: Site, x: Value, scales: Value, zero: Value, limits: tuple[int, int]) -> Value:
    """Return the steps of rows; those of the zero point are added before they are rounded."""
    dtype, place = shared([x, scales]), over(s, x)
    inverse = s.g(Div(), s.filled(1.0, scales.type), scales)
    product = s.g(Mul(), s.cast(x, dtype), spread(s, inverse, dtype, place))
    moved = s.g(Add(), product, spread(s, zero, dtype, place))
    low, high = (float(np.float32(n)) for n in limits)
    return s.g(Clip(low, high), s.g(Round(), moved))


@on("quantized_decomposed.dequantize_per_token.default")
def dequantize_per_token(
    s: Site, input: Value, scales: Value, zero_points: Value, quant_min: int, quant_max: int,
    dtype: str, output_dtype: str,
) -> Made:  # fmt: skip
    place = over(s, input)
    return s.cast(dequantized(s, input, place(scales), place(zero_points)), output_dtype)


@on("quantized_decomposed.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    s: Site, input: Value, scales: Value, zero_points: Value | None, quant_min: int,
    quant_max: int, dtype: str, group_size: int, output_dtype: str,
) -> Made:  # fmt: skip
    zero = zero_points or zeros_for(s, scales)
    x, steps, zero = grouped(s, input, scales, zero, group_size)
    made = real(s, x, steps, zero, over(s, x))
    return s.reshaped(s.cast(made, output_dtype), input.type.shape)


def zeros_for(s: Site, scales: Value) -> Value:
    """Return zero points that are 0."""
    return s.g.constant(np.zeros(scales.type.extents, np.int64))


def grouped(
    s: Site, x: Value, scales: Value, zero: Value, size: int
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Return the groups of a matrix's rows as rows, with a column of scales and zero points."""
    columns = x.type.shape[-1]
    if x.type.rank != 2 or isinstance(columns, Sym):
        raise UnsupportedError(f"input is {x.type}, "
                               "expected a matrix with a fixed number of columns")  # fmt: skip
    if size > columns and scales.type.shape[-1] == 1:
        size = columns
    if size < 1 or columns % size:
        raise ModelError(f"group_size is {size}, expected a divisor of {columns}")
    count = x.type.shape[0] * (columns // size)
    steps, offsets = (column(s, v, (count, 1)) for v in (scales, zero))
    return s.reshaped(x, (count, size)), steps, offsets


def column(s: Site, v: Value, shape: Sequence[Dim]) -> Value:
    """Return a constant, or another value, in another shape; a constant stays one."""
    extents = [d for d in shape if not isinstance(d, Sym)]
    if v.array is None or len(extents) < len(shape):
        return s.reshaped(v, shape)
    if math.prod(extents) != v.array.size:
        raise ModelError(f"scales or zero points are {v.type}, "
                         f"expected {math.prod(extents)} elements")  # fmt: skip
    return s.g.constant(v.array.reshape(extents), v.name)


# ── the arithmetic ──


def quantized(
    s: Site, x: Value, scale: Value, zero: Value, limits: tuple[int, int], dtype: str, place: Spread
) -> Value:
    """Return x in steps of a scale, as integers: round(x / scale) + zero, limited."""
    known = parameters(scale, zero, dtype)
    if known is None:
        inverse = s.g(Div(), s.filled(1.0, scale.type), scale)
        steps = stepped(s, s.cast(x, "f32"), spread(s, inverse, "f32", place),
                        spread(s, zero, "f32", place), limits, inverted=True)  # fmt: skip
        return s.cast(steps, dtype)
    q = s.g(Quantize(dtype), s.cast(x, "f32"), *(place(s.g.constant(a)) for a in known))
    ends = np.iinfo(DTYPES[dtype])
    if limits[0] <= ends.min and limits[1] >= ends.max:
        return q
    return s.g(Clip(max(limits[0], int(ends.min)), min(limits[1], int(ends.max))), q)


def stepped(
    s: Site, x: Value, scale: Value, zero: Value, limits: tuple[int, int], inverted: bool = False
) -> Value:
    """Return the steps of x as floats; `scale` may be the reciprocal of one."""
    inverse = scale if inverted else s.g(Div(), s.filled(1.0, scale.type), scale)
    moved = s.g(Add(), s.g(Round(), s.g(Mul(), x, inverse)), zero)
    low, high = (float(np.float32(n)) for n in limits)
    return s.g(Clip(low, high), moved)


def bytes_dequantized(
    s: Site, x: Value, scale: Value, zero: Value, dtype: str, place: Spread
) -> Value | None:
    """Return the reals of few bits on a grid that is known; None for others."""
    known = parameters(scale, zero, x.type.dtype)
    exact = dtype == "f32" or (dtype in ("f16", "bf16") and x.type.dtype in ("i8", "u8"))
    if known is None or not exact:
        return None
    return s.g(Dequantize(dtype), x, *(place(s.g.constant(a)) for a in known))


def real(s: Site, x: Value, scale: Value, zero: Value, place: Spread) -> Value:
    """Return the dequantized x."""
    made = bytes_dequantized(s, x, scale, zero, "f32", place)
    return dequantized(s, x, place(scale), place(zero)) if made is None else made


def dequantized(s: Site, x: Value, scale: Value, zero: Value) -> Value:
    """Return (x - zero) scale, each in the type that PyTorch computes it in."""
    between = shared([x, zero])
    moved = s.g(Sub(), s.cast(x, between), s.cast(zero, between))
    dtype = shared([moved, scale])
    return s.g(Mul(), s.cast(moved, dtype), s.cast(scale, dtype))


def parameters(scale: Value, zero: Value, dtype: str) -> tuple[Array, Array] | None:
    """Return scales in f32 and zero points in `dtype`, if they are known and these hold them."""
    if dtype not in STEPS or scale.array is None or zero.array is None or not zero.array.size:
        return None
    if zero.type.dtype in INTS:
        offsets = zero.array
    else:  # whole numbers may be stored as floats
        offsets = zero.array.astype(np.float64)
        if not np.array_equal(offsets, np.rint(offsets)):
            return None
    ends = np.iinfo(DTYPES[dtype])
    if offsets.min() < ends.min or offsets.max() > ends.max:
        return None
    return scale.array.astype(np.float32), offsets.astype(DTYPES[dtype])


def spread(s: Site, v: Value, dtype: str, place: Spread) -> Value:
    """Return scales or zero points in an element type, stretched to their tensor."""
    return place(s.cast(v, dtype))


# ── scales from what there is to quantize ──


@on("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    s: Site, input: Value, quant_min: int, quant_max: int, eps: float, dtype: str
) -> Made:
    low, high = ends(s, input, keepdims=False)
    scale = s.g(Div(), s.g(Sub(), high, low), s.filled(float(quant_max - quant_min), low.type))
    scale = s.g(Maximum(), s.cast(scale, "f32"), s.filled(eps, low.type.with_dtype("f32")))
    steps = s.cast(s.g(Round(), s.g(Div(), s.cast(low, "f32"), scale)), "i32")
    zero = s.g(Sub(), s.filled(quant_min, steps.type), steps)
    return parameters_of_one(s, scale, s.g(Clip(quant_min, quant_max), zero))


@on("quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    s: Site, input: Value, quant_min: int, quant_max: int, eps: float, dtype: str
) -> Made:
    low, high = ends(s, input, keepdims=False)
    most = s.g(Maximum(), s.g(Neg(), low), high)
    half = s.filled(float(quant_max - quant_min) / 2, most.type)
    scale = s.cast(s.g(Div(), most, half), "f32")
    scale = s.g(Maximum(), scale, s.filled(eps, scale.type))
    return parameters_of_one(s, scale, s.constant(128 if dtype == "u8" else 0, "i64"))


def parameters_of_one(s: Site, scale: Value, zero: Value) -> Made:
    return [s.reshaped(s.cast(v, s.stated(i).dtype), (1,)) for i, v in enumerate((scale, zero))]


def ends(s: Site, x: Value, keepdims: bool) -> tuple[Value, Value]:
    """Return the least and the largest of x and 0: of all elements, or of each row."""
    axes = (x.type.rank - 1,) if keepdims else tuple(range(x.type.rank))
    low, high = (s.g(op(axes, keepdims), x) for op in (ReduceMin, ReduceMax))
    zero = s.filled(0.0, low.type)
    return s.g(Minimum(), low, zero), s.g(Maximum(), high, zero)


@on("quantized_decomposed.choose_qparams_per_token.default")
def choose_qparams_per_token(s: Site, input: Value, dtype: str) -> Made:
    if dtype != "i8":
        raise UnsupportedError(f"dtype is {dtype}, expected i8 (torch.int8)")
    most = s.g(ReduceMax((input.type.rank - 1,), True), s.g(Abs(), input))
    most = s.cast(most, "f32") if most.type.dtype == "f16" else most
    scale = s.g(Div(), s.g(Clip(low=1e-5), most), s.filled(127.0, most.type))
    return [s.cast(scale, s.result.dtype), s.filled(0, s.stated(1))]


@on("quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default")  # fmt: skip
def choose_qparams_per_token_asymmetric(s: Site, input: Value, dtype: str) -> Made:
    low, high = ends(s, input, keepdims=True)
    t = low.type
    scale = s.g(Clip(low=EPSILON), s.g(Div(), s.g(Sub(), high, low), s.filled(255.0, t)))
    least, most = (s.g(Div(), v, scale) for v in (low, high))
    below, above = s.filled(-128.0, t), s.filled(127.0, t)
    error = s.g(Add(), s.g(Add(), below, least), s.g(Add(), above, most))
    zero = s.g(Where(), s.g(Greater(), error, s.filled(0.0, t)), s.g(Sub(), below, least),
               s.g(Sub(), above, most))  # fmt: skip
    zero = s.g(Round(), s.g(Clip(-128.0, 127.0), zero))
    return [s.cast(scale, s.result.dtype), s.cast(zero, s.stated(1).dtype)]
