"""Depthwise convolution in blocked layout: each lane is a channel, a tile is a run of pixels.

Where bytes are multiplied by fours, those are neighbours along the last axis: the bytes of four
pixels are loaded as they lie, turned over so that each lane holds those of its channel, and meet
weights that are moved by as many taps as the pixel is from the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Lanes,
    Load,
    Register,
    Shuffle,
)
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import DepthwiseBlocked
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.narrow import packs_rows, store_packed
from alpenglow.machines.vector.templates.products import Products, multiply_add, products
from alpenglow.machines.vector.templates.tile import dispatch, split_rows, tiles_in_parallel

MOST_ROWS = 12
"""Pixels of one tile: enough to hide the latency of the multiply-adds."""

MOST_TAPS = 81
"""Taps that are written out; of more, those of one row are, in loops over rows."""


@templates.on(DepthwiseBlocked, "strides dilations taps")
def depthwise_blocked(k: Frame, op: DepthwiseBlocked, target: Target) -> None:
    """Build the loops: parallel over images, channel blocks, rows and tiles of a row."""
    batch, blocks, *place, _ = k.out.region.shape
    tiles = split_rows(place[-1], 1, target, MOST_ROWS)
    with k.loops.parallel([batch, blocks, *place[:-1], tiles_in_parallel(tiles)]) as (
        n,
        block,
        *outer,
        t,
    ):

        def tile(height: int, start: Expr) -> None:
            pixels = _Tile(k, op, target, n, block, outer, start)
            pixels.store(pixels.by_fours(height) if op.taps else pixels.one_by_one(height))

        dispatch(k.b, tiles, t, tile)


@dataclass
class _Tile:
    """Neighbours of one block of channels, from `start` on."""

    k: Frame
    op: DepthwiseBlocked
    target: Target
    n: Coord
    block: Coord
    outer: list[Coord]
    start: Expr

    @property
    def lanes(self) -> int:
        return self.k.out.region.shape[-1]

    def taps(self, extents: Sequence[int]) -> Iterator[tuple[Coord, ...]]:
        """Yield the taps of a window, those of a row at least; more rows are one in a loop."""
        looped = 0
        if math.prod(self.k.inputs[1].region.shape[1 : 1 + len(self.op.strides)]) > MOST_TAPS:
            looped = len(extents) - (extents[-1] <= MOST_TAPS)
        with self.k.loops.loops(extents[:looped]) as before:
            for taps in product(*map(range, extents[looped:])):
                yield (*before, *map(coord, taps))

    def origin(self, taps: Sequence[Coord]) -> Expr:
        """Return the address of the first pixel's tap."""
        k, op = self.k, self.op
        places = [*self.outer, coord(self.start)]
        where = [c * s + t * d for c, s, t, d in
                 zip(places, op.strides, taps, op.dilations, strict=True)]  # fmt: skip
        return k.b.let(k.inputs[0].address([self.n, self.block, *where, coord(0)]).base)

    def weights(self, taps: Sequence[Coord]) -> Expr:
        """Return the address of the weights of a tap."""
        w = self.k.inputs[1]
        rest = [coord(0)] * (len(w.region.shape) - 1 - len(taps))
        return w.address([self.block, *taps, *rest]).base

    def one_by_one(self, height: int) -> list[Register]:
        """Return the sums of `height` neighbours, tap by tap."""
        b, lanes = self.k.b, self.lanes
        x, w = self.k.inputs[:2]
        whole = x.region.type.dtype == "u8"
        acc = [b.var(Const(0 if whole else 0.0, "i32" if whole else "f32", lanes))
               for _ in range(height)]  # fmt: skip

        def loaded(buffer: Expr) -> Expr:
            return buffer if buffer.dtype == acc[0].dtype else Convert(buffer, acc[0].dtype)

        for taps in self.taps(w.region.shape[1:-1]):
            weight = b.let(loaded(Load(w.buffer, self.weights(taps), lanes)))
            origin = self.origin(taps)
            pitch = self.op.strides[-1] * x.region.strides[-2]
            for r in range(height):
                element = loaded(Load(x.buffer, origin + r * pitch, lanes))
                if whole:
                    total: Expr = Binary("add", acc[r], Binary("mul", element, weight))
                else:
                    total = multiply_add(element, weight, acc[r], self.target)
                b.set(acc[r], total)
        return acc

    def by_fours(self, height: int) -> list[Register]:
        """Return the sums of `height` neighbours, four taps of the last axis at a time."""
        b, lanes = self.k.b, self.lanes
        kind = products("u8", lanes, self.target)
        acc = [b.var(Const(0, "i32", lanes)) for _ in range(height)]
        *rows, groups = self.k.inputs[1].region.shape[1 : 1 + len(self.op.strides)]
        for taps in self.taps((*rows, 1)):
            origin = self.origin(taps)
            at = [self.weights((*taps[:-1], coord(g))) for g in range(groups)]
            words = [b.let(kind.vector(self.k.inputs[1].buffer, one, lanes)) for one in at]
            moved = _Moved(self.k, kind, words)
            for run in runs(height, self.op.taps, self.op.strides[-1], groups):
                self._run(run, origin, kind, moved, acc)
        return acc

    def _run(
        self, run: Run, origin: Expr, kind: Products, moved: _Moved, acc: list[Register]
    ) -> None:
        """Add the products of one row of taps for pixels that share what is loaded."""
        b, lanes, x = self.k.b, self.lanes, self.k.inputs[0]
        step = x.region.strides[-2]
        turned = tuple(lanes * p + c for c in range(lanes) for p in range(4))
        for g in range(moved.groups):
            there = min(max(run.read - 4 * g, 0), 4)
            if there == 0:
                continue
            at = origin + (run.first + 4 * g) * step
            mask = None
            if there < 4:
                inside = Const(there * lanes, "i64", 4 * lanes)
                mask = b.let(Compare("lt", Lanes(4 * lanes), inside))
            pixels = b.let(Shuffle(Load(x.buffer, at, 4 * lanes, mask), turned))
            parts = [b.let(part) for part in kind.factors(Bitcast(pixels, "i32"))]
            for r, offset in run.pixels:
                for part, weight in zip(parts, moved.by(offset)[g], strict=True):
                    b.set(acc[r], kind.add(part, weight, acc[r]))

    def store(self, acc: list[Register]) -> None:
        k = self.k
        ramp = Coord(Const(0), 1, self.lanes)

        def place(row: Coord) -> list[Coord]:
            return [self.n, self.block, *self.outer, coord(self.start) + row, ramp]

        with k.loops.vector(self.lanes):
            if packs_rows(k, self.target, len(acc)):
                store_packed(k, acc, place)
            else:
                for r, total in enumerate(acc):
                    k.sink.store(place(coord(r)), total)


@dataclass(frozen=True)
class Run:
    """Pixels of a row that share what is loaded: `read` pixels of x from number `first` on.

    `pixels` holds the number of each and how far its first tap is from what is loaded first.
    """

    first: int
    read: int
    pixels: tuple[tuple[int, int], ...]


def runs(height: int, taps: int, stride: int, groups: int) -> list[Run]:
    """Share loads of `groups` times 4 pixels of x among `height` neighbours.

    What is loaded does not reach past the last tap of the last pixel, nor before the first.
    """
    room = 4 * groups
    most = (room - taps) // stride + 1
    loads = []
    for begin in range(0, height, most):
        rows = range(begin, min(begin + most, height))
        span = taps + (len(rows) - 1) * stride
        # Rather than past the end of x, a load begins before the first tap.
        back = min(room - span, begin * stride)
        first = begin * stride - back
        loads.append(Run(first, span + back, tuple((r, r * stride - first) for r in rows)))
    return loads


class _Moved:
    """A row of weights, moved by some taps: what lies before the first of them is 0."""

    def __init__(self, k: Frame, kind: Products, words: list[Expr]) -> None:
        self.b, self.kind, self.words = k.b, kind, words
        self.groups = len(words)
        self._made: dict[int, list[list[Expr]]] = {}

    def by(self, offset: int) -> list[list[Expr]]:
        """Return the parts of each group of four, moved by `offset` taps."""
        if offset not in self._made:
            words = [self._word(g, 8 * offset) for g in range(self.groups)]
            self._made[offset] = [[self.b.let(p) for p in self.kind.weights(w)] for w in words]
        return self._made[offset]

    def _word(self, g: int, bits: int) -> Expr:
        """Return group g of all the words shifted up by so many bits."""
        whole, part = divmod(bits, 32)
        lanes = self.words[0].lanes
        here = g - whole
        if here < 0:
            return Const(0, "i32", lanes)
        if part == 0:
            return self.words[here]
        high = Binary("shl", self.words[here], Const(part, "i32", lanes))
        if here == 0:
            return self.b.let(high)
        below = Bitcast(self.words[here - 1], "u32")
        low = Binary("shr", below, Const(32 - part, "u32", lanes))
        return self.b.let(Binary("or", high, Bitcast(low, "i32")))
