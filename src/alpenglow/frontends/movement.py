"""Operators of formats that become several operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose


def tiled(g: Graph, what: str, x: Value, repeats: Sequence[Dim]) -> Value:
    """Return x repeated along each axis: an axis of copies before it, stretched and merged.

    Raises ModelError, in the name of the operator `what`, unless there is a number for each axis.
    """
    if len(repeats) != x.type.rank:
        found = f"repeats has {len(repeats)} entries"
        raise ModelError(f"{what}: {found}, expected {x.type.rank} for {x.type}")
    if any(known(n) and n < 0 for n in repeats):
        raise ModelError(f"{what}: repeats is {tuple(repeats)}, expected entries of at least 0")
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


def replaced(g: Graph, x: Value, axis: int, start: Dim, part: Value) -> Value:
    """Return x with a part in place of as many elements of an axis from `start` on."""
    end = start + part.type.shape[axis]
    rest = x.type.shape[axis] - end
    parts = [part]
    if not known(start) or start != 0:
        parts.insert(0, sliced(g, x, axis, 0, start))
    if not known(rest) or rest != 0:
        parts.append(sliced(g, x, axis, end, rest))
    return part if len(parts) == 1 else g(Concat(axis), *parts)


def head(g: Graph, x: Value, n: Dim) -> Value:
    """Return the first `n` elements of the last axis, or all if there are fewer."""
    extent = x.type.shape[-1]
    is_whole = known(n) and known(extent) and n > extent
    return x if is_whole else corner(g, x, (*x.type.shape[:-1], n))


def permuted(g: Graph, x: Value, perm: Sequence[int]) -> Value:
    """Return x with its axes permuted; x itself if they stay."""
    return x if tuple(perm) == tuple(range(len(perm))) else g(Transpose(tuple(perm)), x)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(perm.index(i) for i in range(len(perm)))


def turned_round(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Return x with its elements the other way round along axes; x itself if it has none."""
    shape = x.type.shape
    if not axes or 0 in shape:
        return x
    starts = tuple(d - 1 if i in axes else 0 for i, d in enumerate(shape))
    steps = tuple(-1 if i in axes else 1 for i in range(len(shape)))
    return g(Slice(starts, shape, steps), x)


def depth_to_space(g: Graph, x: Value, block: int, depth_first: bool) -> Value:
    """Return x[…, C, H, W] with channels laid out as blocks of space.

    The channels are places in blocks, and then what remains channels if `depth_first` (ONNX's DCR),
    or the other way round (CRD).
    """
    *batch, c, h, w = x.type.shape
    n, rest = len(batch), c // (block * block)
    channels = (block, block, rest) if depth_first else (rest, block, block)
    perm = (2, 3, 0, 4, 1) if depth_first else (0, 3, 1, 4, 2)
    apart = g(Reshape((*batch, *channels, h, w)), x)
    moved = g(Transpose((*range(n), *(n + i for i in perm))), apart)
    return g(Reshape((*batch, rest, h * block, w * block)), moved)


def space_to_depth(g: Graph, x: Value, block: int, depth_first: bool) -> Value:
    """Return x[…, C, H, W] with blocks of space laid out as channels: `depth_to_space` undone."""
    *batch, c, h, w = x.type.shape
    n, (rows, columns) = len(batch), (h // block, w // block)
    perm = (2, 4, 0, 1, 3) if depth_first else (0, 2, 4, 1, 3)
    apart = g(Reshape((*batch, c, rows, block, columns, block)), x)
    moved = g(Transpose((*range(n), *(n + i for i in perm))), apart)
    return g(Reshape((*batch, c * (block * block), rows, columns)), moved)


def pieces(g: Graph, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """Return x cut along an axis into parts of these sizes."""
    start: Dim = 0
    cut = []
    for size in sizes:
        cut.append(sliced(g, x, axis, start, size))
        start = start + size
    return cut
