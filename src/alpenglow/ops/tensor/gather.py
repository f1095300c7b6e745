"""Reading and writing elements at computed positions: gather, scatter, one-hot.

A negative index counts from the end of its axis.  One that is out of range even so is *clamped*
to the nearest element, in the reference and in every compiled form, so that no index reads or
writes outside its tensor.  If it must be an error, `in_range` checks the operand.  An
axis of no elements can only be indexed by no indices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Examples,
    Op,
    Primitive,
    changed_along,
    check_choice,
    check_dtype,
    check_natural,
    check_rank,
    is_half,
    normal_axis,
)
from alpenglow.ir.types import ALL, COMPLEX, NUMBERS, Array, TensorType
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.reduction.reduction import ReduceSum, as_type, filled, in_floats
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Concat, Reshape
from alpenglow.ops.tensor.places import INDICES, check_reachable, clamped
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.ops.tensor.unscattering import Unscattering

REDUCTIONS = ("none", "add", "mul", "min", "max")


class Gather(Primitive):
    """data with `axis` replaced by the shape of indices: out[a, i, b] = data[a, indices[i], b].

    ONNX Gather, NumPy take.
    """

    layouts = "first"

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        check_dtype(self, "indices", indices, INDICES)
        check_rank(self, "data", data, 1)
        axis = normal_axis(self, self.axis, data.rank)
        check_reachable(self, data, axis, indices.shape)
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        moved = (axis,) if indices.rank == 1 else range(data.rank)
        return changed_along(self, data, moved, shape)

    def reference(self, data: Array, indices: Array) -> Array:
        extent = data.shape[self.axis]
        return np.asarray(np.take(data, clamped(indices, extent), axis=self.axis))

    def gradient(self, b: Graph, dy: Value, data: Value, indices: Value) -> tuple[Value, None]:
        axis = self.axis % data.type.rank
        return summed_at(b, dy, indices, axis, data.type.shape[axis]), None

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0), "f32[5,3]", np.array([[0, -1, 4], [2, 9, -7]])
        yield cls(1), "f32[2,17,3]", np.array([16, 3, 3, -17], np.int32)
        yield cls(-1), "f32[3,4]", np.array(-2)
        yield cls(0), "f32[4]", np.zeros((0, 2), np.int64)
        yield cls(1), "f32[0,3]", np.array([1, 2])
        yield cls(2), "f32[1,20/16,3,2,16]", np.array([0, 0, 1, 1, 2, 2])
        for dtype in sorted(ALL - {"f32"}):
            yield cls(1), f"{dtype}[2,3]", np.array([2, 0])


class GatherElements(Primitive):
    """out[a, i, b] = data[a, indices[a, i, b], b], with `axis` in the place of i.

    The other axes of indices may be shorter than those of data.  ONNX GatherElements.
    """

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        check_beside(self, data, indices, self.axis)
        return data.with_shape(indices.shape)

    def reference(self, data: Array, indices: Array) -> Array:
        return np.asarray(data[elements(data, indices, self.axis % data.ndim)])

    def gradient(self, b: Graph, dy: Value, data: Value, indices: Value) -> tuple[Value, None]:
        return added_at(b, ScatterElements(self.axis, "add"), data, indices, dy), None

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), "f32[2,3]", np.array([[0, -1, 2, 9], [1, 1, 0, -9]])
        yield cls(0), "f32[3,5]", np.array([[1, 2], [0, -1]], np.int32)
        yield cls(-1), "f32[0,3]", np.zeros((0, 2), np.int64)
        yield cls(0), "f32[4]", np.array([3, 3, 0])
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0), f"{dtype}[2,2]", np.array([[1, 0]])


class GatherNd(Primitive):
    """out[b, i, rest] = data[b, *indices[b, i, :], rest], with `batch_dims` axes b in common.

    The last axis of indices holds positions on the axes of data that follow b.  ONNX GatherND.
    """

    batch_dims: int = 0

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        depth = index_depth(self, data, indices, self.batch_dims)
        if data.shape[: self.batch_dims] != indices.shape[: self.batch_dims]:
            raise TypeRuleError(
                f"gather_nd: indices is {indices} and data {data}, expected the first "
                f"{self.batch_dims} axes to be equal"
            )
        for axis in range(self.batch_dims, self.batch_dims + depth):
            check_reachable(self, data, axis, indices.shape[:-1])
        return data.with_shape((*indices.shape[:-1], *data.shape[self.batch_dims + depth :]))

    def reference(self, data: Array, indices: Array) -> Array:
        return np.asarray(data[positions(data, indices, self.batch_dims)])

    def gradient(self, b: Graph, dy: Value, data: Value, indices: Value) -> tuple[Value, None]:
        shape = indices.type.shape[:-1]
        if self.batch_dims:
            batch = [b(Reshape((*shape, 1)), b(Iota(shape, i))) for i in range(self.batch_dims)]
            whole = Cast(indices.type.dtype)
            indices = b(Concat(-1), *(b(whole, v) for v in batch), indices)
        return added_at(b, ScatterNd("add"), data, indices, dy), None

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[3,5]", np.array([[0, 1], [-1, 9]])
        yield cls(), "f32[3,5,2]", np.array([[[2]], [[0]]])
        yield cls(1), "f32[2,3,5]", np.array([[1], [-3]])
        yield cls(1), "f32[2,3,5]", np.array([[[1, 4]], [[0, 0]]])
        yield cls(), "f32[0,5]", np.zeros((0, 1), np.int64)
        for dtype in sorted(ALL - {"f32"}):
            yield cls(), f"{dtype}[2,3]", np.array([[1, 2]])


class ScatterElements(Primitive):
    """data with elements replaced by, or reduced with, updates: the inverse of gather_elements.

    data[a, indices[a, i, b], b] takes updates[a, i, b], with `axis` in the place of i.  `reduction`
    is none, add, mul, min or max; updates apply in row-major order, so with none the last one
    wins, and half precision is rounded after each.  ONNX ScatterElements.
    """

    axis: int = 0
    reduction: str = "none"

    carried = MappingProxyType({0: 0})

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        check_reduction(self, data, self.reduction)
        check_beside(self, data, indices, self.axis)
        wanted = data.with_shape(indices.shape)
        if updates != wanted:
            raise TypeRuleError(f"scatter_elements: updates are {updates}, expected {wanted}")
        return data

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        where = elements(data, indices, self.axis % data.ndim)
        return scattered(data, where, updates, self.reduction)

    def gradient(
        self, b: Graph, dy: Value, data: Value, indices: Value, updates: Value
    ) -> tuple[Value, None, Value]:
        scatter, gather = partial(ScatterElements, self.axis), GatherElements(self.axis)
        return Unscattering(b, scatter, gather, indices).by(self.reduction, dy, data, updates)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), "f32[2,5]", np.array([[0, -1], [9, 2]]), "f32[2,2]"
        yield cls(0), "f32[3,5]", np.array([[1, 2], [1, -3]], np.int32), "f32[2,2]"
        yield cls(0), "f32[4]", np.zeros(0, np.int64), "f32[0]"
        for reduction in REDUCTIONS:
            yield cls(0, reduction), "f32[4]", np.array([3, 1, 3, -1, 0]), "f32[5]"
        yield cls(0, "add"), "f16[4]", np.array([3, 1, 3, -1, 0]), "f16[5]"
        for dtype in sorted((ALL | COMPLEX) - {"f32"}):
            yield cls(0), f"{dtype}[3,2]", np.array([[1, 0]]), f"{dtype}[1,2]"


class ScatterNd(Primitive):
    """data with slices replaced by, or reduced with, updates: the inverse of gather_nd.

    data[*indices[i, :], rest] takes updates[i, rest].  `reduction` is as in scatter_elements.
    ONNX ScatterND.
    """

    reduction: str = "none"

    carried = MappingProxyType({0: 0})

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        check_reduction(self, data, self.reduction)
        depth = index_depth(self, data, indices, 0)
        for axis in range(depth):
            check_reachable(self, data, axis, indices.shape[:-1])
        wanted = data.with_shape((*indices.shape[:-1], *data.shape[depth:]))
        if updates != wanted:
            raise TypeRuleError(f"scatter_nd: updates are {updates}, expected {wanted}")
        return data

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        return scattered(data, positions(data, indices, 0), updates, self.reduction)

    def gradient(
        self, b: Graph, dy: Value, data: Value, indices: Value, updates: Value
    ) -> tuple[Value, None, Value]:
        unscattering = Unscattering(b, ScatterNd, GatherNd(), indices)
        return unscattering.by(self.reduction, dy, data, updates)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[5,3]", np.array([[0], [-1]]), "f32[2,3]"
        yield cls(), "f32[5,3]", np.array([[[0, 2], [9, -9]]], np.int32), "f32[1,2]"
        yield cls(), "f32[4]", np.zeros((0, 1), np.int64), "f32[0]"
        for reduction in REDUCTIONS:
            yield cls(reduction), "f32[4,2]", np.array([[3], [1], [3]]), "f32[3,2]"
        yield cls("mul"), "bf16[4]", np.array([[3], [1], [3]]), "bf16[3]"
        for dtype in sorted((ALL | COMPLEX) - {"f32"}):
            yield cls(), f"{dtype}[3,2]", np.array([[1]]), f"{dtype}[1,2]"


class OneHot(Primitive):
    """A new axis of `depth` elements: values[1] at the index, values[0] elsewhere.

    The axis comes before `axis` of the indices.  A negative index counts from the end; one that is
    out of range even so leaves values[0] everywhere.  ONNX OneHot.
    """

    depth: Dim
    axis: int

    def infer(self, indices: TensorType, values: TensorType) -> TensorType:
        check_dtype(self, "indices", indices, NUMBERS)
        if values.shape != (2,):
            raise TypeRuleError(f"one_hot: values are {values}, expected two: off and on")
        check_natural(self, depth=self.depth)
        axis = normal_axis(self, self.axis, indices.rank + 1)
        return values.with_shape((*indices.shape[:axis], self.depth, *indices.shape[axis:]))

    def reference(self, indices: Array, values: Array) -> Array:
        assert known(self.depth)
        at = indices if indices.dtype.kind == "u" else indices.astype(
            np.int64 if indices.dtype.kind == "i" else np.float64)  # fmt: skip
        if at.dtype.kind != "u":
            at = np.where(at < 0, at + self.depth, at)
        shape = [1] * (indices.ndim + 1)
        shape[self.axis] = self.depth
        hot = np.expand_dims(at, self.axis) == np.arange(self.depth).reshape(shape)
        return np.asarray(np.where(hot, values[1], values[0]))

    def gradient(self, b: Graph, dy: Value, indices: Value, values: Value) -> tuple[None, Value]:
        """Add up where the one value is, and where the other."""
        hot = b(self, indices, b.constant(np.array([False, True])))
        zeros, every = filled(b, 0, dy), tuple(range(dy.type.rank))
        parts = (b(Where(), hot, zeros, dy), b(Where(), hot, dy, zeros))
        return None, b(Concat(0), *(b(Reshape((1,)), b(ReduceSum(every, False), p)) for p in parts))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(5, -1), np.array([0, 4, -1, -5, 5, -6]), "f32[2]"
        yield cls(3, 0), np.array([[0, 2], [1, 1]], np.int32), "f32[2]"
        yield cls(4, 1), "i64[2,3]", "f32[2]"
        yield cls(0, 1), "i64[2]", "f32[2]"
        yield cls(3, 0), "i64[]", "f32[2]"
        yield cls(3, 0), np.array([0, 1.5, 2, -1], np.float32), "f32[2]"
        yield cls(3, 1), np.array([0, 1, 2, 200], np.uint8), "f32[2]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(3, -1), "i64[2]", f"{dtype}[2]"


def elements(data: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """Return the position of each index in data, as one array an axis."""
    grid: list[Array] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = clamped(indices, data.shape[axis])
    return tuple(grid)


def positions(data: Array, indices: Array, batch_dims: int) -> tuple[Array, ...]:
    """Return the positions of the index tuples in data, one array for each axis that they index."""
    batch = np.indices(indices.shape[:-1], sparse=True)[:batch_dims]
    fixed = [clamped(indices[..., i], data.shape[batch_dims + i]) for i in range(indices.shape[-1])]
    return (*batch, *fixed)


def scattered(data: Array, where: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Return a copy of data with updates applied in order."""
    out = data.copy()
    combine: dict[str, Callable[..., Any]] = {
        "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    }  # fmt: skip
    wide = np.float32 if is_half(data.dtype) else data.dtype
    flat = np.broadcast_arrays(*where)
    with np.errstate(all="ignore"):
        for i in np.ndindex(flat[0].shape):
            place = tuple(a[i] for a in flat)
            if reduction == "none":
                out[place] = updates[i]
            else:
                out[place] = combine[reduction](out[place].astype(wide), updates[i].astype(wide))
    return out


def summed_at(b: Graph, dy: Value, indices: Value, axis: int, extent: Dim) -> Value:
    """Return the gradient of Gather along `axis`: each element of dy is added where it was read.

    Halves are added up in f32, and rounded once.
    """
    end = axis + indices.type.rank
    outer, inner = dy.type.shape[:axis], dy.type.shape[end:]
    count = product(indices.type.shape)
    # Rows of several axes are added up as one: long rows are added fastest.
    row = (product(inner),) if len(inner) > 1 else inner
    rows = b(Reshape((*outer, count, *row)), in_floats(b, dy))
    total = b(SumAt(axis, extent), rows, b(Reshape((1, count)), indices))
    return as_type(b, b(Reshape((*outer, extent, *inner)), total), dy.type.dtype)


def added_at(b: Graph, scatter: Op, data: Value, indices: Value, dy: Value) -> Value:
    """Return zeros like data, to which a scatter by add has added dy; halves as in `summed_at`."""
    wide = in_floats(b, dy)
    zeros = filled(b, 0, Value(data.type.with_dtype(wide.type.dtype)))
    return as_type(b, b(scatter, zeros, indices, wide), dy.type.dtype)


def check_beside(op: Op, data: TensorType, indices: TensorType, axis: int) -> None:
    """Raise TypeRuleError unless indices lie within data on every axis but `axis`."""
    check_dtype(op, "indices", indices, INDICES)
    check_rank(op, "data", data, 1)
    check_rank(op, "indices", indices, data.rank, data.rank)
    fixed = normal_axis(op, axis, data.rank)
    check_reachable(op, data, fixed, indices.shape)
    for i, (d, n) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if i != fixed and known(d) and known(n) and n > d:
            raise TypeRuleError(
                f"{op.name}: indices is {indices}, expected at most {d} on axis {i} as data {data}"
            )


def index_depth(op: Op, data: TensorType, indices: TensorType, batch_dims: int) -> int:
    """Return how many axes of data one index tuple fixes; raise TypeRuleError if too many."""
    check_dtype(op, "indices", indices, INDICES)
    check_rank(op, "indices", indices, batch_dims + 1)
    depth = indices.shape[-1]
    if not known(depth) or batch_dims < 0 or not (0 < depth <= data.rank - batch_dims):
        raise TypeRuleError(
            f"{op.name}: indices are {indices}, expected a last axis of 1 to "
            f"{data.rank - batch_dims} for {data} with {batch_dims} batch axes"
        )
    return depth


def check_reduction(op: Op, data: TensorType, reduction: str) -> None:
    """Raise TypeRuleError unless `reduction` is one and data can be reduced by it."""
    check_choice(op, REDUCTIONS, reduction=reduction)
    check_dtype(op, "data", data, ALL | COMPLEX if reduction == "none" else NUMBERS)
