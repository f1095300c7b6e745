"""Converters that make constants, and that move elements to places that are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.movement import turned_round
from alpenglow.frontends.numbers import of_parts, parts_of
from alpenglow.frontends.stablehlo.convert.compare import converted
from alpenglow.frontends.stablehlo.module import is_splat
from alpenglow.frontends.stablehlo.table import Made, Site, both, on
from alpenglow.ir.dims import Dim, ceil_div, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import ALL, COMPLEX, INTS
from alpenglow.ops.elementwise.complex import Conjugate
from alpenglow.ops.tensor.generate import Iota, Shape
from alpenglow.ops.tensor.movement import Concat, Pad, Slice, Transpose, stretch


@on("stablehlo.constant", "chlo.constant", pointwise=True)
def constant(s: Site) -> Made:
    array = s.array("value")
    shape = s.extents()
    if s.shape is not None or is_splat(array):
        one = array[(0,) * array.ndim] if array.size else array.reshape(-1)
        return stretch(s.g, s.g.constant(np.array(one, array.dtype)), shape)
    return s.g.constant(np.ascontiguousarray(array).reshape(array.shape), copy=False)


@on("stablehlo.iota")
def iota(s: Site) -> Made:
    return counted(s, s.extents())


@on("stablehlo.dynamic_iota")
def dynamic_iota(s: Site) -> Made:
    return counted(s, s.dims(0))


def counted(s: Site, shape: tuple[Dim, ...]) -> Value:
    """Return the index along an axis of each element."""
    axis = s.axis(s.number("iota_dimension"), len(shape), "iota_dimension")
    return converted(s, s.g(Iota(shape, axis)), s.dtype())


@on("stablehlo.reshape")
def reshape(s: Site) -> Made:
    return resized(s, s.required(1)[0], s.extents())


@on("stablehlo.dynamic_reshape")
def dynamic_reshape(s: Site) -> Made:
    return resized(s, s.input(0), s.dims(1))


def resized(s: Site, x: Value, shape: tuple[Dim, ...]) -> Value:
    before, after = product(x.type.shape), product(shape)
    if known(before) and known(after) and before != after:
        raise s.wrong(f"the result has shape {shape}, expected {before} elements as in {x.type}")
    return s.reshaped(x, shape)


@on("stablehlo.broadcast_in_dim")
def broadcast_in_dim(s: Site) -> Made:
    (x,), axes = s.required(1), s.numbers("broadcast_dimensions")
    return stretched(s, x, axes, s.extents())


@on("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(s: Site) -> Made:
    return stretched(s, s.input(0), s.numbers("broadcast_dimensions"), s.dims(1))


@on("stablehlo.broadcast")
def broadcast(s: Site) -> Made:
    """New axes come first."""
    x, sizes = s.input(0), s.numbers("broadcast_sizes")
    return stretch(s.g, x, (*sizes, *x.type.shape))


def stretched(s: Site, x: Value, axes: Sequence[int], shape: tuple[Dim, ...]) -> Value:
    """Return x with its axes at these places, repeated along all others."""
    s.each(x.type.rank, broadcast_dimensions=axes)
    s.axes(axes, len(shape), "broadcast_dimensions")
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    if order != list(range(len(axes))):
        x = s.g(Transpose(tuple(order)), x)
    placed = sorted(axes)
    narrow: list[Dim] = [1] * len(shape)
    for axis, d in zip(placed, x.type.shape, strict=True):
        if known(d) and known(shape[axis]) and d not in (1, shape[axis]):
            raise s.wrong(
                f"the operand is {x.type}, expected 1 or {shape[axis]} elements for dimension "
                f"{axis} of the result"
            )
        narrow[axis] = d
    return stretch(s.g, s.reshaped(x, narrow), shape)


@on("stablehlo.transpose")
def transpose(s: Site) -> Made:
    (x,), perm = s.required(1), s.numbers("permutation")
    s.each(x.type.rank, permutation=perm)
    s.axes(perm, x.type.rank, "permutation")
    return s.g(Transpose(perm), x)


@on("stablehlo.reverse")
def reverse(s: Site) -> Made:
    x = s.input(0)
    axes = s.axes(s.numbers("dimensions"), x.type.rank, "dimensions")
    return turned_round(s.g, x, axes)


@on("stablehlo.slice")
def slice_(s: Site) -> Made:
    x = s.input(0)
    starts, limits = s.numbers("start_indices"), s.numbers("limit_indices")
    return cut(s, x, starts, limits, s.numbers("strides", (1,) * x.type.rank))


@on("stablehlo.real_dynamic_slice")
def real_dynamic_slice(s: Site) -> Made:
    s.count(4)
    return cut(s, s.input(0), s.dims(1), s.dims(2), s.ints(3))


def cut(
    s: Site, x: Value, starts: Sequence[Dim], limits: Sequence[Dim], steps: Sequence[int]
) -> Value:
    """Return elements of x from starts up to limits, the latter left out."""
    s.each(x.type.rank, start_indices=starts, limit_indices=limits, strides=steps)
    sizes: list[Dim] = []
    for d, start, limit, step in zip(x.type.shape, starts, limits, steps, strict=True):
        ordered = all(map(known, (d, start, limit)))
        if step < 1 or (ordered and not 0 <= start <= limit <= d):
            raise s.wrong(
                f"the slice is {start}:{limit}:{step}, expected 0 <= start <= limit <= {d} and a "
                "stride of at least 1"
            )
        sizes.append(ceil_div(limit - start, step))
    whole = [start == 0 and step == 1 for start, step in zip(starts, steps, strict=True)]
    if all(whole) and tuple(sizes) == x.type.shape:
        return x
    if any(known(d) and d == 0 for d in sizes):
        starts = [0] * x.type.rank
    return s.g(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)


@on("stablehlo.concatenate")
def concatenate(s: Site) -> Made:
    parts = s.required()
    if not parts:
        raise ModelError(f"{s.kind} has no operands, expected at least 1")
    axis = s.axis(s.number("dimension"), parts[0].type.rank)
    return parts[0] if len(parts) == 1 else s.g(Concat(axis), *parts)


@on("stablehlo.pad")
def pad(s: Site) -> Made:
    s.count(2)
    low, high = s.numbers("edge_padding_low"), s.numbers("edge_padding_high")
    return padded(s, s.input(0), s.input(1), low, high, s.numbers("interior_padding"))


@on("stablehlo.dynamic_pad")
def dynamic_pad(s: Site) -> Made:
    s.count(5)
    return padded(s, s.input(0), s.input(1), s.dims(2), s.dims(3), s.ints(4))


def padded(
    s: Site, x: Value, value: Value, low: Sequence[Dim], high: Sequence[Dim],
    interior: Sequence[int],
) -> Value:  # fmt: skip
    """Return x with a value between its elements and at its edges; negative edges are cut off."""
    s.each(x.type.rank, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)
    if value.type.rank or value.type.dtype != x.type.dtype:
        raise s.wrong(f"padding_value is {value.type}, expected a scalar of {x.type.dtype}")
    if min(interior, default=0) < 0:
        raise s.wrong(f"interior_padding is {tuple(interior)}, expected entries of at least 0")
    for axis, count in enumerate(interior):
        x = spread(s, x, value, axis, count)
    more = [[d if not known(d) or d > 0 else 0 for d in e] for e in (low, high)]
    if _are_within(x, low, high):
        return edged(s, trimmed(s, x, low, high), value, *more)
    return trimmed(s, edged(s, x, value, *more), low, high)


def _are_within(x: Value, low: Sequence[Dim], high: Sequence[Dim]) -> bool:
    """Whether negative edges cut off no more than elements of x."""
    cut = [sum(-int(d) for d in e if known(d) and d < 0) for e in zip(low, high, strict=True)]
    return all(not known(d) or n <= d for n, d in zip(cut, x.type.shape, strict=True))


def edged(
    s: Site, x: Value, value: Value, low: Sequence[Dim], high: Sequence[Dim]
) -> Value:  # fmt: skip
    """Return x with a value at its edges, so many times along each axis."""
    number = _plain(value)
    if not any(not known(d) or d for d in (*low, *high)):
        return x
    if number is not None and all(map(known, (*low, *high))):
        edge = [tuple(int(d) for d in e if known(d)) for e in (low, high)]
        return s.g(Pad(edge[0], edge[1], "constant", number), x)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        x = _edged(s, x, value, axis, before, after)
    return x


def trimmed(s: Site, x: Value, low: Sequence[Dim], high: Sequence[Dim]) -> Value:
    """Return x without what negative edges cut off."""
    starts = [-d if known(d) and d < 0 else 0 for d in low]
    ends = [-d if known(d) and d < 0 else 0 for d in high]
    if not any((*starts, *ends)):
        return x
    sizes = [d - a - b for d, a, b in zip(x.type.shape, starts, ends, strict=True)]
    if any(known(d) and d < 0 for d in sizes):
        raise s.wrong(f"negative padding cuts {x.type} to {tuple(sizes)}, expected at least 0 each")
    return s.g(Slice(tuple(starts), tuple(sizes), (1,) * x.type.rank), x)


def spread(s: Site, x: Value, value: Value, axis: int, count: int) -> Value:
    """Return x with so many copies of a value between neighbours along an axis."""
    d = x.type.shape[axis]
    if not count or (known(d) and d < 2):
        return x
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    single = s.reshaped(x, (*before, d, 1, *after))
    between = stretch(s.g, value, (*before, d, count, *after))
    joined = s.g(Concat(axis + 1), single, between)
    long = s.reshaped(joined, (*before, d * (count + 1), *after))
    sizes = (*before, d * (count + 1) - count, *after)
    return s.g(Slice((0,) * len(sizes), sizes, (1,) * len(sizes)), long)


def _plain(value: Value) -> float | None:
    """Return a scalar constant as an attribute holds it; None if it is none, or holds it not."""
    if value.array is None or value.type.dtype not in ALL:
        return None
    number = value.array.reshape(())[()]
    as_float = float(number)
    if value.type.dtype in INTS and int(as_float) != int(number):
        return None
    return as_float


def _edged(s: Site, x: Value, value: Value, axis: int, before: Dim, after: Dim) -> Value:
    parts = [x]
    for count, place in ((before, 0), (after, len(parts))):
        if not known(count) or count > 0:
            shape = tuple(count if i == axis else d for i, d in enumerate(x.type.shape))
            edge = stretch(s.g, value, shape)
            parts = [edge, *parts] if place == 0 else [*parts, edge]
    return x if len(parts) == 1 else s.g(Concat(axis), *parts)


@on("stablehlo.get_dimension_size")
def get_dimension_size(s: Site) -> Made:
    x = s.input(0)
    axis = s.axis(s.number("dimension"), x.type.rank)
    return s.cast(s.reshaped(s.g(Shape(axis, axis + 1), x), ()), "i32")


# ── complex numbers and their parts ──


@on(*both("complex"), pointwise=True)
def complex_(s: Site) -> Made:
    return of_parts(s.g, *s.pair())


@on("stablehlo.real", "stablehlo.imag", pointwise=True)
def part(s: Site) -> Made:
    x = s.input(0)
    if x.type.dtype in COMPLEX:
        return parts_of(s.g, x)[0 if s.kind == "stablehlo.real" else 1]
    return x if s.kind == "stablehlo.real" else s.filled(0, x)


@on("chlo.conj", pointwise=True)
def conj(s: Site) -> Made:
    x = s.input(0)
    return s.g(Conjugate(), x) if x.type.dtype in COMPLEX else x
