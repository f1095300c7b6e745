"""Orthogonal and triangular factors of matrices, and the reflections that they are made of.

There is no kernel for them: a machine runs the reference, which is NumPy's LAPACK.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.extras.linalg.matrices import (
    block,
    by_rows,
    folded,
    least,
    lower,
    matrices,
    on_diagonal,
    padded,
    unit,
    upper,
    zeros,
)
from alpenglow.extras.linalg.solving import SolveTriangular, divided, factors_pulled
from alpenglow.ir.dims import known, smaller
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive
from alpenglow.ir.types import COMPLEX, Array, TensorType
from alpenglow.ops.elementwise.algebra import (
    adjoint,
    as_elements,
    conjugate,
    minus,
    negative,
    plus,
    product,
    times,
)
from alpenglow.ops.tensor.movement import Concat, Reshape, stretch

Grads = tuple[Value | None, ...]


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

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value:
        m = x.type.shape[-2]
        dq, dr = dys
        if not self.complete or least(x.type) == m:
            q, r = b.add(self, [x]).results
            return qr_pulled(b, q, r, or_zeros(b, dq, q), or_zeros(b, dr, r))
        # What the reflections are decides of the columns that r does not need.
        h, tau = b.add(Reflect(), [x]).results
        dh, dtau = or_zeros(b, None if dr is None else upper(b, dr), h), None
        if dq is not None:
            by_h, dtau = Reflected(True).gradient(b, dq, h, tau)
            dh = plus(b, dh, by_h)
        return Reflect().gradient(b, (dh, dtau), x)

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

    def gradient(self, b: Graph, dys: Grads, x: Value) -> Value:
        """By way of q: unit - q is a product of triangles, of which the vectors are the lower one,
        and the upper one has the scales on its diagonal.

        Ballard et al., "Reconstructing Householder Vectors from Tall-Skinny QR", 2014.
        """
        h, tau = b.add(self, [x]).results
        dh, dtau = or_zeros(b, dys[0], h), or_zeros(b, dys[1], tau)
        (m, n), k = x.type.shape[-2:], least(x.type)
        q, r = b(Reflected(), block(b, h, (0, m), (0, k)), tau), block(b, h, (0, k), (0, n))
        dq, dr = zeros(b, q.type.shape, q.type.dtype), block(b, dh, (0, k), (0, n))
        k = smaller(m - 1, n) if x.type.dtype not in COMPLEX and m != 0 else k
        if k != 0:  # the last row of reals is left as it is
            below = unpacked_vectors(b, block(b, h, (0, m), (0, k)))
            rest = minus(b, as_elements(b, unit(b, q), q.type.dtype), q)
            top = block(b, below, (0, k), (0, k))
            above = b(SolveTriangular(False, True), top, block(b, rest, (0, k), (0, k)))
            d_below = block(b, dh, (0, m), (0, k))
            d_above = block(b, on_diagonal(b, dtau), (0, k), (0, k))
            drest = factors_pulled(b, below, above, d_below, d_above)
            dq = negative(b, padded(b, drest, m, q.type.shape[-1]))
        return qr_pulled(b, q, upper(b, r), dq, dr)

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
            raise TypeRuleError(f"reflected: tau is {tau}, expected […, k] with the batch of {x}")
        if all(map(known, (m, n, tau.shape[-1]))) and not m >= n >= tau.shape[-1]:
            raise TypeRuleError(f"reflected: tau is {tau} and x is {x}, expected […, k] and "
                                "[…, m, n] with k at most n, and n at most m")  # fmt: skip
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

    def gradient(self, b: Graph, dy: Value, x: Value, tau: Value) -> tuple[Value, Value]:
        """By way of all reflections at once: unit - v y, where y solves (unit + d n) y = d w.

        d has the scales on its diagonal, n is the upper triangle of the products of the vectors v
        with each other, and w the beginning of the adjoint of v.  Schreiber and Van Loan, "A
        Storage-Efficient WY Representation for Products of Householder Transformations", 1989.
        """
        m, n = x.type.shape[-2:]
        t, columns = tau.type.shape[-1], dy.type.shape[-1]
        v = unpacked_vectors(b, block(b, x, (0, m), (0, t)))
        w = adjoint(b, block(b, v, (0, columns), (0, t)))
        among = upper(b, product(b, adjoint(b, v), v), 1)
        scale, scales = by_rows(b, tau, among.type.shape), by_rows(b, tau, w.type.shape)
        scaled = times(b, scale, among)
        y = b(SolveTriangular(True, True), scaled, times(b, scales, w))
        dv = negative(b, product(b, dy, adjoint(b, y)))
        down = b(SolveTriangular(False, True), adjoint(b, scaled), product(b, adjoint(b, v), dy))
        d_scaled = upper(b, product(b, down, adjoint(b, y)), 1)
        dtau = minus(b, along_rows(b, times(b, d_scaled, conjugate(b, among))),
                     along_rows(b, times(b, down, conjugate(b, w))))  # fmt: skip
        d_among = times(b, d_scaled, conjugate(b, scale))
        dw = times(b, down, conjugate(b, scales))
        dv = plus(b, dv, product(b, v, plus(b, d_among, adjoint(b, d_among))))
        dv = minus(b, dv, padded(b, adjoint(b, dw), m, t))
        return padded(b, lower(b, dv, -1), m, n), dtau

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,3]", "f32[2,3]"
        yield cls(True), "f64[5,3]", "f64[2]"
        yield cls(), "c64[3,3]", "c64[3]"
        yield cls(), "f32[0,0]", "f32[0]"


# ── gradients ──


def qr_pulled(b: Graph, q: Value, r: Value, dq: Value, dr: Value) -> Value:
    """Return the gradient of q r from the gradients of its factors: q with orthonormal columns, and
    r upper triangular.

    With more columns than rows, columns beyond the first square are q times columns of r.
    Walter and Lehmann, "Algorithmic Differentiation of Linear Algebra Functions", 2010.
    """
    k, n = r.type.shape[-2:]
    square, rest = (0, k), (k, n)
    beside = None
    if k != n:
        drest = block(b, dr, square, rest)
        beside = product(b, q, drest)
        x = product(b, q, block(b, r, square, rest))
        dq = plus(b, dq, product(b, x, adjoint(b, drest)))
        r, dr = block(b, r, square, square), block(b, dr, square, square)
    inner = minus(b, product(b, upper(b, dr), adjoint(b, r)), product(b, adjoint(b, q), dq))
    first = divided(b, plus(b, dq, product(b, q, folded(b, upper(b, inner)))), r)
    return first if beside is None else b(Concat(-1), first, beside)


def unpacked_vectors(b: Graph, x: Value) -> Value:
    """Return the vectors of reflections, as `Reflect` leaves them, with their first elements."""
    below = lower(b, x, -1)
    return plus(b, below, unit(b, below))


def along_rows(b: Graph, x: Value) -> Value:
    """Return the sums of the rows of matrices."""
    *outer, rows, columns = x.type.shape
    ones = b.constant(np.ones((), x.type.numpy))
    sums = product(b, x, stretch(b, ones, (*outer, columns, 1)))
    return b(Reshape((*outer, rows)), sums)


def or_zeros(b: Graph, dy: Value | None, like: Value) -> Value:
    """Return a gradient, zeros where there is none."""
    return zeros(b, like.type.shape, like.type.dtype) if dy is None else dy
