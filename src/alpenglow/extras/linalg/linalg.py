"""Linear algebra on square matrices (ONNX Det)."""

from __future__ import annotations

import numpy as np

from alpenglow.extras.linalg.matrices import check_square, diagonal, unit, with_rows, zeros
from alpenglow.extras.linalg.solving import Lu, SolveTriangular, Swaps, factors_pulled, unpacked
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Primitive, check_dtype
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Mul, Neg
from alpenglow.ops.elementwise.comparison import Equal, Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import turned
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceProd, as_type, filled, in_floats
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import append_axes, stretch

NEAR = 1e-8
"""How small a pivot is, against the largest element, where a matrix hardly has an inverse."""

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

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], x: Value) -> Value:
        dy, dvalue = dys
        if 0 in x.type.shape:
            return zeros(b, x.type.shape, x.type.dtype)
        total = None if dvalue is None else b(Mul(), by_matrices(b, dvalue, x), cofactors(b, x))
        if dy is not None:
            factors, pivots, _ = b.add(Lu(), [x]).results
            below, above = unpacked(b, factors)
            none = zeros(b, x.type.shape, x.type.dtype)
            moved = factors_pulled(b, below, above, none, dy)
            dx = with_rows(b, moved, b(Swaps(x.type.shape[-1], True), pivots))
            total = dx if total is None else b(Add(), total, dx)
        assert total is not None, "some result has a gradient"
        return total

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


def cofactors(b: Graph, x: Value) -> Value:
    """Return the derivatives of the determinants of x by its elements.

    They are the determinants times the transposed inverses, to which matrices that have none, or
    hardly one, are brought near: so they are right where the determinant is 0, too.  Matrices are
    factored in f64, so that what that changes is lost in f32.
    """
    wide, n = as_type(b, x, "f64"), x.type.shape[-1]
    factors, pivots, _ = b.add(Lu(), [wide]).results
    below, above = unpacked(b, factors)
    least = b(Mul(), largest(b, wide), filled(b, NEAR, wide))
    eye, small = unit(b, above), b(Less(), b(Abs(), above), least)
    none = filled(b, 0, above)
    away = b(Where(), b(Less(), above, none), b(Neg(), least), least)
    above = b(Add(), above, b(Mul(), eye, b(Where(), small, away, none)))
    steps = b(Range(n, 1, 1, "i32"))
    stays = b(Equal(), pivots, stretch(b, steps, pivots.type.shape))
    pivot = diagonal(b, above)
    signed = b(Where(), stays, pivot, b(Neg(), pivot))
    value = b(ReduceProd((signed.type.rank - 1,), False), signed)
    scaled = b(Mul(), by_matrices(b, value, wide), eye)
    inverse = b(SolveTriangular(False), turned(b, above), scaled)
    inverse = b(SolveTriangular(True, True), turned(b, below), inverse)
    return as_type(b, with_rows(b, inverse, b(Swaps(n, True), pivots)), x.type.dtype)


def largest(b: Graph, x: Value) -> Value:
    """Return the largest size of an element of each matrix in its shape, 1 where all are 0."""
    rank = x.type.rank
    size = b(ReduceMax((rank - 2, rank - 1)), b(Abs(), x))
    none = b(Equal(), size, filled(b, 0, size))
    return stretch(b, b(Where(), none, filled(b, 1, size), size), x.type.shape)


def by_matrices(b: Graph, s: Value, like: Value) -> Value:
    """Return s[…] as matrices […, n, n]."""
    return stretch(b, append_axes(b, s, 2), like.type.shape)


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
