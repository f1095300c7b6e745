"""Caches that a model writes into at positions that depend on data (ONNX TensorScatter)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, check_rank, normal_axis
from alpenglow.ir.types import ALL, TensorType
from alpenglow.ops.arithmetic import Mod, Sub
from alpenglow.ops.attention import number
from alpenglow.ops.comparison import GreaterOrEqual, Less
from alpenglow.ops.gather import GatherElements
from alpenglow.ops.generate import Range
from alpenglow.ops.logic import BitAnd
from alpenglow.ops.movement import Broadcast, Reshape
from alpenglow.ops.reduction import filled
from alpenglow.ops.select import Where


class UpdateCache(Composite):
    """cache with the elements from start[n] on, along `axis`, replaced by those of update.

    Sample n is the first axis, and start holds one position a sample.  Positions past the end go
    on at the beginning if `circular`, and are left out otherwise.  ONNX TensorScatter.
    """

    axis: int = -2
    circular: bool = False

    def infer(self, cache: TensorType, update: TensorType, start: TensorType) -> TensorType:
        check_rank(self, "cache", cache, 2)
        axis = normal_axis(self, self.axis, cache.rank)
        if axis == 0 or start != TensorType("i64", cache.shape[:1]):
            raise TypeRuleError(
                f"update_cache: axis is {self.axis} and start is {start}, expected an axis after "
                f"the first and i64[{cache.shape[0]}]"
            )
        shape = list(cache.shape)
        check_rank(self, "update", update, cache.rank, cache.rank)
        shape[axis] = update.shape[axis]
        if update != cache.with_shape(shape):
            raise TypeRuleError(f"update_cache: update is {update}, expected {cache} but on {axis}")
        most, count = cache.shape[axis], update.shape[axis]
        if known(most) and known(count) and count > most:
            raise TypeRuleError(f"update_cache: {update} is longer than {cache}")
        return cache.with_shape(cache.shape)

    def lower(self, b: Graph, cache: Value, update: Value, start: Value) -> Value:
        shape, rank = cache.type.shape, cache.type.rank
        axis = self.axis % rank
        extent, count = shape[axis], update.type.shape[axis]
        if count == 0 or extent == 0:
            return cache
        # On all other axes, the place in the update is that in the cache.
        box = (shape[0], *[1] * (axis - 1), extent, *[1] * (rank - axis - 1))
        place = b(Broadcast(box), b(Reshape((extent, *[1] * (rank - axis - 1))), b(Range(extent))))
        first = b(Broadcast(box), b(Reshape((shape[0], *[1] * (rank - 1))), start))
        source = b(Sub(), place, first)
        if self.circular:
            source = b(Mod(), source, number(b, extent, source))
        limit = number(b, count, source)
        inside = b(BitAnd(), b(GreaterOrEqual(), source, filled(b, 0, source)),
                   b(Less(), source, limit))  # fmt: skip
        entries = b(GatherElements(axis), update, b(Broadcast(shape), source))
        return b(Where(), b(Broadcast(shape), inside), entries, cache)

    @classmethod
    def examples(cls) -> Examples:
        at = np.array([1, 3])
        yield cls(), "f32[2,3,5,4]", "f32[2,3,2,4]", at
        yield cls(1, True), "f32[2,5,4]", "f32[2,4,4]", np.array([3, -1])
        yield cls(-1), "f32[2,7]", "f32[2,7]", np.array([0, 0])
        yield cls(-1), "f32[2,7]", "f32[2,0]", at
        yield cls(), "f32[0,3,4]", "f32[0,1,4]", "i64[0]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(1), f"{dtype}[2,5,2]", f"{dtype}[2,1,2]", at
