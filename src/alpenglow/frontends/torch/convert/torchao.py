"""Converters for models that torchao quantized: a scale a block, products by weights of few bits.

Its tensors of their own classes are plain ones in an exported program, once that is decomposed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.torch.convert.quantized import bytes_dequantized, column, over, spread
from alpenglow.frontends.torch.promote import Number, shared
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.integer import MatMulInteger
from alpenglow.ops.tensor.movement import Transpose


@on("torchao.dequantize_affine.default")
def dequantize_affine(
    s: Site, input: Value, block_size: Sequence[int], scale: Value, zero_point: Value | None,
    input_dtype: str, quant_min: Number | None = None, quant_max: Number | None = None,
    output_dtype: str = "f32",
) -> Made:  # fmt: skip
    apart, blocks = blocked(input.type, block_size)
    x, steps = column(s, input, apart), column(s, scale, blocks)
    zero = s.g.constant(np.zeros((1,) * len(blocks), np.int64))
    if zero_point is not None:
        zero = column(s, zero_point, blocks)
    place = over(s, x)
    made = bytes_dequantized(s, x, steps, zero, output_dtype, place)
    if made is None:
        moved = s.g(Sub(), s.cast(x, output_dtype), spread(s, zero, output_dtype, place))
        dtype = shared([moved, steps])
        made = s.g(Mul(), s.cast(moved, dtype), spread(s, steps, dtype, place))
    return s.reshaped(s.cast(made, output_dtype), input.type.shape)


def blocked(
    t: TensorType, sizes: Sequence[int]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:  # fmt: skip
    """Return the shape of a tensor with blocks on axes of their own, and the shape of blocks."""
    if len(sizes) != t.rank:
        raise ModelError(f"block_size is {tuple(sizes)}, expected {t.rank} entries for {t}")
    apart: list[Dim] = []
    blocks: list[Dim] = []
    for extent, size in zip(t.shape, sizes, strict=True):
        if extent == size or size == 1:
            apart.append(extent)
            blocks.append(1 if extent == size else extent)
            continue
        if isinstance(extent, Sym) or size < 1 or extent % size:
            raise UnsupportedError(f"block_size is {tuple(sizes)}, expected divisors of the fixed "
                                   f"dimensions of {t}")  # fmt: skip
        apart += [extent // size, size]
        blocks += [extent // size, 1]
    return tuple(apart), tuple(blocks)


@on("aten._int_mm.default")
def int_mm(s: Site, x: Value, mat2: Value) -> Made:
    zeros = (s.filled(0, v.type) for v in (x, mat2))
    return s.g(MatMulInteger(), x, mat2, *zeros)


@on("aten._weight_int8pack_mm.default")
def weight_int8pack_mm(s: Site, x: Value, mat2: Value, scales: Value) -> Made:
    steps = column(s, scales, (mat2.type.shape[0], 1))
    zero, place = s.g.constant(np.zeros((1, 1), np.int64)), over(s, mat2)
    w = bytes_dequantized(s, mat2, steps, zero, "f32", place)
    if w is None:
        w = s.g(Mul(), s.cast(mat2, "f32"), spread(s, steps, "f32", place))
    return s.cast(s.g(MatMul(), s.cast(x, "f32"), s.g(Transpose((1, 0)), w)), s.result.dtype)
