"""Converters for results that are as long as data say: the import is cut where they are counted."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.shapes import widest
from alpenglow.frontends.torch.table import Made, Site, axis_of, number, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, IsNaN
from alpenglow.ops.elementwise.logic import BitNot
from alpenglow.ops.reduction.reduction import ReduceMax, filled
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import Gather, ScatterElements
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose, stretch


@on("aten.nonzero.default")
def nonzero(s: Site, x: Value) -> Made:
    if not x.type.rank:
        found = s.places(s.reshaped(x, (1,)))
        return s.filled(0, TensorType("i64", (found.type.shape[1], 0)))
    return s.g(Transpose((1, 0)), s.places(x))


@on("aten.masked_select.default")
def masked_select(s: Site, x: Value, mask: Value) -> Made:
    shape = widest([x.type.shape, mask.type.shape])
    count = product(shape)
    s.at_most(s.result.shape[0], count)  # PyTorch counts x alone, also where the mask stretches it
    flat = s.reshaped(stretch(s.g, x, shape), (count,))
    chosen = s.places(s.reshaped(stretch(s.g, mask, shape), (count,)))
    return s.g(Gather(0), flat, s.reshaped(chosen, (chosen.type.shape[1],)))


@on("aten.bincount.default")
def bincount(s: Site, x: Value, weights: Value | None = None, minlength: int = 0) -> Made:
    """Count each number from 0 to the largest, or sum its weights."""
    (extent,) = x.type.shape
    if known(extent) and extent == 0:
        return s.filled(0, s.result.with_shape((minlength,)))
    numbers = s.cast(x, "i64")
    most = s.g(ReduceMax((0,), True), numbers)
    (n,), _ = s.cut(s.g(Maximum(), s.g(Add(), most, filled(s.g, 1, most)),
                        filled(s.g, minlength, most)))  # fmt: skip
    at = s.within(numbers, 0, n - 1, "an element of self")
    total = s.result.with_shape((n,))
    each = s.filled(1, total.with_shape((extent,))) if weights is None else weights
    return s.g(ScatterElements(0, "add"), s.filled(0, total), at, s.cast(each, total.dtype))


def kinds(s: Site, x: Value, axis: int) -> tuple[Value, Value, Value, Value]:
    """Call `Site.kinds` so that each NaN is a kind of its own, as in PyTorch."""
    keys = _told_apart(s, x, axis) if x.type.dtype in FLOATS else None
    return s.kinds(x, axis, True, keys)


def _told_apart(s: Site, x: Value, axis: int) -> Value:
    """Return slices as rows, those with NaN with their number behind: to PyTorch none is alike."""
    rows = s.cast(_rows(s, x, axis), "f64")
    undefined = s.g(ReduceMax((1,), True), s.cast(s.g(IsNaN(), rows), "u8"))
    numbers = s.reshaped(s.g(Range(rows.type.shape[0], 1, 1, "f64")), undefined.type.shape)
    return s.g(Concat(1), rows, s.g(Mul(), s.cast(undefined, "f64"), numbers))


def _rows(s: Site, x: Value, axis: int) -> Value:
    """Return the slices along an axis, each as a row."""
    rest = [i for i in range(x.type.rank) if i != axis]
    moved = s.g(Transpose((axis, *rest)), x)
    return s.reshaped(moved, (moved.type.shape[0], product(moved.type.shape[1:])))


@on("aten._unique2.default")
def unique2(
    s: Site, x: Value, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> Made:  # fmt: skip
    """The kinds are sorted whatever is asked: PyTorch on CPUs does so, too."""
    y, _, inverse, counts = kinds(s, s.reshaped(x, (product(x.type.shape),)), 0)
    return [y, s.reshaped(inverse, x.type.shape), counts]


@on("aten.unique_dim.default")
def unique_dim(
    s: Site, x: Value, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> Made:  # fmt: skip
    y, _, inverse, counts = kinds(s, x, axis_of(dim, x.type.rank))
    return [y, inverse, counts]


@on("aten.unique_consecutive.default")
def unique_consecutive(
    s: Site, x: Value, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Made:  # fmt: skip
    """Return the first of each run of slices that are alike, of which run each is, and how long."""
    rank = 1 if dim is None else x.type.rank
    if s.result.rank != rank:
        # PyTorch's inference of shapes differs from its kernel here, for dim < 0.  No program is
        # converted that was traced with it, for whatever read those shapes has numbers of them.
        raise UnsupportedError(f"the result is {s.result}, expected rank {rank}; try: dim >= 0")
    y = s.reshaped(x, (product(x.type.shape),)) if dim is None else x
    axis = 0 if dim is None else axis_of(dim, x.type.rank)
    extent = number(y.type.shape[axis])
    if not extent:
        none = s.filled(0, TensorType("i64", (0,)))
        return [y, s.reshaped(none, x.type.shape) if dim is None else none, none]
    begun = s.cast(_differs(s, y, axis, extent), "i64")
    runs = s.g(Sub(), s.g(CumSum(0), begun), filled(s.g, 1, begun))
    found = s.places(begun)
    n = found.type.shape[1]
    starts = s.reshaped(found, (n,))
    behind = s.g(Slice((1,), (n - 1,), (1,)), starts)
    ends = s.g(Concat(0), behind, s.g.constant(np.array([extent])))
    inverse = s.reshaped(runs, x.type.shape) if dim is None else runs
    return [s.g(Gather(axis), y, starts), inverse, s.g(Sub(), ends, starts)]


def _differs(s: Site, x: Value, axis: int, extent: Dim) -> Value:
    """Return, for each slice along an axis, if it is the first or differs from the one before."""
    flat = _rows(s, x, axis)
    width = flat.type.shape[1]
    after, before = (s.g(Slice((i, 0), (extent - 1, width), (1, 1)), flat) for i in (1, 0))
    other = s.g(BitNot(), s.g(Equal(), after, before))
    any_ = s.cast(s.g(ReduceMax((1,), False), s.cast(other, "u8")), "bool")
    return s.g(Concat(0), s.g.constant(np.array([True])), any_)
