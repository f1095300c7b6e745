"""Converters that read and write at computed places: gathers, scatters, segments, the largest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.file.schema import Combiner
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS, INTS
from alpenglow.ops.elementwise.arithmetic import Div, Mul
from alpenglow.ops.elementwise.comparison import Equal, GreaterOrEqual, Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.reduction import ArgMax, ReduceMax, ReduceSum
from alpenglow.ops.tensor.gather import Gather, GatherNd, OneHot, ScatterNd
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose, stretch
from alpenglow.ops.tensor.order import TopK

SEGMENTS = {"UNSORTED_SEGMENT_SUM": "add", "UNSORTED_SEGMENT_PROD": "mul",
            "UNSORTED_SEGMENT_MAX": "max", "UNSORTED_SEGMENT_MIN": "min"}  # fmt: skip


@on("GATHER", "GatherOptions", moves=True)
def gather(s: Site) -> Made:
    """The first `batch_dims` axes of data and indices are one and the same."""
    data = s.input(0)
    axis = s.axis(s.option("axis"), data.type.rank)
    indices = s.indices(s.input(1), data.type.shape[axis], axis, negative=False)
    batch = s.option("batch_dims")
    batch += indices.type.rank if batch < 0 else 0
    if not batch:
        return s.g(Gather(axis), data, indices)
    if not 0 < batch <= min(axis, indices.type.rank):
        raise s.wrong(f"batch_dims is {batch}, expected 0 to {min(axis, indices.type.rank)} "
                      f"for axis {axis} and indices {indices.type}")  # fmt: skip
    rank, between = data.type.rank, range(batch, axis)
    front = s.g(Transpose((*range(batch), axis, *between, *range(axis + 1, rank))), data)
    found = s.g(GatherNd(batch), front, s.reshaped(indices, (*indices.type.shape, 1)))
    last = indices.type.rank
    moved = range(last, last + len(between))
    behind = range(last + len(between), found.type.rank)
    return s.g(Transpose((*range(batch), *moved, *range(batch, last), *behind)), found)


@on("GATHER_ND", moves=True)
def gather_nd(s: Site) -> Made:
    data = s.input(0)
    return s.g(GatherNd(), data, places(s, s.input(1), data.type.shape))


@on("SCATTER_ND", moves=True)
def scatter_nd(s: Site) -> Made:
    """Updates of one place are added up."""
    updates, shape = s.input(1), s.shape(2)
    return _added(s, shape, places(s, s.input(0), shape), updates)


def _added(s: Site, shape: Sequence[Dim], at: Value, updates: Value) -> Value:
    """Return zeros with updates added at places."""
    return s.g(ScatterNd("add"), s.full(0, updates.type.dtype, shape), at, updates)


@on("SPARSE_TO_DENSE", moves=True)
def sparse_to_dense(s: Site) -> Made:
    """Values at places, and a default elsewhere; of places on one axis the last may be left out."""
    indices, shape, values = s.input(0), s.dims(1), s.input(2)
    if indices.type.rank > 2:
        raise s.wrong(f"indices is {indices.type}, expected rank 0 to 2")
    if indices.type.rank < 2:
        count = indices.type.shape[0] if indices.type.rank else 1
        indices = s.reshaped(indices, (count, 1))
    values = stretch(s.g, values, indices.type.shape[:1])
    empty = stretch(s.g, s.scalar(3), shape)
    return s.g(ScatterNd(), empty, places(s, indices, shape), values)


def places(s: Site, indices: Value, shape: Sequence[Dim]) -> Value:
    """Return tuples of indices, each of which must lie in a tensor of this shape."""
    depth = fixed(indices.type.shape[-1]) if indices.type.rank else 0
    if indices.type.dtype not in INTS or not 0 < depth <= len(shape):
        raise s.wrong(f"indices is {indices.type}, expected integers with 1 to {len(shape)} "
                      f"elements on the last axis for shape {tuple(shape)}")  # fmt: skip
    return s.tuples(indices, shape[:depth], negative=False)


@on("EMBEDDING_LOOKUP")
def embedding_lookup(s: Site) -> Made:
    rows = s.input(1)
    indices = s.within(s.input(0), 0, rows.type.shape[0] - 1, "a row index")
    return s.g(Gather(0), rows, indices)


@on("EMBEDDING_LOOKUP_SPARSE", "EmbeddingLookupSparseOptions")
def embedding_lookup_sparse(s: Site) -> Made:
    """Rows of operand 4, weighted and added up in places: a sum, over the weights' sum, or over
    the root of the sum of their squares.  Without a weight the result is 0.

    Operands are numbers of rows, their places, the shape that these are in, and weights.
    """
    ids, where, weights, rows = s.rank(0, 1), s.rank(1, 2), s.rank(3, 1), s.input(4)
    shape = s.dims(2)
    how = s.choice("combiner", Combiner)
    n, kept, inner = ids.type.shape[0], shape[:-1], rows.type.shape[1:]
    if where.type.shape != (n, len(shape)) or weights.type.shape != (n,) or not kept:
        raise s.wrong(f"indices is {where.type} and weights is {weights.type}, expected shapes "
                      f"({n}, {max(len(shape), 2)}) and ({n},), dense_shape {shape}")  # fmt: skip
    ones = (1,) * len(inner)
    index = s.within(ids, 0, rows.type.shape[0] - 1, "a row index")
    row = s.reshaped(weights, (n, *ones))
    updates = s.apply(Mul(), s.g(Gather(0), rows, index), row)
    at = s.g(Slice((0, 0), (n, len(kept)), (1, 1)), where)
    at = places(s, at, kept)
    total = _added(s, (*kept, *inner), at, updates)
    if how == Combiner.SUM:
        return total
    squares = s.g(Mul(), row, row) if how == Combiner.SQRTN else row
    share = _added(s, (*kept, *ones), at, squares)
    share = s.g(Sqrt(), share) if how == Combiner.SQRTN else share
    none = s.apply(Equal(), share, s.filled(0, share))
    return s.apply(Div(), total, s.g(Where(), none, s.filled(1, share), share))


@on("HASHTABLE_LOOKUP")
def hashtable_lookup(s: Site) -> Made:
    """Rows of operand 2 by their keys, which rise, 0 where there is no such key, and whether there
    is."""
    wanted, keys, rows = s.rank(0, 1), s.rank(1, 1), s.input(2)
    n, m = wanted.type.shape[0], keys.type.shape[0]
    if not rows.type.rank or rows.type.shape[0] != m:
        raise s.wrong(f"value is {rows.type}, expected {m} rows, as many as keys")
    same = s.apply(Equal(), s.reshaped(wanted, (n, 1)), s.reshaped(keys, (1, m)))
    there = s.cast(same, "u8")
    found = s.g(ReduceMax((1,), False), there)
    made = s.g(Gather(0), rows, s.g(ArgMax(1, False), there))
    none = s.g(Equal(), found, s.filled(0, found))
    none = s.reshaped(none, (n, *(1,) * (rows.type.rank - 1)))
    return [s.apply(Where(), none, s.filled(0, made), made), found]


@on("ONE_HOT", "OneHotOptions", moves=True)
def one_hot(s: Site) -> Made:
    """A negative index is none, as is one that is too large."""
    indices, depth = s.input(0), s.number(1)
    axis = s.axis(s.option("axis"), indices.type.rank + 1)
    none = s.filled(depth, indices)
    natural = s.g(Where(), s.g(Less(), indices, s.filled(0, indices)), none, indices)
    values = s.g(Concat(0), *(s.reshaped(s.input(i), (1,)) for i in (3, 2)))
    return s.g(OneHot(depth, axis), natural, values)


@on("TOPK_V2", moves=True)
def top_k(s: Site) -> Made:
    x, k = s.input(0), s.number(1)
    axis = s.axis(-1, x.type.rank)
    extent = x.type.shape[axis]
    if k < 0 or (known(extent) and k > extent):
        raise s.wrong(f"k is {k}, expected 0 to {extent} for {x.type}")
    values, indices = s.g.add(TopK(axis, k), [x]).results
    return [values, s.cast(indices, s.output(1).dtype)]


@on("SEGMENT_SUM")
def segment_sum(s: Site) -> Made:
    """Rows with one number are added up; the last number says how many there are."""
    data, segment_ids, ids = s.input(0), s.rank(1, 1), s.constant(1)
    if (np.diff(ids) < 0).any():
        raise s.wrong("segment_ids decreases, expected entries in ascending order")
    count = int(ids[-1]) + 1 if ids.size else 0
    return segments(s, data, segment_ids, count, "add")


@on("UNSORTED_SEGMENT_SUM")
@on("UNSORTED_SEGMENT_PROD")
@on("UNSORTED_SEGMENT_MAX")
@on("UNSORTED_SEGMENT_MIN")
def unsorted_segment(s: Site) -> Made:
    return segments(s, s.input(0), s.input(1), s.number(2), SEGMENTS[s.kind])


def segments(s: Site, data: Value, ids: Value, count: int, how: str) -> Value:
    """Return rows of data with the same segment id reduced, `count` of them."""
    depth = ids.type.rank
    if count < 0 or ids.type.shape != data.type.shape[:depth]:
        raise s.wrong(f"segment_ids is {ids.type} for {count} segments of data {data.type}, "
                      "expected the first dimensions of data, and at least 0 segments")  # fmt: skip
    dtype = DTYPES[data.type.dtype]
    limits = np.finfo(dtype) if data.type.dtype in FLOATS else np.iinfo(dtype)
    start = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[how]
    empty = s.full(start, data.type.dtype, (count, *data.type.shape[depth:]))
    rows = s.within(ids, 0, count - 1, "a row index")
    return s.g(ScatterNd(how), empty, s.reshaped(rows, (*rows.type.shape, 1)), data)


@on("BUCKETIZE", "BucketizeOptions")
def bucketize(s: Site) -> Made:
    """How many of the boundaries, which rise, are not above an element."""
    x, bounds = s.input(0), s.option("boundaries")
    if any(a > b for a, b in pairwise(bounds)):
        raise s.wrong("boundaries decreases, expected entries in ascending order")
    if x.type.dtype not in FLOATS:
        raise s.unsupported(f"dtype {x.type.dtype}", "float dtypes")
    row = s.g.constant(np.array(bounds, x.type.numpy))
    above = s.apply(GreaterOrEqual(), s.reshaped(x, (*x.type.shape, 1)), row)
    return s.g(ReduceSum((x.type.rank,), False), s.cast(above, "i32"))
