"""Converters for gathering, scattering and selecting elements."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.order import TopK
from alpenglow.ops.tensor.places import INDICES


@on("Gather")
def gather(s: Site) -> Made:
    data, axis = s.input(0), s.named_axis(0)
    return s.g(Gather(axis), data, indices_on(s, axis))


@on("GatherElements", since=11)
def gather_elements(s: Site) -> Made:
    data, axis = s.input(0), s.named_axis(0)
    return s.g(GatherElements(axis), data, indices_on(s, axis))


@on("GatherND", since=11)
def gather_nd(s: Site) -> Made:
    batch = s.attribute("batch_dims", 0)
    return s.g(GatherNd(batch), s.input(0), tuples_on(s, batch))


@on("Scatter", since=9)
@on("ScatterElements", since=11)
def scatter_elements(s: Site) -> Made:
    data, axis = s.input(0), s.named_axis(0)
    reduction = s.attribute("reduction", "none")
    return s.g(ScatterElements(axis, reduction), data, indices_on(s, axis), s.input(2))


@on("ScatterND", since=11)
def scatter_nd(s: Site) -> Made:
    return s.g(ScatterNd(s.attribute("reduction", "none")), s.input(0), tuples_on(s), s.input(2))


def indices_on(s: Site, axis: int) -> Value:
    """Return the indices of a node, which are on one axis of its data."""
    v = s.input(1)
    if v.type.dtype not in INDICES:
        return v  # its type rule says so
    return s.indices(v, s.input(0).type.shape[axis], axis)


def tuples_on(s: Site, first: int = 0) -> Value:
    """Return the indices of a node, tuples that begin with axis `first` of its data."""
    data, v = s.input(0).type, s.input(1)
    depth = v.type.shape[-1] if v.type.rank else 0
    if v.type.dtype not in INDICES or not known(depth) or not 0 < depth <= data.rank - first:
        return v  # its type rule says so
    return s.tuples(v, data.shape[first : first + depth], first)


@on("OneHot", since=9)
def one_hot(s: Site) -> Made:
    indices = s.input(0)
    depths: tuple[Dim, ...]
    if s.input(1).type.dtype in FLOATS:  # ONNX allows any number
        depths = tuple(int(d) for d in s.constant(1).reshape(-1))
    else:
        depths = s.dims(1)
    axis = s.axis(s.attribute("axis", -1), indices.type.rank + 1)
    return s.g(OneHot(s.single(1, depths), axis), indices, s.input(2))


@on("TopK")
def top_k_attribute(s: Site) -> Made:
    return largest(s, s.needed("k"))


@on("TopK", since=10)
def top_k(s: Site) -> Made:
    return largest(s, s.single(1, s.dims(1)))


def largest(s: Site, k: Dim) -> tuple[Value, ...]:
    """Return the k largest or smallest elements of input 0, always sorted, and their indices."""
    op = TopK(s.named_axis(-1), k, bool(s.attribute("largest", 1)))
    return s.g.add(op, [s.input(0)]).results
