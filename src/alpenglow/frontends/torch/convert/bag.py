"""Converters for bags of embeddings: sums, means and maxima of rows of a table."""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd, BitNot
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ReduceL1, ReduceL2, ReduceSum
from alpenglow.ops.tensor.gather import Gather, ScatterElements
from alpenglow.ops.tensor.generate import Range

SUM, MEAN, MAX = range(3)
"""The modes by their numbers in PyTorch."""


@on("aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def embedding_bag(
    s: Site, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = SUM, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Made:  # fmt: skip
    """A bag reaches from its offset to the next one; it skips rows of padding."""
    if any(s.is_read(i) for i in (1, 2, 3)):
        raise UnsupportedError("reading results 1 to 3 is not supported; supported: result 0")
    dtype = weight.type.dtype
    wide = "f64" if dtype == "f64" else "f32"
    rows = s.g(Gather(0), weight, s.indices(indices, weight.type.shape[0], 0, negative=False))
    rows = s.cast(rows, wide)
    if per_sample_weights is not None:
        shares = s.reshaped(s.cast(per_sample_weights, wide), (rows.type.shape[0], 1))
        rows = s.g(Mul(), rows, *s.broadcast(shares, shape=rows.type.shape))
    count = s.result.shape[0]
    bag, counted = bags_of(s, indices, offsets, count, padding_idx)
    ones = s.reshaped(s.cast(counted, wide), (*counted.type.shape, 1))
    number = totals(s, ones, bag, count, "add")
    if mode == MAX:
        return [s.cast(largest(s, rows, bag, counted, count, number), dtype), None, None, None]
    present = s.broadcast(s.reshaped(counted, (*counted.type.shape, 1)), shape=rows.type.shape)[0]
    y = totals(s, s.g(Where(), present, rows, s.filled(0, rows.type)), bag, count, "add")
    if mode == MEAN:
        least = s.g(Maximum(), number, s.filled(1, number.type))
        y = s.g(Div(), y, *s.broadcast(least, shape=y.type.shape))
    return [s.cast(y, dtype), None, None, None]


def bags_of(
    s: Site, indices: Value, offsets: Value, count: Dim, padding: int
) -> tuple[Value, Value]:
    """Return the bag of each index, and whether it counts there: one past the last bag does not."""
    n, marks = indices.type.shape[0], offsets.type.shape[0]
    at = s.g(Range(n, 0, 1, "i64"))
    grid = (n, marks)
    places = s.broadcast(s.reshaped(at, (n, 1)), shape=grid)[0]
    starts = s.broadcast(s.reshaped(s.cast(offsets, "i64"), (1, marks)), shape=grid)[0]
    begun = s.cast(s.g(LessOrEqual(), starts, places), "i64")
    passed = s.g(ReduceSum((1,), False), begun)
    bag = s.g(Sub(), passed, s.filled(1, passed.type))
    last = s.broadcast(s.constant(count, "i64"), shape=bag.type.shape)[0]
    counted = s.g(BitNot(), s.g(LessOrEqual(), last, bag))
    if padding >= 0:
        number = s.cast(indices, "i64")
        padded = s.g(Equal(), number, s.filled(padding, number.type))
        counted = s.g(BitAnd(), counted, s.g(BitNot(), padded))
    return s.g(Where(), counted, bag, s.filled(0, bag.type)), counted


def totals(s: Site, rows: Value, bag: Value, count: Dim, how: str, start: float = 0) -> Value:
    """Return the rows of each bag together, from `start` on."""
    n, columns = rows.type.shape
    zeros = s.filled(start, rows.type.with_shape((count, columns)))
    at = s.broadcast(s.reshaped(bag, (n, 1)), shape=rows.type.shape)[0]
    return s.g(ScatterElements(0, how), zeros, at, rows)


def largest(
    s: Site, rows: Value, bag: Value, counted: Value, count: Dim, number: Value
) -> Value:  # fmt: skip
    """Return the largest elements of each bag; zeros where a bag is empty."""
    low = float("-inf")
    present = s.broadcast(s.reshaped(counted, (*counted.type.shape, 1)), shape=rows.type.shape)[0]
    kept = s.g(Where(), present, rows, s.filled(low, rows.type))
    y = totals(s, kept, bag, count, "max", low)
    empty = s.g(Equal(), number, s.filled(0, number.type))
    return s.g(Where(), *s.broadcast(empty, shape=y.type.shape), s.filled(0, y.type), y)


@on("aten.embedding_renorm.default")
def renormalized(
    s: Site, x: Value, indices: Value, max_norm: float, norm_type: float
) -> Made:  # fmt: skip
    """Rows that are looked up and longer than `max_norm` are made as long as that."""
    rows, columns = x.type.shape
    wide = s.cast(x, "f64" if x.type.dtype == "f64" else "f32")
    flat = s.reshaped(indices, (product(indices.type.shape),))
    at = s.indices(flat, rows, 0, negative=False)
    none = s.filled(0, wide.type.with_shape((rows,)))
    ones = s.filled(1, wide.type.with_shape(flat.type.shape))
    used = s.g(Less(), none, s.g(ScatterElements(0, "max"), none, at, ones))
    length = s.g(norm_of(norm_type), wide)
    longer = s.g(BitAnd(), used, s.g(Less(), s.filled(float(max_norm), length.type), length))
    safe = s.g(Add(), length, s.filled(1e-7, length.type))
    share = s.g(Div(), s.filled(float(max_norm), length.type), safe)
    factor = s.g(Where(), longer, share, s.filled(1, share.type))
    wide_factor = s.broadcast(s.reshaped(factor, (rows, 1)), shape=(rows, columns))[0]
    return s.cast(s.g(Mul(), wide, wide_factor), x.type.dtype)


def norm_of(p: float) -> Op:
    """Return the p-norm of rows."""
    if p in (1, 2):
        return ReduceL1((1,), False) if p == 1 else ReduceL2((1,), False)
    raise UnsupportedError(f"norm_type is {p}, expected 1 or 2")
