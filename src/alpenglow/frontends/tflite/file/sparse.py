"""Sparse constants as dense arrays.

A sparse tensor is stored axis after axis, in an order of its own.  An axis is dense, with all its
places, or it lists those that there are: `segments` says which part of `indices` belongs to each
fibre of the axes before.  An axis may be split into blocks: then the places within a block are an
axis, too, behind all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.frontends.flatbuffer import Table
from alpenglow.frontends.tflite.file.schema import INDEX_VECTORS, DimensionFormat
from alpenglow.ir.types import Array

MOST_GROWTH = 1 << 12
"""A sparse tensor is no more times smaller than the dense one."""


def dense(values: Array, shape: tuple[int, ...], sparsity: Table) -> Array:
    """Return the array whose elements other than 0 are `values`."""
    nbytes = math.prod(shape) * values.itemsize
    if nbytes > (most := min(MOST_NBYTES, max(values.nbytes * MOST_GROWTH, 1 << 20))):
        raise ModelError(f"{sparsity.path}: the dense tensor has {nbytes} bytes, expected at most "
                         f"{most} for {values.nbytes} bytes of values")  # fmt: skip
    order = sparsity.array("traversal_order").tolist()
    blocked = sparsity.array("block_map").tolist()
    levels = list(sparsity.tables("dim_metadata"))
    rank = len(shape)
    sound = sorted(order) == list(range(rank + len(blocked))) and len(levels) == len(order)
    if not sound or any(not 0 <= axis < rank for axis in blocked) or len({*blocked}) < len(blocked):
        raise ModelError(
            f"{sparsity.path}: traversal_order is {order}, block_map is {blocked} and dim_metadata "
            f"has {len(levels)} entries, expected a permutation, different axes of {shape}, and an "
            "entry for each axis and block"
        )
    places = _places(levels, len(values))
    coordinates = [places[order.index(axis)] for axis in range(rank)]
    for i, axis in enumerate(blocked):
        level = order.index(rank + i)
        size = levels[level].number("dense_size")
        coordinates[axis] = coordinates[axis] * size + places[level]
    for axis, (at, extent) in enumerate(zip(coordinates, shape, strict=True)):
        if at.size and not 0 <= at.min() <= at.max() < extent:
            raise ModelError(f"{sparsity.path}: axis {axis} has indices {at.min()} to {at.max()}, "
                             f"expected 0 to {extent - 1}")  # fmt: skip
    result = np.zeros(shape, values.dtype)
    result[tuple(coordinates)] = values
    return result


def _places(levels: Sequence[Table], count: int) -> list[Array]:
    """Return the index of each of `count` values on each stored axis."""
    places: list[Array] = []
    fibres = 1
    for number, level in enumerate(levels):
        _check_fibres(levels[number:], fibres, count)
        if level.number("format") == DimensionFormat.DENSE:
            size = level.number("dense_size")
            times = np.full(fibres, size)
            here = np.tile(np.arange(size), fibres)
        else:
            times = np.diff(_vector(level, "array_segments"))
            here = _vector(level, "array_indices")
        places = [np.repeat(p, times) for p in places]
        places.append(here)
        fibres = len(here)
    _check_fibres([], fibres, count)
    return places


def _check_fibres(levels: Sequence[Table], fibres: int, count: int) -> None:
    """Raise ModelError unless dense axes lead to as many fibres as are stored behind them."""
    for level in levels:
        if level.number("format") == DimensionFormat.DENSE:
            fibres *= max(level.number("dense_size"), 0)
            continue
        segments, indices = _vector(level, "array_segments"), _vector(level, "array_indices")
        rising = segments.size == fibres + 1 and not segments[0] and (np.diff(segments) >= 0).all()
        if not rising or segments[-1] != indices.size:
            raise ModelError(f"{level.path}: array_segments is damaged, expected {fibres + 1} "
                             f"ascending entries from 0 to {indices.size}")  # fmt: skip
        return
    if fibres != count:
        raise ModelError(f"a sparse tensor has {count} values, expected {fibres}")


def _vector(level: Table, name: str) -> Array:
    """Return the integers of a union of vectors."""
    kind = level.number(f"{name}_type")
    table = level.union(name, INDEX_VECTORS[kind]) if kind in INDEX_VECTORS else None
    if table is None:
        raise ModelError(f"{level.path}.{name} is missing")
    return table.array("values").astype(np.int64)
