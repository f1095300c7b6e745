"""Converters for operators with windows (convolution, pooling) and for matrix products."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.nhwc import same_ends
from alpenglow.frontends.onnx.table import Made, Numbers, Site, on
from alpenglow.frontends.presume import presume_extents
from alpenglow.ir.dims import Dim, known
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
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.ops.window.pooling import AveragePool, LpPool, MaxPool, MaxPoolIndex, powers


@on("Conv")
def conv(s: Site) -> Made:
    return fitting(s.g(Conv(*convolving(s)), s.input(0), s.input(1), s.optional(2)))


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
    """Return y, presuming that at least one window fits along each axis."""
    presume_extents(y.type.shape[2:], 1)
    return y


def convolving(s: Site, weights: int = 1) -> tuple[Numbers, Numbers, Numbers, int]:
    """Return the strides, pads, dilations and group of a convolution by an operand."""
    return *sliding(s, s.input(weights).type.shape[2:]), s.attribute("group", 1)


def window(s: Site) -> tuple[Numbers, Numbers, Numbers, Numbers, bool]:
    """Return the kernel, strides, pads, dilations and ceil of a pooling."""
    x, kernel = s.input(0), s.needed("kernel_shape")
    if len(kernel) != x.type.rank - 2:
        raise s.wrong(f"kernel_shape is {kernel}, expected {x.type.rank - 2} numbers for {x.type}")
    return kernel, *sliding(s, kernel), bool(s.attribute("ceil_mode", 0))


def sliding(s: Site, kernel: tuple[Dim, ...]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the strides, pads and dilations of windows over operand 0."""
    extents = s.input(0).type.shape[2:]
    strides, dilations = (s.attribute(n, (1,) * len(extents)) for n in ("strides", "dilations"))
    return strides, padding(s, extents, kernel, strides, dilations), dilations


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
        raise s.wrong(f"input 0 is {x}, expected rank 2 or more")
    return tuple(range(2, x.rank))


@on("MatMul")
def mat_mul(s: Site) -> Made:
    return product(s, s.input(0), s.input(1))


def product(s: Site, x: Value, y: Value) -> Value:
    """Return NumPy's matmul of x and y: vectors are rows or columns, leading axes broadcast."""
    x, y, finish = matrices(s, x, y)
    return finish(s.g(MatMul(), *s.batched(x, y)))


def matrices(s: Site, x: Value, y: Value) -> tuple[Value, Value, Callable[[Value], Value]]:
    """Return x and y as NumPy's matmul sees them, and what drops the axes of vectors again."""
    if x.type.rank == 0 or y.type.rank == 0:
        raise s.wrong(f"operands are {x.type} and {y.type}, expected rank 1 or more")
    row, column = x.type.rank == 1, y.type.rank == 1
    x = s.g(Reshape((1, *x.type.shape)), x) if row else x
    y = s.g(Reshape((*y.type.shape, 1)), y) if column else y

    def finish(z: Value) -> Value:
        *batch, m, n = z.type.shape
        kept = (*batch, *([] if row else [m]), *([] if column else [n]))
        return s.g(Reshape(kept), z) if row or column else z

    return x, y, finish


def padding(
    s: Site, extents: tuple[Dim, ...], kernel: tuple[Dim, ...], strides: Numbers, dilations: Numbers
) -> Numbers:
    """Return explicit pads for the attributes `pads` and `auto_pad` (ONNX Conv)."""
    mode = s.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(s.attribute("pads", (0,) * (2 * len(extents))))
    if mode == "VALID":
        return (0,) * (2 * len(extents))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise s.wrong(f"auto_pad is '{mode}', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    lower, pairs = mode == "SAME_LOWER", []
    for axis, (d, k, step, dilation) in enumerate(
        zip(extents, kernel, strides, dilations, strict=True)
    ):
        if not known(k):
            raise s.refuse(f"auto_pad {mode} with a dynamic window ({k}) is not supported")
        span = int(k - 1) * dilation + 1
        ends = None
        if known(d) or step == 1 or not s.attribute("ceil_mode", 0):
            ends = same_ends(d, span, step, lower)
        if ends is None:
            # The pads depend on the rest of an axis: the import goes on when it is known.
            x = s.input(0)
            d = s.measured(s.g(Shape(2, x.type.rank), x))[axis]
            ends = same_ends(d, span, step, lower)
        assert ends is not None, f"{d} is a number"
        pairs.append(ends)
    return (*(before for before, _ in pairs), *(after for _, after in pairs))
