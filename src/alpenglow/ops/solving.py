"""Systems of linear equations: LU, triangles, and functions of matrices made of such.

There is no kernel for them: a machine runs the reference.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.op import Examples, Primitive, check_dtype
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.factorization import least, matrices, squares


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
            raise TypeRuleError(f"swaps: pivots are {pivots}, expected at most {self.count}")
        if known(self.count) and self.count < 0:
            raise TypeRuleError(f"swaps: there are {self.count} rows")
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

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        a = (random.normal(0, 1, (2, 4, 4)) + 3 * np.eye(4)).astype(np.float32)
        for upper in (False, True):
            for unit in (False, True):
                yield cls(upper, unit), a, "f32[2,4,3]"
        yield cls(), a[0].astype(np.float64), "f64[4,1]"
        yield cls(), "f32[2,0,0]", "f32[2,0,3]"
        yield cls(), a[1] + 1j * a[0], np.ones((4, 2), np.complex64)


class MatrixExp(Primitive):
    """e raised to x[…, n, n]: the sum of the powers of x, each divided by its factorial.

    Computed in f64, by powers of x halved until it is small, and squared as often.
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

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,3,3]"
        yield cls(), "f64[4,4]"
        yield cls(), "f32[0,0]"
        yield cls(), "c64[2,2]"


TERMS = 18
"""So many terms of the series are exact to f64 for a matrix of norm 1/2."""


def exponential(a: Array) -> Array:
    """Return e raised to one matrix."""
    norm = float(np.abs(a).sum(axis=0).max(initial=0))
    if not np.isfinite(norm):
        return np.full_like(a, np.nan)
    halvings = max(int(np.ceil(np.log2(norm))) + 1, 0) if norm > 0 else 0
    small = a / 2.0**halvings
    out = power = np.eye(len(a), dtype=a.dtype)
    for i in range(1, TERMS + 1):
        power = power @ small / i
        out = out + power
    for _ in range(halvings):
        out = out @ out
    return out
