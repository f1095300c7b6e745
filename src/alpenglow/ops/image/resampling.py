"""Positions and weights that resampling reads along one axis, as numbers or as values of a graph.

The formulas are written once.  For fixed extents they run on NumPy's arrays and return a table; for
dynamic ones they run on `Vector`, and the program computes the table for each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Floor, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.generate import Range, Shape
from alpenglow.ops.tensor.movement import Reshape, stretch


@dataclass(frozen=True)
class Rule:
    """How places along one axis are found: what a Resize says of it."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool
    start: float
    end: float

    def reach(self, scale: float) -> float:
        """Return how far from a position elements still count."""
        return (1 if self.mode == "linear" else 2) / self.stretch(scale)

    def stretch(self, scale: float) -> float:
        """With antialias the kernel is as wide as the output elements lie apart."""
        return min(scale, 1.0) if self.antialias else 1.0


def positions(rule: Rule, x: Any, extent: Any, size: Any, scale: Any, single: bool) -> Any:
    """Return the place in the input, as a fraction, of each output element x.

    Where a scale was given, extent times scale stands for the output extent, fraction and all.
    `single` says that there is one output element.
    """
    wide = extent * scale
    match rule.coordinates:
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
        case "align_corners":
            alone = single or (not isinstance(wide, Vector) and wide == 1)
            return x * 0 if alone else x * (extent - 1) / (wide - 1)
        case "tf_crop_and_resize":
            if single:
                return x + 0.5 * (rule.start + rule.end) * (extent - 1)
            share = (rule.end - rule.start) * (extent - 1) / (size - 1)
            return rule.start * (extent - 1) + x * share
        case "pytorch_half_pixel" if single:
            return x
        case "half_pixel_symmetric":
            return extent / 2 * (1 - size / wide) + (x + 0.5) / scale - 0.5
    return (x + 0.5) / scale - 0.5


def rounded(where: Any, rule: str) -> Any:
    """Return positions as whole numbers, by a rule of `NEAREST`."""
    match rule:
        case "floor":
            return where // 1
        case "ceil":
            return -(-where // 1)
        case "round_prefer_floor":
            return -(-(where - 0.5) // 1)
    return (where + 0.5) // 1


def keys_kernel(distance: Any, a: float) -> tuple[Any, Any]:
    """Return Keys' cubic convolution kernel for distances up to 1, and from there to 2."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return near, far


# ── open extents ──


class Vector:
    """A value of f64 that does arithmetic as an array would, by operators of a graph."""

    def __init__(self, b: Graph, value: Value) -> None:
        self.b = b
        self.value = value

    def apply(self, op: Elementwise, *others: Vector | float, first: bool = True) -> Vector:
        """Return `op` of self and others, stretched to each other; self comes last if not first."""
        rank = self.value.type.rank
        rest = [o if isinstance(o, Vector) else self._number(o, rank) for o in others]
        operands = [self, *rest] if first else [*rest, self]
        shape = _common([v.value.type.shape for v in operands])
        return Vector(self.b, self.b(op, *(stretch(self.b, v.value, shape) for v in operands)))

    def _number(self, x: float, rank: int) -> Vector:
        return Vector(self.b, self.b.constant(np.full((1,) * rank, x, np.float64)))

    def __add__(self, other: Vector | float) -> Vector:
        return self.apply(Add(), other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self.apply(Sub(), other)

    def __rsub__(self, other: float) -> Vector:
        return self.apply(Sub(), other, first=False)

    def __mul__(self, other: Vector | float) -> Vector:
        return self.apply(Mul(), other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self.apply(Div(), other)

    def __rtruediv__(self, other: float) -> Vector:
        return self.apply(Div(), other, first=False)

    def __floordiv__(self, other: float) -> Vector:
        return (self if other == 1 else self / other).apply(Floor())

    def __neg__(self) -> Vector:
        return self.apply(Neg())

    __radd__ = __add__
    __rmul__ = __mul__

    def where(self, condition: Vector, otherwise: Vector | float) -> Vector:
        """Return self where a condition holds, else something else."""
        other = self * 0 + otherwise
        return Vector(self.b, self.b(Where(), condition.value, self.value, other.value))

    def cast(self, dtype: str) -> Value:
        return self.b(Cast(dtype), self.value)

    def reshape(self, *shape: Dim) -> Vector:
        return Vector(self.b, self.b(Reshape(shape), self.value))


def computed_table(
    b: Graph, rule: Rule, x: Value, axis: int, size: Dim, scale: float | None
) -> tuple[Value, Value | None]:
    """Return source indices i32[taps, out] and weights f32[taps, out] for an axis of `x`.

    For the nearest element there are indices i32[out] alone.  Indices past the end stay there:
    whoever reads limits them.  Without a `scale` the extents give it.
    """
    extent = Vector(b, b(Cast("f64"), b(Shape(axis, axis + 1), x)))
    steps = b(Range(size, dtype="f64"))
    count = Vector(b, b(Cast("f64"), b(Shape(0, 1), steps)))
    ratio = count / extent if scale is None else scale
    exact = positions(rule, Vector(b, steps), extent, count, ratio, size == 1)
    where = Vector(b, b(Cast("f64"), exact.cast("f32")))
    if rule.mode == "nearest":
        return rounded(where, rule.nearest).apply(Maximum(), 0).cast("i32"), None
    stretch = rule.stretch(scale or 1.0)
    taps = 2 * int(np.ceil(rule.reach(scale or 1.0)))
    row = where.reshape(1, size)
    column = Vector(b, b.constant(np.arange(taps, dtype=np.float64)[:, None] - (taps // 2 - 1)))
    indices = row // 1 + column
    weights = _weights(rule, (indices - row).apply(Abs()) * stretch)
    if rule.antialias:
        weights = _normalized(weights)
    if rule.exclude_outside:
        end = extent.reshape(1, 1)
        weights = (weights * 0).where(indices.apply(Less(), 0), weights)
        weights = (weights * 0).where(indices.apply(GreaterOrEqual(), end), weights)
        weights = _normalized(weights)
    return indices.apply(Maximum(), 0).cast("i32"), weights.cast("f32")


def _weights(rule: Rule, distance: Vector) -> Vector:
    if rule.mode == "linear":
        return (1 - distance).apply(Maximum(), 0)
    near, far = keys_kernel(distance, rule.cubic)
    beyond: Vector = far.where(distance.apply(Less(), 2), 0)
    chosen: Vector = near.where(distance.apply(LessOrEqual(), 1), beyond)
    return chosen


def _normalized(weights: Vector) -> Vector:
    return weights / Vector(weights.b, weights.b(ReduceSum((0,), True), weights.value))


def _common(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape that all stretch to; open extents of one axis are the same."""
    return tuple(
        next((d for d in axis if is_open(d) or d != 1), 1) for axis in zip(*shapes, strict=True)
    )
