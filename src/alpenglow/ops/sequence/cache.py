"""Caches that a model writes into at positions that depend on data (ONNX TensorScatter)."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_rank, normal_axis
from alpenglow.ir.types import ALL, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mod, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.attention import number
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast, Reshape


class UpdateCache(Primitive):
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
            raise TypeRuleError(
                f"update_cache: update is {update}, expected {cache} except on axis {axis}"
            )
        most, count = cache.shape[axis], update.shape[axis]
        if known(most) and known(count) and count > most:
            raise TypeRuleError(
                f"update_cache: update is {update}, expected at most {most} on axis {axis}"
            )
        return cache.with_shape(cache.shape)

    carried = MappingProxyType({0: 0})

    def reference(self, cache: Array, update: Array, start: Array) -> Array:
        y = cache.copy()
        extent = y.shape[self.axis]
        rows = np.moveaxis(y, self.axis, 1)
        for sample, first in enumerate(start.tolist()):
            for j, row in enumerate(np.moveaxis(update, self.axis, 1)[sample]):
                at = (first + j) % extent if self.circular else first + j
                if 0 <= at < extent:
                    rows[sample, at] = row
        return y

    def gradient(
        self, b: Graph, dy: Value, cache: Value, update: Value, start: Value
    ) -> tuple[Value, Value, None]:
        """Return dy where nothing was written, and from where the update went."""
        zero = b(Broadcast(update.type.shape), b.constant(np.zeros((), dy.type.numpy)))
        kept = b(UpdateCache(self.axis, self.circular), dy, zero, start)
        shape, axis = update.type.shape, self.axis % update.type.rank
        extent, count = cache.type.shape[axis], shape[axis]
        if count == 0 or extent == 0:
            return kept, zero, None
        at = b(Add(), b(Iota(shape, axis)), self._stretched(b, start, shape))
        if self.circular:
            at = b(Mod(), at, number(b, extent, at))
        limit = number(b, extent, at)
        there = b(BitAnd(), b(GreaterOrEqual(), at, filled(b, 0, at)), b(Less(), at, limit))
        inside = b(Where(), there, at, filled(b, 0, at))
        return kept, b(Where(), there, b(GatherElements(axis), dy, inside), zero), None

    def spelled_out(self, b: Graph, cache: Value, update: Value, start: Value) -> Value:
        """Return the same by other operators: each element of the result chooses where it is."""
        shape = cache.type.shape
        axis = self.axis % cache.type.rank
        extent, count = shape[axis], update.type.shape[axis]
        if count == 0 or extent == 0:
            return cache
        # On all other axes, the place in the update is that in the cache.
        source = b(Sub(), b(Iota(shape, axis)), self._stretched(b, start, shape))
        if self.circular:
            source = b(Mod(), source, number(b, extent, source))
        limit = number(b, count, source)
        inside = b(BitAnd(), b(GreaterOrEqual(), source, filled(b, 0, source)),
                   b(Less(), source, limit))  # fmt: skip
        clamped = b(Where(), inside, source, filled(b, 0, source))
        return b(Where(), inside, b(GatherElements(axis), update, clamped), cache)

    @staticmethod
    def _stretched(b: Graph, start: Value, shape: tuple[Dim, ...]) -> Value:
        return b(Broadcast(shape), b(Reshape((shape[0], *[1] * (len(shape) - 1))), start))

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
