"""Converters for convolution and matrix multiplication of quantized tensors.

Products of bytes are summed in i32.  Those of i16, which kernels sum in i64, are exact in f64.
Where only the weights are integers, floats are as many integers for a while (`dynamic`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.convert.contraction import (
    batch_matmul,
    kept,
    of_batch_matmul,
    of_fully_connected,
)
from alpenglow.frontends.tflite.convert.window import (
    PLANE,
    conv_2d,
    depthwise_conv_2d,
    of_conv_2d,
    of_depthwise_conv_2d,
    sliding,
)
from alpenglow.frontends.tflite.dynamic import measured, own, stood_for
from alpenglow.frontends.tflite.quantised import (
    check_symmetric,
    check_weights,
    grid,
    one,
    real,
    requantised,
    zeros_of,
)
from alpenglow.frontends.tflite.table import Converter, Made, Site, on_quantised
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.tensor.movement import append_axes, stretch


@on_quantised("CONV_2D")
def quantised_conv_2d(s: Site) -> Made:
    if s.declared(0).dtype == "f32":
        return dynamic_conv_2d(s)
    return _convolved(s, of_conv_2d, 0)


@on_quantised("DEPTHWISE_CONV_2D")
def quantised_depthwise_conv_2d(s: Site) -> Made:
    if s.declared(0).dtype == "f32":
        return by_image(s, 0, depthwise_conv_2d, "asymmetric")
    return _convolved(s, of_depthwise_conv_2d, 3)


@on_quantised("FULLY_CONNECTED")
def quantised_fully_connected(s: Site) -> Made:
    if s.declared(0).dtype == "f32":
        return dynamic_fully_connected(s)
    x, w = of_fully_connected(s)
    check_axis(s, 1, 0)
    sums = _summed(s, MatMul(), MatMulInteger(), x, w, 1)
    bias = s.optional(2)
    if bias is not None:
        sums = biased(s, sums, s.reshaped(bias, w.type.shape[1:]))
    parts = scales(s, 0, 1, multiplied=False)
    left = is_left(s)
    wide = sums.type.dtype == "i64"
    rounding = "double_up" if left else "single" if wide else "single_away"
    return kept(s, requantised(s, sums, parts, rounding, 1, activation=True, reference=left))


@on_quantised("BATCH_MATMUL")
def quantised_batch_matmul(s: Site) -> Made:
    if s.declared(0).dtype == "f32":
        x = s.input(0)
        axis = x.type.rank - (2 if s.option("adj_x") else 1)
        way = "xnnpack" if by_xnnpack(s, 1) else own(s.option("asymmetric_quantize_inputs"))
        return by_rows(s, 0, (axis,), batch_matmul, way)
    for i in (0, 1):
        one(s, grid(s, i))
    x, w = of_batch_matmul(s)
    sums = _summed(s, MatMul(), MatMulInteger(), x, w, 0)
    if s.output().dtype == "i32":
        if any(grid(s, 0).zeros) or any(grid(s, 1).zeros):  # which LiteRT does not subtract
            raise s.unsupported("an i32 result of operands with zero points", "zero points 0")
        return sums
    short = sums.type.dtype == "i64"
    rounding = "single" if short else "double"
    parts = scales(s, 0, 1, multiplied=True)
    # XNNPACK asks for weights without zero points.
    left = any(grid(s, 1).zeros)
    return requantised(s, sums, parts, rounding, short=short, reference=left)


# ── float input with quantized weights ──


def dynamic_fully_connected(s: Site) -> Made:
    """Rows become integers, and their sums of products floats again."""
    check_weights(s, 1, "i8", "i4")
    check_axis(s, 1, 0)
    x, w = of_fully_connected(s)
    way = "xnnpack" if by_xnnpack(s, 1) else own(s.option("asymmetric_quantize_inputs"))
    rows, w = measured(s, x, (1,), way), s.cast(w, "i8")
    zeros = stretch(s.g, rows.zero, x.type.shape), s.filled(0, w)
    sums = s.cast(s.g(MatMulInteger(), rows.steps, w, *zeros), "f32")
    scales = s.g.constant(np.array(grid(s, 1).scales, np.float32))
    y = s.apply(Mul(), sums, s.apply(Mul(), rows.scale, scales))
    if (bias := s.optional(2)) is not None:
        y = s.apply(Add(), y, s.reshaped(bias, w.type.shape[1:]))
    return activated(s, kept(s, y))


def dynamic_conv_2d(s: Site) -> Made:
    """Images become integers; those that XNNPACK multiplies by a matrix do so by pixel."""
    if not by_xnnpack(s, 1):
        return by_image(s, 0, conv_2d, own(len(set(grid(s, 1).scales)) > 1))
    _, *kernel, depth = s.input(1).type.shape
    strides = (s.option(f"stride_{a}") for a in PLANE)
    if {*kernel, *strides} == {1} and depth == s.input(0).type.shape[-1]:
        return by_rows(s, 0, (3,), conv_2d, "xnnpack")
    return by_image(s, 0, conv_2d, "xnnpack")


def by_image(s: Site, i: int, convert: Converter, way: str) -> Made:
    """Return a float operator on dynamically quantized images."""
    return by_rows(s, i, range(1, s.input(i).type.rank), convert, way)


def by_rows(s: Site, i: int, axes: Sequence[int], convert: Converter, way: str) -> Made:
    """Return a float operator on operand i, dynamically quantized over axes."""
    check_weights(s, 1, "i8", "i4")
    s.inputs[i] = stood_for(s, measured(s, s.input(i), axes, way))
    s.inputs[1] = real(s, 1)
    return convert(s)


def by_xnnpack(s: Site, w: int) -> bool:
    """Whether XNNPACK takes an operator, whose weights must be a constant.

    Weights of four bits it takes for rows of an even length alone.
    """
    weights = s.declared(w)
    if s.rounding != "xnnpack" or weights.content is None:
        return False
    return weights.dtype != "i4" or (s.kind == "FULLY_CONNECTED" and weights.shape[1] % 2 == 0)


# ── sums of products ──


def _convolved(s: Site, operands: Callable[[Site], tuple[Value, Value]], axis: int) -> Value:
    """Return the convolution of operands, requantized; scales of weights are on an axis."""
    check_axis(s, 1, axis)
    x, w = operands(s)
    window = sliding(s, x, w, PLANE)
    sums = _summed(s, Conv(*window), ConvInteger(*window), channels_first(s.g, x), w, 0)
    if (bias := s.optional(2)) is not None:
        sums = biased(s, sums, append_axes(s.g, bias, len(PLANE)))
    parts = scales(s, 0, 1, multiplied=x.type.dtype == "u8")
    short = sums.type.dtype == "i64"
    left = is_left(s)
    rounding = "single" if short else "double_up" if left and s.kind == "CONV_2D" else "double"
    y = requantised(s, sums, parts, rounding, 1, activation=True, short=short, reference=left)
    return channels_last(s.g, y)


def is_left(s: Site) -> bool:
    """Whether XNNPACK leaves products of integers to LiteRT's own kernel.

    It takes constant weights, and a constant bias with scales and zero points 0.
    """
    if s.rounding != "xnnpack" or "i16" in (s.declared(0).dtype, s.output().dtype):
        return False
    if s.optional(2) is not None:
        bias = s.declared(2)
        if bias.content is None or bias.grid is None or any(bias.grid.zeros):
            return True
    return not by_xnnpack(s, 1)


def scales(s: Site, x: int, w: int, multiplied: bool) -> Sequence[Sequence[float]]:
    """Return the scales of two operands, maybe multiplied in f32, as some reference kernels do."""
    a, b = (np.array(grid(s, i).scales, np.float32) for i in (x, w))
    return [(a * b).tolist()] if multiplied else [a.tolist(), b.tolist()]


def check_axis(s: Site, w: int, axis: int) -> None:
    """Raise ModelError unless scales of weights are on an axis."""
    if not grid(s, w).uniform and grid(s, w).axis != axis:
        raise s.wrong(f"quantized_dimension of weights is {grid(s, w).axis}, expected {axis}")


def _summed(s: Site, wide: Op, narrow: Op, x: Value, w: Value, axis: int) -> Value:
    """Return the sums of products less the zero points, in i32 or i64.

    The filters or columns of w are on `axis`.
    """
    if w.type.dtype == "i4":
        w = s.g(Cast("i8"), w)
    if x.type.dtype == "i16":
        check_symmetric(s, grid(s, 0), grid(s, 1))
        return s.g(Cast("i64"), s.g(wide, s.g(Cast("f64"), x), s.g(Cast("f64"), w)))
    zeros = zeros_of(s, grid(s, 0), x, 0), zeros_of(s, grid(s, 1), w, axis)
    return s.g(narrow, x, w, *zeros)


def biased(s: Site, sums: Value, bias: Value) -> Value:
    """Return sums plus a bias, which are in steps alike."""
    if bias.type.dtype not in ("i32", "i64"):
        raise s.wrong(f"bias is {bias.type}, expected i32 or i64")
    return s.g(Add(), sums, stretch(s.g, s.cast(bias, sums.type.dtype), sums.type.shape))
