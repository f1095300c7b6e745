"""Adding up what lies at given places along an axis: what reading there does to gradients."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim
from alpenglow.ir.op import (
    Examples,
    Primitive,
    check_dtype,
    check_natural,
    check_rank,
    normal_axis,
)
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.tensor.places import INDICES, check_reachable, clamped

REALS = frozenset({"f32", "f64"})


class SumAt(Primitive):
    """Elements added up along `axis`: out[a, indices[t, i], b] sums weights[t, i] · x[a, i, b].

    What no index names is 0.  Without weights all are 1.  Indices are clamped as in gather, whose
    transpose this is, as it is that of interpolate.  PyTorch index_add.
    """

    axis: int
    extent: Dim

    def infer(
        self, x: TensorType, indices: TensorType, weights: TensorType | None = None
    ) -> TensorType:
        check_dtype(self, "x", x, REALS)
        check_dtype(self, "indices", indices, INDICES)
        axis = normal_axis(self, self.axis, x.rank)
        check_rank(self, "indices", indices, 2, 2)
        if indices.shape[1] != x.shape[axis]:
            raise TypeRuleError(
                f"sum_at: indices is {indices}, expected {x.shape[axis]} on axis 1 as {x} on axis "
                f"{axis}"
            )
        if weights is not None and weights != (wanted := TensorType("f32", indices.shape)):
            raise TypeRuleError(f"sum_at: weights is {weights}, expected {wanted}")
        check_natural(self, extent=self.extent)
        y = x.with_shape((*x.shape[:axis], self.extent, *x.shape[axis + 1 :]))
        check_reachable(self, y, axis, indices.shape)
        return y

    def reference(self, x: Array, indices: Array, weights: Array | None = None) -> Array:
        moved = np.moveaxis(x, self.axis, 0)
        total = np.zeros((int(self.extent), *moved.shape[1:]), x.dtype)
        column = (-1, *[1] * (x.ndim - 1))
        with np.errstate(all="ignore"):
            for t, at in enumerate(clamped(indices, len(total))):
                part = moved if weights is None else (
                    moved * weights[t].astype(x.dtype).reshape(column))  # fmt: skip
                np.add.at(total, at, part)
        return np.ascontiguousarray(np.moveaxis(total, 0, self.axis))

    @classmethod
    def examples(cls) -> Examples:
        at = np.array([[0, 1, -1], [3, 1, 9]])
        share = np.array([[0.25, 1, -0.5], [0.75, 0.5, 1.5]], np.float32)
        yield cls(1, 4), "f32[2,3]", at, share
        yield cls(0, 4), "f32[3,5]", at, None
        yield cls(0, 4), "f32[3,300]", at.astype(np.int32), None
        yield cls(-2, 4), "f32[2,3,17]", at.astype(np.int32), share
        yield cls(1, 4), "f64[2,3,2]", at, share
        yield cls(0, 4), "f64[3]", at[:1], None
        yield cls(0, 4), "f32[0,3]", np.zeros((1, 0), np.int64), None
        yield cls(0, 0), "f32[0,3]", np.zeros((1, 0), np.int64), None
        yield cls(1, 3), "f32[0,2]", np.array([[1, 1]]), None
