"""Converters for reductions, softmax and what orders elements."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.torch.table import Made, Site, axes_of, axis_of, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import HALVES
from alpenglow.ops import reduction
from alpenglow.ops.softmax import LogSoftmax, Softmax

Axes = int | Sequence[int] | None


@on("aten.sum.dim_IntList", "aten.sum.default")
def total(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    y = s.cast(x, s.result.dtype)
    return s.g(reduction.ReduceSum(axes_of(dim, x.type.rank), keepdim), y)


@on("aten.mean.dim", "aten.mean.default")
def mean(
    s: Site, x: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Made:
    y = s.cast(x, s.result.dtype)
    return s.g(reduction.ReduceMean(axes_of(dim, x.type.rank), keepdim), y)


def extreme(name: str, op: type[reduction.Reduction]) -> None:
    """Register a largest or smallest element along axes; of truths, as bytes."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value, dim: Axes = None, keepdim: bool = False) -> Made:
        y = s.cast(x, "u8") if x.type.dtype == "bool" else x
        return s.cast(s.g(op(axes_of(dim, x.type.rank), keepdim), y), x.type.dtype)


extreme("amax", reduction.ReduceMax)
extreme("amin", reduction.ReduceMin)


@on("aten.any.dim", "aten.any.default", "aten.any.dims")
def any_(s: Site, x: Value, dim: Axes = None, keepdim: bool = False) -> Made:
    bits = s.cast(s.cast(x, "bool"), "u8")
    y = s.g(reduction.ReduceMax(axes_of(dim, x.type.rank), keepdim), bits)
    return s.cast(s.cast(y, "bool"), s.result.dtype)


@on("aten.all.dim", "aten.all.default", "aten.all.dims")
def all_(s: Site, x: Value, dim: Axes = None, keepdim: bool = False) -> Made:
    bits = s.cast(s.cast(x, "bool"), "u8")
    y = s.g(reduction.ReduceMin(axes_of(dim, x.type.rank), keepdim), bits)
    return s.cast(s.cast(y, "bool"), s.result.dtype)


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
    wide = s.cast(y, "f32") if y.type.dtype in HALVES else y
    return s.cast(s.g(make(axis_of(dim, x.type.rank)), wide), s.result.dtype)


shares("softmax", Softmax)
shares("log_softmax", LogSoftmax)


@on("aten.argmax.default")
def argmax(s: Site, x: Value, dim: int | None = None, keepdim: bool = False) -> Made:
    return _arg(s, reduction.ArgMax, x, dim, keepdim)


@on("aten.argmin.default")
def argmin(s: Site, x: Value, dim: int | None = None, keepdim: bool = False) -> Made:
    return _arg(s, reduction.ArgMin, x, dim, keepdim)


def _arg(
    s: Site, make: type[reduction.ArgReduction], x: Value, dim: int | None, keepdim: bool
) -> Value:
    y = s.cast(x, "u8") if x.type.dtype == "bool" else x
    if dim is None or not x.type.rank:
        count = s.reshaped(y, (_count(x),))
        return s.reshaped(s.g(make(0, False), count), s.result.shape)
    return s.g(make(axis_of(dim, x.type.rank), keepdim), y)


def _count(x: Value) -> int:
    return x.type.size
