"""Converters for running totals and extremes: what element i makes of all up to it."""

from __future__ import annotations

import math
from collections.abc import Callable

from alpenglow.frontends.movement import sliced
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.torch.table import Made, Site, axis_of, number, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, FLOATS
from alpenglow.ops.elementwise import (
    arithmetic,
    comparison,
    logarithm,
    logic,
    select,
    transcendental,
)
from alpenglow.ops.elementwise.complex import ComplexMul
from alpenglow.ops.reduction import scan
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat

State = tuple[Value, ...]


def running(name: str, op: type[scan.Scan]) -> None:
    """Register a running total; f32 is accumulated in f64 and rounded, as PyTorch does."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value, dim: int, dtype: str | None = None) -> Made:
        y = s.cast(x, s.result.dtype)
        if not x.type.rank:
            return y
        axis = axis_of(dim, x.type.rank)
        if op is scan.CumProd and y.type.dtype in COMPLEX:
            return accumulated(s, (y,), axis, lambda a, b: (s.g(ComplexMul(), a[0], b[0]),))[0]
        wide = s.cast(y, "f64") if y.type.dtype == "f32" else y
        return s.cast(apply(s.g, op(axis), wide), y.type.dtype)


running("cumsum", scan.CumSum)
running("cumprod", scan.CumProd)


def extreme(name: str, op: Op) -> None:
    """Register a running extreme and where it is, the last place of equals; NaN stays."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value, dim: int) -> Made:
        y = s.cast(x, "u8") if x.type.dtype == "bool" else x
        shape = x.type.shape or (1,)
        axis = axis_of(dim, x.type.rank)
        alone: list[Dim] = [1] * len(shape)
        alone[axis] = shape[axis]
        places = s.spread(s.reshaped(s.g(Range(shape[axis])), alone), shape)

        def later(a: State, b: State) -> State:
            chosen = s.g(op, b[0], a[0])
            if y.type.dtype in FLOATS:
                chosen = s.g(logic.BitOr(), chosen, s.g(comparison.IsNaN(), b[0]))
            return tuple(s.g(select.Where(), chosen, v, u) for u, v in zip(a, b, strict=True))

        value, place = accumulated(s, (s.reshaped(y, shape), places), axis, later)
        return [s.reshaped(s.cast(value, x.type.dtype), x.type.shape),
                s.reshaped(place, x.type.shape)]  # fmt: skip


extreme("cummax", comparison.GreaterOrEqual())
extreme("cummin", comparison.LessOrEqual())


@on("aten.logcumsumexp.default")
def log_cumulative_sum_of_exponentials(s: Site, x: Value, dim: int) -> Made:
    if not x.type.rank:
        return x
    wide = s.cast(x, "f32") if x.type.numpy.itemsize == 2 else x
    (total,) = accumulated(s, (wide,), axis_of(dim, x.type.rank),
                           lambda a, b: (_log_of_sum(s, a[0], b[0]),))  # fmt: skip
    return s.cast(total, x.type.dtype)


def _log_of_sum(s: Site, a: Value, b: Value) -> Value:
    """Return log(e^a + e^b), also of infinities: where a = b it is the mean of both + log(2)."""
    g = s.g
    less = g(arithmetic.Neg(), g(arithmetic.Abs(), g(arithmetic.Sub(), a, b)))
    more = g(logarithm.Log1p(), g(transcendental.Exp(), less))
    apart = g(arithmetic.Add(), g(arithmetic.Maximum(), a, b), more)
    half = filled(g, 0.5, a)
    mean = g(arithmetic.Add(), g(arithmetic.Mul(), a, half), g(arithmetic.Mul(), b, half))
    alike = g(arithmetic.Add(), mean, filled(g, math.log(2), a))
    return g(select.Where(), g(comparison.Equal(), a, b), alike, apart)


def accumulated(
    s: Site, state: State, axis: int, combine: Callable[[State, State], State]
) -> State:
    """Combine each place along an axis with all before it, in steps twice as far each time.

    `combine` takes what earlier places and what later ones have made, and is associative.
    """
    extent, step = number(state[0].type.shape[axis]), 1
    while step < extent:
        early = tuple(sliced(s.g, v, axis, 0, extent - step) for v in state)
        late = tuple(sliced(s.g, v, axis, step, extent - step) for v in state)
        first = [sliced(s.g, v, axis, 0, step) for v in state]
        combined = combine(early, late)
        state = tuple(s.g(Concat(axis), u, v) for u, v in zip(first, combined, strict=True))
        step *= 2
    return state
