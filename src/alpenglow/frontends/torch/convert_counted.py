"""Converters for results that are as long as data say: the import is cut where they are counted."""

from __future__ import annotations

from alpenglow.frontends.torch.table import Made, Site, axis_of, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.counted import NonZero, Unique
from alpenglow.ops.gather import Gather
from alpenglow.ops.movement import Slice, Transpose, stretch


@on("aten.nonzero.default")
def nonzero(s: Site, x: Value) -> Made:
    if not x.type.rank:
        found = places(s, s.reshaped(x, (1,)))
        return s.reshaped(found, (found.type.shape[1], 0))
    return s.g(Transpose((1, 0)), places(s, x))


@on("aten.masked_select.default")
def masked_select(s: Site, x: Value, mask: Value) -> Made:
    shape = x.type.shape if x.type.rank >= mask.type.rank else mask.type.shape
    shape = tuple(b if a == 1 else a for a, b in zip(
        (1,) * (len(shape) - x.type.rank) + x.type.shape,
        (1,) * (len(shape) - mask.type.rank) + mask.type.shape, strict=True,
    ))  # fmt: skip
    count = product(shape)
    flat = s.reshaped(stretch(s.g, x, shape), (count,))
    chosen = places(s, s.reshaped(stretch(s.g, mask, shape), (count,)))
    return s.g(Gather(0), flat, s.reshaped(chosen, (chosen.type.shape[1],)))


def places(s: Site, x: Value) -> Value:
    """Return the coordinates of the elements that are not 0, a column each."""
    coordinates, count = s.g.add(NonZero(), [x]).results
    (n,), (coordinates,) = s.cut(count, coordinates)
    return first(s, coordinates, n)


def first(s: Site, x: Value, n: Dim) -> Value:
    """Return the first n elements of x along the last axis, of which there are as many."""
    sizes = (*x.type.shape[:-1], n)
    return s.g(Slice((0,) * x.type.rank, sizes, (1,) * x.type.rank), x)


def kinds(s: Site, x: Value, axis: int, sort: bool) -> tuple[Value, Value, Value]:
    """Return slices that differ, which of these each slice is, and how many are alike."""
    leaders, inverse, counts, count = s.g.add(Unique(axis, sort), [x]).results
    (n,), (leaders, inverse, counts) = s.cut(count, leaders, inverse, counts)
    leaders, counts = first(s, leaders, n), first(s, counts, n)
    return s.g(Gather(axis), x, leaders), inverse, counts


@on("aten._unique2.default")
def unique2(
    s: Site, x: Value, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> Made:  # fmt: skip
    """The kinds are sorted whatever is asked: PyTorch on CPUs does so, too."""
    y, inverse, counts = kinds(s, s.reshaped(x, (product(x.type.shape),)), 0, True)
    return [y, s.reshaped(inverse, x.type.shape), counts]


@on("aten.unique_dim.default")
def unique_dim(
    s: Site, x: Value, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> Made:  # fmt: skip
    return kinds(s, x, axis_of(dim, x.type.rank), True)
