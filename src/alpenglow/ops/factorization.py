"""Factorizations of matrices, as LAPACK has them: by way of NumPy, with its signs and its order.

There is no kernel for them: a machine runs the reference.  Where signs are open, as of singular
vectors, they are those of NumPy's LAPACK in the precision of the operand.  Another library, as MKL
in PyTorch, may return others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg as lapack

from alpenglow.base.errors import FeedError, TypeRuleError
from alpenglow.ir.dims import Dim, smaller
from alpenglow.ir.op import Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import COMPLEX, PARTS, Array, TensorType
from alpenglow.ops.linalg import check_square

SINGLE = {np.dtype(np.float32): "f->fff", np.dtype(np.complex64): "F->FfF"}
"""Element types whose singular values LAPACK finds in single precision, and its signature."""

ELEMENTS = frozenset({"f32", "f64"}) | COMPLEX


class Qr(Primitive):
    """Matrices x[…, m, n] as orthogonal q times upper triangular r.

    q has min(m, n) columns, or m if `complete`.  NumPy linalg.qr.
    """

    complete: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        *outer, m, n = matrices(self, x)
        k = m if self.complete else least(x)
        return x.with_shape((*outer, m, k)), x.with_shape((*outer, k, n))

    def reference(self, x: Array) -> tuple[Array, Array]:
        q, r = np.linalg.qr(x, "complete" if self.complete else "reduced")
        return q, r

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,3]"
        yield cls(True), "f32[5,3]"
        yield cls(True), "f64[3,5]"
        yield cls(), "f32[0,3]"
        yield cls(), "c64[3,3]"


class Reflect(Primitive):
    """The reflections of Householder that make x[…, m, n] upper triangular, and their scales tau.

    The triangle stands in the place of x, and under it the vectors of the reflections, whose first
    element, 1, is left out.  LAPACK geqrf.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        *outer, _, _ = matrices(self, x)
        return x, x.with_shape((*outer, least(x)))

    def reference(self, x: Array) -> tuple[Array, Array]:
        if not x.size:
            return x, np.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
        h, tau = np.linalg.qr(x, "raw")
        return np.ascontiguousarray(np.swapaxes(h, -1, -2)), tau

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,3]"
        yield cls(), "f64[3,5]"
        yield cls(), "f32[0,3]"


class Reflected(Primitive):
    """The orthogonal matrix of reflections, as `Reflect` leaves them in x[…, m, n], m >= n.

    It has n columns, or m if `complete`.  LAPACK orgqr.
    """

    complete: bool = False

    def infer(self, x: TensorType, tau: TensorType) -> TensorType:
        *outer, m, n = matrices(self, x)
        if tau.dtype != x.dtype or tau.shape[:-1] != tuple(outer):
            raise TypeRuleError(f"reflected: tau is {tau}, expected scales for {x}")
        return x.with_shape((*outer, m, m if self.complete else n))

    def reference(self, x: Array, tau: Array) -> Array:
        m, n = x.shape[-2:]
        columns = m if self.complete else n
        unit = np.eye(m, columns, dtype=x.dtype)
        out = np.broadcast_to(unit, (*x.shape[:-2], m, columns)).copy()
        for i in reversed(range(tau.shape[-1])):
            v = x[..., :, i].copy()
            v[..., :i], v[..., i] = 0, 1
            along = np.einsum("...m,...mk->...k", v.conj(), out)
            out -= tau[..., i, None, None] * v[..., :, None] * along[..., None, :]
        return out

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,3]", "f32[2,3]"
        yield cls(True), "f64[5,3]", "f64[2]"
        yield cls(), "c64[3,3]", "c64[3]"
        yield cls(), "f32[0,0]", "f32[0]"


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


def matrices(op: Op, x: TensorType) -> tuple[Any, ...]:
    """Return the shape of x; raise TypeRuleError unless it holds matrices of numbers."""
    check_dtype(op, "x", x, ELEMENTS)
    check_rank(op, "x", x, 2)
    return x.shape


def squares(op: Op, x: TensorType) -> tuple[Any, ...]:
    """Return the shape of x; raise TypeRuleError unless it holds square matrices of numbers."""
    check_square(op, x)
    return matrices(op, x)


def least(x: TensorType) -> Dim:
    """Return the smaller extent of matrices."""
    return smaller(x.shape[-2], x.shape[-1])


def in_single(op: Op, driver: Callable[..., Any], x: Array, signature: str) -> Any:
    """Return what LAPACK makes in single precision; raise FeedError if it does not converge.

    The functions of numpy.linalg work in double precision, whose vectors have other signs.
    """
    with np.errstate(all="ignore"):
        made = driver(x, signature=signature)
    if any(np.isnan(part).any() for part in made):
        raise FeedError(f"{op.name}: no vectors were found: are there NaN or infinities?")
    return made


def converged(op: Op, driver: Callable[..., Any], *operands: Any) -> Any:
    """Return what LAPACK makes; raise FeedError if it does not converge."""
    try:
        return driver(*operands)
    except np.linalg.LinAlgError as error:
        raise FeedError(f"{op.name}: {error}") from error
