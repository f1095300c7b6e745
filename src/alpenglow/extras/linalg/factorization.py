"""Factorizations of matrices, as LAPACK has them: by way of NumPy, with its signs and its order.

There is no kernel for them: a machine runs the reference.  The signs of singular vectors
and eigenvectors, which are arbitrary, come from NumPy's LAPACK in the precision of the operand.
Another library, as MKL in PyTorch, may return others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg as lapack

from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.extras.linalg.matrices import (
    block,
    by_columns,
    by_rows,
    folded,
    halved,
    least,
    lower,
    matrices,
    on_diagonal,
    squares,
    unit,
    with_rows,
)
from alpenglow.extras.linalg.solving import Lu, SolveTriangular, Swaps
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Op, Primitive
from alpenglow.ir.types import COMPLEX, PARTS, Array, TensorType
from alpenglow.ops.elementwise.algebra import (
    adjoint,
    as_elements,
    minus,
    over,
    plus,
    product,
    real_part,
    times,
)
from alpenglow.ops.elementwise.arithmetic import Mul, Sub

SINGLE = {np.dtype(np.float32): "f->fff", np.dtype(np.complex64): "F->FfF"}
"""Element types whose singular values LAPACK finds in single precision, and its signature."""


Grads = tuple[Value | None, ...]


class Svd(Primitive):
    """Matrices x[…, m, n] as u times the singular values s times vh, s falling.

    u and vh are square if `full`, otherwise they have min(m, n) columns and rows.  NumPy
    linalg.svd.
    """

    full: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        *outer, m, n = matrices(self, x)
        k = least(x)
        rows, columns = (m, n) if self.full else (k, k)
        u, vh = x.with_shape((*outer, m, rows)), x.with_shape((*outer, columns, n))
        return u, TensorType(PARTS.get(x.dtype, x.dtype), (*outer, k)), vh

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        if x.dtype in SINGLE:
            u, s, vh = in_single(self, lapack.svd_f if self.full else lapack.svd_s, x,
                                 SINGLE[x.dtype])  # fmt: skip
        else:
            u, s, vh = converged(self, np.linalg.svd, x, self.full)
        return u, s, vh

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value:
        """Townsend, "Differentiating the Singular Value Decomposition", 2016."""
        du, ds, dvh = dys
        m, n = x.type.shape[-2:]
        k = least(x.type)
        if self.full and ((du is not None and m != k) or (dvh is not None and n != k)):
            raise UnsupportedError(
                "gradient of svd: vectors beyond the singular values, which are arbitrary, are not "
                "supported; supported: reduced factors"
            )
        refuse_phases(self, x, du, dvh)
        u, s, vh = b.add(Svd(), [x]).results
        total = None
        if ds is not None:
            total = product(b, times(b, u, by_columns(b, ds, u.type.shape)), vh)
        if du is not None:
            total = added(b, total, of_vectors(b, u, s, vh, du))
        if dvh is not None:
            turned = of_vectors(b, adjoint(b, vh), s, adjoint(b, u), adjoint(b, dvh))
            total = added(b, total, adjoint(b, turned))
        assert total is not None, "some result has a gradient"
        return total

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,3]"
        yield cls(True), "f32[5,3]"
        yield cls(True), "f64[3,5]"
        yield cls(), "f32[0,3]"
        yield cls(), "c64[3,3]"


class Eigh(Primitive):
    """The eigenvalues of symmetric (or Hermitian) x[…, n, n], rising, and vectors, in columns.

    Only the triangle below the diagonal is read, or that above it if `upper`.  NumPy linalg.eigh.
    """

    upper: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        *outer, n, _ = squares(self, x)
        return TensorType(PARTS.get(x.dtype, x.dtype), (*outer, n)), x

    def reference(self, x: Array) -> tuple[Array, Array]:
        values, vectors = converged(self, np.linalg.eigh, x, "U" if self.upper else "L")
        return values, vectors

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value:
        dvalues, dvectors = dys
        refuse_phases(self, x, dvectors)
        values, vectors = b.add(self, [x]).results
        inner = None if dvalues is None else on_diagonal(b, dvalues)
        if dvectors is not None:
            turning = product(b, adjoint(b, vectors), dvectors)
            turning = halved(b, minus(b, turning, adjoint(b, turning)))
            inner = added(b, inner, over(b, turning, apart(b, values)))
        assert inner is not None, "some result has a gradient"
        inner = as_elements(b, inner, x.type.dtype)
        return product(b, product(b, vectors, inner), adjoint(b, vectors))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,4,4]"
        yield cls(True), "f64[3,3]"
        yield cls(), "f32[0,0]"
        yield cls(), "c64[3,3]"


class Eig(Primitive):
    """The eigenvalues of x[…, n, n], complex, and their vectors, in columns.  NumPy linalg.eig."""

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        *outer, n, _ = squares(self, x)
        whole = {"f32": "c64", "f64": "c128"}.get(x.dtype, x.dtype)
        return TensorType(whole, (*outer, n)), x.with_dtype(whole)

    def reference(self, x: Array) -> tuple[Array, Array]:
        if x.dtype == np.float32:
            values, vectors = in_single(self, lapack.eig, x, "f->FF")
            return values, vectors
        values, vectors = converged(self, np.linalg.eig, x)
        whole = np.result_type(x.dtype, np.complex64)
        return values.astype(whole), vectors.astype(whole)

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value:
        dvalues, dvectors = dys
        if dvectors is not None:
            raise UnsupportedError(
                "gradient of eig: eigenvectors, whose phase is arbitrary, are not supported; "
                "supported: eigenvalues"
            )
        assert dvalues is not None, "some result has a gradient"
        _, vectors = b.add(self, [x]).results
        turned = adjoint(b, vectors)
        rows = times(b, turned, by_rows(b, dvalues, turned.type.shape))
        factors, pivots, _ = b.add(Lu(), [turned]).results
        y = with_rows(b, rows, b(Swaps(x.type.shape[-1]), pivots))
        y = b(SolveTriangular(False, True), factors, y)
        y = b(SolveTriangular(True), factors, y)
        return y if x.type.dtype in COMPLEX else real_part(b, y)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,4,4]"
        yield cls(), "f64[3,3]"
        yield cls(), "f32[0,0]"
        yield cls(), "c64[3,3]"


class Cholesky(Primitive):
    """Lower triangular y, y times its transpose x[…, n, n], and i32 that say where there is none.

    That is 0, or the number of the first leading minor that is not positive; y holds NaN then.
    With `upper` y is upper triangular, and its transpose times y is x.  Only the triangle of x at
    the same place is read.
    """

    upper: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        *outer, _, _ = squares(self, x)
        return x, TensorType("i32", tuple(outer))

    def reference(self, x: Array) -> tuple[Array, Array]:
        out, minors = np.empty_like(x), np.zeros(x.shape[:-2], np.int32)
        for at in np.ndindex(*x.shape[:-2]):
            minors[at] = first_minor(x[at], self.upper)
            out[at] = np.nan if minors[at] else np.linalg.cholesky(x[at], upper=self.upper)
        return out, minors

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value | None:
        """Murray, "Differentiation of the Cholesky decomposition", 2016."""
        dy, _ = dys
        if dy is None:
            return None
        y, _ = b.add(self, [x]).results
        root, droot = (adjoint(b, v) if self.upper else v for v in (y, dy))
        up = adjoint(b, root)
        inner = halved(b, folded(b, lower(b, product(b, up, lower(b, droot)))))
        left = b(SolveTriangular(True), up, inner)
        return adjoint(b, b(SolveTriangular(True), up, adjoint(b, left)))

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        a = random.normal(0, 1, (2, 4, 4))
        positive = a @ np.swapaxes(a, -1, -2) + np.eye(4)
        yield cls(), positive.astype(np.float32)
        yield cls(True), positive
        yield cls(), np.array([[1, 2], [2, 1]], np.float32)
        yield cls(), (positive[0] + 1j * (a[0] - a[0].T)).astype(np.complex64)
        yield cls(), "f32[0,0]"


# ── gradients ──


def of_vectors(b: Graph, u: Value, s: Value, vh: Value, du: Value) -> Value:
    """Return the gradient of u s vh that comes by the columns of u."""
    m, k = u.type.shape[-2:]
    du = block(b, du, (0, m), (0, k))
    turning = product(b, adjoint(b, u), du)
    squared = b(Mul(), s, s)
    turning = over(b, minus(b, turning, adjoint(b, turning)), apart(b, squared))
    columns = by_columns(b, s, turning.type.shape)
    left = product(b, u, times(b, turning, columns))
    if m != k:
        outside = minus(b, du, product(b, u, product(b, adjoint(b, u), du)))
        left = plus(b, left, over(b, outside, by_columns(b, s, outside.type.shape)))
    return product(b, left, vh)


def apart(b: Graph, values: Value) -> Value:
    """Return how far each of values […, n] is from another, in matrices; 1 on the diagonal."""
    shape = (*values.type.shape, values.type.shape[-1])
    apart = b(Sub(), by_columns(b, values, shape), by_rows(b, values, shape))
    return plus(b, apart, unit(b, apart))


def refuse_phases(op: Op, x: Value, *vectors: Value | None) -> None:
    """Raise UnsupportedError if vectors of complex matrices, of any phase, have gradients."""
    if x.type.dtype in COMPLEX and any(v is not None for v in vectors):
        raise UnsupportedError(
            f"gradient of {op.name}: complex vectors, whose phase is arbitrary, are not supported; "
            "supported: values, or real matrices"
        )


def added(b: Graph, x: Value | None, y: Value) -> Value:
    return y if x is None else plus(b, x, y)


# ── LAPACK ──


def first_minor(a: Array, upper: bool) -> int:
    """Return the order of the first leading minor that is not positive; 0 if all are."""
    if is_positive(a, upper):
        return 0
    return next(n for n in range(1, len(a) + 1) if not is_positive(a[:n, :n], upper))


def is_positive(a: Array, upper: bool) -> bool:
    """Whether one matrix, or what a triangle says of it, is positive definite."""
    try:
        np.linalg.cholesky(a, upper=upper)
    except np.linalg.LinAlgError:
        return False
    return True


def in_single(op: Op, driver: Callable[..., Any], x: Array, signature: str) -> Any:
    """Return the factors of LAPACK in single precision; raise FeedError if it does not converge.

    The functions of numpy.linalg work in double precision, whose vectors have other signs.
    """
    with np.errstate(all="ignore"):
        made = driver(x, signature=signature)
    if any(np.isnan(part).any() for part in made):
        raise FeedError(f"{op.name}: LAPACK does not converge, expected finite elements")
    return made


def converged(op: Op, driver: Callable[..., Any], *operands: Any) -> Any:
    """Return the factors of LAPACK; raise FeedError if it does not converge."""
    try:
        return driver(*operands)
    except np.linalg.LinAlgError as error:
        raise FeedError(f"{op.name}: {error}, expected finite elements") from error
