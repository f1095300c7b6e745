"""Converters for tensors that are made of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Operand, Site, element, on
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Value
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.generate import Range


@on("aten.full.default")
def full(s: Site, size: Sequence[Dim], fill_value: Number, dtype: str | None = None) -> Made:
    return s.filled(element(fill_value, s.result.dtype), s.result)


@on("aten.zeros.default")
def zeros(s: Site, size: Sequence[Dim], dtype: str | None = None) -> Made:
    return s.filled(0, s.result)


@on("aten.empty.memory_format", "aten.empty_permuted.default", "aten.empty_strided.default")
def empty(
    s: Site, size: Sequence[Dim], stride: Sequence[Dim] = (), physical_layout: Sequence[int] = (),
    dtype: str | None = None,
) -> Made:  # fmt: skip
    return s.filled(0, s.result)  # whatever was in memory would do


@on("aten.empty_like.default")
def empty_like(s: Site, x: Value, dtype: str | None = None) -> Made:
    return s.filled(0, s.result)


@on("aten.new_empty.default", "aten.new_empty_strided.default")
def new_empty(
    s: Site, x: Value, size: Sequence[Dim], stride: Sequence[Dim] = (), dtype: str | None = None
) -> Made:
    return s.filled(0, s.result)


@on("aten.ones.default")
def ones(s: Site, size: Sequence[Dim], dtype: str | None = None) -> Made:
    return s.filled(1, s.result)


@on("aten.full_like.default")
def full_like(s: Site, x: Value, fill_value: Number, dtype: str | None = None) -> Made:
    return s.filled(element(fill_value, s.result.dtype), s.result)


@on("aten.zeros_like.default")
def zeros_like(s: Site, x: Value, dtype: str | None = None) -> Made:
    return s.filled(0, s.result)


@on("aten.ones_like.default")
def ones_like(s: Site, x: Value, dtype: str | None = None) -> Made:
    return s.filled(1, s.result)


@on("aten.scalar_tensor.default")
def scalar_tensor(s: Site, number: Number, dtype: str | None = None) -> Made:
    return s.constant(element(number, s.result.dtype), s.result.dtype)


@on("aten.arange.default")
def arange(s: Site, end: Number, dtype: str | None = None) -> Made:
    return counted(s, 0, 1)


@on("aten.arange.start")
def arange_start(s: Site, start: Number, end: Number, dtype: str | None = None) -> Made:
    return counted(s, start, 1)


@on("aten.arange.start_step")
def arange_step(
    s: Site, start: Number, end: Number, step: Number = 1, dtype: str | None = None
) -> Made:
    return counted(s, start, step)


def counted(s: Site, start: Number, step: Number) -> Value:
    """Return as many numbers as the result has, `step` apart from `start` on."""
    (count,) = s.result.shape
    if isinstance(step, Sym | complex) or isinstance(start, complex):
        raise UnsupportedError(f"a range in steps of {step}")
    if isinstance(start, Sym):
        numbers = s.g(Range(count, 0, step, s.result.dtype))
        return s.g(Add(), numbers, s.filled(start, s.result))
    return s.g(Range(count, start, step, s.result.dtype))


def operand_of(s: Site, x: Operand) -> Value:
    """Return an operand as a tensor in the result's element type."""
    return s.tensor(x, s.result.dtype)
