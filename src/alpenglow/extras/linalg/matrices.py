"""Matrices of real or of complex numbers: their types, and the parts that gradients make of them.

Gradients of factorizations are products and quotients of matrices, written once for both kinds of
elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, smaller
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op, check_dtype, check_rank
from alpenglow.ir.types import COMPLEX, PARTS, TensorType
from alpenglow.ops.elementwise.algebra import adjoint, plus, real_part, times
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.reduction.reduction import ReduceSum, filled
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Eye
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice, Trilu, stretch

ELEMENTS = frozenset({"f32", "f64"}) | COMPLEX


# ── types ──


def check_square(op: Op, x: TensorType) -> None:
    """Raise TypeRuleError unless x holds square matrices."""
    check_rank(op, "x", x, 2)
    if x.shape[-1] != x.shape[-2]:
        raise TypeRuleError(f"{op.name}: x is {x}, expected square matrices […, n, n]")


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


# ── parts of matrices ──


def unit(b: Graph, like: Value) -> Value:
    """Return matrices of reals with ones on their diagonals, zeros elsewhere."""
    dtype = PARTS.get(like.type.dtype, like.type.dtype)
    rows, columns = like.type.shape[-2:]
    eye = b(Eye(rows, columns, 0, dtype))
    return stretch(b, eye, like.type.shape)


def zeros(b: Graph, shape: tuple[Dim, ...], dtype: str) -> Value:
    return stretch(b, b.constant(np.zeros((), TensorType(dtype, ()).numpy)), shape)


def lower(b: Graph, x: Value, k: int = 0) -> Value:
    """Return matrices on and below diagonal k, zeros above it."""
    return b(Trilu(k, False), x)


def upper(b: Graph, x: Value, k: int = 0) -> Value:
    """Return matrices on and above diagonal k, zeros below it."""
    return b(Trilu(k), x)


def folded(b: Graph, x: Value) -> Value:
    """Return x and its adjoint added, with the real parts of the diagonal once only."""
    both = plus(b, x, adjoint(b, x))
    eye = unit(b, x)
    share = b(Sub(), filled(b, 1, eye), b(Mul(), filled(b, 0.5, eye), eye))
    return times(b, both, share)


def halved(b: Graph, x: Value) -> Value:
    """Return x / 2."""
    return times(b, x, filled(b, 0.5, real_part(b, x)))


def block(
    b: Graph, x: Value, rows: tuple[Dim, Dim], columns: tuple[Dim, Dim]
) -> Value:  # fmt: skip
    """Return some rows and columns of matrices, each given by the first and the end."""
    (top, bottom), (left, right) = rows, columns
    outer = x.type.shape[:-2]
    shape = (*outer, bottom - top, right - left)
    if shape == x.type.shape:
        return x
    starts: tuple[Dim, ...] = (*[0] * len(outer), top, left)
    return b(Slice(starts, shape, (1,) * x.type.rank), x)


def padded(b: Graph, x: Value, rows: Dim, columns: Dim) -> Value:
    """Return matrices with zeros after their rows and columns, so many in all."""
    *outer, m, n = x.type.shape
    if rows != m:
        x = b(Concat(-2), x, zeros(b, (*outer, rows - m, n), x.type.dtype))
    if columns != n:
        x = b(Concat(-1), x, zeros(b, (*outer, rows, columns - n), x.type.dtype))
    return x


def on_diagonal(b: Graph, s: Value) -> Value:
    """Return matrices with s[…, n] on their diagonals, zeros elsewhere."""
    rows = by_rows(b, s, (*s.type.shape, s.type.shape[-1]))
    return times(b, rows, unit(b, rows))


def diagonal(b: Graph, x: Value) -> Value:
    """Return the diagonals of square matrices."""
    return b(ReduceSum((x.type.rank - 1,), False), b(Mul(), x, unit(b, x)))


def by_rows(b: Graph, s: Value, shape: tuple[Dim, ...]) -> Value:
    """Return s[…, m] as matrices […, m, n], each row of which has one number."""
    return stretch(b, b(Reshape((*s.type.shape, 1)), s), shape)


def by_columns(b: Graph, s: Value, shape: tuple[Dim, ...]) -> Value:
    """Return s[…, n] as matrices […, m, n], each column of which has one number."""
    return stretch(b, b(Reshape((*s.type.shape[:-1], 1, s.type.shape[-1])), s), shape)


def with_rows(b: Graph, x: Value, order: Value) -> Value:
    """Return matrices with their rows in an order […, m]."""
    if 0 in x.type.shape:
        return x
    return b(GatherElements(x.type.rank - 2), x, by_rows(b, order, x.type.shape))
