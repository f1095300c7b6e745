"""Converters for what slides a window: convolution, pooling, and matrix products beside them."""

from __future__ import annotations

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.onnx.table import Made, Site, common_shape, on
from alpenglow.frontends.presume import presume_extents
from alpenglow.ir.dims import Dim, ceil_div, is_open, known
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Pow
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceMax,
    ReduceMean,
    ReduceSum,
    as_type,
    filled,
)
from alpenglow.ops.tensor.generate import Shape
from alpenglow.ops.tensor.movement import Reshape, stretch
from alpenglow.ops.window.pooling import AveragePool, LpPool, MaxPool, MaxPoolIndex, powers


@on("Conv")
def conv(s: Site) -> Made:
    x, w = s.input(0), s.input(1)
    spatial = x.type.rank - 2
    strides = s.attribute("strides", (1,) * spatial)
    dilations = s.attribute("dilations", (1,) * spatial)
    pads = padding(s, x.type.shape[2:], w.type.shape[2:], strides, dilations)
    group = s.attribute("group", 1)
    return fitting(s.g(Conv(strides, pads, dilations, group), x, w, s.optional(2)))


@on("MaxPool")
def max_pool(s: Site) -> Made:
    x = s.input(0)
    geometry = window(s)
    y = fitting(s.g(MaxPool(*geometry), x))
    if not any(s.outputs[1:]):
        return y
    return [y, s.g(MaxPoolIndex(*geometry, bool(s.attribute("storage_order", 0))), x)]


@on("AveragePool")
def average_pool(s: Site) -> Made:
    counts = bool(s.attribute("count_include_pad", 0))
    return fitting(s.g(AveragePool(*window(s), counts), s.input(0)))


@on("LpPool")
def lp_pool(s: Site) -> Made:
    return fitting(s.g(LpPool(*window(s), s.attribute("p", 2)), s.input(0)))


def fitting(y: Value) -> Value:
    """Return what windows made; that one fits along each axis is taken for granted."""
    presume_extents(y.type.shape[2:], 1)
    return y


Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]


def window(s: Site) -> Window:
    """Return the kernel, strides, pads, dilations and ceil of a pooling."""
    x = s.input(0)
    kernel = s.needed("kernel_shape")
    if len(kernel) != x.type.rank - 2:
        raise ModelError(f"{s.op_type}: kernel_shape {kernel} does not fit {x.type}")
    strides = s.attribute("strides", (1,) * len(kernel))
    dilations = s.attribute("dilations", (1,) * len(kernel))
    pads = padding(s, x.type.shape[2:], kernel, strides, dilations)
    return kernel, strides, pads, dilations, bool(s.attribute("ceil_mode", 0))


@on("GlobalAveragePool")
def global_average_pool(s: Site) -> Made:
    return s.g(ReduceMean(spatial_axes(s)), s.input(0))


@on("GlobalMaxPool")
def global_max_pool(s: Site) -> Made:
    return s.g(ReduceMax(spatial_axes(s)), s.input(0))


@on("GlobalLpPool")
def global_lp_pool(s: Site) -> Made:
    x, axes, p = s.input(0), spatial_axes(s), s.attribute("p", 2)
    if p in (1, 2):
        return s.g(ReduceL1(axes) if p == 1 else ReduceL2(axes), x)
    total = s.g(ReduceSum(axes), powers(s.g, x, p))
    return as_type(s.g, s.g(Pow(), total, filled(s.g, 1 / p, total)), x.type.dtype)


def spatial_axes(s: Site) -> tuple[int, ...]:
    """Return all axes of input 0 but the first two; raise ModelError if it lacks those."""
    x = s.input(0).type
    if x.rank < 2:
        raise ModelError(f"{s.op_type}: {x} has no channels")
    return tuple(range(2, x.rank))


@on("MatMul")
def mat_mul(s: Site) -> Made:
    return product(s, s.input(0), s.input(1))


def product(s: Site, x: Value, y: Value) -> Value:
    """Return NumPy's matmul of x and y: vectors are rows or columns, leading axes broadcast."""
    if x.type.rank == 0 or y.type.rank == 0:
        raise ModelError(f"{s.op_type}: operands {x.type} and {y.type} need at least one axis")
    row, column = x.type.rank == 1, y.type.rank == 1
    if row:
        x = s.g(Reshape((1, *x.type.shape)), x)
    if column:
        y = s.g(Reshape((*y.type.shape, 1)), y)
    batch = common_shape(s.op_type, [x.type.shape[:-2], y.type.shape[:-2]])
    x = stretch(s.g, x, (*batch, *x.type.shape[-2:]))
    y = stretch(s.g, y, (*batch, *y.type.shape[-2:]))
    z = s.g(MatMul(), x, y)
    kept = (*batch, *([] if row else [z.type.shape[-2]]), *([] if column else [z.type.shape[-1]]))
    return z if not (row or column) else s.g(Reshape(kept), z)


def padding(
    s: Site,
    extents: tuple[Dim, ...],
    kernel: tuple[Dim, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """Return explicit pads for the attributes `pads` and `auto_pad` (ONNX Conv)."""
    mode = s.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(s.attribute("pads", (0,) * (2 * len(extents))))
    if mode == "VALID":
        return (0,) * (2 * len(extents))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{s.op_type}: auto_pad '{mode}' is not defined")
    before: list[int] = []
    after: list[int] = []
    for d, k, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        if not known(k):
            raise UnsupportedError(f"{s.op_type}: auto_pad {mode} needs a known window, not {k}")
        reach = int(k - 1) * dilation
        ends = _ends_of_any(reach, stride, mode) if is_open(d) else None
        if ends is not None and not s.attribute("ceil_mode", 0):
            before.append(ends[0])
            after.append(ends[1])
            continue
        if stride > 1 and not known(d):
            # What is left over at the end of an axis decides: the import goes on when it is known.
            x = s.input(0)
            d = s.measured(s.g(Shape(2, x.type.rank), x))[len(before)]
        total = reach
        if stride > 1:
            total = max(int((ceil_div(d, stride) - 1) * stride - d) + reach + 1, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return (*before, *after)


def _ends_of_any(reach: int, stride: int, mode: str) -> tuple[int, int] | None:
    """Return pads that do for all extents of an axis; None where the first depends on the extent.

    Padding for the extent that wants most adds no window for others, and is in none of theirs.
    """
    totals = [max(reach + 1 - stride + left, 0) for left in range(stride)]
    firsts = {total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals}
    first = firsts.pop()
    return None if firsts else (first, reach - first)
