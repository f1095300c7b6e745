"""Convolutions by phases: each phase is a direct convolution that writes every few pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

from alpenglow.ir.dims import is_open
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Expr, Load
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.phases import ConvPhases, DepthwisePhases
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.depthwise import MOST_ROWS
from alpenglow.machines.vector.templates.products import multiply_add, products
from alpenglow.machines.vector.templates.sliding import Range, Sliding
from alpenglow.machines.vector.templates.tile import (
    Tile,
    Tiles,
    dispatch,
    most_rows,
    shared_axis,
    split_rows,
    tiles_in_parallel,
)


@templates.on(ConvPhases, "channels outputs lanes steps starts ends window")
def conv_phases(k: Frame, op: ConvPhases, target: Target) -> None:
    """Build the loops: parallel over images, panels of outputs, phases, rows and tiles of a row."""
    conv = _Phases(op, k, target)
    batch, spatial = k.out.region.shape[0], len(op.steps)
    extents = [batch, conv.panels, *op.steps, *conv.counts()]
    with k.loops.parallel(extents, shared_axis(k, batch, 2)) as (n, panel, *at):
        conv.axis(0, n, panel, at[:spatial], at[spatial:], [])


@templates.on(DepthwisePhases, "steps starts ends")
def depthwise_phases(k: Frame, op: DepthwisePhases, target: Target) -> None:
    """Build the loops: parallel over images, channel blocks and the rows of the result.

    Of a row, the pixels of each phase are computed together, some neighbours at a time.
    """
    x, w = k.inputs[:2]
    batch, blocks, *outer, width, lanes = k.out.region.shape
    taps, last = w.region.shape[2:-1], len(op.steps) - 1
    b, ramp = k.b, Coord(Const(0), 1, lanes)
    with k.loops.parallel([batch, blocks, *outer]) as (n, block, *row):
        moved = [y + start for y, start in zip(row, op.starts, strict=False)]
        own = [y % step for y, step in zip(moved, op.steps, strict=False)]
        begins = [y // step for y, step in zip(moved, op.steps, strict=False)]
        number = coord(0)
        for phase, step in zip(own, op.steps, strict=False):
            number = number * step + phase
        for r in range(op.steps[last]):
            first, its = divmod(r + op.starts[last], op.steps[last])
            pixels = (width + (op.steps[last] - 1 - r)) // op.steps[last]
            if is_number(pixels, 0):  # The row is narrower than a step.
                continue
            tiles = split_rows(pixels, 1, target, MOST_ROWS)
            weights = number * op.steps[last] + its

            def tile(
                height: int, start: Expr, r: int = r, first: int = first, weights: Coord = weights
            ) -> None:
                sums = [b.var(Const(0.0, "f32", lanes)) for _ in range(height)]
                for tap in product(*map(range, taps)):
                    place = [weights, block, *map(coord, tap), coord(0)]
                    weight = b.let(Load(w.buffer, w.address(place).base, lanes))
                    where = [y + t for y, t in zip(begins, tap, strict=False)]
                    at = [n, block, *where, coord(start) + (first + tap[-1]), coord(0)]
                    origin = b.let(x.address(at).base)
                    for i, total in enumerate(sums):
                        pixel = Load(x.buffer, origin + i * x.region.strides[-2], lanes)
                        b.set(total, multiply_add(pixel, weight, total, target))
                with k.loops.vector(lanes):
                    for i, total in enumerate(sums):
                        column = (coord(start) + i) * op.steps[last] + r
                        k.sink.store([n, block, *row, column, ramp], total)

            with k.loops.loop(tiles_in_parallel(tiles)) as t:
                dispatch(b, tiles, t, tile)


class _Phases(Sliding):
    """What the loops of one convolution by phases share."""

    def __init__(self, op: ConvPhases, k: Frame, target: Target) -> None:
        kind = products(k.inputs[0].region.type.dtype, op.lanes, target)
        taps = k.inputs[1].region.shape[2 : 2 + len(op.steps)]
        super().__init__(k, taps, (1,) * len(taps), kind, op.lanes, target)
        self.op, self.bias = op, k.inputs[2]
        self.panels = self.w.region.shape[0] // math.prod(op.steps)
        _, self.out_blocks, *self.sizes, _ = k.out.region.shape
        self.most = most_rows(self.cols, target, kind.count, kind.dots > 1)

    def split(self, axis: int, extent: int) -> Tiles:
        """Split so many neighbours along an axis into tiles.

        A tile has pixels of one row, or several rows where these are short and alike.
        """
        last = len(self.sizes) - 1
        words, parts = self.kind.dots > 1, self.kind.count
        if axis == last:
            return split_rows(extent, self.cols, self.target, parts=parts, words=words)
        row, ragged = divmod(self.sizes[last], self.op.steps[last])
        several = axis == last - 1 and not is_open(row) and not is_open(extent)
        if not several or ragged or 2 * row > self.most:
            return Tiles(extent, 1, 0)
        limit = self.most // row
        return split_rows(extent, self.cols, self.target, limit, parts, words)

    def counts(self) -> list[int]:
        """Return how many tiles there are along each axis, of the phases that have most."""
        longest = (-(-d // s) for d, s in zip(self.sizes, self.op.steps, strict=True))
        return [tiles_in_parallel(self.split(axis, d)) for axis, d in enumerate(longest)]

    def axis(
        self, axis: int, n: Coord, panel: Coord, phase: Sequence[Coord], at: Sequence[Coord],
        placed: list[tuple[int, Expr]],
    ) -> None:  # fmt: skip
        """Place a tile along the axes from `axis` on, as it is `placed` along those before."""
        if axis == len(self.sizes):
            self.compute(n, panel, phase, placed)
            return
        b, tile = self.k.b, at[axis]
        full, rest = divmod(self.sizes[axis], self.op.steps[axis])

        def run(height: int, start: Expr) -> None:
            self.axis(axis + 1, n, panel, phase, at, [*placed, (height, start)])

        if is_number(rest, 0):
            dispatch(b, self.split(axis, full), tile, run)
            return
        # The first phases have one element more than the last ones.
        with b.when(phase[axis].compare("lt", rest)):
            dispatch(b, self.split(axis, full + 1), tile, run)
        with b.otherwise():
            if not is_number(full, 0):
                fewer = self.split(axis, full)
                with b.when(tile.compare("lt", tiles_in_parallel(fewer))):
                    dispatch(b, fewer, tile, run)

    def compute(
        self, n: Coord, panel: Coord, phase: Sequence[Coord], placed: Sequence[tuple[int, Expr]]
    ) -> None:
        """Compute a tile of one phase, of so many elements from one on along each axis."""
        b, strides = self.k.b, self.x.region.strides
        number: Expr = Const(0)
        origin = n.base * strides[0]
        ranges: list[Range] = []
        for axis, (step, start) in enumerate(zip(self.op.steps, self.op.starts, strict=True)):
            from_start = phase[axis].base + start
            own = b.let(from_start % step)
            number = number * step + own
            origin = origin + (from_start // step + placed[axis][1]) * strides[2 + axis]
            ranges.append(self._taps(axis, own))
        outputs = b.let(number * self.panels + panel.base)
        tile = self.tile(math.prod(height for height, _ in placed))
        self._begin(tile, outputs)
        row, pitch, wide = strides[len(self.sizes)], strides[1 + len(self.sizes)], placed[-1][0]

        def apart(r: int) -> int:
            return r // wide * row + r % wide * pitch

        block = self.block(tile, b.let(origin), b.let(outputs * self.panel), ranges, apart)
        self.all_blocks(block, self.op.channels)
        self._store(tile, n, panel, phase, placed)

    def _taps(self, axis: int, phase: Expr) -> Range:
        """Return which taps of an axis a phase has."""
        step, taps = self.op.steps[axis], self.taps[axis]
        missing = self.k.b.let((phase + (taps * step - self.op.window[axis])) // step)
        return (missing, self.k.b.let(taps - missing))

    def _begin(self, tile: Tile, outputs: Expr) -> None:
        """Let sums begin with the bias."""
        width = self.cols * self.lanes
        for j in range(self.cols):
            at = outputs * width + j * self.lanes
            first = self.k.b.let(Load(self.bias.buffer, at, self.lanes))
            for row in tile.acc:
                self.k.b.set(row[j], first)

    def _store(
        self, tile: Tile, n: Coord, panel: Coord, phase: Sequence[Coord],
        placed: Sequence[tuple[int, Expr]],
    ) -> None:  # fmt: skip
        """Store the sums of a tile, each pixel where its phase has it."""
        k, wide = self.k, placed[-1][0]
        ramp = Coord(Const(0), 1, self.lanes)

        def store(column: int, row: Coord, total: Expr) -> None:
            at = [coord(start) for _, start in placed]
            at[-1] = at[-1] + row % wide
            if len(at) > 1:
                at[-2] = at[-2] + row // wide
            place = [c * s + p for c, s, p in zip(at, self.op.steps, phase, strict=True)]
            with k.loops.vector(self.lanes):
                k.sink.store([n, panel * self.cols + column, *place, ramp], total)

        for j in range(self.cols):
            if self.out_blocks % self.cols and j:
                with k.b.when((panel * self.cols + j).compare("lt", self.out_blocks)):
                    tile.finish(j, partial(store, j))
            else:
                tile.finish(j, partial(store, j))
