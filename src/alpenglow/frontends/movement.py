"""What formats say in an operator of their own, and we in several that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice


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


def part(g: Graph, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    """Return `size` elements of an axis from `start` on, `step` apart; x itself if these are all.

    The axis counts from the front.
    """
    if start == 0 and step == 1 and size == x.type.shape[axis]:
        return x
    return sliced(g, x, axis, start, size, step)


def sliced(g: Graph, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    """Return the same elements as `part`, by a Slice even if these are all elements."""
    assert 0 <= axis < x.type.rank, "the axis counts from the front"
    starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
    sizes = tuple(size if i == axis else d for i, d in enumerate(x.type.shape))
    steps = tuple(step if i == axis else 1 for i in range(x.type.rank))
    return g(Slice(starts, sizes, steps), x)


def corner(g: Graph, x: Value, shape: tuple[Dim, ...]) -> Value:
    """Return the elements of x that come first on each axis; x itself if these are all."""
    if x.type.shape == shape:
        return x
    return g(Slice((0,) * len(shape), shape, (1,) * len(shape)), x)


def pieces(g: Graph, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """Return x cut along an axis into parts of these sizes."""
    start: Dim = 0
    cut = []
    for size in sizes:
        cut.append(sliced(g, x, axis, start, size))
        start = start + size
    return cut
