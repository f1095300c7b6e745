"""Vectors along one axis of a result: how many elements each has, and the loops over them.

A vector has as many lanes as f32 fill, which most kernels compute in.  Where all that lies in
vectors is of narrow integers, as many of these as fill a vector are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Index, Register, lift, parts
from alpenglow.kernel.stmt import Set, Stmt, operands, statements
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Loops, Window

Block = Callable[[list[Coord], Expr, int, bool], None]
"""Computes a vector: coordinates on the other axes, the first element, lanes, if it is masked."""

RUN = 64
"""Vectors of a row that a thread computes one after the other, without asking for the last."""

FEW = 64
"""Threads share whole rows if there are as many; fewer rows are cut into runs of vectors."""

LONGEST = 64
"""A body of more statements is not written once more for each half of a vector of bytes."""

QUICK = 12
"""Vectors of half the lanes cost less than masks if there are no more statements than these."""

WITHOUT_VECTORS = frozenset({"div", "rem", "pow"})
"""Operations on integers that no processor has for vectors."""


@dataclass(frozen=True)
class Along:
    """The axis of a result along which vectors lie: its extent, and the lanes of a vector.

    The elements behind the last full vector of the axis are computed under a mask, or, if `halved`,
    by vectors of half the lanes, a quarter, and so on.
    """

    extent: int
    lanes: int
    halved: bool = False


def vectors_along(
    k: Loops, outs: Sequence[Window], axis: int, elements: Callable[[list[Coord]], list[Expr]]
) -> Along:
    """Return how vectors of elements of results lie along an axis.

    How wide elements become on the way, and how many statements compute them, is read off these.
    """
    shape = outs[0].region.shape
    extent = shape[axis]
    size = max(DTYPES[out.buffer.dtype].itemsize for out in outs)
    most = k.facts.vector // size
    lanes, halved = k.lanes, False
    dense = all(is_number(out.region.strides[axis], 1) for out in outs)
    alone = all(is_number(d, 1) for i, d in enumerate(shape) if i != axis)
    ragged = not is_open(extent) and extent % lanes != 0
    short = ragged and not (alone or k.facts.masks)
    if k.facts.vector and dense and (most > lanes or short):
        body, values = _trial(k, len(shape), axis, max(lanes, most), elements)
        if most > lanes and len(body) <= LONGEST:
            lanes = max(lanes, k.facts.vector // max(size, _widest(k, body, values)))
        halved = lanes > k.lanes or (short and len(body) <= QUICK)
    while lanes > estimate(extent):
        lanes //= 2
    return Along(extent, lanes, halved)


def _trial(
    k: Loops, rank: int, axis: int, lanes: int, elements: Callable[[list[Coord]], list[Expr]]
) -> tuple[list[Stmt], list[Expr]]:
    """Return the statements that compute a vector somewhere, which are not kept, and its values."""
    at = [coord(Index(f"at{i}")) for i in range(rank)]
    at[axis] = Coord(at[axis].base, 1, lanes)
    arrays = len(k.b.arrays)
    with k.vector(lanes), k.b.block() as lines:
        values = elements(at)
    del k.b.arrays[arrays:]
    return list(statements(tuple(lines))), values


def _widest(k: Loops, body: Sequence[Stmt], values: Sequence[Expr]) -> int:
    """Return the bytes of the widest elements in vectors; of f32 if no vectors compute them."""
    vectors = [e for e in _computed(body, values) if e.lanes > 1]
    if any(isinstance(e, Binary) and e.op in WITHOUT_VECTORS for e in vectors):
        return k.facts.vector // k.lanes
    return max((DTYPES[e.dtype].itemsize for e in vectors), default=1)


def _computed(body: Sequence[Stmt], values: Sequence[Expr]) -> Iterator[Expr]:
    """Yield the expressions of values, without registers that are set and not read again."""
    read = {e.name for s in body for x in operands(s) for e in parts(x) if isinstance(e, Register)}
    read |= {e.name for x in values for e in parts(x) if isinstance(e, Register)}
    for s in body:
        if not isinstance(s, Set) or s.register.name in read:
            for x in operands(s):
                yield from parts(x)
    for x in values:
        yield from parts(x)


def in_blocks(k: Loops, outer: Sequence[int], along: Along, block: Block) -> None:
    """Loop over vectors in parallel: over runs of vectors if rows are few, else over rows."""
    extent, lanes = along.extent, along.lanes
    full, rest = divmod(extent, lanes)
    alone = all(is_number(d, 1) for d in outer)
    if k.serial or estimate(full) <= 1 or not (alone or _are_few_and_long(outer, full)):
        rows_in_blocks(k, outer, along, block)
        return
    if alone and not is_open(rest) and rest == 0:
        with k.parallel([*outer, full]) as (*at, i):
            block(at, i.base * lanes, lanes, False)
        return
    with k.parallel([*outer, ceil_div(extent, RUN * lanes)]) as (*at, i):
        first = k.b.let(i.base * RUN)
        count = k.b.let(Binary("min", lift(full) - first, Const(RUN)))
        with k.b.loop(count) as j:
            block(at, (first + j) * lanes, lanes, False)
        if is_open(rest) or rest:
            with k.b.when(Compare("lt", count, Const(RUN))):
                _rest(k, at, along, block)


def _are_few_and_long(outer: Sequence[int], full: int) -> bool:
    """Whether rows are too few to be shared among threads; of open extents that is unknown."""
    if is_open(full) or any(is_open(d) for d in outer):
        return False
    return prod(outer) < FEW and full > RUN


def rows_in_blocks(k: Loops, outer: Sequence[int], along: Along, block: Block) -> None:
    """Loop over vectors of an axis, in parallel over the others."""
    extent, lanes = along.extent, along.lanes
    full = extent // lanes
    with _rows(k, outer, estimate(ceil_div(extent, lanes))) as at:
        if is_open(full) or full:
            with k.b.loop(lift(full)) as j:
                block(at, j * lanes, lanes, False)
        _rest(k, at, along, block)


@contextmanager
def _rows(k: Loops, outer: Sequence[int], vectors: int) -> Iterator[list[Coord]]:
    """Loop over rows of so many vectors, in parallel over the first axes.

    Short rows are looped over along the last axes, which takes no division for each.
    """
    shared = len(outer)
    while vectors < RUN and shared > 1 and (k.serial or estimate(prod(outer[: shared - 1])) >= FEW):
        shared -= 1
        vectors *= estimate(outer[shared])
    with k.parallel(outer[:shared]) as at, k.loops(outer[shared:]) as rest:
        yield [*at, *rest]


def _rest(k: Loops, at: list[Coord], along: Along, block: Block) -> None:
    """Compute what full vectors leave."""
    extent, lanes = along.extent, along.lanes
    full, rest = divmod(extent, lanes)
    if along.halved:
        _halves(k, at, along, block)
    elif is_open(rest):
        with k.b.when(Compare("gt", lift(rest), Const(0))):
            block(at, lift(full * lanes), lanes, True)
    elif rest:
        block(at, Const(full * lanes), lanes, True)


def _halves(k: Loops, at: list[Coord], along: Along, block: Block) -> None:
    """Compute what full vectors leave by vectors of half the lanes, a quarter, and so on."""
    extent, lanes = along.extent, along.lanes
    while lanes > 1:
        rest = extent % lanes
        lanes //= 2
        if is_open(rest):
            left = lift(rest)
            with k.b.when(Compare("ge", left, Const(lanes))):
                block(at, lift(extent) - left, lanes, False)
        elif rest >= lanes:
            block(at, Const(extent - rest), lanes, False)
