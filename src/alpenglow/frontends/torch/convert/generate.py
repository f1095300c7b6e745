"""Converters for tensors that are made of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Operand, Site, element, on
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, HALVES
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.generate import Range


@on("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def full(
    s: Site, fill_value: Number, x: Value | None = None, size: Sequence[Dim] = (),
    dtype: str | None = None,
) -> Made:  # fmt: skip
    return s.filled(element(fill_value, s.result.dtype), s.result)


@on("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten.empty.memory_format", "aten.empty_permuted.default", "aten.empty_strided.default",
    "aten.empty_like.default", "aten.new_empty.default",
    "aten.new_empty_strided.default")  # fmt: skip
def zeros(
    s: Site, x: Value | None = None, size: Sequence[Dim] = (), stride: Sequence[Dim] = (),
    physical_layout: Sequence[int] = (), dtype: str | None = None,
) -> Made:  # fmt: skip
    """Of an empty tensor, whatever was in memory would do."""
    return s.filled(0, s.result)


@on("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(
    s: Site, x: Value | None = None, size: Sequence[Dim] = (), dtype: str | None = None
) -> Made:
    return s.filled(1, s.result)


@on("aten.fill.Scalar", "aten.fill.Tensor")
def fill(s: Site, x: Value, value: Operand) -> Made:
    return s.spread(s.tensor(value, s.result.dtype), s.result.shape)


@on("aten.scalar_tensor.default")
def scalar_tensor(s: Site, number: Number, dtype: str | None = None) -> Made:
    return s.constant(element(number, s.result.dtype), s.result.dtype)


@on("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(
    s: Site, end: Number, start: Number = 0, step: Number = 1, dtype: str | None = None
) -> Made:
    """As many numbers as the result has, `step` apart from `start` on."""
    (count,) = s.result.shape
    if isinstance(step, Sym | complex) or isinstance(start, complex):
        raise UnsupportedError(f"start is {start}, step {step}, expected reals and a fixed step")
    start = int(start) if isinstance(start, bool) else start
    step = int(step) if isinstance(step, bool) else step
    if isinstance(start, Sym):
        numbers = s.g(Range(count, 0, step, s.result.dtype))
        return s.g(Add(), numbers, s.filled(start, s.result))
    return s.g(Range(count, start, step, s.result.dtype))


@on("aten.linspace.default", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor")  # fmt: skip
def linspace(s: Site, start: Operand, end: Operand, steps: int, dtype: str | None = None) -> Made:
    """Numbers at equal distances, counted from the nearer end; integers by way of f64."""
    kind = s.result.dtype
    if kind in COMPLEX:
        raise UnsupportedError(f"dtype is {kind}, expected a real dtype")
    if steps == 0:
        return s.filled(0, s.result)
    wide = "f32" if kind in HALVES | {"f32"} else "f64"
    held = wide if kind in HALVES else kind  # halves are rounded once, at the end
    ends = [s.cast(element_of(s, x, held), wide) for x in (start, end)]
    first, last = s.broadcast(*ends)
    places = s.g(Range(steps, 0, 1, wide))
    step = s.g(Div(), s.g(Sub(), last, first), s.filled(max(steps - 1, 1), places.type))
    behind = s.g(Sub(), s.filled(steps - 1, places.type), places)
    up = s.g(Add(), first, s.g(Mul(), step, places))
    down = s.g(Sub(), last, s.g(Mul(), step, behind))
    early = s.g(Less(), places, s.filled(max(steps // 2, 1), places.type))
    return s.cast(s.g(Where(), early, up, down), kind)


def element_of(s: Site, x: Operand, dtype: str) -> Value:
    """Return a number, or the only one of a tensor, as an element of a type."""
    if isinstance(x, Value):
        return s.cast(s.reshaped(x, ()), dtype)
    return s.constant(element(x, dtype), dtype)
