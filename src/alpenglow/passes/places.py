"""Sums at constant indices as interpolations: each element of the result reads its addends.

A sum at indices writes elements of the result several times and in order.  An interpolation writes
each once, in any order and in vectors.  The gradient of an interpolation becomes one again.
"""

from __future__ import annotations

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import Array
from alpenglow.ops.image.resize import Interpolate
from alpenglow.ops.tensor.movement import Pad
from alpenglow.ops.tensor.places import clamped
from alpenglow.ops.tensor.sum_at import SumAt

rules = Rules()


@rules.on(SumAt)
def sum_at_constants(g: Graph, node: Node) -> Rewritten:
    """sum_at(x, indices, weights) => interpolate(x, …)   with indices and weights transposed, if
    these are constants"""
    match node:
        case Node(SumAt(axis, int() as extent), [Value() as x, Value() as indices, *factors]):
            weights = factors[0] if factors else None
            places = indices.array
            if places is None or not places.size or not extent:
                return None
            if weights is not None and weights.array is None:
                return None
            share = np.ones(places.shape) if weights is None else weights.array
            assert share is not None, "weights are constants"
            table = transposed(clamped(places, extent), share, extent)
            if not _pays(table[0], places, node.output):
                return None
            return interpolated(g, x, axis, *table)
    return None


def _pays(indices: Array, places: Array, result: Value) -> bool:
    """Return True if few elements are read in vain, and tables are smaller than the result."""
    size = result.type.size
    few = indices.size <= indices.shape[1] + 2 * places.size
    return few and isinstance(size, int) and indices.size <= size


def interpolated(g: Graph, x: Value, axis: int, indices: Array, weights: Array) -> Value:
    """Return weighted sums along an axis; an index past its end reads a zero."""
    axis %= x.type.rank
    if (indices == x.type.shape[axis]).any():
        after = tuple(int(a == axis) for a in range(x.type.rank))
        x = g(Pad((0,) * x.type.rank, after), x)
    table = g.constant(indices.astype(np.int32)), g.constant(weights.astype(np.float32))
    return g(Interpolate(axis, x.type.dtype), x, *table)


def transposed(places: Array, weights: Array, extent: int) -> tuple[Array, Array]:
    """Return for each of `extent` elements which positions name it, and their weights.

    `places[t, i]` is named by position i with weight `weights[t, i]`; a weight of 0 names nothing.
    Both results have as many rows as the most that name one element.  An element that fewer name
    reads its last one several times, with halves of its weight, for a weight of 0 would make NaN of
    what is infinite.  An element that no position names reads the position past the last.
    """
    taps, count = places.shape
    share: Array = weights.reshape(-1).astype(np.float64)
    pairs = places.reshape(-1).astype(np.int64) * count + np.tile(np.arange(count), taps)
    pairs, share = pairs[share != 0], share[share != 0]
    pairs, number = np.unique(pairs, return_inverse=True)
    share = np.bincount(number.reshape(-1), share, len(pairs))
    element, position = np.divmod(pairs, count)
    each = np.bincount(element, minlength=extent)
    rank = np.arange(len(pairs)) - (np.cumsum(each) - each)[element]
    depth = max(int(each.max(initial=0)), 1)
    indices: Array = np.full((depth, extent), count)
    factors: Array = np.zeros((depth, extent))
    indices[rank, element], factors[rank, element] = position, share
    for t in range(1, depth):
        short = (each <= t) & (each > 0)
        factors[t - 1, short] /= 2
        indices[t, short], factors[t, short] = indices[t - 1, short], factors[t - 1, short]
    return indices, factors
