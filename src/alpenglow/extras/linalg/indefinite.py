"""Symmetric matrices that need not be positive: their factors, and systems of equations of these.

There is no kernel for them: a machine runs the reference.

Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear
systems", 1977, as LAPACK has it (sytf2, sytrs).
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.extras.linalg.matrices import halved, matrices, squares
from alpenglow.extras.linalg.symmetric_factors import (
    factors_of_symmetric,
    packed_gradient,
    unpacked,
)
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype
from alpenglow.ir.types import COMPLEX, Array, TensorType
from alpenglow.ops.elementwise.algebra import conjugate, negative, plus, product
from alpenglow.ops.product.contraction import turned

GROWTH = (1 + math.sqrt(17)) / 8
"""How much smaller than its column an element may be, and still be the pivot."""


class Ldl(Primitive):
    """Symmetric x[…, n, n] as l d lᵀ, of which the lower triangle is read, and i32 pivots.

    d, on the diagonal, has blocks of one or two rows, l ones above its own elements.  A positive
    pivot p of row i says that rows i and p changed places, counted from 1; two equal negative ones
    stand for a block, whose second row changed places with row -p.  The last result is 0, or the
    number of the first block that is zero.  The upper triangle is zero.  LAPACK sytrf.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        *outer, n, _ = squares(self, x)
        return x, TensorType("i32", (*outer, n)), TensorType("i32", tuple(outer))

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        out = np.tril(x)
        pivots = np.zeros(x.shape[:-1], np.int32)
        singular = np.zeros(x.shape[:-2], np.int32)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*x.shape[:-2]):
                singular[at] = factored(out[at], pivots[at])
        return out, pivots, singular

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], x: Value) -> Value | None:
        dy = dys[0]
        if dy is None or 0 in x.type.shape:
            return None
        if x.type.dtype in COMPLEX:
            raise UnsupportedError("gradient of ldl: complex is not supported; supported: f32, f64")
        factors, pivots, _ = b.add(self, [x]).results
        return factors_of_symmetric(b, unpacked(b, factors, pivots), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,5,5]"
        yield cls(), np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], np.float64)
        yield cls(), "f32[2,0,0]"
        yield cls(), np.zeros((2, 2), np.float32)


def factored(a: Array, pivots: Array) -> int:
    """Factor one matrix in place; return the first step without a pivot, 0 if there is none."""
    singular = k = 0
    while k < len(a):
        kp, size = pivot_of(a, k)
        if size == 0:
            singular, kp, size = singular or k + 1, k, 1
        else:
            swap(a, k, k + size - 1, kp)
            eliminate(a, k, size)
        pivots[k : k + size] = kp + 1 if size == 1 else -(kp + 1)
        k += size
    return singular


def pivot_of(a: Array, k: int) -> tuple[int, int]:
    """Return which row comes to step k, and how many rows its block has: none if all are zero."""
    here = float(size_of(a[k, k]))
    below = size_of(a[k + 1 :, k])
    most = float(below.max(initial=0))
    if max(here, most) == 0 or np.isnan(here):
        return k, 0
    if here >= GROWTH * most:
        return k, 1
    row = k + 1 + int(below.argmax())
    beside = np.concatenate([a[row, k:row], a[row + 1 :, row]])
    widest = float(size_of(beside).max())
    if here >= GROWTH * most * (most / widest):
        return k, 1
    return row, 1 if float(size_of(a[row, row])) >= GROWTH * widest else 2


def size_of(x: Array) -> Array:
    """Return how large numbers are; LAPACK measures complex ones by |re| + |im|."""
    return np.asarray(np.abs(x.real) + np.abs(x.imag))


def swap(a: Array, k: int, kk: int, kp: int) -> None:
    """Let rows and columns kk and kp of a lower triangle change places, from step k on."""
    if kp == kk:
        return
    a[kp + 1 :, [kk, kp]] = a[kp + 1 :, [kp, kk]]
    column = a[kk + 1 : kp, kk].copy()
    a[kk + 1 : kp, kk] = a[kp, kk + 1 : kp]
    a[kp, kk + 1 : kp] = column
    a[kk, kk], a[kp, kp] = a[kp, kp], a[kk, kk]
    if kk > k:
        a[kk, k], a[kp, k] = a[kp, k], a[kk, k]


def eliminate(a: Array, k: int, size: int) -> None:
    """Take what a block of one or two rows at k explains from the lower triangle behind it."""
    rest = slice(k + size, len(a))
    lower = np.tri(len(a) - k - size, dtype=bool)
    if size == 1:
        factors = a[rest, k, None] / a[k, k]
        explained = a[rest, k, None] * factors.T
    else:
        d21 = a[k + 1, k]
        d11, d22 = a[k + 1, k + 1] / d21, a[k, k] / d21
        scale = 1 / (d11 * d22 - 1) / d21
        first, second = a[rest, k], a[rest, k + 1]
        factors = scale * np.stack([d11 * first - second, d22 * second - first], axis=1)
        explained = a[rest, k : k + 2] @ factors.T
    a[rest, rest] -= np.where(lower, explained, 0)
    a[rest, k : k + size] = factors


class SolveLdl(Primitive):
    """y of a y = b, for symmetric a[…, n, n] that `Ldl` factored, its pivots, and b[…, n, k]."""

    def infer(self, factors: TensorType, pivots: TensorType, b: TensorType) -> TensorType:
        *outer, n, _ = squares(self, factors)
        matrices(self, b)
        check_dtype(self, "pivots", pivots, {"i32"})
        if b.dtype != factors.dtype or b.shape[:-1] != (*outer, n) or pivots.shape != (*outer, n):
            raise TypeRuleError(f"solve_ldl: operands are {factors}, {pivots} and {b}, "
                                "expected […, n, n], […, n] and […, n, k]")  # fmt: skip
        return b

    def reference(self, factors: Array, pivots: Array, b: Array) -> Array:
        y = b.copy()
        with np.errstate(all="ignore"):
            for at in np.ndindex(*b.shape[:-2]):
                solve(factors[at], pivots[at], y[at])
        return y

    def gradient(
        self, g: Graph, dy: Value, factors: Value, pivots: Value, b: Value
    ) -> tuple[Value | UnsupportedError | None, None, Value]:
        db = conjugate(g, g(self, factors, pivots, conjugate(g, dy)))
        if b.type.dtype in COMPLEX:
            error = UnsupportedError(
                "gradient of solve_ldl by factors: complex is not supported; supported: f32, f64"
            )
            return error, None, db
        if 0 in factors.type.shape:
            return None, None, db
        da = negative(g, product(g, db, turned(g, g(self, factors, pivots, b))))
        symmetric = halved(g, plus(g, da, turned(g, da)))
        return packed_gradient(g, unpacked(g, factors, pivots), symmetric), None, db

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        for n, dtype in ((4, np.float32), (5, np.float64)):
            x = random.normal(0, 1, (2, n, n)).astype(dtype)
            x = x + np.swapaxes(x, -1, -2)
            factors, pivots, _ = Ldl().reference(x)
            yield cls(), factors, pivots, x[..., :3]
        yield cls(), "f32[0,0]", "i32[0]", "f32[0,3]"


def solve(a: Array, pivots: Array, y: Array) -> None:
    """Solve one system in place: down through l and d, then up through the transpose of l."""
    n = len(a)
    steps = blocks(pivots)
    for k, size in steps:
        last, kp = k + size - 1, clamped(pivots[k], n)
        y[[last, kp]] = y[[kp, last]]
        y[k + size :] -= a[k + size :, k : k + size] @ y[k : k + size]
        y[k : k + size] = divided(a[k : k + size, k : k + size], y[k : k + size])
    for k, size in reversed(steps):
        y[k : k + size] -= a[k + size :, k : k + size].T @ y[k + size :]
        last, kp = k + size - 1, clamped(pivots[k], n)
        y[[last, kp]] = y[[kp, last]]


def divided(block: Array, b: Array) -> Array:
    """Return b divided by a block of d, whose lower triangle is given."""
    if len(block) == 1:
        return np.asarray(b / block[0, 0])
    d21 = block[1, 0]
    d11, d22 = block[0, 0] / d21, block[1, 1] / d21
    first, second = b[0] / d21, b[1] / d21
    return np.asarray(np.stack([d22 * first - second, d11 * second - first]) / (d11 * d22 - 1))


def blocks(pivots: Array) -> list[tuple[int, int]]:
    """Return the first row of each block and its number of rows."""
    out, k = [], 0
    while k < len(pivots):
        size = 1 if pivots[k] > 0 or k + 1 == len(pivots) else 2
        out.append((k, size))
        k += size
    return out


def clamped(pivot: int, n: int) -> int:
    """Return the row of a pivot, from 0 to n - 1."""
    return min(max(abs(int(pivot)) - 1, 0), n - 1)
