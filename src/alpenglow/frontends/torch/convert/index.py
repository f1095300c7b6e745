"""Converters that read elements at positions that tensors hold.

An index on one axis is a Gather.  Several are a GatherNd on a tensor whose indexed axes come first.
Each index must be in range: another ends the call with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.movement import permuted, sliced
from alpenglow.frontends.shapes import widest
from alpenglow.frontends.torch.promote import shared
from alpenglow.frontends.torch.table import Made, Operand, Site, axis_of, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Add, Sub
from alpenglow.ops.elementwise.comparison import IsNaN, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitOr
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import Gather, GatherElements, GatherNd
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, stretch

MASKS = ("bool", "u8")
"""Element types of an index that says which elements are read, rather than where they are."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where an index of tensors points: `axes` of a tensor are replaced by those of `shape`.

    `tuples` has a last axis with a number for each of `axes`.  In the result `shape` stands
    at axis `first`.
    """

    axes: tuple[int, ...]
    tuples: Value
    first: int

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.tuples.type.shape[:-1]

    def front(self, rank: int) -> tuple[int, ...]:
        """Return the permutation of a tensor's axes that brings those indexed to the front."""
        return (*self.axes, *(i for i in range(rank) if i not in self.axes))

    def result(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the shape of what is read of a tensor of a shape."""
        rest = [d for i, d in enumerate(shape) if i not in self.axes]
        return (*rest[: self.first], *self.shape, *rest[self.first :])

    def from_front(self, rank: int) -> tuple[int, ...]:
        """Return the permutation that brings `shape`, at the front, to where it stands."""
        count = len(self.shape)
        rest = range(count, rank)
        return (*rest[: self.first], *range(count), *rest[self.first :])


@on("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(s: Site, x: Value, indices: Sequence[Value | None]) -> Made:
    listed = by_axis(s, x, indices)
    axes = [i for i, v in enumerate(listed) if v is not None]
    if len(axes) == 1:
        (axis,) = axes
        v = listed[axis]
        assert v is not None
        return s.g(Gather(axis), x, s.indices(v, x.type.shape[axis], axis))
    if not axes:
        return x
    places = places_of(s, x, listed)
    y = s.g(GatherNd(), permuted(s.g, x, places.front(x.type.rank)), places.tuples)
    return permuted(s.g, y, places.from_front(y.type.rank))


@on("aten.gather.default")
def gather(s: Site, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Made:
    if 0 in s.result.shape:
        return s.filled(0, s.result)
    axis = axis_of(dim, x.type.rank)
    data, at = with_axis(s, x), with_axis(s, index)
    y = s.g(GatherElements(axis), data, s.indices(at, data.type.shape[axis], axis, negative=False))
    return s.reshaped(y, s.result.shape)


@on("aten.index_select.default")
def index_select(s: Site, x: Value, dim: int, index: Value) -> Made:
    axis = axis_of(dim, x.type.rank)
    data, at = with_axis(s, x), with_axis(s, index)
    at = s.indices(at, data.type.shape[axis], axis, negative=False)
    return s.reshaped(s.g(Gather(axis), data, at), s.result.shape)


@on("aten.take.default")
def take(s: Site, x: Value, index: Value) -> Made:
    flat = s.reshaped(x, (product(x.type.shape),))
    return s.g(Gather(0), flat, s.indices(index, flat.type.shape[0], 0))


@on("aten.embedding.default")
def embedding(
    s: Site, weight: Value, indices: Value, padding_idx: Dim = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Made:  # fmt: skip
    return s.g(Gather(0), weight, s.indices(indices, weight.type.shape[0], 0, negative=False))


@on("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def search_sorted(
    s: Site, sorted_sequence: Value, x: Operand, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value | None = None,
) -> Made:  # fmt: skip
    line = sorted_sequence
    if sorter is not None:
        axis = line.type.rank - 1
        at = s.indices(sorter, line.type.shape[axis], axis, negative=False)
        line = s.g(GatherElements(axis), line, at)
    return counted_before(s, line, x, right or side == "right")


@on("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    s: Site, x: Operand, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Made:
    return counted_before(s, boundaries, x, right)


def counted_before(s: Site, line: Value, x: Operand, right: bool) -> Value:
    """Return how many elements of sorted lines come before each of x: equal ones too if `right`.

    In lines NaN comes last, as sorts leave it; all elements come before a NaN of x.  PyTorch, which
    bisects, also counts what is left of each NaN of a line that it meets.  Lines of several axes
    have as many as x; all but the last are in common.
    """
    dtype = shared((line, x))
    values = with_axis(s, s.tensor(x, dtype))
    *outer, last = values.type.shape
    extent = line.type.shape[-1]
    shape = (*outer, last, extent)
    lines = s.cast(line, dtype)
    if line.type.rank > 1:
        lines = s.reshaped(lines, (*outer, 1, extent))
    a = stretch(s.g, lines, shape)
    b = stretch(s.g, s.reshaped(values, (*outer, last, 1)), shape)
    before = s.g(LessOrEqual() if right else Less(), a, b)
    if dtype in FLOATS:
        before = s.g(BitOr(), before, s.g(IsNaN(), b))
    counts = s.g(ReduceSum((len(shape) - 1,), False), s.cast(before, "i64"))
    return s.reshaped(s.cast(counts, s.result.dtype), x.type.shape if isinstance(x, Value) else ())


@on("aten.repeat_interleave.Tensor")
def repeat_interleave(s: Site, repeats: Value, output_size: Dim | None = None) -> Made:
    (count,), (size,) = repeats.type.shape, s.result.shape
    counts = s.within(s.cast(repeats, "i64"), 0, (1 << 31) - 1, "an element of repeats")
    ends = s.g(CumSum(0), counts)
    if repeats.array is not None:
        size = int(repeats.array.sum())
    elif output_size is None:
        (size,) = s.measured(s.g(ReduceSum((0,), False), counts))
    else:
        if not known(count) or count == 0:
            raise UnsupportedError(f"repeats has {count} elements, expected a fixed number above 0")
        ends = totalled(s, ends, count, size)
    places = s.g(Range(size))
    return s.cast(counted_before(s, ends, places, True), s.result.dtype)


def totalled(s: Site, ends: Value, count: int, size: Dim) -> Value:
    """Return totals so far, the last of which must be `size`: otherwise the call ends."""
    last = sliced(s.g, ends, 0, count - 1, 1)
    difference = s.g(Sub(), s.spread(s.constant(size, "i64"), (1,)), last)
    none = s.within(difference, 0, 0, "output_size minus the sum of repeats")
    return s.g(Add(), ends, s.spread(none, (count,)))


def by_axis(
    s: Site, x: Value, indices: Sequence[Value | None]
) -> list[Value | None]:  # fmt: skip
    """Return the index of each axis of x, None where there is none.

    A mask is what it says, an index for each of its axes; one that is data is counted first.
    """
    listed: list[Value | None] = []
    for v in indices:
        if v is None or v.type.dtype not in MASKS:
            listed.append(v if v is None else s.cast(v, "i64"))
        elif v.array is None:
            chosen = s.places(v if v.type.rank else s.reshaped(v, (1,)))
            shape = (chosen.type.shape[1],)
            listed += [s.reshaped(sliced(s.g, chosen, 0, i, 1), shape) for i in range(v.type.rank)]
        else:
            listed += [s.g.constant(a.astype(np.int64)) for a in np.nonzero(v.array)]
    if len(listed) > x.type.rank:
        raise ModelError(f"indices select along {len(listed)} axes, expected at most {x.type.rank}")
    return listed + [None] * (x.type.rank - len(listed))


def places_of(s: Site, x: Value, listed: Sequence[Value | None]) -> Places:
    """Return the places of an index of several tensors, broadcast to each other."""
    axes = tuple(i for i, v in enumerate(listed) if v is not None)
    ranged = [s.indices(v, x.type.shape[i], i) for i, v in enumerate(listed) if v is not None]
    shape = widest([v.type.shape for v in ranged])
    parts = [s.reshaped(stretch(s.g, v, shape), (*shape, 1)) for v in ranged]
    tuples = parts[0] if len(parts) == 1 else s.g(Concat(len(shape)), *parts)
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    return Places(axes, tuples, axes[0] if adjacent else 0)


def with_axis(s: Site, x: Value) -> Value:
    """Return x; a tensor without axes as one of one element."""
    return x if x.type.rank else s.reshaped(x, (1,))
