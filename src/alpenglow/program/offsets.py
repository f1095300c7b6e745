"""Offsets in one arena for blocks with known lifetimes (dynamic storage allocation).

A program whose buffers are all known ahead needs no allocator at run time: every buffer gets its
offset when the program is built.  Finding the smallest arena is NP-hard, yet first fit reaches the
lower bound on almost every network, if only the blocks come in a good order.  So there is one
mechanism, `_place`, which puts blocks one after the other at the lowest offset that is free during
their whole life; some fixed priorities to start from; and a bounded search that repairs the best
of these orders.  Some order leads first fit to the optimum: take any optimal placement, and
let the blocks in order of offset fall until they rest on each other.

The promise: blocks that are live together never overlap, offsets are multiples of the alignment,
and the same blocks always get the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

_REPAIRS = 2000
"""The most repairs that are tried."""

_VISITS = 4_000_000
"""The most visits to rivals by all placements but the first: bounds the time on large programs."""


Span = tuple[int, int]
"""The bottom and the top of a block; both are 0 where none is placed."""


@dataclass(frozen=True)
class Block:
    """A piece of memory of `size` bytes, live on the half-open interval of steps [begin, end)."""

    size: int
    begin: int
    end: int

    def __post_init__(self) -> None:
        assert self.size >= 0, f"a block has the negative size {self.size}"
        assert self.begin < self.end, f"a block is live on no step: [{self.begin}, {self.end})"


@dataclass(frozen=True)
class Placement:
    """Where each block lies, the size of the arena, and the size that no placement can go below."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int

    @property
    def gap(self) -> float:
        """The part of the lower bound by which the peak exceeds it; at 0.0 the peak is optimal."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0


def assign_offsets(blocks: Sequence[Block], alignment: int = 64, enough: int = 0) -> Placement:
    """Choose an offset for every block, so that live blocks never overlap and the arena is small.

    Sizes count rounded up to the alignment.  A block of size 0 overlaps nothing and lies at 0.
    Nothing better is looked for once the arena is no larger than what is `enough`.
    """
    assert alignment > 0, f"the alignment is {alignment}"
    rounded = [Block(-(-b.size // alignment) * alignment, b.begin, b.end) for b in blocks]
    bound = _largest_live_sum(rounded)
    task = _Task([b.size for b in rounded], _rivals(rounded), bound, max(bound, enough))
    layout = _repair(task, _first_layout(task, rounded))
    return Placement(tuple(bottom for bottom, _ in layout.spans), layout.peak, task.bound)


@dataclass(frozen=True)
class _Task:
    """What a placement must respect: sizes, for each block those live with it, the lower bound.

    A peak of `enough` is as good as the bound.
    """

    sizes: list[int]
    rivals: list[list[int]]
    bound: int
    enough: int

    @property
    def affordable(self) -> int:
        """How many placements may be tried after the first."""
        return _VISITS // (len(self.sizes) + sum(map(len, self.rivals)) + 1)


@dataclass(frozen=True)
class _Layout:
    """An order of the blocks (no empty ones), and where first fit puts each."""

    order: list[int]
    spans: list[Span]
    peak: int


def _first_layout(task: _Task, blocks: list[Block]) -> _Layout:
    """First fit by each priority until one reaches the bound; else the best."""
    occupied = [i for i, size in enumerate(task.sizes) if size]
    layouts: list[_Layout] = []
    for priority in _PRIORITIES[: 1 + task.affordable]:
        layouts.append(_place(task, sorted(occupied, key=lambda i: priority(blocks[i]))))
        if layouts[-1].peak <= task.enough:
            break
    return min(layouts, key=lambda layout: layout.peak)


def _by_size(block: Block) -> tuple[int, ...]:
    return -block.size, block.begin - block.end, block.begin


def _by_size_and_life(block: Block) -> tuple[int, ...]:
    """Mostly the size: the fifth root of the life is a factor."""
    return block.size**5 * (block.begin - block.end), block.begin


def _by_area(block: Block) -> tuple[int, ...]:
    return block.size * (block.begin - block.end), block.begin


def _by_life(block: Block) -> tuple[int, ...]:
    return block.begin - block.end, -block.size, block.begin


_PRIORITIES = (_by_size, _by_size_and_life, _by_area, _by_life)


def _place(task: _Task, order: list[int]) -> _Layout:
    """First fit: block after block goes to the lowest offset free during its whole life."""
    spans = [(0, 0)] * len(task.sizes)
    _fill(task, spans, order)
    return _Layout(order, spans, max((top for _, top in spans), default=0))


def _fill(task: _Task, spans: list[Span], order: Sequence[int], most: int | None = None) -> bool:
    """Place more blocks among those that are; stop, and return False, above `most`."""
    for i in order:
        size, bottom = task.sizes[i], 0
        for low, high in sorted([span for j in task.rivals[i] if (span := spans[j])[1]]):
            if low - bottom >= size:
                break
            if high > bottom:
                bottom = high
        if most is not None and bottom + size > most:
            return False
        spans[i] = bottom, bottom + size
    return True


def _moved(task: _Task, layout: _Layout, block: int, own: int, to: int) -> _Layout | None:
    """Return how it is with a block moved forward to a place, None if the peak is higher then.

    `own` is its place so far.  What is placed before both stays where it is.
    """
    order = [*layout.order[:to], block, *layout.order[to:own], *layout.order[own + 1 :]]
    spans = [(0, 0)] * len(task.sizes)
    for i in order[:to]:
        spans[i] = layout.spans[i]
    if not _fill(task, spans, order[to:], layout.peak):
        return None
    return _Layout(order, spans, max(top for _, top in spans))


def _repair(task: _Task, layout: _Layout) -> _Layout:
    """Move single blocks forward in the order while the peak stands above the bound.

    A block at the peak rests on a pile of others; one of the pile, drawn at random, moves ahead of
    an earlier rival of its own.  A move that does not raise the peak stays, so that the
    search also walks level ground.
    """
    random = Random(0)
    for _ in range(min(_REPAIRS, task.affordable)):
        if layout.peak <= task.enough:
            break
        moved = random.choice(_pile(task, layout, random))
        place = {block: index for index, block in enumerate(layout.order)}
        earlier = [j for j in task.rivals[moved] if place.get(j, place[moved]) < place[moved]]
        if not earlier:
            continue
        to = place[random.choice(earlier)]
        layout = _moved(task, layout, moved, place[moved], to) or layout
    return layout


def _pile(task: _Task, layout: _Layout, random: Random) -> list[int]:
    """A block that ends at the peak, one that it rests on, and so on down to the floor."""
    spans = layout.spans
    pile = [random.choice([i for i in layout.order if spans[i][1] == layout.peak])]
    while bottom := spans[pile[-1]][0]:
        pile.append(random.choice([j for j in task.rivals[pile[-1]] if spans[j][1] == bottom]))
    return pile


def _rivals(blocks: list[Block]) -> list[list[int]]:
    """For each block the others that are live with it; empty blocks have and are none."""
    rivals: list[list[int]] = [[] for _ in blocks]
    live: list[int] = []
    for i in sorted((i for i, b in enumerate(blocks) if b.size), key=lambda i: blocks[i].begin):
        begin = blocks[i].begin
        live = [j for j in live if blocks[j].end > begin]
        rivals[i].extend(live)
        for j in live:
            rivals[j].append(i)
        live.append(i)
    return rivals


def _largest_live_sum(blocks: list[Block]) -> int:
    """The most bytes that are live on one step: what ends on a step goes before what begins."""
    changes = sorted([(b.begin, b.size) for b in blocks] + [(b.end, -b.size) for b in blocks])
    return max(accumulate(change for _, change in changes), default=0)
