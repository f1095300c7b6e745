"""Borders: padding with what is inside becomes strips beside it, which are copied into place.

What is padded is then computed where it belongs, and the strips are moved row by row, where a loop
over all of the result would ask of each element where it comes from.
"""

from __future__ import annotations

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.tensor.movement import Concat, Pad, Slice

MOST = 8
"""The most copies at one end of an axis: each is an instruction."""

rules = Rules()


def expand_padding(g: Graph) -> Graph:
    """Write padding by reflection, by edges and by wrapping around as strips."""
    return rules.exhaust(g)


@rules.on(Pad)
def pad_by_strips(g: Graph, node: Node) -> Rewritten:
    """pad(x, mode) => concat(strips before, x, strips after)   along each axis, the last one first;
    with modes that repeat what is inside"""
    match node:
        case Node(Pad(before, after, mode), [Value() as x]):
            if mode == "constant" or not x.type.static or 0 in x.type.shape:
                return None
            if any(_copies(mode, max(ends), d) > MOST
                   for *ends, d in zip(before, after, x.type.extents, strict=True)):  # fmt: skip
                return None
            y = x
            for axis in reversed(range(x.type.rank)):
                left = _strips(g, y, axis, mode, before[axis], True)
                right = _strips(g, y, axis, mode, after[axis], False)
                if left or right:
                    y = g(Concat(axis), *left, y, *right)
            return y if y is not x else None
    return None


def _copies(mode: str, count: int, extent: int) -> int:
    """Return how many pieces pad one end of an axis by `count`."""
    match mode:
        case "edge":
            return count
        case "wrap":
            return -(-count // extent)
    return 1


def _strips(g: Graph, x: Value, axis: int, mode: str, count: int, leading: bool) -> list[Value]:
    """Return what pads x by `count` at one end of an axis."""
    if not count:
        return []
    extent = x.type.extents[axis]
    match mode:
        case "reflect":
            return [_strip(g, x, axis, count if leading else extent - 2, count, -1)]
        case "wrap":
            turns: list[Value] = []
            while count >= extent:
                turns.append(x)
                count -= extent
            if count == 0:
                return turns
            rest = _strip(g, x, axis, extent - count if leading else 0, count, 1)
            return [rest, *turns] if leading else [*turns, rest]
    return [_strip(g, x, axis, 0 if leading else extent - 1, 1, 1)] * count


def _strip(g: Graph, x: Value, axis: int, start: int, count: int, step: int) -> Value:
    """Return `count` elements of an axis from `start` on."""
    rank = x.type.rank
    starts = tuple(start if i == axis else 0 for i in range(rank))
    sizes = tuple(count if i == axis else d for i, d in enumerate(x.type.shape))
    return g(Slice(starts, sizes, tuple(step if i == axis else 1 for i in range(rank))), x)
