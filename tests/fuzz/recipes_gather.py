"""Recipes for what reads and writes elements at places that are data."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, Array, Shape
from .inference import Declined, allowed
from .recipe import recipe


def places(d: Draft, extent: int, shape: Shape, kind: str = "") -> Array:
    """Return indices for an axis, counted from either end; none where the axis is empty."""
    if not extent and prod(shape):
        raise Declined
    low, high = -extent, max(extent, -extent + 1)
    if d.chance(0.3):
        low = min(0, high - 1)
    spots = d.rng.integers(low, high, shape)
    if d.chance(0.15):
        spots = np.sort(spots, axis=None).reshape(shape)
    return np.asarray(spots).astype(DTYPES[kind or d.one_of(("int64", "int64", "int32"))])


def where_from(d: Draft, indices: Array) -> Var:
    """Return indices as an input or a weight; strange numbers are not fed to them."""
    v = d.given(indices, d.chance(0.4))
    if v.name in d.inputs:
        d.controls[v.name] = []
    return v


@recipe("Gather")
def gather(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    axis = d.number(0, x.rank - 1)
    indices = places(d, x.shape[axis], d.shape(0, 3 if d.chance(0.2) else 2))
    if d.opset < 11:
        indices = np.abs(indices) % max(x.shape[axis], 1)
        indices = indices.astype(np.int64)
    if indices.size * prod(x.shape) // max(x.shape[axis], 1) > 8192:
        indices = indices.reshape(-1)[:3]
    more = {} if not axis and d.chance(0.5) else {"axis": axis if d.chance(0.6) else axis - x.rank}
    d.node(op, [x, where_from(d, indices)], **more)


@recipe("GatherElements")
def gather_elements(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    axis = d.number(0, x.rank - 1)
    shape = tuple(
        d.one_of((e, d.number(0, e), max(e - 1, 0))) if i != axis else d.extent(17, 0)
        for i, e in enumerate(x.shape)
    )
    indices = places(d, x.shape[axis], shape)
    more = {} if not axis and d.chance(0.5) else {"axis": axis if d.chance(0.6) else axis - x.rank}
    d.node(op, [x, where_from(d, indices)], **more)


@recipe("GatherND")
def gather_nd(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    batch = d.number(0, x.rank - 1) if d.opset >= 12 and d.chance(0.5) else 0
    deep = d.number(1, x.rank - batch)
    lead = (*x.shape[:batch], *d.shape(0 if batch else 1, 2))
    if prod(lead) * prod(x.shape[batch + deep :]) > 8192:
        raise Declined
    columns = [places(d, x.shape[batch + i], lead, "int64") for i in range(deep)]
    indices = np.stack(columns, -1)
    more = {"batch_dims": batch} if batch or (d.opset >= 12 and d.chance(0.3)) else {}
    d.node(op, [x, where_from(d, indices)], **more)


def reduction(d: Draft, op: str, x: Var) -> dict[str, str]:
    known = ["none"]
    if d.opset >= 16:
        known += ["add", "mul"]
    if d.opset >= 18:
        known += ["min", "max"]
    if x.dtype == "bool" or x.dtype.startswith(("float8", "float4", "int4", "uint4", "complex")):
        known = ["none"]
    return d.some(op, reduction=known)


@recipe("ScatterElements", "Scatter")
def scatter(d: Draft, op: str) -> None:
    if op == "Scatter" and d.opset > 10:
        raise Declined
    x = d.pick(allowed(op, d.opset), 1, 4)
    axis = d.number(0, x.rank - 1)
    how = reduction(d, op, x)
    shape = tuple(d.one_of((e, d.number(0, e))) for e in x.shape)
    if how.get("reduction", "none") != "none" and d.chance(0.5):
        # Repeated, and more of them than there are places.
        shape = tuple(d.extent(17) if i == axis else e for i, e in enumerate(shape))
        indices = places(d, x.shape[axis], shape)
    else:
        indices = apart(d, x.shape[axis], axis, shape)
    updates = d.fresh(x.dtype, shape)
    negative = op != "Scatter" and d.chance(0.3)
    if negative and x.shape[axis]:
        indices = np.where(d.rng.random(shape) < 0.5, indices, (indices % x.shape[axis])
                           - x.shape[axis]).astype(indices.dtype)  # fmt: skip
    more = {} if not axis and d.chance(0.5) else {"axis": axis if d.chance(0.6) else axis - x.rank}
    d.node(op, [x, where_from(d, indices), updates], types=[(x.dtype, x.shape)], **more, **how)


def apart(d: Draft, extent: int, axis: int, shape: Shape) -> Array:
    """Return indices without repetition along an axis: the order of equal ones is free."""
    if not prod(shape):
        return np.zeros(shape, np.int64)
    others = prod(shape) // shape[axis]
    rows = np.stack([d.rng.permutation(extent)[: shape[axis]] for _ in range(others)])
    lead = tuple(e for i, e in enumerate(shape) if i != axis)
    spots = np.moveaxis(rows.reshape(*lead, shape[axis]), -1, axis)
    return np.ascontiguousarray(spots).astype(DTYPES[d.one_of(("int64", "int32"))])


@recipe("ScatterND")
def scatter_nd(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    deep = d.number(1, x.rank)
    total = prod(x.shape[:deep])
    how = reduction(d, op, x)
    if how.get("reduction", "none") != "none" and total and d.chance(0.5):
        spots = d.rng.integers(0, total, d.shape(1, 2, empty=False)[:2])
        if spots.size * prod(x.shape[deep:]) > 8192:
            spots = spots.reshape(-1)[:4]
    else:
        spots = d.rng.permutation(total)[: d.number(0, min(total, 9))]
        if len(spots) % 2 == 0 and d.chance(0.3):
            spots = spots.reshape(2, -1)
    columns = np.unravel_index(spots, x.shape[:deep]) if total else [spots] * deep
    indices = np.stack([np.asarray(c) for c in columns], -1).astype(np.int64)
    if total and d.chance(0.3):
        ends = np.array(x.shape[:deep])
        indices = np.where(d.rng.random(indices.shape) < 0.5, indices, indices - ends)
    updates = d.fresh(x.dtype, (*spots.shape, *x.shape[deep:]))
    d.node(op, [x, where_from(d, indices.astype(np.int64)), updates], **how)


@recipe("OneHot")
def one_hot(d: Draft, op: str) -> None:
    size = d.extent(33)
    indices = d.rng.integers(-size - 1, size + 2, d.shape(0, 4)).astype(
        DTYPES[d.one_of(("int64", "int64", "int32", "float", "uint8"))])  # fmt: skip
    if indices.size * size > 8192:
        raise Declined
    kinds = allowed(op, d.opset, 2)
    values = d.fresh(d.dtype(k for k in kinds if not k.startswith("complex")), (2,))
    depth = np.array(size) if d.chance(0.5) else np.array([size])
    kind = np.float32 if d.chance(0.1) else d.one_of((np.int64, np.int32))
    given = [where_from(d, indices), d.given(depth.astype(kind), True), values]
    axis = d.some(op, axis=range(-indices.ndim - 1, indices.ndim + 1))
    at = axis.get("axis", -1) % (indices.ndim + 1)
    shape = (*indices.shape[:at], size, *indices.shape[at:])
    d.node(op, given, types=[(values.dtype, shape)], **axis)


@recipe("ReverseSequence")
def reverse(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 5, empty=False)
    time = d.number(0, 1)
    lengths = d.rng.integers(1, x.shape[time] + 1, x.shape[1 - time]).astype(np.int64)
    more = {} if time == 0 and d.chance(0.4) else {"time_axis": time, "batch_axis": 1 - time}
    d.node(op, [x, where_from(d, lengths)], **more)


@recipe("TensorScatter")
def tensor_scatter(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 5, empty=False)
    axis = d.number(1, x.rank - 1)
    most = x.shape[axis]
    count = d.one_of((1, most, d.number(1, most)))
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    update = d.fresh(x.dtype, shape)
    how = d.some(op, mode=("linear", "circular"))
    last = most if how.get("mode") == "circular" else most - count + 1
    at = None
    if d.chance(0.85):
        at = where_from(d, d.rng.integers(0, last, x.shape[0]).astype(np.int64))
    more = {} if axis == x.rank - 2 and d.chance(0.6) else {
        "axis": axis if d.chance(0.5) else axis - x.rank}  # fmt: skip
    d.node(op, [x, update, at], types=[(x.dtype, x.shape)], **how, **more)
