"""Converters for quantization: QuantizeLinear and its kin, and operators on quantized tensors."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.convert.window import convolving, matrices
from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.frontends.presume import presume
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.activation import LeakyRelu, Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import (
    PRECISIONS,
    QUANTIZED_FLOATS,
    REALS,
    Dequantize,
    DynamicQuantize,
    Quantize,
    Requantize,
)
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, append_axes, stretch

MICROSOFT = "com.microsoft"


# ── to and from floats ──


@on("QuantizeLinear")
@on("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(s: Site) -> Made:
    x, zero = s.input(0), s.optional(2)
    to = s.attribute("output_dtype", 0)
    dtype = element_type(to, "QuantizeLinear: output_dtype") if to else "u8"
    if zero is not None:
        if to and zero.type.dtype != dtype:
            raise s.wrong(f"output_dtype is {dtype}, expected as the zero point, {zero.type}")
        dtype = zero.type.dtype
    precision = division(s, s.input(1).type.dtype)
    scale, zero = parameters(s, s.input(1), zero, x.type, dtype)
    saturate = bool(s.attribute("saturate", 1)) or dtype not in QUANTIZED_FLOATS
    return s.g(Quantize(dtype, saturate, precision), x, scale, zero)


def division(s: Site, scale: str) -> str:
    """Return the type to divide in: `precision`, else the scale's type; f32 before opset 23."""
    asked = s.attribute("precision", 0)
    if asked:
        return element_type(asked, "QuantizeLinear: precision")
    return scale if s.opset >= 23 and scale in PRECISIONS else "f32"


@on("DequantizeLinear")
@on("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(s: Site) -> Made:
    x, scale = s.input(0), s.input(1)
    to = s.attribute("output_dtype", 0)
    default = scale.type.dtype if scale.type.dtype in REALS else "f32"
    dtype = element_type(to, "DequantizeLinear: output_dtype") if to else default
    scale, zero = parameters(s, scale, s.optional(2), x.type, x.type.dtype)
    return s.g(Dequantize(dtype), x, scale, zero)


@on("DynamicQuantizeLinear")
def dynamic_quantize_linear(s: Site) -> Made:
    return s.g.add(DynamicQuantize(), [s.input(0)]).results


def parameters(
    s: Site, scale: Value, zero: Value | None, t: TensorType, dtype: str
) -> tuple[Value, Value]:
    """Return scale and zero point stretched to a tensor of type `t`; zeros of `dtype` if absent."""
    if zero is None:
        zero = s.g.constant(np.zeros((), t.with_dtype(dtype).numpy))
    # ONNX's own tests mix scalars with vectors of one element.
    elif zero.type.shape != scale.type.shape and not (single(zero) and single(scale)):
        raise s.wrong(f"zero point is {zero.type}, expected the shape of the scale {scale.type}")
    axis, block = s.attribute("axis", 1), s.attribute("block_size", 0)
    if scale.type.rank and not -t.rank <= axis < t.rank and scale.type.shape != (1,):
        raise s.wrong(f"axis is {axis}, expected {-t.rank} to {t.rank - 1} for {t}")
    if block:
        spread = [v if not v.type.rank else blocks(s, v, t, axis % t.rank, block)
                  for v in (scale, zero)]  # fmt: skip
    else:
        if scale.type.rank > 1:
            raise s.wrong(f"scale is {scale.type}, expected one axis at most")
        spread = [placed(s, v, t.rank, axis) for v in (scale, zero)]
    return stretch(s.g, spread[0], t.shape), stretch(s.g, spread[1], t.shape)


def single(v: Value) -> bool:
    return all(d == 1 for d in v.type.shape)


def placed(s: Site, v: Value, rank: int, axis: int) -> Value:
    """Return v ready to broadcast to a tensor of `rank` axes: one element as a scalar, a vector
    along `axis`."""
    if single(v):
        return s.g(Reshape(()), v) if v.type.rank else v
    return append_axes(s.g, v, rank - axis % rank - 1) if v.type.rank == 1 else v


def blocks(s: Site, v: Value, t: TensorType, axis: int, block: int) -> Value:
    """Repeat each element of v `block` times along `axis`, up to the extent that `t` has."""
    before, after = t.shape[:axis], t.shape[axis + 1 :]
    count = ceil_div(t.shape[axis], block)
    wanted = (*before, count, *after)
    if v.type.rank == t.rank and presume(count - v.type.shape[axis], "=="):
        count = v.type.shape[axis]  # of an open extent, as many blocks as there are scales
    if v.type.shape != (*before, count, *after):
        raise s.wrong(
            f"scale or zero point is {v.type}, expected shape "
            f"{wanted} for blocks of {block} on axis {axis} of {t}"
        )
    apart = s.g(Reshape((*before, count, 1, *after)), v)
    repeated = s.g(Broadcast((*before, count, block, *after)), apart)
    flat = s.g(Reshape((*before, count * block, *after)), repeated)
    if flat.type.shape == t.shape:
        return flat
    return s.g(Slice((0,) * t.rank, t.shape, (1,) * t.rank), flat)


# ── sums of products ──


@on("MatMulInteger")
def mat_mul_integer(s: Site) -> Made:
    x, y, finish = matrices(s, s.input(0), s.input(1))
    return finish(product(s, x, y, s.optional(2), s.optional(3)))


@on("QLinearMatMul")
def q_linear_mat_mul(s: Site) -> Made:
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = (s.input(i) for i in range(8))
    x, y, finish = matrices(s, x, y)
    total = product(s, x, y, x_zero, y_zero)
    rows = [placed(s, v, 2, -2) for v in (x_scale, scale, zero)]
    columns = placed(s, y_scale, 2, -1)
    return finish(requantized(s, total, rows[0], columns, rows[1], rows[2]))


def product(s: Site, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    """Return the i32 product of matrices, zero points given for rows of x and columns of y."""
    x, x_zero, y, y_zero = s.batched(
        x, zeros(s, x_zero, x.type, -2), y, zeros(s, y_zero, y.type, -1)
    )
    return s.g(MatMulInteger(), x, y, x_zero, y_zero)


@on("ConvInteger")
def conv_integer(s: Site) -> Made:
    return convolved(s, s.input(0), s.input(1), s.optional(2), s.optional(3))


@on("QLinearConv")
def q_linear_conv(s: Site) -> Made:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (s.input(i) for i in range(8))
    total = convolved(s, x, w, x_zero, w_zero)
    rank = total.type.rank
    bias = s.optional(8)
    if bias is not None:
        total = s.g(Add(), total, stretch(s.g, placed(s, bias, rank, 1), total.type.shape))
    spread = [placed(s, v, rank, 1) for v in (x_scale, w_scale, scale, zero)]
    return requantized(s, total, spread[0], spread[1], spread[2], spread[3])


def convolved(s: Site, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None) -> Value:
    """Return the i32 convolution, with one zero point for x and maybe one a filter for w."""
    op = ConvInteger(*convolving(s, 1 if s.op_type == "ConvInteger" else 3))
    return s.g(op, x, w, zeros(s, x_zero, x.type, 1), zeros(s, w_zero, w.type, 0))


def zeros(s: Site, zero: Value | None, t: TensorType, axis: int) -> Value:
    """Return a zero point, one in all or one an index of `axis`, stretched to type `t`."""
    if zero is None:
        zero = s.g.constant(np.zeros((), t.numpy))
    return stretch(s.g, placed(s, zero, t.rank, axis), t.shape)


def requantized(
    s: Site, total: Value, x_scale: Value, y_scale: Value, scale: Value, zero: Value
) -> Value:
    """Return i32 sums times x_scale * y_scale / scale, rounded, in the type of `zero`."""
    scales = [v if v.type.dtype == "f32" else s.g(Cast("f32"), v)
              for v in (x_scale, y_scale, scale)]  # fmt: skip
    both = s.g(Mul(), *s.broadcast(*scales[:2]))
    factor = s.g(Div(), *s.broadcast(both, scales[2]))
    shape = total.type.shape
    limits = np.iinfo(zero.type.numpy)
    op = Requantize(zero.type.dtype, int(limits.min), int(limits.max))
    return s.g(op, total, stretch(s.g, factor, shape), stretch(s.g, zero, shape))


# ── ONNX Runtime's operators on quantized tensors ──


def real(s: Site, i: int) -> Value:
    """Return operand i dequantized with operands i + 1 (scale) and i + 2 (zero point)."""
    x, scale, zero = s.input(i), s.input(i + 1), s.optional(i + 2)
    scale = stretch(s.g, placed(s, scale, 1, 0), x.type.shape)
    return s.g(Dequantize("f32"), x, scale, zeros(s, zero, x.type, 0))


def quantized(s: Site, y: Value, dtype: str, i: int) -> Value:
    """Return y quantized by operands i (scale) and i + 1 (zero point)."""
    scale = stretch(s.g, placed(s, s.input(i), 1, 0), y.type.shape)
    zero = zeros(s, s.optional(i + 1), y.type.with_dtype(dtype), 0)
    return s.g(Quantize(dtype), y, scale, zero)


@on("QLinearAdd", domain=MICROSOFT)
def q_linear_add(s: Site) -> Made:
    return of_two(s, Add())


@on("QLinearMul", domain=MICROSOFT)
def q_linear_mul(s: Site) -> Made:
    return of_two(s, Mul())


def of_two(s: Site, op: Op) -> Value:
    y = s.g(op, *s.broadcast(real(s, 0), real(s, 3)))
    return quantized(s, y, s.input(0).type.dtype, 6)


@on("QLinearSigmoid", domain=MICROSOFT)
def q_linear_sigmoid(s: Site) -> Made:
    return quantized(s, s.g(Sigmoid(), real(s, 0)), s.input(0).type.dtype, 3)


@on("QLinearLeakyRelu", domain=MICROSOFT)
def q_linear_leaky_relu(s: Site) -> Made:
    op = LeakyRelu(s.attribute("alpha", 0.01))
    return quantized(s, s.g(op, real(s, 0)), s.input(0).type.dtype, 3)


@on("QLinearGlobalAveragePool", domain=MICROSOFT)
def q_linear_global_average_pool(s: Site) -> Made:
    x = real(s, 0)
    first = 1 if s.attribute("channels_last", 0) else 2
    axes = tuple(range(first, first + x.type.rank - 2))
    return quantized(s, s.g(ReduceMean(axes), x), s.input(0).type.dtype, 3)


@on("QLinearConcat", domain=MICROSOFT)
def q_linear_concat(s: Site) -> Made:
    if len(s) < 5 or len(s) % 3 != 2:
        raise s.wrong(f"{len(s)} inputs, expected 2 and 3 for each tensor")
    parts = [real(s, i) for i in range(2, len(s), 3)]
    y = s.g(Concat(s.needed("axis")), *parts)
    return quantized(s, y, s.input(2).type.dtype, 0)
