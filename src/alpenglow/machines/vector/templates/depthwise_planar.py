"""Depthwise convolution of plain images: a tile is a column of vectors of neighbouring pixels.

A vector of x that was loaded for one row of the result serves the rows above and below it as well.
What lies outside of the image is not read: lanes are masked off, rows are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from alpenglow.ir.dims import ceil_div, estimate
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Const, Convert, Expr, Load, Register, Shuffle, Splat
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.loops.window.contraction import within
from alpenglow.machines.vector.operators.blocked import STRIDES, DepthwisePlanar
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.program.instr import Anchor, Instr

MOST_ROWS = 14
"""Rows of one tile: the more, the more of what is loaded serves several."""

MOST_VECTORS = 4
"""Vectors side by side in a tile of one row, which is long; fewer if it has more rows."""

TWICE = 64
"""Multiply-adds of a tile up to which the middle of an image has code without masks of its own."""


def _fits(op: DepthwisePlanar, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether rows are dense and steps along them are those that there are shuffles for."""
    x, (out,) = anchor.left(), instr.outs
    return (
        len(op.strides) == 2
        and op.strides[-1] in STRIDES
        and x.type.dtype in ("f32", "u8")
        and 0 not in out.shape
        and is_number(x.strides[-1], 1)
        and is_number(out.strides[-1], 1)
    )


@templates.on(DepthwisePlanar, "strides pads dilations", _fits)
def depthwise_planar(k: Frame, op: DepthwisePlanar, target: Target) -> None:
    """Build the loops: parallel over images, channels, tiles of rows and vectors of a row."""
    *lead, height, width = k.out.region.shape
    taps = k.inputs[1].region.shape[-2] * k.inputs[1].region.shape[-1]
    room = target.facts.registers - min(taps, target.facts.registers // 2) - 3
    kinds = _kinds(op, k.inputs[0].region.shape[-2], k.inputs[1].region.shape[-2], height, room)
    vectors = ceil_div(width, target.facts.lanes)
    tallest = max(kind.height for kind in kinds)
    wide = max(1, min(MOST_VECTORS // tallest, room // tallest, estimate(vectors)))
    columns = ceil_div(width, target.facts.lanes * wide)
    with k.loops.parallel([*lead, kinds[-1].past, columns]) as (*at, t, column):
        place = [coord(c) for c in at]
        first = k.b.let(column.base * (target.facts.lanes * wide))
        tile = _Tile(k, op, target, place, first, wide)
        for kind in kinds:
            if len(kinds) == 1:
                tile.build(kind, t)
            else:
                inside = k.loops.m.bit_and(t.compare("ge", kind.first), t.compare("lt", kind.past))
                with k.b.when(k.b.let(inside)):
                    tile.build(kind, t)


@dataclass
class _Kind:
    """Tiles from number `first` to before `past` that read the same `rows` of x, from their first.

    Each tile has `height` rows, the tile `first` begins at row `start` of the result.
    """

    first: int
    past: int
    start: int
    height: int
    rows: tuple[int, ...]


def _kinds(op: DepthwisePlanar, extent: int, taps: int, height: int, room: int) -> list[_Kind]:
    """Split the rows of the result into tiles, and group neighbours that look alike."""
    count = -(-height // max(min(MOST_ROWS, room), 1))
    rows, larger = divmod(height, count)
    kinds: list[_Kind] = []
    start = 0
    for t in range(count):
        high = rows + (t < larger)
        origin = start * op.strides[0] - op.pads[0]
        reach = (high - 1) * op.strides[0] + (taps - 1) * op.dilations[0] + 1
        inside = tuple(r for r in range(reach) if 0 <= origin + r < extent)
        if kinds and (kinds[-1].height, kinds[-1].rows) == (high, inside):
            kinds[-1].past = t + 1
        else:
            kinds.append(_Kind(t, t + 1, start, high, inside))
        start += high
    return kinds


class _Tile:
    """A few vectors of neighbouring columns of one channel, from `first` on."""

    def __init__(
        self, k: Frame, op: DepthwisePlanar, target: Target, place: list[Coord], first: Expr,
        wide: int,
    ) -> None:  # fmt: skip
        self.k, self.op, self.target, self.place, self.first = k, op, target, place, first
        self.lanes, self.wide = target.facts.lanes, wide
        self.x, self.w = k.inputs[:2]
        self.extents = self.w.region.shape[-2:]
        self.dtype = "f32" if self.x.buffer.dtype == "f32" else "i32"
        # The step along a row is that of a load; a longer one takes every so many lanes of it.
        self.step = op.strides[1]

    def build(self, kind: _Kind, t: Coord) -> None:
        """Compute one tile of rows: in the middle of an image no lane is outside of it."""
        row = self.k.b.let((t.base - kind.first) * kind.height + kind.start)
        masks = self.dtype == "f32" and self.target.has("avx")
        if masks and kind.height * self.wide * math.prod(self.extents) > TWICE:
            self._compute(kind, row, True)
            return
        with self.k.b.when(self._within()):
            self._compute(kind, row, False)
        with self.k.b.otherwise():
            if masks:
                self._compute(kind, row, True)
            else:
                self._one_by_one(kind, row)

    def _within(self) -> Expr:
        """Return the condition that all that is loaded and stored lies inside of its row."""
        m, op = self.k.loops.m, self.op
        begin = coord(self.first) * self.step - op.pads[1]
        reach = self.wide * self.lanes * self.step + (self.extents[1] - 1) * op.dilations[1]
        inside = m.bit_and(
            begin.compare("ge", 0), (begin + reach).compare("le", self.x.region.shape[-1])
        )
        end = coord(self.first) + self.wide * self.lanes
        return self.k.b.let(m.bit_and(inside, end.compare("le", self.k.out.region.shape[-1])))

    def _compute(self, kind: _Kind, row: Expr, masked: bool) -> None:
        """Compute a tile of rows from `row` on, lanes outside of the image masked if need be."""
        b, op, lanes = self.k.b, self.op, self.lanes
        weights = self._weights()
        columns = [[self._column(tap, v, masked) for v in range(self.wide)]
                   for tap in range(self.extents[1])]  # fmt: skip
        down = self.x.region.strides[-2]
        corner = self.x.address([*self.place, coord(0), coord(0)]).base
        origin = b.let(corner + (row * op.strides[0] - op.pads[0]) * down)
        zero = Const(0.0 if self.dtype == "f32" else 0, self.dtype, lanes)
        acc = [[b.var(zero) for _ in range(self.wide)] for _ in range(kind.height)]
        for r in kind.rows:
            used = self._users(r, kind.height)
            for tap, vectors in enumerate(columns if used else ()):
                for v, (offset, mask) in enumerate(vectors):
                    pixels = self._load(b.let(origin + r * down) + offset, mask)
                    for out, down_tap in used:
                        total = acc[out][v]
                        b.set(total, self._add(pixels, weights[down_tap, tap], total))
        for v in range(self.wide):
            ramp = Coord(b.let(self.first + v * lanes), 1, lanes)
            self._store([line[v] for line in acc], coord(row), ramp, masked)

    def _one_by_one(self, kind: _Kind, row: Expr) -> None:
        """Compute the same one vector at a time, its elements loaded each by itself."""
        b, op, loops, lanes = self.k.b, self.op, self.k.loops, self.lanes
        with b.loop(kind.height) as r, b.loop(self.wide) as v:
            total = b.var(Const(0, self.dtype, lanes))
            ramp = Coord(b.let(self.first + v * lanes), 1, lanes)
            here = coord(b.let(row + r))
            with loops.loops(self.extents) as taps:
                where = [c * s + tap * d - p for c, s, tap, d, p in
                         zip((here, ramp), op.strides, taps, op.dilations, op.pads, strict=False)]
                with loops.vector(lanes):
                    inside = within(loops, where, self.x.region.shape[-2:], [True, True])
                    assert inside is not None, "both axes are looked at"
                    at = [*self.place, *where]
                    pixels = loops.when(b.let(inside), partial(self.x.load, loops, at),
                                        loops.constant(0, self.x.buffer.dtype))  # fmt: skip
                    weight = self.w.load(loops, [*self.place[1:], *taps])
                    if weight.lanes == 1:
                        weight = Splat(weight, lanes)
                    b.set(total, self._add(self._summed(pixels), self._summed(weight), total))
            self._store([total], here, ramp, True)

    def _add(self, x: Expr, w: Expr, total: Expr) -> Expr:
        if self.dtype == "f32":
            return multiply_add(x, w, total, self.target)
        return Binary("add", total, Binary("mul", x, w))

    def _summed(self, x: Expr) -> Expr:
        """Return x in the type of the sums."""
        return x if x.dtype == self.dtype else Convert(x, self.dtype)

    def _users(self, r: int, height: int) -> list[tuple[int, int]]:
        """Return the rows of a tile that read its row `r` of x, each with the tap it meets."""
        stride, dilation = self.op.strides[0], self.op.dilations[0]
        met = product(range(height), range(self.extents[0]))
        return [(out, tap) for out, tap in met if out * stride + tap * dilation == r]

    def _weights(self) -> dict[tuple[int, int], Expr]:
        """Return the weight of each tap in all lanes."""
        b, w = self.k.b, self.w
        lead = self.place[1:]
        taps = list(product(range(self.extents[0]), range(self.extents[1])))
        at = b.let(w.address([*lead, coord(0), coord(0)]).base)
        down, across = w.region.strides[-2:]
        loaded = [self._summed(Load(w.buffer, at + (i * down + j * across))) for i, j in taps]
        return {tap: b.let(Splat(one, self.lanes)) for tap, one in zip(taps, loaded, strict=True)}

    def _column(self, tap: int, v: int, masked: bool) -> tuple[Expr, Expr | None]:
        """Return where a tap's vector begins in a row of x, and which of its lanes are inside."""
        b, m = self.k.b, self.k.loops.m
        offset = tap * self.op.dilations[1] - self.op.pads[1] + v * self.lanes * self.step
        where = Coord(self.first * self.step + offset, 1, self.lanes * self.step)
        if not masked:
            return b.let(where.base), None
        inside = m.bit_and(where.compare("ge", 0), where.compare("lt", self.x.region.shape[-1]))
        return b.let(where.base), b.let(inside)

    def _load(self, at: Expr, mask: Expr | None) -> Expr:
        loaded: Expr = Load(self.x.buffer, at, self.lanes * self.step, mask)
        if self.step > 1:
            loaded = Shuffle(loaded, tuple(range(0, self.lanes * self.step, self.step)))
        return self.k.b.let(self._summed(loaded))

    def _store(self, totals: Sequence[Register], row: Coord, ramp: Coord, masked: bool) -> None:
        k, width = self.k, self.k.out.region.shape[-1]
        ragged = masked and not is_number(width % (self.lanes * self.wide), 0)
        with k.loops.vector(self.lanes, ramp.compare("lt", width) if ragged else None):
            for r, total in enumerate(totals):
                k.sink.store([*self.place, row + r, ramp], total)
