"""Converters for reductions and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.autodiff import custom_gradient
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.movement import sliced
from alpenglow.frontends.numbers import apply, of_parts, wide
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Site, axes_of, axis_of, number, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise import arithmetic, comparison, select, transcendental
from alpenglow.ops.elementwise.complex import ComplexMul, bare_parts
from alpenglow.ops.reduction import reduction
from alpenglow.ops.reduction.reduce_lp import ReduceLp
from alpenglow.ops.reduction.softmax import LogSoftmax, Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, Transpose

Axes = int | Sequence[int] | None


@on("aten.sum.dim_IntList", "aten.sum.default", "prims.sum.default")
def total(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    op = reduction.ReduceSum(axes_of(dim, x.type.rank), keepdim)
    return apply(s.g, op, s.cast(x, s.result.dtype))


@on("aten.nansum.default")
def total_of_numbers(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    y = s.cast(x, s.result.dtype)
    undefined = s.g(comparison.IsNaN(), y) if y.type.numpy.kind not in "biu" else None
    if undefined is not None:
        y = s.g(select.Where(), undefined, reduction.filled(s.g, 0, y), y)
    return apply(s.g, reduction.ReduceSum(axes_of(dim, x.type.rank), keepdim), y)


@on("aten.mean.dim", "aten.mean.default")
def mean(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    op = reduction.ReduceMean(axes_of(dim, x.type.rank), keepdim)
    return apply(s.g, op, s.cast(x, s.result.dtype))


@on("aten.prod.default", "aten.prod.dim_int", "prims.prod.default")
def product_of(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    y = s.cast(x, s.result.dtype)
    if y.type.dtype == "bool":
        return all_(s, y, dim, keepdim)
    if y.type.dtype in COMPLEX:
        return _complex_product(s, y, axes_of(dim, x.type.rank), keepdim)
    return s.g(reduction.ReduceProd(axes_of(dim, x.type.rank), keepdim), y)


def _complex_product(s: Site, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    """Return the product along axes: of each half, and of what the halves make."""
    rest = [i for i in range(x.type.rank) if i not in axes]
    extent = number(product([x.type.shape[a] for a in axes]))
    shape = [x.type.shape[i] for i in rest]
    y = s.reshaped(s.g(Transpose((*rest, *axes)), x), (*shape, extent))
    if not extent:
        return s.filled(1, s.result)
    while extent > 1:
        half, odd = divmod(extent, 2)
        parts = [last_axis(s, y, i * half, half) for i in (0, 1)]
        paired = s.g(ComplexMul(), *parts)
        y = s.g(Concat(len(shape)), paired, last_axis(s, y, 2 * half, 1)) if odd else paired
        extent = half + odd
    kept = [1 if i in axes else d for i, d in enumerate(x.type.shape)]
    return s.reshaped(y, kept if keepdim else shape)


def last_axis(s: Site, x: Value, start: Dim, size: Dim) -> Value:
    """Return `size` elements of the last axis."""
    return sliced(s.g, x, x.type.rank - 1, start, size)


@on("aten.logsumexp.default")
def log_of_sum_of_exponentials(s: Site, x: Value, dim: Axes, keepdim: bool = False) -> Made:
    y = s.cast(x, s.result.dtype)
    if y.type.dtype in COMPLEX:
        raise UnsupportedError(f"dtype is {y.type.dtype}, expected a real dtype")
    return s.g(reduction.ReduceLogSumExp(axes_of(dim, x.type.rank), keepdim), y)


# ── extremes and truths ──


def extreme(name: str, op: type[reduction.Reduction], arg: type[reduction.ArgReduction]) -> None:
    """Register a largest or smallest element along axes, and where it is; of truths, as bytes."""

    @on(f"aten.a{name}.default", f"aten.{name}.default", f"prims.a{name}.default")
    def along_axes(
        s: Site, x: Value, dim: Axes = (), keepdim: bool = False, dtype: str | None = None
    ) -> Made:
        return _extreme(s, op, x, axes_of(dim, x.type.rank), keepdim)

    @on(f"aten.{name}.dim")
    def along_one(s: Site, x: Value, dim: int, keepdim: bool = False) -> Made:
        where = _arg(s, arg, x, dim, keepdim, s.stated(0).shape)
        return [_extreme(s, op, x, axes_of(dim, x.type.rank), keepdim), where]

    @on(f"aten.arg{name}.default")
    def position(s: Site, x: Value, dim: int | None = None, keepdim: bool = False) -> Made:
        return _arg(s, arg, x, dim, keepdim, s.result.shape)


def _extreme(
    s: Site, op: type[reduction.Reduction], x: Value, axes: tuple[int, ...], keepdim: bool
) -> Value:
    y = s.cast(x, "u8") if x.type.dtype == "bool" else x
    return s.cast(s.g(op(axes, keepdim), y), x.type.dtype)


def _arg(
    s: Site, make: type[reduction.ArgReduction], x: Value, dim: int | None, keepdim: bool,
    shape: tuple[Dim, ...],
) -> Value:  # fmt: skip
    y = s.cast(x, "u8") if x.type.dtype == "bool" else x
    if dim is None or not x.type.rank:
        flat = s.reshaped(y, (product(x.type.shape),))
        return s.reshaped(s.g(make(0, False), flat), shape)
    return s.g(make(axis_of(dim, x.type.rank), keepdim), y)


extreme("max", reduction.ReduceMax, reduction.ArgMax)
extreme("min", reduction.ReduceMin, reduction.ArgMin)


@on("aten.any.dim", "aten.any.default", "aten.any.dims")
def any_(s: Site, x: Value, dim: Axes = None, keepdim: bool = False) -> Made:
    bits = s.cast(s.cast(x, "bool"), "u8")
    y = s.g(reduction.ReduceMax(_axes_or_none(dim, x.type.rank), keepdim), bits)
    return s.cast(s.cast(y, "bool"), s.result.dtype)


@on("aten.all.dim", "aten.all.default", "aten.all.dims")
def all_(s: Site, x: Value, dim: Axes = None, keepdim: bool = False) -> Made:
    bits = s.cast(s.cast(x, "bool"), "u8")
    y = s.g(reduction.ReduceMin(_axes_or_none(dim, x.type.rank), keepdim), bits)
    return s.cast(s.cast(y, "bool"), s.result.dtype)


def _axes_or_none(dim: Axes, rank: int) -> tuple[int, ...]:
    """Return axes; an empty list is none of them here, unlike in other reductions."""
    is_empty = dim is not None and not isinstance(dim, int) and len(dim) == 0
    return () if is_empty else axes_of(dim, rank)


# ── variances ──


def spread(name: str, root: bool, with_mean: bool) -> None:
    """Register a variance, or its root, alone or with the mean."""

    @on(f"aten.{name}.correction")
    def convert(
        s: Site, x: Value, dim: Axes = None, correction: Number | None = None,
        keepdim: bool = False,
    ) -> Made:  # fmt: skip
        y, centre = _variance(s, x, dim, correction, keepdim)
        y = deviation(s, y) if root else y
        y = s.cast(y, s.stated(0).dtype)
        return [y, s.cast(centre, x.type.dtype)] if with_mean else y


spread("var", root=False, with_mean=False)
spread("std", root=True, with_mean=False)
spread("var_mean", root=False, with_mean=True)
spread("std_mean", root=True, with_mean=True)


def deviation(s: Site, variance: Value) -> Value:
    """Return the root of a variance, with PyTorch's gradient: 0 where that is 0."""

    def backward(b: Graph, dy: Value, y: Value, variance: Value) -> list[Value | None]:
        zero = reduction.filled(b, 0, y)
        slope = b(arithmetic.Div(), dy, b(arithmetic.Add(), y, y))
        return [None, b(select.Where(), b(comparison.Equal(), y, zero), zero, slope)]

    y = s.g(transcendental.Sqrt(), variance)
    return custom_gradient(s.g, y, [y, variance], backward)


@on("aten.var.dim")
def variance(
    s: Site, x: Value, dim: Axes, unbiased: bool = True, keepdim: bool = False
) -> Made:  # fmt: skip
    y, _ = _variance(s, x, dim, int(unbiased), keepdim)
    return s.cast(y, s.result.dtype)


@on("prims.var.default")
def variance_prim(
    s: Site, inp: Value, dims: Axes, correction: Number | None = 1, output_dtype: str | None = None
) -> Made:
    y, _ = _variance(s, inp, dims, correction, False)
    return s.cast(y, s.result.dtype)


def _variance(
    s: Site, x: Value, dim: Axes, correction: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    """Return the variance and the mean along axes, in two passes; of halves in f32."""
    if x.type.dtype in COMPLEX:  # the variances of the parts together
        halves = [_variance(s, part, dim, correction, keepdim) for part in bare_parts(s.g, x)]
        (real, centre), (imaginary, other) = halves
        return s.g(arithmetic.Add(), real, imaginary), of_parts(s.g, centre, other)
    axes = axes_of(dim, x.type.rank)
    y = s.cast(x, wide(x.type.dtype))
    centre = s.g(reduction.ReduceMean(axes, True), y)
    apart = s.g(arithmetic.Sub(), y, s.spread(centre, y.type.shape))
    squares = s.g(reduction.ReduceSum(axes, keepdim), s.g(arithmetic.Mul(), apart, apart))
    count = product([x.type.shape[a] for a in axes])
    less = 1 if correction is None else correction
    if isinstance(less, int | float) and isinstance(count, int):
        divisor = s.filled(max(count - float(less), 0.0), squares.type)
    else:
        rest = s.g(arithmetic.Sub(), *(s.constant(n, y.type.dtype) for n in (count, less)))
        rest = s.g(arithmetic.Maximum(), rest, s.constant(0.0, y.type.dtype))
        divisor = s.spread(rest, squares.type.shape)
    shape = squares.type.shape
    return s.g(arithmetic.Div(), squares, divisor), s.reshaped(centre, shape)


# ── softmax ──


def shares(name: str, make: type[Softmax] | type[LogSoftmax]) -> None:
    """Register a softmax; halves are computed in f32 and rounded once."""

    @on(f"aten._{name}.default")
    def core(s: Site, x: Value, dim: int, half_to_float: bool) -> Made:
        return along(s, make, x, dim)

    @on(f"aten.{name}.int")
    def convert(s: Site, x: Value, dim: int, dtype: str | None = None) -> Made:
        return along(s, make, x, dim)


def along(s: Site, make: type[Softmax] | type[LogSoftmax], x: Value, dim: int) -> Value:
    """Return the softmax along an axis in the element type of the result."""
    y = s.cast(x, s.result.dtype)
    if not x.type.rank:
        flat: Op = make(0)
        return s.reshaped(s.g(flat, s.reshaped(y, (1,))), ())
    y = s.cast(y, wide(y.type.dtype))
    return s.cast(s.g(make(axis_of(dim, x.type.rank)), y), s.result.dtype)


shares("softmax", Softmax)
shares("log_softmax", LogSoftmax)


# ── distances ──


@on("aten._cdist_forward.default")
def distances(s: Site, x1: Value, x2: Value, p: float, compute_mode: int | None) -> Made:
    """Return the p-norm of each row of x1 less each row of x2."""
    *outer, rows, width = x1.type.shape
    *_, columns, _ = x2.type.shape
    batch = s.result.shape[:-2]
    shape = (*batch, rows, columns, width)
    a = s.reshaped(x1, (*outer, rows, 1, width))
    b = s.reshaped(x2, (*x2.type.shape[:-2], 1, columns, width))
    apart = s.g(arithmetic.Sub(), *s.broadcast(a, b, shape=shape))
    return norm(s, apart, float(p))


@on("aten._pdist_forward.default")
def distances_of_pairs(s: Site, x: Value, p: float = 2) -> Made:
    """Return the p-norm of each row less each that comes after it."""
    pairs = np.triu_indices(number(x.type.shape[0]), 1)
    first, second = (s.g.constant(at.astype(np.int64)) for at in pairs)
    a, b = (s.g(Gather(0), x, at) for at in (first, second))
    return norm(s, s.g(arithmetic.Sub(), a, b), float(p))


def norm(s: Site, x: Value, p: float) -> Value:
    """Return the p-norm along the last axis: 0 counts what is not 0, ±inf is the extreme.

    Of no elements it is 0.
    """
    axes = (x.type.rank - 1,)
    size = s.g(arithmetic.Abs(), x)
    if abs(p) == float("inf"):
        extreme = reduction.ReduceMax if p > 0 else reduction.ReduceMin
        y = s.g(extreme(axes, False), size)
        if p > 0:  # of none it is the lowest number
            y = s.g(arithmetic.Maximum(), y, reduction.filled(s.g, 0, y))
        return y
    if p == 0:
        equal = s.g(comparison.Equal(), x, reduction.filled(s.g, 0, x))
        size = s.g(select.Where(), equal, *(reduction.filled(s.g, n, x) for n in (0, 1)))
    elif p == 2:
        return s.g(reduction.ReduceL2(axes, False), x)
    elif p != 1:
        return s.g(ReduceLp(axes, False, p), x)
    return s.g(reduction.ReduceSum(axes, False), size)
