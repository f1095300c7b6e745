"""Systems of linear equations: LU, triangles, and functions of matrices made of such.

There is no kernel for them: a machine runs the reference.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.extras.linalg.matrices import (
    block,
    least,
    lower,
    matrices,
    squares,
    unit,
    upper,
    with_rows,
    zeros,
)
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.algebra import adjoint, minus, negative, plus, product
from alpenglow.ops.tensor.movement import Concat


class Lu(Primitive):
    """Matrices x[…, m, n] by Gauss: l below the diagonal, u on and above it, and their pivots.

    l has ones on its diagonal.  Before step i row i changes places with row pivots[i], an i32
    counted from 1: that of the largest element, the first of several.  The last result is 0, or
    the number of the first step without an element but zero.  LAPACK getrf.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        *outer, _, _ = matrices(self, x)
        return x, TensorType("i32", (*outer, least(x))), TensorType("i32", tuple(outer))

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        out = x.copy()
        outer = x.shape[:-2]
        pivots = np.zeros((*outer, min(x.shape[-2:])), np.int32)
        singular = np.zeros(outer, np.int32)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*outer):
                singular[at] = factored(out[at], pivots[at])
        return out, pivots, singular

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], x: Value) -> Value | None:
        dy, (factors, pivots, _) = dys[0], b.add(self, [x]).results
        if dy is None:
            return None
        below, above = unpacked(b, factors)
        m, n = x.type.shape[-2:]
        k = least(x.type)
        d_below, d_above = block(b, dy, (0, m), (0, k)), block(b, dy, (0, k), (0, n))
        moved = factors_pulled(b, below, above, d_below, d_above)
        return with_rows(b, moved, b(Swaps(m, True), pivots))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,4,4]"
        yield cls(), "f64[3,5]"
        yield cls(), "f32[5,3]"
        yield cls(), "c64[3,3]"
        yield cls(), "f32[2,0,0]"
        yield cls(), np.array([[[0, 2], [0, 4]], [[0, 2], [5, 0]]], np.float32)


def factored(a: Array, pivots: Array) -> int:
    """Factor one matrix in place; return the first step without a pivot, 0 if there is none."""
    singular = 0
    for i in range(len(pivots)):
        # LAPACK measures complex numbers by |re| + |im|.
        size = np.abs(a[i:, i].real) + np.abs(a[i:, i].imag)
        p = i + int(np.argmax(size))
        pivots[i] = p + 1
        if a[p, i] == 0:
            singular = singular or i + 1
            continue
        a[[i, p]] = a[[p, i]]
        a[i + 1 :, i] /= a[i, i]
        a[i + 1 :, i + 1 :] -= a[i + 1 :, i, None] * a[i, i + 1 :]
    return singular


def unpacked(b: Graph, factors: Value) -> tuple[Value, Value]:
    """Return the triangles that `Lu` leaves in one matrix, the lower with ones on its diagonal."""
    m, n = factors.type.shape[-2:]
    k = least(factors.type)
    below = lower(b, block(b, factors, (0, m), (0, k)), -1)
    return plus(b, below, unit(b, below)), upper(b, block(b, factors, (0, k), (0, n)))


def factors_pulled(b: Graph, low: Value, up: Value, d_low: Value, d_up: Value) -> Value:
    """Return the gradient of a product of triangles from the gradients of the lower one,
    with ones on its diagonal, and the upper one.

    Only what is in these triangles counts.  Walter and Lehmann, "Algorithmic
    Differentiation of Linear Algebra Functions", 2010.
    """
    (m, k), n = low.type.shape[-2:], up.type.shape[-1]
    square, d_low, d_up = (0, k), lower(b, d_low, -1), upper(b, d_up)
    first, d_first = block(b, up, square, square), block(b, d_up, square, square)
    top, d_top = block(b, low, square, square), block(b, d_low, square, square)
    beside = under = None
    if m != k:
        under = divided(b, block(b, d_low, (k, m), square), first)
        explained = product(b, adjoint(b, block(b, low, (k, m), square)), under)
        d_first = minus(b, d_first, explained)
    if n != k:
        beside = b(SolveTriangular(True, True), adjoint(b, top), block(b, d_up, square, (k, n)))
        explained = product(b, beside, adjoint(b, block(b, up, square, (k, n))))
        d_top = minus(b, d_top, explained)
    inner = plus(b, lower(b, product(b, adjoint(b, top), d_top), -1),
                 upper(b, product(b, d_first, adjoint(b, first))))  # fmt: skip
    corner = divided(b, b(SolveTriangular(True, True), adjoint(b, top), inner), first)
    if under is not None:
        return b(Concat(-2), corner, under)
    return corner if beside is None else b(Concat(-1), corner, beside)


def divided(b: Graph, x: Value, u: Value) -> Value:
    """Return x times the inverse of the adjoint of upper triangular u."""
    return adjoint(b, b(SolveTriangular(True), u, adjoint(b, x)))


class Swaps(Primitive):
    """The permutation of `count` rows, i64, that swapping each row i with row pivots[i] makes.

    Row i of what is permuted was the row of this number; with `inverse` it says where row i goes.
    A pivot, counted from 1, that is out of range is clamped.
    """

    count: Dim
    inverse: bool = False

    def infer(self, pivots: TensorType) -> TensorType:
        check_dtype(self, "pivots", pivots, {"i32", "i64"})
        steps = pivots.shape[-1] if pivots.rank else None
        if steps is None or (known(steps) and known(self.count) and steps > self.count):
            raise TypeRuleError(f"swaps: pivots is {pivots}, expected […, at most {self.count}]")
        if known(self.count) and self.count < 0:
            raise TypeRuleError(f"swaps: count is {self.count}, expected at least 0")
        return TensorType("i64", (*pivots.shape[:-1], self.count))

    def reference(self, pivots: Array) -> Array:
        assert known(self.count), "extents are known where something runs"
        rows = np.arange(self.count)
        out = np.broadcast_to(rows, (*pivots.shape[:-1], self.count)).copy()
        for at in np.ndindex(*pivots.shape[:-1]):
            for i, p in enumerate(np.clip(pivots[at] - 1, 0, self.count - 1)):
                out[at][[i, p]] = out[at][[p, i]]
        return np.argsort(out, axis=-1) if self.inverse else out

    @classmethod
    def examples(cls) -> Examples:
        yield cls(3), np.array([[3, 3, 3], [1, 2, 3]], np.int32)
        yield cls(4), np.array([2, 9], np.int64)
        yield cls(3, True), np.array([2, 3, 3], np.int32)
        yield cls(0), "i32[2,0]"


class SolveTriangular(Primitive):
    """y of a y = b, for lower triangular a[…, n, n] and b[…, n, k], or upper ones if `upper`.

    The other triangle of a is not read, nor, if it is `unit`, the diagonal, which is 1 then.
    """

    upper: bool = False
    unit: bool = False

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        *outer, n, _ = squares(self, a)
        matrices(self, b)
        if b.dtype != a.dtype or b.shape[:-1] != (*outer, n):
            raise TypeRuleError(f"solve_triangular: a is {a} and b is {b}, expected […, n, k]")
        return b

    def reference(self, a: Array, b: Array) -> Array:
        y = b.copy()
        n = a.shape[-1]
        with np.errstate(all="ignore"):
            for i in reversed(range(n)) if self.upper else range(n):
                if not self.unit:
                    y[..., i, :] /= a[..., i, i, None]
                rest = slice(0, i) if self.upper else slice(i + 1, n)
                y[..., rest, :] -= a[..., rest, i, None] * y[..., i, None, :]
        return y

    def gradient(self, b: Graph, dy: Value, a: Value, x: Value) -> tuple[Value, Value]:
        dx = b(SolveTriangular(not self.upper, self.unit), adjoint(b, a), dy)
        da = negative(b, product(b, dx, adjoint(b, b(self, a, x))))
        k = int(self.unit)
        return upper(b, da, k) if self.upper else lower(b, da, -k), dx

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        a = (random.normal(0, 1, (2, 4, 4)) + 3 * np.eye(4)).astype(np.float32)
        for flags in ((False, False), (False, True), (True, False), (True, True)):
            yield cls(*flags), a, "f32[2,4,3]"
        yield cls(), a[0].astype(np.float64), "f64[4,1]"
        yield cls(), "f32[2,0,0]", "f32[2,0,3]"
        yield cls(), a[1] + 1j * a[0], np.ones((4, 2), np.complex64)


class MatrixExp(Primitive):
    """e raised to x[…, n, n]: the sum of the powers of x, each divided by its factorial.

    Computed in f64, by powers of x halved until its norm is at most 1, and squared as often.
    """

    def infer(self, x: TensorType) -> TensorType:
        squares(self, x)
        return x

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.result_type(x.dtype, np.float64))
        out = np.empty_like(wide)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*x.shape[:-2]):
                out[at] = exponential(wide[at])
        return out.astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Najfeld and Havel, "Derivatives of the Matrix Exponential", 1995: it stands in a corner
        of e raised to a matrix of four such blocks."""
        n = x.type.shape[-1]
        turned = adjoint(b, x)
        rows = [
            b(Concat(-1), turned, dy),
            b(Concat(-1), zeros(b, x.type.shape, x.type.dtype), turned),
        ]
        whole = b(self, b(Concat(-2), *rows))
        return block(b, whole, (0, n), (n, n * 2))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,3,3]"
        yield cls(), "f64[4,4]"
        yield cls(), "f32[0,0]"
        yield cls(), np.diag([-1.7e308, 1.0])
        yield cls(), "c64[2,2]"


TERMS = 18
"""So many terms of the series are exact to f64 for a matrix of norm 1."""


def exponential(a: Array) -> Array:
    """Return e raised to one matrix."""
    norm = float(np.abs(a).sum(axis=0).max(initial=0))
    if not np.isfinite(norm):
        return np.full_like(a, np.nan)
    halvings = max(int(np.ceil(np.log2(norm))), 0) if norm > 0 else 0
    small = a * 2.0**-halvings
    out = power = np.eye(len(a), dtype=a.dtype)
    for i in range(1, TERMS + 1):
        power = power @ small / i
        out = out + power
    for _ in range(halvings):
        out = out @ out
    return out
