"""The grid of a kernel: groups of threads, and what templates ask of all instructions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from alpenglow.ir.dims import is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Binary, Const, Expr, Fma
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.program.instr import Anchor, Instr, Region, anchor_node


@contextmanager
def groups(k: Frame, extents: Sequence[int], threads: int) -> Iterator[tuple[list[Coord], Expr]]:
    """Open a grid with a group for each combination of indices below `extents`.

    Yields the indices of a group and the number of a thread in it.  A grid has one axis, which may
    be far longer than others may.
    """
    with (
        k.b.loop(math.prod(extents), "group") as group,
        k.b.loop(threads, "thread") as thread,
    ):
        yield k.loops.split(group, extents), thread


def is_plain(anchor: Anchor, instr: Instr) -> bool:
    """Return whether extents and strides are numbers, nothing is empty, and operands are memory.

    Operands that are left out are the last ones, so that a frame's are in their places.
    """
    present = [r is not None for r in anchor.ins]
    regions = [*instr.outs, *instr.reads()]
    return (
        all(isinstance(r, Region) for r in anchor.operands())
        and present == sorted(present, reverse=True)
        and not any(is_open(d) for r in regions for d in (*r.shape, *r.strides))
        and not any(0 in r.shape for r in regions)
    )


def operands(k: Frame) -> list[Window]:
    """Return the operands of the anchor alone."""
    if k.body is None:
        return k.inputs
    node = anchor_node(k.body)
    assert node is not None, "a template has an anchor"
    return k.inputs[: sum(v is not None for v in node.inputs)]


def computed(dtype: str) -> str:
    """Return the element type in which numbers of a type are computed with."""
    return "f32" if dtype in HALVES else dtype


def multiply_add(target: Target, x: Expr, y: Expr, z: Expr) -> Expr:
    """Return x * y + z, rounded once where the machine does so at once."""
    if x.dtype in ("f32", "f64") and target.facts.fuses:
        return Fma(x, y, z)
    return Binary("add", Binary("mul", x, y), z)


def below(k: Frame, number: Expr, extent: int) -> Expr:
    """Return a number that is below an extent wherever it is used, so that it is seen to be.

    Of its quotients that cannot be told by what an `if` says of it.
    """
    return k.b.let(Binary("min", number, Const(extent - 1)))


def pieces(extents: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return extents and strides of few axes, in which the elements of several lie in one order."""
    kept: list[tuple[int, int]] = []
    for extent, stride in zip(extents, strides, strict=True):
        if extent == 1:
            continue
        if kept and kept[-1][1] == stride * extent:
            kept[-1] = (kept[-1][0] * extent, stride)
        else:
            kept.append((extent, stride))
    return kept or [(1, 0)]


def merge_axes(windows: Sequence[Window], first: int, last: int) -> bool:
    """See the axes from `first` to `last` as one, if all windows step through them evenly."""
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        axes = [a for a in range(first, last + 1) if shape[a] != 1]
        if any(strides[a] != strides[b] * shape[b] for a, b in pairwise(axes)):
            return False
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        steps = [strides[a] for a in range(first, last + 1) if shape[a] != 1]
        w.reshape(
            (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]),
            (*strides[:first], steps[-1] if steps else 0, *strides[last + 1 :]),
        )
    return True
