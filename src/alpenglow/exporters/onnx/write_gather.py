"""Writers of what reads and writes at computed positions: gather, scatter, one-hot.

To ONNX an index out of range is an error; our operators use the nearest element.  So positions are
limited before an operator of ONNX sees them, unless what computes them keeps them in range, or it
is checked before (`ops.tensor.in_range`): then the operator of ONNX is the check, if it allows the
same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.exporters.onnx.extents import extent, extents, scalar_extent
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import DTYPES, HALVES, UNSIGNED
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.passes.indices import interval

ONE_HOTS = frozenset({("i64", "f32"), ("i64", "i64")})
"""The types of indices and values that runtimes have a OneHot for, of those that are in use."""


@on(Gather)
def gather(w: Writer, op: Gather, data: Value, indices: Value) -> Tensor:
    axis = op.axis % data.type.rank
    return w("Gather", data, within(w, indices, [data.type.shape[axis]]), axis=axis)


@on(GatherElements)
def gather_elements(w: Writer, op: GatherElements, data: Value, indices: Value) -> Tensor:
    axis = op.axis % data.type.rank
    return w("GatherElements", data, within(w, indices, [data.type.shape[axis]]), axis=axis)


@on(GatherNd)
def gather_nd(w: Writer, op: GatherNd, data: Value, indices: Value) -> Tensor:
    places = w.cast(_tuples(w, data, indices, op.batch_dims), "i64")
    return w("GatherND", data, places, batch_dims=op.batch_dims)


@on(ScatterElements)
def scatter_elements(
    w: Writer, op: ScatterElements, data: Value, indices: Value, updates: Value
) -> Tensor:
    axis = op.axis % data.type.rank
    places = within(w, indices, [data.type.shape[axis]])
    wide = _summed(w, op.reduction, data, updates)
    y = w("ScatterElements", wide[0], places, wide[1], axis=axis, reduction=op.reduction)
    return w.cast(y, data.type.dtype)


@on(ScatterNd)
def scatter_nd(w: Writer, op: ScatterNd, data: Value, indices: Value, updates: Value) -> Tensor:
    places = w.cast(_tuples(w, data, indices, 0), "i64")
    wide = _summed(w, op.reduction, data, updates)
    y = w("ScatterND", wide[0], places, wide[1], reduction=op.reduction)
    return w.cast(y, data.type.dtype)


def _summed(w: Writer, reduction: str, *operands: Value) -> list[Tensor]:
    """Return operands of half precision as f32 where they are computed with: runtimes need it."""
    dtype = operands[0].type.dtype
    wide = "f32" if reduction != "none" and dtype in HALVES else dtype
    return [w.cast(v, wide) for v in operands]


def _tuples(w: Writer, data: Value, indices: Value, batch_dims: int) -> Tensor:
    """Return indices whose last axis holds positions on several axes, within these."""
    return within(w, indices, data.type.shape[batch_dims : batch_dims + _depth(indices)])


def within(w: Writer, indices: Value, shape: Sequence[Dim]) -> Tensor:
    """Return indices as ONNX takes them: limited to `shape`, along their last axis if it is longer.

    None has to be limited that is known to be from -n to n - 1 of an extent n.
    """
    bounds = interval(indices)
    safe = bounds is not None and all(
        _is_sure(bounds[0] + d) and _is_sure(d - 1 - bounds[1]) for d in shape
    )
    if safe or any(not is_open(d) and d == 0 for d in shape):
        return w.tensor(indices)
    dtype = indices.type.dtype
    wide: Operand = extents(w, shape) if len(shape) > 1 else _extent(w, shape[0])
    limit = w.cast(wide, dtype)
    zero, one = (np.array(n, indices.type.numpy) for n in (0, 1))
    front = w("Where", w("Less", indices, zero), w("Add", indices, limit), indices)
    return w("Min", w("Max", front, zero), w("Sub", limit, one))


def limited(w: Writer, v: Value, low: int, high: Dim) -> Tensor:
    """Return integers limited to what is from `low` to `high`; as they are where that is known."""
    bounds = interval(v)
    if bounds is not None and _is_sure(bounds[0] - low) and _is_sure(high - bounds[1]):
        return w.tensor(v)
    least = np.array(low, v.type.numpy)
    return w("Min", w("Max", v, least), w.cast(_extent(w, high), v.type.dtype))


def _extent(w: Writer, d: Dim) -> Operand:
    """Return an extent that broadcasts to any tensor of indices, scalars too."""
    return w("Squeeze", extent(w, d), np.zeros(1, np.int64)) if is_open(d) else np.array(d)


def ramp(
    w: Writer, count: Dim, before: tuple[int, ...], after: tuple[int, ...], dtype: str
) -> Tensor:
    """Return 0, 1, … along an axis between others of 1."""
    if not is_open(count):
        line = np.arange(int(count)).astype(DTYPES[dtype])
        return w.tensor(line.reshape((*before, -1, *after) if count else (*before, 0, *after)))
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    steps = w("Range", zero, scalar_extent(w, count), one)
    return w.cast(reshaped(w, steps, (*before, count, *after)), dtype)


def _is_sure(gap: Dim) -> bool:
    """Return True if a difference of extents is not negative, whatever they are."""
    return isinstance(gap, int) and gap >= 0


@on(InRange)
def in_range(w: Writer, op: InRange, x: Value) -> Tensor:
    """Write a check, unless it is one that all readers make themselves."""
    assert w.node is not None, "a node is being written"
    v = w.node.output
    if v.users and all(_finds_faults(n, v, op) for n in v.users):
        return w.tensor(x)
    m, whole = OnnxMath(w), w.cast(x, "i64")
    below = m.lt(whole, scalar_extent(w, op.low))
    above = m.gt(whole, scalar_extent(w, op.high))
    faults = w.cast(m.bit_or(below, above), "i64")
    if x.type.rank:
        faults = m.minimum(w("ReduceSum", faults, np.arange(x.type.rank), keepdims=0), 1)
    # Position 1 of one element is an error, to ONNX, too; position 0 is a 0.
    return m.add(w.tensor(x), w("Gather", np.zeros(1, x.type.numpy), faults, axis=0))


def _finds_faults(reader: Node, v: Value, op: InRange) -> bool:
    """Return True if what reads v as positions allows, to ONNX, what the check allows, no more."""
    data, *_ = reader.inputs
    if data is None or reader.inputs[1:2] != (v,) or sum(x is v for x in reader.inputs) > 1:
        return False
    shape = data.type.shape
    match reader.op:
        case Gather(axis) | GatherElements(axis) | ScatterElements(axis):
            read = [shape[axis]]
        case GatherNd(first):
            read = list(shape[first : first + _depth(v)])
        case ScatterNd():
            read = list(shape[: _depth(v)])
        case _:
            return False
    return all(op.low == d * -1 and op.high == d - 1 for d in read)


def _depth(v: Value) -> int:
    depth = v.type.shape[-1]
    assert isinstance(depth, int), "the type rule wants a number"
    return depth


@on(OneHot)
def one_hot(w: Writer, op: OneHot, indices: Value, values: Value) -> Tensor:
    """Write OneHot, or where runtimes have none of these types, what it compares."""
    kinds, rank = (indices.type.dtype, values.type.dtype), indices.type.rank
    axis = op.axis % (rank + 1)
    if kinds in ONE_HOTS and rank and op.depth != 0:
        return w("OneHot", indices, extents(w, [op.depth]), values, axis=axis)
    at = w("Unsqueeze", indices, np.array([axis], np.int64))
    places = ramp(w, op.depth, (1,) * axis, (1,) * (rank - axis), at.dtype)
    hot = w("Equal", at, places)
    if indices.type.dtype not in UNSIGNED:
        counted = w("Add", at, w.cast(scalar_extent(w, op.depth), at.dtype))
        hot = w("Or", hot, w("Equal", counted, places))
    off, on_ = (w("Gather", values, np.array(i, np.int64)) for i in (0, 1))
    return w("Where", hot, on_, off)
