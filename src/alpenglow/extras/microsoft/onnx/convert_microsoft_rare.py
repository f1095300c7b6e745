"""Converters for operators of com.microsoft that few models hold."""

from __future__ import annotations

from copy import copy

import numpy as np

from alpenglow.extras.microsoft.onnx.convert_microsoft_normalize import EPSILON, embedded
from alpenglow.extras.microsoft.onnx.convert_microsoft_quantize import repeated
from alpenglow.frontends.movement import corner
from alpenglow.frontends.onnx.convert.counted import unique_values
from alpenglow.frontends.onnx.convert.elementwise import MICROSOFT
from alpenglow.frontends.onnx.convert.movement import normal_axes
from alpenglow.frontends.onnx.convert.window import product as multiplied
from alpenglow.frontends.onnx.table import Made, Site, on, scalar, scales, times
from alpenglow.frontends.presume import fixed
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.elementwise.logic import BitAnd, ShiftRight
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose, stretch

FP4 = (0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""The sizes of 4-bit floats, by their lower three bits; the fourth is the sign."""

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of the normal distribution, scaled to [-1, 1] (Dettmers et al., QLoRA, 2023)."""


@on("MatMulBnb4", domain=MICROSOFT)
def mat_mul_bnb4(s: Site) -> Made:
    """Multiply by weights of 16 levels: W[n, k] = level[code] · largest[block of n·K + k]."""
    x, packed, largest = s.input(0), s.input(1), s.input(2)
    rows, columns, block = s.needed("N"), s.needed("K"), s.needed("block_size")
    if packed.type.dtype != "u8" or not s.attribute("transB", 1) or s.needed("quant_type") > 1:
        raise s.refuse(f"B is {packed.type}, expected u8, with transB 1 and quant_type 0 or 1")
    levels = NF4 if s.needed("quant_type") else (*FP4, *(-v for v in FP4))
    count = rows * columns
    codes = corner(s.g, halves(s, packed), (count,))
    level = s.g(Gather(0), s.g.constant(np.array(levels, x.type.numpy)), s.cast(codes, "i32"))
    scale = s.g(Reshape((1, -(-count // block))), largest)
    scale = s.g(Reshape((count,)), repeated(s, scale, 1, block, count))
    weights = s.g(Reshape((rows, columns)), s.g(Mul(), level, scale))
    return multiplied(s, x, s.g(Transpose((1, 0)), weights))


def halves(s: Site, packed: Value) -> Value:
    """Return the numbers of 4 bits in bytes, high ones first."""
    size = packed.type.shape[0] if packed.type.rank == 1 else None
    if size is None:
        raise s.wrong(f"the codes are {packed.type}, expected one axis")
    wide = s.g(Broadcast((size, 2)), s.g(Reshape((size, 1)), packed))
    shifts = stretch(s.g, s.g.constant(np.array([4, 0], np.uint8)), (size, 2))
    numbers = s.g(BitAnd(), s.g(ShiftRight(), wide, shifts), scalar(s.g, 15, wide))
    return s.g(Reshape((size * 2,)), numbers)


@on("QEmbedLayerNormalization", domain=MICROSOFT)
def q_embed_layer_normalization(s: Site) -> Made:
    """Do what EmbedLayerNormalization does, with tables of bytes."""
    tables: list[Value | None] = []
    for i in range(5):
        table = s.optional(2 + i)
        if table is None:
            tables.append(None)
            continue
        scale, zero = s.input(8 + i), s.optional(13 + i)
        x = s.cast(table, scale.type.dtype)
        if zero is not None:
            centre = s.g(Reshape(()), s.cast(zero, scale.type.dtype))
            x = s.g(Sub(), x, stretch(s.g, centre, x.type.shape))
        factor = stretch(s.g, s.g(Reshape(()), scale), x.type.shape)
        tables.append(s.g(Mul(), x, factor))
    plain = copy(s)
    plain.inputs = [s.input(0), s.optional(1), *tables, s.optional(7)]
    plain.attributes = {"epsilon": s.attribute("epsilon", EPSILON)}
    return embedded(plain)[:2]


@on("Unique", domain=MICROSOFT)
def unique_in_order(s: Site) -> Made:
    y, _, kinds, counts = unique_values(s, False)
    return [y, kinds, counts]


@on("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(s: Site) -> Made:
    """Return windows along an axis, `step` apart; they become the last axis."""
    x = s.input(0)
    axis = normal_axes(s, (s.attribute("dim", -1),), x.type.rank)[0]
    size, step, extent = s.needed("size"), s.attribute("step", 1), fixed(x.type.shape[axis])
    if size < 1 or step < 1 or extent < size:
        raise s.wrong(f"size is {size} and step {step}, expected size 1 to {extent} and step >= 1")
    starts = np.arange(0, extent - size + 1, step)
    at = s.g.constant((starts[:, None] + np.arange(size)).astype(np.int64))
    rank = x.type.rank
    order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
    return s.g(Transpose(order), s.g(Gather(axis), x, at))


@on("ScaledSiLU", domain=MICROSOFT)
@scales("alpha")
def scaled_silu(s: Site) -> Made:
    x, scale = s.input(0), s.optional(1)
    if scale is None:
        z = times(s, x, s.attribute("alpha", 1.0))
    else:
        factor = stretch(s.g, s.g(Reshape(()), s.cast(scale, x.type.dtype)), x.type.shape)
        z = s.g(Mul(), x, factor)
    return s.g(Mul(), z, s.g(Sigmoid(), z))


@on("GatedAdd", domain=MICROSOFT)
def gated_add(s: Site) -> Made:
    x, y = s.input(0), s.input(1)
    return s.g(Add(), x, s.g(Mul(), *s.broadcast(y, s.input(2))))
