"""Depthwise convolution of plain images: a tile is a column of vectors of neighbouring pixels.

A vector of x that was loaded for one row of the result serves the rows above and below it as well.
What lies outside of the image is not read: lanes are masked off, rows are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Expr, Load, Register, Shuffle, Splat
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import DepthwisePlanar
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.program.instr import Anchor, Instr

MOST_ROWS = 14
"""Rows of one tile: the more, the more of what is loaded serves several."""

STRIDES = (1, 2)
"""The steps along a row that there are shuffles for."""


def _fits(op: DepthwisePlanar, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether rows are dense and steps along them are those that there are shuffles for."""
    x, (out,) = anchor.left(), instr.outs
    return (
        len(op.strides) == 2
        and op.strides[-1] in STRIDES
        and x.type.dtype == out.type.dtype == "f32"
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
    columns = -(-width // target.facts.lanes)
    with k.loops.parallel([*lead, kinds[-1].past, columns]) as (*at, t, column):
        place = [coord(c) for c in at]
        first = k.b.let(column.base * target.facts.lanes)
        tile = _Tile(k, op, target, place, first)
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
    """A vector of neighbouring columns of one channel, from `first` on."""

    def __init__(
        self, k: Frame, op: DepthwisePlanar, target: Target, place: list[Coord], first: Expr
    ) -> None:
        self.k, self.op, self.target, self.place, self.first = k, op, target, place, first
        self.lanes = target.facts.lanes
        self.x, self.w = k.inputs[:2]
        self.extents = self.w.region.shape[-2:]
        # The step along a row is that of a load; a longer one takes every so many lanes of it.
        self.step = op.strides[1]
        self.ramp = Coord(first * self.step, 1, self.lanes * self.step)

    def build(self, kind: _Kind, t: Coord) -> None:
        """Compute one tile of rows."""
        b, op = self.k.b, self.op
        row = b.let((t.base - kind.first) * kind.height + kind.start)
        weights = self._weights()
        columns = [self._column(tap) for tap in range(self.extents[1])]
        down = self.x.region.strides[-2]
        corner = self.x.address([*self.place, coord(0), coord(0)]).base
        origin = b.let(corner + (row * op.strides[0] - op.pads[0]) * down)
        acc = [b.var(Const(0.0, "f32", self.lanes)) for _ in range(kind.height)]
        for r in kind.rows:
            used = self._users(r, kind.height)
            for tap, (offset, mask) in enumerate(columns if used else ()):
                pixels = self._load(b.let(origin + r * down) + offset, mask)
                for out, down_tap in used:
                    weight = weights[down_tap, tap]
                    b.set(acc[out], multiply_add(pixels, weight, acc[out], self.target))
        self._store(acc, row)

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
        loaded = [Load(w.buffer, at + (i * down + j * across)) for i, j in taps]
        return {tap: b.let(Splat(one, self.lanes)) for tap, one in zip(taps, loaded, strict=True)}

    def _column(self, tap: int) -> tuple[Expr, Expr]:
        """Return where a tap's vector begins in a row of x, and which of its lanes are inside."""
        b = self.k.b
        offset = tap * self.op.dilations[1] - self.op.pads[1]
        where = self.ramp + offset
        m = self.k.loops.m
        inside = m.bit_and(where.compare("ge", 0), where.compare("lt", self.x.region.shape[-1]))
        return b.let(where.base), b.let(inside)

    def _load(self, at: Expr, mask: Expr) -> Expr:
        loaded: Expr = Load(self.x.buffer, at, self.lanes * self.step, mask)
        if self.step > 1:
            loaded = Shuffle(loaded, tuple(range(0, self.lanes * self.step, self.step)))
        return self.k.b.let(loaded)

    def _store(self, acc: list[Register], row: Expr) -> None:
        k, width = self.k, self.k.out.region.shape[-1]
        ramp = Coord(self.first, 1, self.lanes)
        k.loops.current = self.lanes
        ragged = width % self.lanes != 0
        k.loops.mask = k.b.let(ramp.compare("lt", width)) if ragged else None
        for r, total in enumerate(acc):
            k.sink.store([*self.place, coord(row) + r, ramp], total)
        k.loops.mask, k.loops.current = None, 1
