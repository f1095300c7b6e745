"""What formats say in an operator of their own, and we in several that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.movement import Broadcast, Reshape, Slice


def tiled(g: Graph, what: str, x: Value, repeats: Sequence[Dim]) -> Value:
    """Return x repeated along each axis: an axis of copies before it, stretched and merged.

    Raises ModelError, in the name of the operator `what`, unless there is a number for each axis.
    """
    if len(repeats) != x.type.rank:
        raise ModelError(f"{what}: {len(repeats)} repeats given for {x.type}")
    if any(known(n) and n < 0 for n in repeats):
        raise ModelError(f"{what}: repeats {tuple(repeats)} are negative")
    narrow: list[Dim] = []
    wide: list[Dim] = []
    for d, n in zip(x.type.shape, repeats, strict=True):
        narrow += [d] if n == 1 or d == 1 else [1, d]
        wide += [d] if n == 1 else [n] if d == 1 else [n, d]
    copies = g(Broadcast(tuple(wide)), g(Reshape(tuple(narrow)), x))
    return g(Reshape(tuple(d * n for d, n in zip(x.type.shape, repeats, strict=True))), copies)


def pieces(g: Graph, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """Return x cut along an axis into parts of these sizes."""
    start: Dim = 0
    cut = []
    for size in sizes:
        starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
        shape = tuple(size if i == axis else d for i, d in enumerate(x.type.shape))
        cut.append(g(Slice(starts, shape, (1,) * x.type.rank), x))
        start = start + size
    return cut
