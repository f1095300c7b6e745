"""Writers of what orders elements, finds them and counts them."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.extents import extent, extents
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import limited
from alpenglow.exporters.onnx.write_movement import expanded, transposed
from alpenglow.exporters.onnx.writer import Operand, Refused, Tensor, Writer
from alpenglow.ir.dims import Dim, is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.random.random import Choose, steps
from alpenglow.ops.tensor.counted import NonZero, Unique
from alpenglow.ops.tensor.lookup import Find, Lookup
from alpenglow.ops.tensor.order import ReverseSequence, TopK

COUNTED = frozenset({"bool", "u8", "i32", "i64", "f32"})
"""The types whose zeros runtimes find as they are."""


@on(TopK)
def top_k(w: Writer, op: TopK, x: Value) -> list[Tensor]:
    axis = op.axis % x.type.rank
    return w.several(2, "TopK", x, extents(w, [op.k]), axis=axis, largest=int(op.largest))


@on(ReverseSequence)
def reverse_sequence(w: Writer, op: ReverseSequence, x: Value, lengths: Value) -> Tensor:
    """Put the two axes in front, where ONNX wants them."""
    rank = x.type.rank
    batch, time = op.batch % rank, op.time % rank
    if product(x.type.shape) == 0:
        return w.tensor(x)
    rest = [i for i in range(rank) if i not in (batch, time)]
    perm = tuple(range(rank)) if {batch, time} == {0, 1} else (batch, time, *rest)
    counts = w.cast(limited(w, lengths, 0, x.type.shape[time]), "i64")
    y = w("ReverseSequence", transposed(w, x, perm), counts,
          batch_axis=perm.index(batch), time_axis=perm.index(time))  # fmt: skip
    return transposed(w, y, tuple(perm.index(i) for i in range(rank)))


@on(NonZero)
def non_zero(w: Writer, op: NonZero, x: Value) -> list[Tensor]:
    """Fill up what ONNX finds with zeros, to as many columns as there can be."""
    found: Operand = x
    if x.type.dtype not in COUNTED:
        found = OnnxMath(w).ne(w.tensor(x), 0)
    places = w("NonZero", found)
    number = w("Shape", places, start=1, end=2)
    return [filled_up(w, places, 2, number, product(x.type.shape)), _scalar(w, number)]


@on(Unique)
def unique(w: Writer, op: Unique, x: Value) -> list[Tensor]:
    """Fill up with zeros what ONNX has for each kind, to one for each slice."""
    axis = op.axis % x.type.rank
    slices = x.type.shape[axis]
    keys: Operand = w.cast(x, "i64") if x.type.dtype == "bool" else x
    if product(x.type.shape) == 0:
        return _of_nothing(w, slices)
    _, first, kind, counts = w.several(4, "Unique", keys, axis=axis, sorted=int(op.sorted))
    number = w("Shape", first, start=0, end=1)
    each = [filled_up(w, v, 1, number, slices) for v in (first, counts)]
    return [each[0], kind, each[1], _scalar(w, number)]


def _of_nothing(w: Writer, slices: Dim) -> list[Tensor]:
    """Return the results for slices without elements: all are of one kind, if there are any."""
    if is_open(slices):
        raise Refused("a dynamic dimension that may be 0 is not supported by Unique")
    n = int(slices)
    zeros, counts = np.zeros(n, np.int64), np.array([n] + [0] * (n - 1) if n else [], np.int64)
    return [w.tensor(a) for a in (zeros, zeros, counts, np.array(min(n, 1)))]


def filled_up(w: Writer, x: Tensor, rank: int, number: Tensor, count: Dim) -> Tensor:
    """Return x[…, number] with zeros behind it, `count` elements on its last axis in all."""
    missing = w("Sub", extent(w, count), number)
    # Pads are before all axes, then after them: the last is that after the last axis.
    return w("Pad", x, w("Concat", np.zeros(2 * rank - 1, np.int64), missing, axis=0))


def _scalar(w: Writer, v: Tensor) -> Tensor:
    return w("Squeeze", v, np.zeros(1, np.int64))


@on(Lookup)
def lookup(w: Writer, op: Lookup, x: Value, table: Value) -> Tensor:
    """Read the table by x as a position: a negative one counts from its end, as its bits do."""
    return w("Gather", table, w.cast(x, "i32"), axis=0)


@on(Find)
def find(w: Writer, op: Find, x: Value, keys: Value) -> Tensor:
    """Write out the search by halves: how many of the keys are not above an element."""
    (count,) = keys.type.shape
    if is_open(count):
        raise Refused("a dynamic number of keys is not supported")
    count = int(count)
    if not count:
        return expanded(w, np.zeros((1,) * x.type.rank, np.int64), x.type.shape)
    m, wide = OnnxMath(w), "f32" if x.type.numpy.itemsize == 2 and x.type.dtype in FLOATS else ""
    values, sorted_ = (w.cast(v, wide or v.type.dtype) for v in (x, keys))
    nan = m.isnan(values) if x.type.dtype in FLOATS else None
    below: Operand = expanded(w, np.zeros((1,) * x.type.rank, np.int64), x.type.shape)
    for step in (1 << i for i in reversed(range(count.bit_length()))):
        further = m.add(below, step)
        key = w("Gather", sorted_, m.sub(m.minimum(further, count), 1), axis=0)
        not_above = m.le(key, values)
        if nan is not None:
            not_above = m.bit_or(not_above, nan)
        below = m.where(m.bit_and(not_above, m.le(further, count)), further, below)
    at = m.maximum(m.sub(below, 1), 0)
    key = w("Gather", sorted_, at, axis=0)
    there = m.eq(key, values)
    if nan is not None:
        there = m.bit_or(there, m.bit_and(m.isnan(key), nan))
    return m.where(there, at, count)


@on(Choose)
def choose(w: Writer, op: Choose, totals: Value, u: Value) -> Tensor:
    """Write out the halving of each row of totals."""
    classes = totals.type.shape[1]
    if is_open(classes):
        raise Refused("a dynamic number of classes is not supported")
    m, last = OnnxMath(w), int(classes) - 1
    wide = "f64" if totals.type.dtype == "f64" else "f32"
    rows, share = w.cast(totals, wide), w.cast(u, wide)
    whole = w("Slice", rows, *(np.array([n], np.int64) for n in (last, last + 1, 1)))
    limit = m.mul(share, whole)
    low: Operand = expanded(w, np.zeros((1, 1), np.int64), u.type.shape)
    high: Operand = expanded(w, np.full((1, 1), last, np.int64), u.type.shape)
    for _ in range(steps(classes)):
        middle = w("Div", m.add(low, high), np.array(2, np.int64))
        above = m.gt(w("GatherElements", rows, middle, axis=1), limit)
        next_ = m.minimum(m.add(middle, 1), high)
        low, high = m.where(above, low, next_), m.where(above, middle, high)
    return w.cast(low, op.dtype)
