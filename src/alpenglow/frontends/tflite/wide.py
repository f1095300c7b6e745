"""Integers of a graph with Python's operators, so that one rule serves them and arrays alike.

Rules of fixed-point arithmetic (`gemmlowp`) fill tables when a model is read, and are built into
graphs where an operand has too many values for a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Minimum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Less
from alpenglow.ops.elementwise.logic import BitAnd, ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import BitCast, Cast, Where
from alpenglow.ops.tensor.movement import stretch


@dataclass(frozen=True)
class Wide:
    """A value of i64, or of bool where it is a comparison's, in a graph."""

    g: Graph
    value: Value

    @classmethod
    def of(cls, g: Graph, value: Value) -> Wide:
        """Return integers of any type in 64 bits."""
        return cls(g, g(Cast("i64"), value))

    def _with(self, op: Op, other: Wide | int, turned: bool = False) -> Wide:
        pair = [self.value, self.alike(other).value]
        return Wide(self.g, self.g(op, *(pair[::-1] if turned else pair)))

    def alike(self, other: Wide | int) -> Wide:
        """Return a number in the shape of this; other integers as they are."""
        if isinstance(other, Wide):
            return other
        number = self.g.constant(np.array(other, np.int64))
        return Wide(self.g, stretch(self.g, number, self.value.type.shape))

    def across(self, like: Wide | Value) -> Wide:
        """Return integers stretched to the shape of others."""
        shape = (like.value if isinstance(like, Wide) else like).type.shape
        return Wide(self.g, stretch(self.g, self.value, shape))

    def narrow(self, dtype: str) -> Value:
        """Return integers in another type, which holds them."""
        return self.g(Cast(dtype), self.value)

    def __add__(self, other: Wide | int) -> Wide:
        return self._with(Add(), other)

    def __sub__(self, other: Wide | int) -> Wide:
        return self._with(Sub(), other)

    def __rsub__(self, other: int) -> Wide:
        return self._with(Sub(), other, True)

    def __mul__(self, other: Wide | int) -> Wide:
        return self._with(Mul(), other)

    def __floordiv__(self, other: Wide | int) -> Wide:
        """Divide integers of which none is negative."""
        return self._with(Div(), other)

    def __and__(self, other: Wide | int) -> Wide:
        return self._with(BitAnd(), other)

    def __lshift__(self, other: Wide | int) -> Wide:
        return self._with(ShiftLeft(), other)

    def __rshift__(self, other: Wide | int) -> Wide:
        return self._with(ShiftRight(), other)

    def __neg__(self) -> Wide:
        return self._with(Sub(), 0, True)

    def __lt__(self, other: Wide | int) -> Wide:
        return self._with(Less(), other)

    def __gt__(self, other: Wide | int) -> Wide:
        return self._with(Less(), other, True)

    def equals(self, other: int) -> Wide:
        """Return whether elements are a number."""
        return self._with(Equal(), other)


Integers = TypeVar("Integers", Array, Wide)
"""Integers of 64 bits: of an array, or of a graph."""


def where(condition: Integers, x: Integers | int, y: Integers | int) -> Integers:
    """Return x where a condition holds, else y; one of them may be a number."""
    if not isinstance(condition, Wide):
        return np.where(condition, x, y)
    one = x if isinstance(x, Wide) else y
    assert isinstance(one, Wide), "both are numbers"
    values = one.alike(x).value, one.alike(y).value
    return Wide(one.g, one.g(Where(), condition.value, *values))


def zero(x: Integers) -> Integers:
    """Return whether elements are 0."""
    return x.equals(0) if isinstance(x, Wide) else np.asarray(x == 0)


def maximum(x: Integers, y: Integers | int) -> Integers:
    """Return the greater one of elements."""
    return x._with(Maximum(), y) if isinstance(x, Wide) else np.maximum(x, y)


def minimum(x: Integers, y: Integers | int) -> Integers:
    """Return the less one of elements."""
    return x._with(Minimum(), y) if isinstance(x, Wide) else np.minimum(x, y)


def bit_length(x: Integers) -> Integers:
    """Return how many bits there are below the first 0 of all that follow; x is not negative."""
    if isinstance(x, Wide):
        exponents = x.g(BitCast("i64"), x.g(Cast("f64"), x.value))
        # An f64 has 52 bits behind its first one, and 1023 for the exponent 0.
        return where(zero(x), 0, (Wide(x.g, exponents) >> 52) - 1022)
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)
