"""Coordinates: where along one axis, for one element or for a vector of neighbours.

A coordinate is `base + step * lane` for the lanes of the vector being computed (one lane: a plain
index).  Sums and products with numbers stay in that form, and a source with a stride of one then
becomes a plain vector load.  Quotients and remainders leave it: they are general vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.ir.dims import Dim, is_open
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Lanes, Splat, fold, lift


@dataclass(frozen=True, slots=True, eq=False)
class Coord:
    """`base + step * lane`; or any other vector of i64 in `vector`, base and step unused."""

    base: Expr
    step: Dim = 0
    lanes: int = 1
    vector: Expr | None = None

    def __add__(self, other: Coord | Expr | Dim) -> Coord:
        other = coord(other)
        if self.vector is None and other.vector is None:
            step = self.step + other.step
            return Coord(self.base + other.base, step, max(self.lanes, other.lanes))
        return _general("add", self, other)

    def __sub__(self, other: Coord | Expr | Dim) -> Coord:
        return self + coord(other) * -1

    def __mul__(self, factor: Dim) -> Coord:
        if self.vector is None:
            return Coord(self.base * factor, self.step * factor, self.lanes)
        return _general("mul", self, coord(factor))

    def __floordiv__(self, divisor: Dim) -> Coord:
        return self if is_number(divisor, 1) else self._divided("div", divisor)

    def __mod__(self, divisor: Dim) -> Coord:
        return coord(0) if is_number(divisor, 1) else self._divided("rem", divisor)

    def _divided(self, op: str, divisor: Dim) -> Coord:
        if self.vector is None and is_number(self.step, 0):
            return Coord(fold(op, self.base, lift(divisor)), 0, self.lanes)
        return _general(op, self, coord(divisor))

    def expr(self) -> Expr:
        """Return the coordinate as an i64 expression: a vector if it differs from lane to lane."""
        if self.vector is not None:
            return self.vector
        if is_number(self.step, 0) or self.lanes == 1:
            return self.base
        ramp: Expr = Lanes(self.lanes)
        if not is_number(self.step, 1):
            ramp = Binary("mul", ramp, _wide(lift(self.step), self.lanes))
        return Binary("add", Splat(self.base, self.lanes), ramp)

    def compare(self, op: str, other: Coord | Expr | Dim) -> Expr:
        """Return self `op` other (lt, ge, …), a vector of bool if they differ from lane to lane."""
        x, y = self.expr(), coord(other).expr()
        lanes = max(x.lanes, y.lanes)
        return Compare(op, _wide(x, lanes), _wide(y, lanes))


def is_number(x: Dim, value: int) -> bool:
    """Whether an extent is this number for all time: an open one never is."""
    return not is_open(x) and x == value


def coord(x: Coord | Expr | Dim) -> Coord:
    """Return a number or expression as a coordinate."""
    if isinstance(x, Coord):
        return x
    e = lift(x)
    return Coord(e) if e.lanes == 1 else Coord(Const(0), 0, e.lanes, e)


def _general(op: str, x: Coord, y: Coord) -> Coord:
    a, b = x.expr(), y.expr()
    lanes = max(a.lanes, b.lanes)
    if lanes == 1:
        return Coord(fold(op, a, b))
    return Coord(Const(0), 0, lanes, Binary(op, _wide(a, lanes), _wide(b, lanes)))


def _wide(x: Expr, lanes: int) -> Expr:
    if x.lanes == lanes:
        return x
    return Const(x.value, x.dtype, lanes) if isinstance(x, Const) else Splat(x, lanes)
