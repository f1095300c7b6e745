"""Converters for gathering, scattering and selecting elements."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.op import normal_axis
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
    data = s.input(0)
    axis = normal_axis(Gather(), s.attribute("axis", 0), data.type.rank)
    return s.g(Gather(axis), data, indices_on(s, axis))


@on("GatherElements", since=11)
def gather_elements(s: Site) -> Made:
    data = s.input(0)
    axis = normal_axis(GatherElements(), s.attribute("axis", 0), data.type.rank)
    return s.g(GatherElements(axis), data, indices_on(s, axis))


@on("GatherND", since=11)
def gather_nd(s: Site) -> Made:
    batch = s.attribute("batch_dims", 0)
    return s.g(GatherNd(batch), s.input(0), tuples_on(s, batch))


@on("Scatter", since=9)
@on("ScatterElements", since=11)
def scatter_elements(s: Site) -> Made:
    data = s.input(0)
    axis = normal_axis(ScatterElements(), s.attribute("axis", 0), data.type.rank)
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
    depth: tuple[Dim, ...]
    if s.input(1).type.dtype in FLOATS:  # ONNX allows any number
        depth = tuple(int(d) for d in s.constant(1).reshape(-1))
    else:
        depth = s.dims(1)
    if len(depth) != 1:
        raise s.wrong(f"depth has {len(depth)} elements, expected one")
    op = OneHot(depth[0], s.attribute("axis", -1))
    axis = normal_axis(op, op.axis, indices.type.rank + 1)
    return s.g(OneHot(depth[0], axis), indices, s.input(2))


@on("TopK")
def top_k_attribute(s: Site) -> Made:
    return largest(s, s.needed("k"))


@on("TopK", since=10)
def top_k(s: Site) -> Made:
    k = s.dims(1)
    if len(k) != 1:
        raise s.wrong(f"k has {len(k)} elements, expected one")
    return largest(s, k[0])


def largest(s: Site, k: Dim) -> tuple[Value, ...]:
    """Return the k largest or smallest elements of input 0, always sorted, and their indices."""
    x = s.input(0)
    op = TopK(s.attribute("axis", -1), k, bool(s.attribute("largest", 1)))
    axis = normal_axis(op, op.axis, x.type.rank)
    return s.g.add(TopK(axis, k, op.largest), [x]).results
