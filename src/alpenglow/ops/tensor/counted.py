"""Operators whose results are as long as the data make them (ONNX NonZero, Unique).

A shape never depends on data here.  Such an operator makes its results as long as they can get,
and one more, an i64 scalar that counts the elements in use; those behind are 0.  A caller
that knows the count cuts the results to it.
"""

from __future__ import annotations

import numpy as np

from alpenglow.ir.dims import product
from alpenglow.ir.op import Examples, Primitive, check_rank, is_half, normal_axis
from alpenglow.ir.types import ALL, FLOATS, NAMES, Array, TensorType

COUNT = TensorType("i64", ())


class NonZero(Primitive):
    """The coordinates of the elements of x that are not 0, in row-major order, and their number.

    Result 0 has a row an axis of x and a column an element: i64[rank, size].  NaN is not 0.
    ONNX NonZero.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_rank(self, "x", x, 1)
        return TensorType("i64", (x.rank, product(x.shape))), COUNT

    def reference(self, x: Array) -> tuple[Array, Array]:
        places = np.argwhere(x != 0).T
        out = np.zeros((x.ndim, x.size), np.int64)
        out[:, : places.shape[1]] = places
        return out, np.array(places.shape[1])

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), np.array([[0, 1, 0, -2], [np.nan, 0, -0.0, np.inf]], np.float32)
        yield cls(), "f32[3,5]"
        yield cls(), "f32[2,0]"
        yield cls(), np.zeros(5, np.float32)
        yield cls(), np.array([0, 2**40, -1, 0, 256])
        for dtype in sorted(ALL - {"f32"}):
            yield cls(), f"{dtype}[2,3,4]"


class Unique(Primitive):
    """The slices of x along `axis` that differ from all before them, by their indices.

    For n slices the results are i64[n], i64[n], i64[n] and i64[]:

    - the index of the first slice of each kind,
    - the kind of each slice, a number below the count,
    - how many slices there are of each kind,
    - the number of kinds.

    Kinds are ordered as their slices are, by their elements in row-major order, or unless `sorted`
    as they first occur.  NaN is equal to NaN and larger than any number.  ONNX Unique.
    """

    axis: int
    sorted: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType, TensorType]:
        each = TensorType("i64", (x.shape[normal_axis(self, self.axis, x.rank)],))
        return each, each, each, COUNT

    def reference(self, x: Array) -> tuple[Array, Array, Array, Array]:
        n = x.shape[self.axis]
        wide = x.astype(np.float32) if is_half(x.dtype) else x
        rows = np.moveaxis(wide, self.axis, 0).reshape(n, x.size // n if n else 0)
        order = np.lexsort(rows.T[::-1]) if rows.size else np.arange(n)
        kinds = np.zeros(n, np.int64)
        starts = ~equal_to_previous(rows[order])
        kinds[order] = np.cumsum(starts) - 1
        first = order[starts]
        if not self.sorted:
            place = np.argsort(first)
            kinds, first = np.argsort(place)[kinds], first[place]
        counts = np.bincount(kinds, minlength=len(first))
        return padded(first, n), kinds, padded(counts, n), np.array(len(first))

    @classmethod
    def examples(cls) -> Examples:
        for ordered in (True, False):
            yield cls(0, ordered), np.array([2, 1, 1, 3, 4, 3], np.float32)
            yield cls(0, ordered), np.array([np.nan, 0, -0.0, np.inf, np.nan, -np.inf], np.float32)
            yield cls(0, ordered), np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4], [0, 9, 9]], np.int32)
            yield cls(-1, ordered), np.array([[[1, 1], [0, 1]], [[2, 1], [0, 1]]], np.float32)
            yield cls(1, ordered), np.random.default_rng(0).integers(0, 3, (2, 40)).astype(np.int8)
        for t in (np.int32, np.uint32, np.int64, np.uint64):
            least, most = np.iinfo(t).min, np.iinfo(t).max
            yield cls(0), np.array([most, least, most - 1, least + 1], t)
        yield cls(0), "f32[0]"
        yield cls(0), "f32[0,2]"
        yield cls(0), "f32[3,0]"
        yield cls(1, False), "f32[1,1,3]"
        yield cls(0), "f32[1]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0), f"{dtype}[17]"
            yield cls(0, False), f"{dtype}[9,2]"


def equal_to_previous(rows: Array) -> Array:
    """Return whether each row equals the one before it, NaN being equal to NaN."""
    same = np.zeros(len(rows), np.bool_)
    a, b = rows[1:], rows[:-1]
    alike = a == b
    if NAMES[rows.dtype] in FLOATS:
        alike |= np.isnan(a) & np.isnan(b)
    same[1:] = alike.all(axis=1)
    return same


def padded(x: Array, n: int) -> Array:
    """Return x as i64 with zeros behind it, n elements in all."""
    out = np.zeros(n, np.int64)
    out[: len(x)] = x
    return out
