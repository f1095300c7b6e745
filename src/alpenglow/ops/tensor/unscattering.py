"""Gradients of scatters: what reached each place of the result, and by how much it counts there.

A scatter's gradient is read where it wrote.  The last of several updates of one position stays;
with add all do; with min and max the gradient is shared by those that are equal to the result; with
mul each gets the product of all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.ir.dims import product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Reshape

Gradients = tuple[Value, None, Value]
"""Those of data, indices and updates."""


@dataclass(frozen=True)
class Unscattering:
    """What a scatter to `indices` does, by its reduction, and the gather that is its inverse."""

    b: Graph
    scatter: Callable[[str], Op]
    gather: Op
    indices: Value

    def by(self, reduction: str, dy: Value, data: Value, updates: Value) -> Gradients:
        """Return the gradients of the operands of the scatter, from the gradient of its result."""
        match reduction:
            case "add":
                return dy, None, self.read(dy)
            case "none":
                return self._of_last(dy, updates)
            case "mul":
                return self._of_products(dy, data, updates)
        return self._of_extremes(reduction, dy, data, updates)

    def read(self, x: Value) -> Value:
        return self.b(self.gather, x, self.indices)

    def scattered(self, reduction: str, data: Value, updates: Value) -> Value:
        return self.b(self.scatter(reduction), data, self.indices, updates)

    def _of_last(self, dy: Value, updates: Value) -> Gradients:
        """The last update of a place finds its own number there."""
        b, shape = self.b, updates.type.shape
        number = b(Reshape(shape), b(Iota((product(shape),), 0)))
        nobody = filled(b, -1, Value(dy.type.with_dtype("i64")))
        last = self.read(self.scattered("none", nobody, number))
        zeros = filled(b, 0, updates)
        arrived = b(Where(), b(Equal(), last, number), self.read(dy), zeros)
        return self.scattered("none", dy, zeros), None, arrived

    def _of_extremes(self, reduction: str, dy: Value, data: Value, updates: Value) -> Gradients:
        b, wide = self.b, in_floats(self.b, dy)
        y = self.scattered(reduction, data, updates)
        kept, won = b(Equal(), data, y), b(Equal(), updates, self.read(y))
        one = Cast(wide.type.dtype)
        count = self.scattered("add", b(one, kept), b(one, won))
        share = as_type(b, b(Div(), wide, count), dy.type.dtype)
        return (
            b(Where(), kept, share, filled(b, 0, data)),
            None,
            b(Where(), won, self.read(share), filled(b, 0, updates)),
        )

    def _of_products(self, dy: Value, data: Value, updates: Value) -> Gradients:
        """Divide the product of what is not 0 by each factor, and look for zeros among the others.

        One zero among the others is a factor as well: it is 0, but what changes with it is not.
        """
        b = self.b
        factors = [_Factor.of(b, in_floats(b, v)) for v in (data, updates)]
        solid = self.scattered("mul", *(f.solid for f in factors))
        zeros = self.scattered("add", *(f.zero for f in factors))
        count = self.scattered("add", *(f.count for f in factors))
        totals = (solid, zeros, count)
        wide = in_floats(b, dy)
        there = factors[0].others(b, *totals)
        arrived = factors[1].others(b, *map(self.read, totals))
        return (
            as_type(b, b(Mul(), wide, there), data.type.dtype),
            None,
            as_type(b, b(Mul(), self.read(wide), arrived), updates.type.dtype),
        )


@dataclass(frozen=True)
class _Factor:
    """Factors: with 1 for 0, only the zeros, and 1 where one is 0."""

    solid: Value
    zero: Value
    count: Value

    @classmethod
    def of(cls, b: Graph, x: Value) -> _Factor:
        none = filled(b, 0, x)
        is_zero = b(Equal(), x, none)
        count = b(Cast(x.type.dtype), is_zero)
        return cls(b(Where(), is_zero, filled(b, 1, x), x), b(Where(), is_zero, x, none), count)

    def others(self, b: Graph, solid: Value, zeros: Value, count: Value) -> Value:
        """Return the product of all factors of a place but this."""
        rest = b(Div(), solid, self.solid)
        left = b(Sub(), count, self.count)
        none, one = (filled(b, n, rest) for n in (0, 1))
        zero = b(Where(), b(Equal(), left, one), b(Sub(), zeros, self.zero), none)
        return b(Mul(), rest, b(Where(), b(Equal(), left, none), one, zero))
