"""Checks of indices: those that cannot fail are taken out, or all where indices are to be clamped.

The values of an index are bounded by the nodes that compute it: constants, counts, positions of
extrema, limits that a model sets itself.  Every bound is derived from one node; most models need no
more.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.ir.dims import Dim, is_open, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import DTYPES, INTS
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Maximum, Minimum, Mod, Mul, Sub
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.reduction.reduction import ArgMax, ArgMin
from alpenglow.ops.tensor.gather import Gather, GatherElements, GatherNd
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.ops.tensor.order import TopK

DEPTH = 16
"""How many nodes back is looked."""

Interval = tuple[Dim, Dim]
"""The least and the largest that an element can be."""

rules = Rules()


def clamp_indices(g: Graph) -> Graph:
    """Take all checks out: operators then use the nearest index that there is."""
    for node in list(g.nodes):
        if isinstance(node.op, InRange):
            (x,) = node.inputs
            assert x is not None
            g.replace(node.output, x)
    g.prune()
    return g


@rules.on(InRange)
def never_out_of_range(g: Graph, node: Node) -> Rewritten:
    """in_range(x) => x   where what computes x keeps it in range"""
    match node:
        case Node(InRange(low, high), [Value() as x]):
            bounds = interval(x)
            if bounds is not None and _is_sure(bounds[0] - low) and _is_sure(high - bounds[1]):
                return x
    return None


def _is_sure(gap: Dim) -> bool:
    """Whether a difference of extents is not negative."""
    return known(gap) and gap >= 0


def interval(v: Value, depth: int = DEPTH) -> Interval | None:
    """Return the bounds of the elements of an integer tensor; None if none are known."""
    if v.array is not None:
        if v.type.dtype not in INTS or not v.array.size:
            return None
        return int(v.array.min()), int(v.array.max())
    node = v.producer
    bounds = None if node is None or not depth else _made(node, v, depth - 1)
    return _of_type(v) if bounds is None else bounds


def _of_type(v: Value) -> Interval | None:
    if v.type.dtype == "bool":
        return 0, 1
    if v.type.dtype not in INTS:
        return None
    limits = np.iinfo(DTYPES[v.type.dtype])
    return int(limits.min), int(limits.max)


def _made(node: Node, v: Value, depth: int) -> Interval | None:
    """Return the bounds of a result of a node, as far as its operator implies them."""
    match node.op:
        case Range(count, int(start), int(step), "i64") if step > 0 and not is_open(step):
            return start, (count - 1) * step + start
        case ArgMax() | ArgMin() as op:
            return 0, _extent(node, op.axis)
        case TopK() as op if v is node.results[1]:
            return 0, _extent(node, op.axis)
        case InRange(low, high):
            return low, high
    between = [None if x is None else interval(x, depth) for x in node.inputs]
    if isinstance(node.op, Gather | GatherElements | GatherNd | Slice):
        between = between[:1]  # what else there is says where to read
    elif isinstance(node.op, Where):
        between = between[1:]
    intervals = [b for b in between if b is not None]
    if len(intervals) < len(between):
        return None
    bounds = _computed(node.op, intervals)
    return bounds if bounds is not None and _fits(bounds, v) else None


def _extent(node: Node, axis: int) -> Dim:
    """Return the last position on an axis of the first operand of a node."""
    (x, *_) = node.inputs
    assert x is not None
    return x.type.shape[axis] - 1


def _computed(op: Op, intervals: list[Interval]) -> Interval | None:
    """Return the bounds of a result of an operator that computes with bounds or moves elements."""
    lows, highs = [low for low, _ in intervals], [high for _, high in intervals]
    match op:
        case Reshape() | Transpose() | Broadcast() | Slice() | Gather() | GatherElements():
            return intervals[0]
        case GatherNd() | Cast():
            return intervals[0]
        case Add():
            return lows[0] + lows[1], highs[0] + highs[1]
        case Sub():
            return lows[0] - highs[1], highs[0] - lows[1]
    numbers = [d for d in (*lows, *highs) if not is_open(d)]
    if len(numbers) < 2 * len(intervals):
        return None
    low, high = [int(d) for d in lows], [int(d) for d in highs]
    match op:
        case Concat() | Where():
            return min(low), max(high)
        case Minimum():
            return min(low), min(high)
        case Maximum():
            return max(low), max(high)
        case Mul():
            ends = [a * b for a in (low[0], high[0]) for b in (low[1], high[1])]
            return min(ends), max(ends)
        case Mod() if low[1] > 0:
            return 0, high[1] - 1
        case BitAnd() if min(low) >= 0:
            return 0, min(high)
        case Clip(first, last):
            return _clipped(low[0], first, last), _clipped(high[0], first, last)
    return None


def _clipped(number: int, first: float, last: float) -> int:
    number = number if math.isinf(first) else max(number, int(first))
    return number if math.isinf(last) else min(number, int(last))


def _fits(bounds: Interval, v: Value) -> bool:
    """Whether a result is what it is without wrapping around."""
    own = _of_type(v)
    if own is None:
        return False
    if any(is_open(d) for d in bounds):
        return v.type.dtype == "i64"
    return own[0] <= bounds[0] and bounds[1] <= own[1]
