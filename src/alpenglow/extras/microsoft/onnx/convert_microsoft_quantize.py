"""Converters for ONNX Runtime's quantized operators beyond those in `convert_quantize`."""

from __future__ import annotations

from copy import copy

import numpy as np

from alpenglow.extras.microsoft.onnx.convert_microsoft import channels_last
from alpenglow.frontends.movement import corner
from alpenglow.frontends.onnx.convert.elementwise import MICROSOFT
from alpenglow.frontends.onnx.convert.quantize import (
    placed,
    product,
    q_linear_conv,
    quantized,
    real,
    requantized,
)
from alpenglow.frontends.onnx.convert.reduction import axes_of
from alpenglow.frontends.onnx.convert.window import average_pool
from alpenglow.frontends.onnx.convert.window import product as multiplied
from alpenglow.frontends.onnx.table import Made, Site, on, times
from alpenglow.ir.dims import Dim, ceil_div
from alpenglow.ir.dims import product as count_of
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.quantized.groups import RoundGroups
from alpenglow.ops.quantized.quantize import Dequantize, DynamicQuantize
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose, stretch
from alpenglow.ops.tensor.packing import UnpackBits

BYTES = 4
"""The `accuracy_level` that lets a product quantize activations, by groups as weights have them."""

# ── products ──


@on("MatMulIntegerToFloat", domain=MICROSOFT)
def mat_mul_integer_to_float(s: Site) -> Made:
    x, y = s.input(0), s.input(1)
    total = product(s, x, y, s.optional(4), s.optional(5))
    return scaled(s, total, s.input(2), s.input(3), s.optional(6))


@on("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_mat_mul(s: Site) -> Made:
    x, x_scale, x_zero = s.g.add(DynamicQuantize(), [s.input(0)]).results
    total = product(s, x, s.input(1), x_zero, s.optional(3))
    return scaled(s, total, x_scale, s.input(2), s.optional(4))


def scaled(s: Site, total: Value, x_scale: Value, y_scale: Value, bias: Value | None) -> Value:
    """Return sums times the scales, one for rows and one or more for columns, plus a bias."""
    kind, shape = y_scale.type.dtype, total.type.shape
    row, column = placed(s, x_scale, 2, -2), placed(s, y_scale, 2, -1)
    factor = stretch(s.g, s.g(Mul(), *s.broadcast(row, column)), shape)
    y = s.g(Mul(), s.cast(total, kind), factor)
    return y if bias is None else s.g(Add(), y, stretch(s.g, bias, shape))


@on("MatMulInteger16", domain=MICROSOFT)
def mat_mul_integer_16(s: Site) -> Made:
    return multiplied(s, *(s.cast(s.input(i), "i32") for i in (0, 1)))


@on("QGemm", domain=MICROSOFT)
def q_gemm(s: Site) -> Made:
    x, x_scale, x_zero, y, y_scale, y_zero = (s.input(i) for i in range(6))
    x = s.g(Transpose((1, 0)), x) if s.attribute("transA", 0) else x
    y = s.g(Transpose((1, 0)), y) if s.attribute("transB", 0) else y
    total, bias = product(s, x, y, x_zero, y_zero), s.optional(6)
    if bias is not None:
        total = s.g(Add(), total, stretch(s.g, bias, total.type.shape))
    alpha, scale = s.attribute("alpha", 1.0), s.optional(7)
    if scale is None:
        return times(s, scaled(s, total, x_scale, y_scale, None), alpha)
    zero = s.optional(8)
    zero = s.g.constant(np.zeros((), x.type.numpy)) if zero is None else placed(s, zero, 2, -1)
    row = times(s, placed(s, x_scale, 2, -2), alpha)
    return requantized(s, total, row, placed(s, y_scale, 2, -1), placed(s, scale, 2, -1), zero)


@on("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(s: Site) -> Made:
    x = s.input(0)
    axes = axes_of(s, s.needed("axes"))
    wide = "u32" if x.type.dtype[0] == "u" else "i32"
    return s.g(ReduceSum(axes, bool(s.attribute("keepdims", 1))), s.cast(x, wide))


# ── weights of few bits ──


@on("MatMulNBits", domain=MICROSOFT)
def mat_mul_n_bits(s: Site) -> Made:
    x, packed, scales = s.input(0), s.input(1), s.input(2)
    bits, block = s.attribute("bits", 4), s.needed("block_size")
    rows, columns = s.needed("N"), s.needed("K")
    if bits not in (2, 4, 8) or packed.type.dtype != "u8" or s.attribute("weight_prepacked", 0):
        raise s.refuse(f"{bits} bits in {packed.type} are not supported")
    count, each = -(-columns // block), block * bits // 8
    if count_of(packed.type.shape) != rows * count * each:
        raise s.wrong(f"weights are {packed.type}, expected u8[{rows},{count},{each}]")
    steps = spread(s, s.g(Reshape((rows, count, each)), packed), bits)
    zero, group = s.optional(3), s.optional(4)
    scale = s.g(Reshape((rows, count)), scales)
    in_bytes = s.attribute("accuracy_level", 0) == BYTES and _takes_bytes(x, packed, zero, group)
    if zero is None:
        zero = stretch(s.g, s.g.constant(np.uint8(1 << (bits - 1))), (rows, count))
    elif zero.type.dtype not in FLOATS:
        flat = s.g(Reshape((rows, count_of(zero.type.shape) // rows)), zero)
        zero = corner(s.g, spread(s, flat, bits), (rows, count))
    else:
        zero = s.g(Reshape((rows, count)), zero)
    if group is None:
        # One of each block stays one number: spelled out, they would outweigh the weights.
        scale, zero = (stretch(s.g, s.g(Reshape((rows, count, 1)), v), steps.type.shape)
                       for v in (scale, zero))  # fmt: skip
        weights = s.g(
            Reshape((rows, count * block)), dequantized(s, steps, scale, zero, x.type.dtype)
        )
        weights = corner(s.g, weights, (rows, columns))
    else:
        group = s.within(group, 0, count - 1, "a group")
        scale, zero = (s.g(Gather(1), v, group) for v in (scale, zero))
        steps = corner(s.g, s.g(Reshape((rows, count * block)), steps), (rows, columns))
        weights = dequantized(s, steps, scale, zero, x.type.dtype)
    if in_bytes:
        x = s.g(RoundGroups(block), x)
    y, bias = multiplied(s, x, s.g(Transpose((1, 0)), weights)), s.optional(5)
    return y if bias is None else s.g(Add(), y, stretch(s.g, bias, y.type.shape))


def _takes_bytes(x: Value, packed: Value, zero: Value | None, group: Value | None) -> bool:
    """Whether a product by weights of few bits may quantize x: ONNX Runtime does for these."""
    whole = zero is None or zero.type.dtype not in FLOATS
    return x.type.dtype == "f32" and packed.array is not None and whole and group is None


def dequantized(s: Site, steps: Value, scale: Value, zero: Value, dtype: str) -> Value:
    """Return (steps - zero) * scale as `dtype`; a zero point may be a float."""
    if dtype == "f32" and zero.type == steps.type and scale.type.dtype == dtype:
        return s.g(Dequantize(), steps, scale, zero)
    centred = s.g(Sub(), s.cast(steps, dtype), s.cast(zero, dtype))
    return s.g(Mul(), centred, s.cast(scale, dtype))


def spread(s: Site, packed: Value, bits: int) -> Value:
    """Return the numbers of `bits` bits in bytes[…, n], low bits first, as u8[…, n · 8/bits]."""
    return packed if bits == 8 else s.g(UnpackBits(bits), packed)


def repeated(s: Site, v: Value, axis: int, times_: int, extent: Dim) -> Value:
    """Return each element of v several times along an axis, up to an extent."""
    before, count, after = v.type.shape[:axis], v.type.shape[axis], v.type.shape[axis + 1 :]
    apart = s.g(Reshape((*before, count, 1, *after)), v)
    wide = s.g(Broadcast((*before, count, times_, *after)), apart)
    flat = s.g(Reshape((*before, count * times_, *after)), wide)
    return corner(s.g, flat, (*before, extent, *after))


@on("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(s: Site) -> Made:
    packed, indices, scales, zero = s.input(0), s.input(1), s.input(2), s.optional(3)
    bits = s.attribute("bits", 4)
    rows = s.named_axis(0, "gather_axis")
    along = s.named_axis(1, "quantize_axis")
    if along == rows or bits not in (4, 8):
        raise s.refuse(f"gather_axis is {rows}, quantize_axis {along} and bits {bits}, expected "
                       "different axes and 4 or 8 bits")  # fmt: skip

    indices = s.indices(indices, packed.type.shape[rows], rows)

    def chosen(v: Value) -> Value:
        slices = s.g(Gather(rows), v, indices)
        bytes_ = v.type.dtype == "u8" and v is not scales
        return spread(s, slices, bits) if bytes_ else slices

    steps, factor = chosen(packed), chosen(scales)
    at = along + (indices.type.rank - 1 if along > rows else 0)
    extent, kind = steps.type.shape[at], scales.type.dtype
    block = s.attribute("block_size", 128)
    if zero is None:
        middle = 1 << (bits - 1) if packed.type.dtype == "u8" else 0
        shift = stretch(s.g, s.g.constant(np.asarray(middle, scales.type.numpy)),
                        factor.type.shape)  # fmt: skip
    else:
        shift = corner(s.g, s.cast(chosen(zero), kind), factor.type.shape)
    if factor.type.shape[at] != ceil_div(extent, block):
        raise s.wrong(f"scales is {scales.type}, "
                      f"expected a scale for each {block} of {packed.type}")  # fmt: skip
    spans = [repeated(s, v, at, block, extent) for v in (factor, shift)]
    return s.g(Mul(), s.g(Sub(), s.cast(steps, kind), spans[1]), spans[0])


# ── layers ──


@on("QLinearConv", domain=MICROSOFT)
def q_linear_conv_either_way(s: Site) -> Made:
    return channels_last(s, q_linear_conv) if s.attribute("channels_last", 0) else q_linear_conv(s)


@on("QLinearAveragePool", domain=MICROSOFT)
def q_linear_average_pool(s: Site) -> Made:
    floats = copy(s)
    floats.inputs = [real(s, 0)]
    last = s.attribute("channels_last", 0)
    y = channels_last(floats, average_pool) if last else average_pool(floats)
    assert isinstance(y, Value), "a pooling has one result"
    return quantized(s, y, s.input(0).type.dtype, 3)


@on("QLinearReduceMean", domain=MICROSOFT)
def q_linear_reduce_mean(s: Site) -> Made:
    axes = axes_of(s, s.attribute("axes", ()))
    y = s.g(ReduceMean(axes, bool(s.attribute("keepdims", 1))), real(s, 0))
    return quantized(s, y, s.input(0).type.dtype, 3)


@on("QLinearSoftmax", domain=MICROSOFT)
def q_linear_softmax(s: Site) -> Made:
    x = real(s, 0)
    old = s.attribute("opset", 13) < 13
    axis = s.named_axis(-1)
    if old and axis != x.type.rank - 1:
        rows = (count_of(x.type.shape[:axis]), count_of(x.type.shape[axis:]))
        y = s.g(Reshape(x.type.shape), s.g(Softmax(1), s.g(Reshape(rows), x)))
    else:
        y = s.g(Softmax(axis), x)
    return quantized(s, y, s.input(0).type.dtype, 3)


@on("QLinearWhere", domain=MICROSOFT)
def q_linear_where(s: Site) -> Made:
    y = s.g(Where(), *s.broadcast(s.input(0), real(s, 1), real(s, 4)))
    return quantized(s, y, s.input(1).type.dtype, 7)
