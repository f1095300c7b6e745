"""Counting short sequences of numbers, such as the words of a text (ONNX TfIdfVectorizer)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType


class CountGrams(Primitive):
    """How often the rows of a table occur in each row of x, as f32[rows, width].

    x is [rows, length].  `grams` are i64[kinds, n], in lexicographic order and all different.
    The n elements of an occurrence are `distance` apart, which runs from 1 to `distances`, and
    occurrence of row g of the table adds 1 to column columns[g] of the result.
    """

    width: int
    distances: int = 1

    def infer(self, x: TensorType, grams: TensorType, columns: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"i32", "i64"})
        check_dtype(self, "grams", grams, {"i64"})
        check_dtype(self, "columns", columns, {"i64"})
        check_rank(self, "x", x, 2, 2)
        check_rank(self, "grams", grams, 2, 2)
        if columns.shape != grams.shape[:1] or grams.shape[1] == 0:
            raise TypeRuleError(
                f"count_grams: grams are {grams} and columns {columns}, expected one column for "
                "each gram, of one element at least"
            )
        if self.width < 1 or self.distances < 1:
            raise TypeRuleError(
                f"count_grams: width is {self.width} and distances {self.distances}, expected at "
                "least 1 each"
            )
        return TensorType("f32", (x.shape[0], self.width))

    def reference(self, x: Array, grams: Array, columns: Array) -> Array:
        out = np.zeros((x.shape[0], self.width), np.float32)
        n = grams.shape[1]
        known = {tuple(g): c for g, c in zip(grams.tolist(), columns.tolist(), strict=True)}
        for distance in range(1, min(self.distances, x.shape[1]) + 1):
            reach = (n - 1) * distance
            for row, start in np.ndindex(x.shape[0], max(x.shape[1] - reach, 0)):
                column = known.get(tuple(x[row, start : start + reach + 1 : distance].tolist()))
                if column is not None and 0 <= column < self.width:
                    out[row, column] += 1
        return out

    @classmethod
    def examples(cls) -> Examples:
        table = np.array([[5, 6], [5, 7], [7, 8], [8, 5]])
        places = np.array([2, 0, 3, 9])
        text = np.array([[5, 6, 5, 8, 7, 8], [8, 8, 5, 5, 6, 7]])
        yield cls(4), text, table, places
        yield cls(5, 9), text, table, places
        yield cls(3, 2), text.astype(np.int32), np.array([[-1], [5], [8]]), np.array([1, 1, 2])
        yield cls(3, 2), "i32[2,40]", np.array([[-1, 0, 1], [0, 0, 0]]), np.array([1, 0])
        yield cls(3), "i64[3,0]", table, places
        yield cls(3), "i64[0,3]", table, places
        yield cls(3), "i64[2,3]", np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
