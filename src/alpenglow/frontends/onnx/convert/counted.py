"""Converters for operators whose results are as long as the data make them.

Ours make results of the greatest length and a count.  `Site.measured` tells the count, if need be
by running what comes before, and the results are cut to it.
"""

from __future__ import annotations

from alpenglow.frontends.movement import head
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.ir.dims import known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.comparison import GreaterOrEqual
from alpenglow.ops.image.suppress import Suppress
from alpenglow.ops.tensor.gather import Gather, GatherNd
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice, Transpose


@on("NonZero", since=9)
def non_zero(s: Site) -> Made:
    x = s.input(0)
    return s.places(x if x.type.rank else s.g(Reshape((1,)), x))


@on("Compress", since=9)
def compress(s: Site) -> Made:
    x, condition = s.input(0), s.input(1)
    choice = s.attribute("axis")
    if choice is None:
        x = s.g(Reshape((product(x.type.shape),)), x)
    axis = s.axis(choice or 0, x.type.rank)
    if condition.type.rank != 1:
        raise s.wrong(f"condition is {condition.type}, expected one axis")
    # Elements past the end of the condition are dropped; entries past the end of x are ignored.
    length, extent = condition.type.shape[0], x.type.shape[axis]
    if known(length) and known(extent) and length > extent:
        condition = head(s.g, condition, extent)
    chosen = s.places(condition)
    return s.g(Gather(axis), x, s.g(Reshape((chosen.type.shape[1],)), chosen))


@on("Unique", since=11)
def unique(s: Site) -> Made:
    return unique_values(s, bool(s.attribute("sorted", 1)))


def unique_values(s: Site, sort: bool) -> tuple[Value, Value, Value, Value]:
    """Return different values, where each is first, which one each element is, and counts."""
    x = s.input(0)
    choice = s.attribute("axis")
    if choice is None:
        x = s.g(Reshape((product(x.type.shape),)), x)
    axis = s.axis(choice or 0, x.type.rank)
    return s.kinds(x, axis, sort)


@on("NonMaxSuppression", since=10)
def non_max_suppression(s: Site) -> Made:
    boxes, scores = s.input(0), s.input(1)
    limit, overlap, threshold = (number(s, i) for i in (2, 3, 4))
    if limit is None:
        limit = s.g.constant(0)
    op = Suppress(bool(s.attribute("center_point_box", 0)))
    kept = s.g.add(op, [boxes, scores, limit, overlap, threshold]).results[0]
    if limit.array is not None:
        kept = head(s.g, kept, max(int(limit.array), 0))
    columns = s.places(s.g(GreaterOrEqual(), kept, scalar(s.g, 0, kept)))
    n = columns.type.shape[1]
    rows = s.g(Transpose((1, 0)), columns)
    chosen = s.g(Reshape((n, 1)), s.g(GatherNd(), kept, rows))
    return s.g(Concat(1), s.g(Slice((0, 0), (n, 2), (1, 1)), rows), chosen)


def number(s: Site, i: int) -> Value | None:
    """Return operand i, which has one element, as a scalar, or None if it is absent."""
    v = s.optional(i)
    if v is None or not v.type.rank:
        return v
    return s.g(Reshape(()), v) if v.array is None else s.g.constant(v.array.reshape(()))
