"""Writers of systems of linear equations: LU, triangles and Cholesky, column by column."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, transposed
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.extras.linalg.factorization import Cholesky
from alpenglow.extras.linalg.solving import Lu, SolveTriangular, Swaps
from alpenglow.extras.linalg.writers.write_linalg import LAST, Rows, number_of
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value


@on(Lu)
def lu(w: Writer, op: Lu, x: Value) -> list[Tensor]:
    *outer, m_, n_ = x.type.shape
    m, (height, columns) = OnnxMath(w), (number_of(m_), number_of(n_))
    rows = Rows(w, w.tensor(x), tuple(outer), height, columns)
    singular, pivots = zeros(w, outer), []
    for i in range(min(height, columns)):
        rows, row = rows.pivoted(i)
        pivots.append(w("Squeeze", m.add(row, 1), LAST[:1]))
        pivot = rows.cell(i, i)
        none = w("Squeeze", m.eq(pivot, 0.0), LAST)
        singular = m.where(m.bit_and(none, m.eq(singular, 0)), i + 1, singular)
        if i + 1 < height:
            rows = _factored(rows, i, pivot)
    if not pivots:
        return [rows.a, expanded(w, np.zeros((1,) * (len(outer) + 1), np.int32), (*outer, 0)),
                singular]  # fmt: skip
    every = pivots[0] if len(pivots) == 1 else w("Concat", *pivots, axis=-1)
    return [rows.a, w.cast(every, "i32"), singular]


def _factored(rows: Rows, i: int, pivot: Tensor) -> Rows:
    """Take multiples of row i from those below it, and keep the factors in column i."""
    m, below = rows.m, rows.part(-2, i + 1, rows.n)
    numbers = np.arange(rows.columns)
    factors = m.div(rows.of(below).part(-1, i, i + 1), pivot)
    less = m.sub(below, m.mul(factors, rows.part(-2, i, i + 1)))
    after = m.where(numbers == i, factors, m.where(numbers > i, less, below))
    kept = m.where(m.eq(pivot, 0.0), below, after)
    return rows.of(rows.w("Concat", rows.part(-2, 0, i + 1), kept, axis=-2))


def zeros(w: Writer, outer: list[Dim]) -> Tensor:
    """Return a 0 for each matrix, as i32."""
    return expanded(w, np.zeros((1,) * len(outer), np.int32), tuple(outer))


@on(Swaps)
def swaps(w: Writer, op: Swaps, pivots: Value) -> Tensor:
    m, count, steps = OnnxMath(w), number_of(op.count), number_of(pivots.type.shape[-1])
    numbers = np.arange(count)
    y = expanded(w, numbers.reshape((1,) * (pivots.type.rank - 1) + (-1,)),
                 (*pivots.type.shape[:-1], count))  # fmt: skip
    at = m.minimum(m.maximum(m.sub(w.cast(pivots, "i64"), 1), 0), max(count - 1, 0))
    for i in range(steps):
        place = w("Gather", at, np.array([i], np.int64), axis=-1)
        own, other = w("Gather", y, np.array([i], np.int64), axis=-1), w(
            "GatherElements", y, place, axis=-1)  # fmt: skip
        y = m.where(numbers == i, other, m.where(m.eq(place, numbers), own, y))
    if not op.inverse:
        return y
    return w.several(2, "TopK", y, np.array([count], np.int64), axis=-1, largest=0)[1]


@on(SolveTriangular)
def solve_triangular(w: Writer, op: SolveTriangular, a: Value, b: Value) -> Tensor:
    *outer, n_, _ = b.type.shape
    m, n = OnnxMath(w), number_of(n_)
    y, matrix = w.tensor(b), Rows(w, w.tensor(a), tuple(outer), n, n)
    numbers = np.arange(n).reshape(-1, 1)
    for i in reversed(range(n)) if op.upper else range(n):
        row = Rows(w, y, tuple(outer), n, 0).part(-2, i, i + 1)
        row = row if op.unit else m.div(row, matrix.cell(i, i))
        less = m.sub(y, m.mul(matrix.part(-1, i, i + 1), row))
        rest = numbers < i if op.upper else numbers > i
        y = m.where(numbers == i, row, m.where(rest, less, y))
    return y


@on(Cholesky)
def cholesky(w: Writer, op: Cholesky, x: Value) -> list[Tensor]:
    *outer, n_, _ = x.type.shape
    m, n, rank = OnnxMath(w), number_of(n_), x.type.rank
    turned = (*range(rank - 2), rank - 1, rank - 2)
    a = Rows(w, transposed(w, x, turned) if op.upper else w.tensor(x), tuple(outer), n, n)
    minors, columns = zeros(w, outer), []
    for j in range(n):
        square = a.cell(j, j)
        none = w("Squeeze", m.bit_not(m.gt(square, 0.0)), LAST)
        minors = m.where(m.bit_and(none, m.eq(minors, 0)), j + 1, minors)
        column = m.div(a.part(-1, j, j + 1), m.sqrt(square))
        column = m.where(np.arange(n).reshape(-1, 1) >= j, column, 0.0)
        columns.append(column)
        a = a.of(m.sub(a.a, m.mul(column, transposed(w, column, turned))))
    if not columns:
        return [w.tensor(x), minors]
    y = columns[0] if n == 1 else w("Concat", *columns, axis=-1)
    y = m.where(w("Unsqueeze", m.eq(minors, 0), LAST), y, math.nan)
    return [transposed(w, y, turned) if op.upper else y, minors]
