"""The converter for elements of segments together: sums, means, extremes and products."""

from __future__ import annotations

import math

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.convert.scatter import neutral_of, written
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Div, Maximum, Sub
from alpenglow.ops.elementwise.comparison import Equal, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Slice

REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


@on("aten.segment_reduce.default")
def segment_reduce(
    s: Site, data: Value, reduce: str, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Made:  # fmt: skip
    """Elements of a segment lie together along an axis; one without elements is `initial`.

    Segments are by length, or by where they begin, and each row before the axis has its own.
    """
    if indices is not None or reduce not in REDUCTIONS:
        raise UnsupportedError(f"reduce is '{reduce}', expected one of {', '.join(REDUCTIONS)}, "
                               "by lengths or offsets and not indices")  # fmt: skip
    axis = axis % data.type.rank
    begin, end = ends_of(s, lengths, offsets)
    batch, n = product(data.type.shape[:axis]), data.type.shape[axis]
    rest, count = product(data.type.shape[axis + 1 :]), begin.type.shape[-1]
    begin, end = (s.reshaped(v, (batch, count)) for v in (begin, end))
    dtype = wide(data.type.dtype)
    x = s.reshaped(s.cast(data, dtype), (batch, n, rest))
    index = s.reshaped(segments(s, begin, end, n), (batch, n, 1))
    how = REDUCTIONS[reduce]
    first = neutral_of(dtype, how) if initial is None else float(initial)
    start = s.filled(first, x.type.with_shape((batch, count + 1, rest)))  # the last is of none
    y = written(s, start, 1, s.broadcast(index, shape=x.type.shape)[0], x, how)
    y = s.g(Slice((0, 0, 0), (batch, count, rest), (1, 1, 1)), y)
    if reduce == "mean":
        y = shared_out(s, y, s.reshaped(s.g(Sub(), end, begin), (batch, count, 1)), initial)
    return s.reshaped(s.cast(y, data.type.dtype), s.result.shape)


def ends_of(s: Site, lengths: Value | None, offsets: Value | None) -> tuple[Value, Value]:
    """Return the first and the end index of each segment."""
    if lengths is not None:
        long = s.cast(lengths, "i64")
        end = s.g(CumSum(long.type.rank - 1), long)
        return s.g(Sub(), end, long), end
    if offsets is None:
        raise ModelError("lengths and offsets are None, expected one of them")
    all_ = s.cast(offsets, "i64")
    shape = (*all_.type.shape[:-1], all_.type.shape[-1] - 1)
    front, steps = (0,) * (all_.type.rank - 1), (1,) * all_.type.rank
    return s.g(Slice((*front, 0), shape, steps), all_), s.g(Slice((*front, 1), shape, steps), all_)


def segments(s: Site, begin: Value, end: Value, n: Dim) -> Value:
    """Return the segment of each of n places in each row; one past the last of those in none."""
    batch, count = begin.type.shape
    grid = (batch, n, count)
    at = s.broadcast(s.reshaped(s.g(Range(n, 0, 1, "i64")), (1, n, 1)), shape=grid)[0]
    low, high = (s.broadcast(s.reshaped(v, (batch, 1, count)), shape=grid)[0] for v in (begin, end))
    inside = s.cast(s.g(BitAnd(), s.g(LessOrEqual(), low, at), s.g(Less(), at, high)), "i64")
    places = s.broadcast(s.reshaped(s.g(Range(count, 0, 1, "i64")), (1, 1, count)), shape=grid)[0]
    none = s.filled(count, inside.type)
    chosen = s.g(Where(), s.cast(inside, "bool"), s.g(Sub(), none, places), s.filled(0, none.type))
    total = s.g(ReduceSum((2,), False), chosen)
    return s.g(Sub(), s.filled(count, total.type), total)


def shared_out(s: Site, y: Value, length: Value, initial: float | None) -> Value:
    """Return sums over lengths; where there is nothing, the initial number or NaN."""
    least = s.g(Maximum(), length, s.filled(1, length.type))
    mean = s.g(Div(), y, *s.broadcast(s.cast(least, y.type.dtype), shape=y.type.shape))
    empty = s.broadcast(s.g(Equal(), length, s.filled(0, length.type)), shape=y.type.shape)[0]
    nothing = s.filled(math.nan if initial is None else float(initial), y.type)
    return s.g(Where(), empty, nothing, mean)
