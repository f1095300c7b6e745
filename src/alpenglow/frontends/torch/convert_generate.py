"""Converters for tensors that are made of numbers alone, and for lookups by index."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Operand, Site, axis_of, on
from alpenglow.ir.dims import Dim, Sym, is_open, known
from alpenglow.ir.graph import Value
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.gather import Gather
from alpenglow.ops.generate import Range
from alpenglow.ops.in_range import InRange


@on("aten.full.default")
def full(s: Site, size: Sequence[Dim], fill_value: Number, dtype: str | None = None) -> Made:
    return s.filled(fill_value, s.result)


@on("aten.zeros.default")
def zeros(s: Site, size: Sequence[Dim], dtype: str | None = None) -> Made:
    return s.filled(0, s.result)


@on("aten.ones.default")
def ones(s: Site, size: Sequence[Dim], dtype: str | None = None) -> Made:
    return s.filled(1, s.result)


@on("aten.full_like.default")
def full_like(s: Site, x: Value, fill_value: Number, dtype: str | None = None) -> Made:
    return s.filled(fill_value, s.result)


@on("aten.zeros_like.default")
def zeros_like(s: Site, x: Value, dtype: str | None = None) -> Made:
    return s.filled(0, s.result)


@on("aten.ones_like.default")
def ones_like(s: Site, x: Value, dtype: str | None = None) -> Made:
    return s.filled(1, s.result)


@on("aten.scalar_tensor.default")
def scalar_tensor(s: Site, number: Number, dtype: str | None = None) -> Made:
    return s.constant(number, s.result.dtype)


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


@on("aten.embedding.default")
def embedding(
    s: Site, weight: Value, indices: Value, padding_idx: Dim = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Made:  # fmt: skip
    return s.g(Gather(0), weight, within(s, indices, weight.type.shape[0], 0, negative=False))


@on("aten.index_select.default")
def index_select(s: Site, x: Value, dim: int, index: Value) -> Made:
    axis = axis_of(dim, x.type.rank)
    at = within(s, index, x.type.shape[axis], axis, negative=False)
    return s.g(Gather(axis), x, at)


def within(
    s: Site, indices: Value, extent: Dim, axis: int, negative: bool = True
) -> Value:  # fmt: skip
    """Return indices on an axis, each of which must be in range: another ends the call."""
    low = extent * -1 if negative else 0
    if not is_open(extent) and extent < 1:
        return indices
    if indices.array is not None and known(low) and known(extent):
        a = indices.array
        if not a.size or (int(a.min()) >= low and int(a.max()) < extent):
            return indices
    what = f"{s.call.target} '{s.call.name}': an index on axis {axis}"
    return s.g(InRange(low, extent - 1, what), indices)


def operand_of(s: Site, x: Operand) -> Value:
    """Return an operand as a tensor in the result's element type."""
    return s.tensor(x, s.result.dtype)
