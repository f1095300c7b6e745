"""Converters for gathering, scattering and selecting elements."""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.op import normal_axis
from alpenglow.ir.types import FLOATS
from alpenglow.ops.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.order import TopK


@on("Gather")
def gather(s: Site) -> Made:
    data = s.input(0)
    axis = normal_axis(Gather(), s.attribute("axis", 0), data.type.rank)
    return s.g(Gather(axis), data, s.input(1))


@on("GatherElements", since=11)
def gather_elements(s: Site) -> Made:
    data = s.input(0)
    axis = normal_axis(GatherElements(), s.attribute("axis", 0), data.type.rank)
    return s.g(GatherElements(axis), data, s.input(1))


@on("GatherND", since=11)
def gather_nd(s: Site) -> Made:
    return s.g(GatherNd(s.attribute("batch_dims", 0)), s.input(0), s.input(1))


@on("Scatter", since=9)
@on("ScatterElements", since=11)
def scatter_elements(s: Site) -> Made:
    data = s.input(0)
    axis = normal_axis(ScatterElements(), s.attribute("axis", 0), data.type.rank)
    reduction = s.attribute("reduction", "none")
    return s.g(ScatterElements(axis, reduction), data, s.input(1), s.input(2))


@on("ScatterND", since=11)
def scatter_nd(s: Site) -> Made:
    return s.g(ScatterNd(s.attribute("reduction", "none")), s.input(0), s.input(1), s.input(2))


@on("OneHot", since=9)
def one_hot(s: Site) -> Made:
    indices = s.input(0)
    found: tuple[Dim, ...]
    if s.input(1).type.dtype in FLOATS:  # ONNX allows any number
        found = tuple(int(d) for d in s.constant(1).reshape(-1))
    else:
        found = s.dims(1)
    if len(found) != 1:
        raise ModelError(f"OneHot: depth has {len(found)} elements, expected one")
    op = OneHot(found[0], s.attribute("axis", -1))
    axis = normal_axis(op, op.axis, indices.type.rank + 1)
    return s.g(OneHot(found[0], axis), indices, s.input(2))


@on("TopK")
def top_k_attribute(s: Site) -> Made:
    return largest(s, s.needed("k"))


@on("TopK", since=10)
def top_k(s: Site) -> Made:
    found = s.dims(1)
    if len(found) != 1:
        raise ModelError(f"TopK: k has {len(found)} elements, expected one")
    return largest(s, found[0])


def largest(s: Site, k: Dim) -> tuple[Value, ...]:
    """Return the k largest or smallest elements of input 0, always sorted, and their indices."""
    x = s.input(0)
    op = TopK(s.attribute("axis", -1), k, bool(s.attribute("largest", 1)))
    axis = normal_axis(op, op.axis, x.type.rank)
    return s.g.add(TopK(axis, k, op.largest), [x]).results
