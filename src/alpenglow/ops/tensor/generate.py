"""Operators that make tensors from nothing, or from a type alone (ONNX Range, EyeLike, Shape)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Primitive,
    check_choice,
    check_natural,
    normal_axis,
)
from alpenglow.ir.types import ALL, DTYPES, NUMBERS, Array, TensorType
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.movement import Broadcast, Reshape


class Range(Primitive):
    """`count` numbers of type `dtype`: start, start + step, start + 2 step, ….  ONNX Range.

    A start that is not known when the graph is built is added to a range from 0.
    """

    count: Dim
    start: float = 0
    step: float = 1
    dtype: str = "i64"

    def infer(self) -> TensorType:
        check_choice(self, NUMBERS, dtype=self.dtype)
        check_natural(self, count=self.count)
        return TensorType(self.dtype, (self.count,))

    def reference(self) -> Array:
        assert known(self.count), f"{self} is open"
        dtype = DTYPES[self.dtype]
        wide: np.dtype[Any] = np.dtype(np.int64) if dtype.kind in "iu" else (
            np.result_type(dtype, np.float32))  # fmt: skip
        steps: Array = np.arange(self.count).astype(wide) * wide.type(self.step)
        return np.asarray(steps + wide.type(self.start)).astype(dtype)

    @classmethod
    def examples(cls) -> Examples:
        for count in (0, 1, 5, 17):
            yield (cls(count),)
        for dtype in sorted(NUMBERS):
            yield (cls(7, 2, 3, dtype),)
        for dtype in ("i16", "i32", "i64", "f32", "f64"):
            yield (cls(7, 10, -4, dtype),)
        for dtype in ("f16", "bf16", "f32", "f64"):
            yield (cls(9, -0.5, 0.25, dtype),)


class Iota(Primitive):
    """The index along `axis` of each element of a tensor of a given shape, as i64.

    A kernel knows where it stands: nothing is stored for this.  StableHLO iota.
    """

    shape: tuple[Dim, ...]
    axis: int

    def infer(self) -> TensorType:
        normal_axis(self, self.axis, len(self.shape))
        return TensorType("i64", self.shape)

    def reference(self) -> Array:
        assert all(map(known, self.shape)), f"{self} is open"
        shape = tuple(map(int, self.shape))
        axis = self.axis % len(shape)
        column = [-1 if i == axis else 1 for i in range(len(shape))]
        return np.broadcast_to(np.arange(shape[axis], dtype=np.int64).reshape(column), shape)

    @classmethod
    def examples(cls) -> Examples:
        yield (cls((17,), 0),)
        yield (cls((3, 5), 0),)
        yield (cls((2, 3, 20), -1),)
        yield (cls((2, 0), 1),)


class Eye(Composite):
    """Ones where column - row = k in a rows × columns matrix of zeros.  ONNX EyeLike."""

    rows: Dim
    columns: Dim
    k: int = 0
    dtype: str = "f32"

    def infer(self) -> TensorType:
        check_choice(self, ALL, dtype=self.dtype)
        return TensorType(self.dtype, (self.rows, self.columns))

    def lower(self, b: Graph) -> Value:
        shape = (self.rows, self.columns)
        wanted = b(Reshape((self.rows, 1)), b(Range(self.rows, self.k)))
        columns = b(Reshape((1, self.columns)), b(Range(self.columns)))
        return b(Cast(self.dtype), b(Equal(), b(Broadcast(shape), wanted),
                                     b(Broadcast(shape), columns)))  # fmt: skip

    @classmethod
    def examples(cls) -> Examples:
        yield (cls(3, 5),)
        yield (cls(5, 3, -1),)
        yield (cls(3, 4, 2),)
        yield (cls(0, 3),)
        yield (cls(2, 2, 7),)
        for dtype in sorted(ALL - {"f32"}):
            yield (cls(3, 4, 1, dtype),)


class Shape(Primitive):
    """The extents of axes start to end of x, end excluded, as i64.  ONNX Shape."""

    start: int
    end: int

    def infer(self, x: TensorType) -> TensorType:
        if not 0 <= self.start <= self.end <= x.rank:
            raise TypeRuleError(
                f"shape: start is {self.start} and end {self.end}, expected axes of {x} in order"
            )
        return TensorType("i64", (self.end - self.start,))

    def extents_of(self, x: TensorType) -> list[Dim]:
        """Return the elements of the result, which the type of x tells."""
        return list(x.shape[self.start : self.end])

    def reference(self, x: Array) -> Array:
        return np.array(x.shape[self.start : self.end], np.int64)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0, 3), "f32[3,0,5]"
        yield cls(1, 2), "f32[3,4,5]"
        yield cls(1, 1), "f32[3,4]"
        yield cls(0, 0), "f32[]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0, 1), f"{dtype}[3,2]"


class Size(Primitive):
    """The number of elements of x, as an i64 scalar.  ONNX Size."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType("i64", ())

    def extents_of(self, x: TensorType) -> Dim:
        """Return the element of the result, which the type of x tells."""
        return product(x.shape)

    def reference(self, x: Array) -> Array:
        return np.array(x.size, np.int64)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[3,4,5]"
        yield cls(), "f32[3,0]"
        yield cls(), "f32[]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(), f"{dtype}[3,2]"
