"""Linear algebra on square matrices (ONNX Det)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.reduction import as_type, in_floats

WIDE = frozenset({"f32", "f64"})


class Eliminate(Primitive):
    """x[…, n, n] brought to upper triangular form by Gauss, and its determinants […].

    In each column the largest element not above the diagonal becomes the pivot, the first of
    several; a column without one but zero is left as it is, and the determinant is zero.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_square(self, x)
        check_dtype(self, "x", x, WIDE)
        return x, x.with_shape(x.shape[:-2])

    def reference(self, x: Array) -> tuple[Array, Array]:
        upper = x.copy()
        determinants = np.ones(x.shape[:-2], x.dtype)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*x.shape[:-2]):
                determinants[at] = eliminated(upper[at])
        return upper, determinants

    @classmethod
    def examples(cls) -> Examples:
        for dtype in ("f32", "f64"):
            yield cls(), f"{dtype}[3,3]"
        yield cls(), "f32[2,1,7,7]"
        yield cls(), "f32[5,1,1]"
        yield cls(), "f32[2,0,0]"
        yield cls(), "f32[0,3,3]"
        yield cls(), np.array([[[0, 2], [3, 4]], [[0, 2], [0, 5]]], np.float32)


def eliminated(a: Array) -> Array:
    """Bring one matrix to upper triangular form in place; return its determinant."""
    value = a.dtype.type(1)
    for j in range(len(a)):
        p = j + int(np.argmax(np.abs(a[j:, j])))
        if p != j:
            a[[j, p]] = a[[p, j]]
            value = -value
        value = value * a[j, j]
        if a[j, j] != 0:
            a[j + 1 :, j:] -= (a[j + 1 :, j] / a[j, j])[:, None] * a[j, j:]
            a[j + 1 :, j] = 0
    return np.asarray(value)


class Det(Composite):
    """The determinants of the matrices x[…, n, n].  ONNX Det."""

    def infer(self, x: TensorType) -> TensorType:
        check_square(self, x)
        check_dtype(self, "x", x, FLOATS)
        return x.with_shape(x.shape[:-2])

    def lower(self, b: Graph, x: Value) -> Value:
        _, value = b.add(Eliminate(), [in_floats(b, x)]).results
        return as_type(b, value, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[4,4]"
        yield cls(), "f32[2,3,2,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(), f"{dtype}[5,3,3]"


def check_square(op: Op, x: TensorType) -> None:
    """Raise TypeRuleError unless x holds square matrices."""
    check_rank(op, "x", x, 2)
    if x.shape[-1] != x.shape[-2]:
        raise TypeRuleError(f"{op.name}: x is {x}, expected square matrices […, n, n]")
