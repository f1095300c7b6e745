"""Operators that order elements along an axis: the k largest, sequences turned round."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Examples,
    Primitive,
    check_dtype,
    check_rank,
    is_half,
    normal_axis,
)
from alpenglow.ir.types import ALL, NUMBERS, Array, TensorType
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.gather import ScatterElements


class TopK(Primitive):
    """The `k` largest (or smallest) elements along `axis` in order, and their indices as i64.

    Of equal elements the one with the lower index comes first.  NaN counts as larger than any
    number.  ONNX TopK.
    """

    axis: int
    k: Dim
    largest: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_dtype(self, "x", x, NUMBERS)
        check_rank(self, "x", x, 1)
        axis = normal_axis(self, self.axis, x.rank)
        extent = x.shape[axis]
        if known(self.k) and not (self.k >= 0 and (not known(extent) or self.k <= extent)):
            raise TypeRuleError(f"top_k: k is {self.k}, expected 0 to {extent} on axis {axis}")
        values = x.with_shape(self.k if i == axis else d for i, d in enumerate(x.shape))
        return values, values.with_dtype("i64")

    def reference(self, x: Array) -> tuple[Array, Array]:
        assert known(self.k)
        wide = x.astype(np.float32) if is_half(x.dtype) else x
        if self.largest:
            # Turned round twice, so that a stable sort keeps equal elements in order.
            turned = np.argsort(np.flip(wide, self.axis), axis=self.axis, kind="stable")
            order = x.shape[self.axis] - 1 - np.flip(turned, self.axis)
        else:
            order = np.argsort(wide, axis=self.axis, kind="stable")
        first = np.take(order, np.arange(self.k), axis=self.axis).astype(np.int64)
        return np.take_along_axis(x, first, axis=self.axis), first

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], x: Value) -> Value:
        indices = b.add(self, [x]).results[1]
        assert dys[0] is not None, "indices have no gradient"
        return b(ScatterElements(self.axis), filled(b, 0, x), indices, dys[0])

    @classmethod
    def examples(cls) -> Examples:
        yield cls(-1, 3), "f32[2,17]"
        yield cls(0, 2, False), "f32[5,3]"
        yield cls(1, 3), "f32[2,3,2]"
        yield cls(0, 0), "f32[4]"
        yield cls(1, 1), "f32[0,3]"
        yield cls(0, 5), np.array([1, np.nan, 2, 2, -np.inf], np.float32)
        yield cls(0, 5, False), np.array([1, np.nan, 2, 2, -np.inf], np.float32)
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls(1, 2), f"{dtype}[2,5]"
            yield cls(1, 2, False), f"{dtype}[2,5]"


class ReverseSequence(Primitive):
    """x with the first lengths[b] elements along `time` turned round, for each b along `batch`.

    A length outside 0 … the extent of `time` is clamped.  ONNX ReverseSequence.
    """

    batch: int
    time: int

    def infer(self, x: TensorType, lengths: TensorType) -> TensorType:
        check_dtype(self, "lengths", lengths, {"i32", "i64"})
        batch = normal_axis(self, self.batch, x.rank)
        time = normal_axis(self, self.time, x.rank)
        if batch == time:
            raise TypeRuleError(
                f"reverse_sequence: batch and time are both axis {batch}, expected two axes"
            )
        if lengths.shape != (x.shape[batch],):
            raise TypeRuleError(
                f"reverse_sequence: lengths are {lengths}, expected one for each of "
                f"{x.shape[batch]} along axis {batch} of {x}"
            )
        return x.with_shape(x.shape)

    def reference(self, x: Array, lengths: Array) -> Array:
        moved = np.moveaxis(x, (self.batch, self.time), (0, 1))
        steps = np.arange(moved.shape[1])
        n = np.clip(lengths, 0, moved.shape[1])[:, None]
        source = np.where(steps < n, n - 1 - steps, steps)
        turned = moved[np.arange(moved.shape[0])[:, None], source]
        return np.moveaxis(turned, (0, 1), (self.batch, self.time))

    def gradient(self, b: Graph, dy: Value, x: Value, lengths: Value) -> tuple[Value, None]:
        return b(self, dy, lengths), None

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1, 0), "f32[5,3]", np.array([1, 5, 3])
        yield cls(0, 1), "f32[3,4,2]", np.array([0, 9, -1])
        yield cls(2, 0), "f32[3,1,2]", np.array([2, 3])
        yield cls(0, 1), "f32[0,4]", "i64[0]"
        yield cls(0, 1), "f32[2,0]", "i64[2]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0, 1), f"{dtype}[2,3]", np.array([2, 3])
