"""Writers of linear algebra: determinants, elimination and inverses of square matrices.

Elimination is written out column by column, for matrices whose size is a number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded
from alpenglow.exporters.onnx.writer import Operand, Refused, Tensor, Writer
from alpenglow.extras.linalg.inverse import Inverse
from alpenglow.extras.linalg.linalg import Det, Eliminate
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Value

LAST = np.array([-2, -1], np.int64)
"""The axes of a matrix."""

MOST_COLUMNS = 64
"""Larger matrices would be too many nodes: elimination is written column by column."""


@on(Det, when=lambda opset, node: node.results[0].type.dtype != "f64")
def det(w: Writer, op: Det, x: Value) -> Tensor:
    return w("Det", x)


@dataclass(frozen=True, slots=True)
class Rows:
    """Matrices [*outer, n, columns] while they are worked on."""

    w: Writer
    a: Tensor
    outer: tuple[Dim, ...]
    n: int
    columns: int

    @property
    def m(self) -> OnnxMath:
        return OnnxMath(self.w)

    def of(self, a: Tensor) -> Rows:
        """Return other elements in the place of these."""
        return Rows(self.w, a, self.outer, self.n, self.columns)

    def part(self, axis: int, start: int, stop: int) -> Tensor:
        """Return rows (axis -2) or columns (axis -1) from one number up to another."""
        bounds = (np.array([v], np.int64) for v in (start, stop, axis))
        return self.w("Slice", self.a, *bounds)

    def cell(self, i: int, j: int) -> Tensor:
        """Return one element of each matrix, [*outer, 1, 1]."""
        return self.of(self.part(-2, i, i + 1)).part(-1, j, j + 1)

    def pivoted(self, j: int) -> tuple[Rows, Tensor]:
        """Exchange row j with the row of the largest element below it in column j.

        Return also the number of that row, i64[*outer, 1, 1].
        """
        column = self.of(self.part(-1, j, j + 1)).part(-2, j, self.n)
        row = self.m.add(self.w("ArgMax", self.w("Abs", column), axis=-2), j)
        numbers = np.arange(self.n).reshape(-1, 1)
        at = self.m.where(self.m.eq(row, numbers), j, numbers)
        at = self.m.where(numbers == j, row, at)
        wide = expanded(self.w, at, (*self.outer, self.n, self.columns))
        moved = self.w("GatherElements", self.a, wide, axis=-2)
        return self.of(moved), row


def number_of(d: Dim) -> int:
    """Return the number of rows or columns; raise Refused if that is open, or too large."""
    if is_open(d) or int(d) > MOST_COLUMNS:
        raise Refused(f"a matrix has {d} columns, expected a fixed number up to {MOST_COLUMNS}")
    return int(d)


@on(Eliminate)
def eliminate(w: Writer, op: Eliminate, x: Value) -> list[Tensor]:
    outer = x.type.shape[:-2]
    value = expanded(w, np.ones((1,) * len(outer), x.type.numpy), outer)
    n = number_of(x.type.shape[-1])
    rows = Rows(w, w.tensor(x), outer, n, n)
    for j in range(n):
        rows, row = rows.pivoted(j)
        pivot, m = rows.cell(j, j), rows.m
        turned = m.where(w("Squeeze", m.ne(row, j), LAST), m.neg(value), value)
        value = m.mul(turned, w("Squeeze", pivot, LAST))
        if j + 1 < n:
            rows = _cleared(rows, j, pivot)
    return [rows.a, value]


def _cleared(rows: Rows, j: int, pivot: Tensor) -> Rows:
    """Take multiples of row j from those below it, so that column j is 0 there."""
    m, n = rows.m, rows.n
    below, row = rows.part(-2, j + 1, n), rows.part(-2, j, j + 1)
    factors = m.div(rows.of(below).part(-1, j, j + 1), m.where(m.eq(pivot, 0.0), 1.0, pivot))
    ahead = np.arange(n) > j
    less = m.where(ahead, m.sub(below, m.mul(factors, row)), below)
    less = m.where(np.arange(n) == j, 0.0, less)
    kept = m.where(m.eq(pivot, 0.0), below, less)
    return rows.of(rows.w("Concat", rows.part(-2, 0, j + 1), kept, axis=-2))


@on(Inverse)
def inverse(w: Writer, op: Inverse, x: Value) -> list[Tensor]:
    n, outer = number_of(x.type.shape[-1]), x.type.shape[:-2]
    unit: Operand = expanded(w, np.eye(n, dtype=x.type.numpy), (*outer, n, n))
    rows = Rows(w, w("Concat", x, unit, axis=-1), outer, n, 2 * n)
    for j in range(n):
        rows, _ = rows.pivoted(j)
        m = rows.m
        row = m.div(rows.part(-2, j, j + 1), rows.cell(j, j))
        others = m.sub(rows.a, m.mul(rows.part(-1, j, j + 1), row))
        rows = rows.of(m.where(np.arange(n).reshape(-1, 1) == j, row, others))
    return [rows.part(-1, 0, n), rows.part(-1, n, 2 * n)]
