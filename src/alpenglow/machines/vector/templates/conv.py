"""Direct convolution in blocked layout: a register tile slides along the last spatial axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from alpenglow.ir.dims import known
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Splat, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import ConvBlocked, sliding_axis
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.narrow import packs_rows, store_packed
from alpenglow.machines.vector.templates.products import Products, products
from alpenglow.machines.vector.templates.sliding import Block, Range, Sliding
from alpenglow.machines.vector.templates.tile import (
    Tile,
    dispatch,
    shared_axis,
    split_rows,
    tiles_in_parallel,
)


@templates.on(ConvBlocked, "channels outputs lanes strides dilations group bands edges")
def conv_blocked(k: Frame, op: ConvBlocked, target: Target) -> None:
    """Build the loops: parallel over images, panels of outputs, rows and tiles of a row."""
    w = k.inputs[1]
    if _pointwise(op, w.region.shape):
        merge_pixels([k.inputs[0], k.out, *k.inputs[2:]], len(k.out.region.shape))
    op = _turned(k, op)
    panels, _, *taps, _, width = w.region.shape[: len(op.strides) + 4]
    lanes = op.lanes
    cols = width // lanes
    batch, out_blocks, *place, _ = k.out.region.shape
    kind = products(k.inputs[0].region.type.dtype, lanes, target)
    tiles = split_rows(place[-1], cols, target, parts=kind.count, words=kind.dots > 1)
    conv = _Geometry(op, k, taps, out_blocks, kind, target)
    rows = place[:-1]
    extents = [batch, panels, *rows, tiles_in_parallel(tiles)]
    with k.loops.parallel(extents, shared_axis(k, batch, 2)) as (n, panel, *outer, t):
        dispatch(k.b, tiles, t, lambda height, start: conv.compute(height, n, panel, outer, start))


class _Geometry(Sliding):
    """What the loops of one convolution share."""

    def __init__(
        self, op: ConvBlocked, k: Frame, taps: Sequence[int], out_blocks: int, kind: Products,
        target: Target,
    ) -> None:  # fmt: skip
        super().__init__(k, taps, op.dilations, kind, op.lanes, target)
        self.op, self.out_blocks = op, out_blocks
        self.group_panels = self.w.region.shape[0] // op.group
        self.bias = k.first_addend(self._by_channel) if out_blocks % self.cols == 0 else None

    def compute(self, height: int, n: Coord, panel: Coord, outer: list[Coord], start: Expr) -> None:
        """Compute `height` neighbours from `start` on, for one panel of output channels."""
        op, b = self.op, self.k.b
        strides = self.x.region.strides
        group = panel.base // self.group_panels if op.group > 1 else Const(0)
        origin = n.base * strides[0] + group * (self.in_blocks * strides[1])
        origin = origin - op.edges[0] * strides[2]
        for axis, c in enumerate([*(c.base for c in outer), start]):
            origin = origin + c * (op.strides[axis] * strides[2 + axis])
        origin = b.let(origin)
        weights = b.let(panel.base * self.panel)
        tile = self.tile(height)
        self._begin(tile, n, panel, outer)
        pitch = op.strides[-1] * strides[1 + len(self.taps)]
        ranges = [self._first_taps(outer), *map(self.whole, range(1, len(self.taps)))]
        block = self.block(tile, origin, weights, ranges, lambda r: r * pitch)
        if op.bands > 1:
            self._band(panel, block, *divmod(_channels(op), self.in_lanes))
        else:
            self.all_blocks(block, _channels(op))
        self._store(tile, n, panel, outer, start)

    def _first_taps(self, outer: list[Coord]) -> Range:
        """Return the first tap of the first axis that meets x, and how many do."""
        b, op, taps = self.k.b, self.op, lift(self.taps[0])
        if not any(op.edges):
            return Const(0), taps
        step = op.dilations[0]
        place = outer[0].base * op.strides[0] - op.edges[0]
        room = lift(self.x.region.shape[2]) - place
        past = Binary("min", taps, Binary("max", Const(0), (room + (step - 1)) // step))
        before = (Const(0) - place + (step - 1)) // step
        begin = b.let(Binary("min", Binary("max", Const(0), before), past))
        return begin, b.let(past - begin)

    def _by_channel(self, w: Window) -> bool:
        """Whether what a window shows is the same all over the image."""
        steps = zip(w.region.shape, w.region.strides, strict=True)
        return all(s == 0 or d == 1 for d, s in [*steps][2:-1])

    def _begin(self, tile: Tile, n: Coord, panel: Coord, outer: list[Coord]) -> None:
        """Let sums begin with the bias, where they need not begin with 0."""
        if self.bias is None:
            return
        k = self.k
        ramp = Coord(Const(0), 1, self.op.lanes)
        for j in range(self.cols):
            with k.loops.vector(self.op.lanes):
                first = self.bias.load(k.loops, [n, panel * self.cols + j, *outer, coord(0), ramp])
            if first.lanes == 1:  # one number for all channels
                first = Splat(first, self.op.lanes)
            for row in tile.acc:
                k.b.set(row[j], first)

    def _band(self, panel: Coord, block: Block, full: int, rest: int) -> None:
        """Run through the blocks of input channels that the outputs of a panel depend on."""
        b, op = self.k.b, self.op
        width = self.cols * op.lanes
        outputs, channels = int(op.outputs), int(op.channels)
        first = panel.base * width // (outputs // op.bands)
        last = Binary("min", panel.base * width + (width - 1), Const(outputs - 1))
        past = b.let((last // (outputs // op.bands) + 1) * (channels // op.bands))
        begin = b.let(first * (channels // op.bands) // self.in_lanes)
        end = Binary("min", (past + (self.in_lanes - 1)) // self.in_lanes, Const(full))
        with b.loop(b.let(end - begin)) as i:
            block(b.let(begin + i), self.in_lanes)
        if rest:
            with b.when(Compare("gt", past, Const(full * self.in_lanes))):
                block(Const(full), rest)

    def _store(self, tile: Tile, n: Coord, panel: Coord, outer: list[Coord], start: Expr) -> None:
        k = self.k
        ramp = Coord(Const(0), 1, self.op.lanes)
        for j in range(self.cols):
            block = panel * self.cols + j
            if self.out_blocks % self.cols and j:
                with k.b.when(block.compare("lt", self.out_blocks)):
                    self._store_column(tile, j, n, block, outer, start, ramp)
            else:
                self._store_column(tile, j, n, block, outer, start, ramp)

    def _store_column(
        self, tile: Tile, j: int, n: Coord, block: Coord, outer: list[Coord], start: Expr,
        ramp: Coord,
    ) -> None:  # fmt: skip
        def place(row: Coord) -> list[Coord]:
            return [n, block, *outer, coord(start) + row, ramp]

        with self.k.loops.vector(ramp.lanes):
            if packs_rows(self.k, self.target, tile.rows):
                store_packed(self.k, tile.sums(j), place)
            else:
                tile.finish(j, lambda row, total: self.k.sink.store(place(row), total))


def _channels(op: ConvBlocked) -> int:
    assert known(op.channels)
    return op.channels // op.group


def _pointwise(op: ConvBlocked, w: tuple[int, ...]) -> bool:
    """Whether each result is made of the pixel at its place, and there are several spatial axes."""
    spatial = len(op.strides)
    ones = (1,) * spatial
    # All that is not named here has to have its default.
    plain = ConvBlocked(op.channels, op.outputs, op.lanes, ones, op.dilations, op.group, op.bands)
    return spatial > 1 and op == plain and all(t == 1 for t in w[2 : 2 + spatial])


def _turned(k: Frame, op: ConvBlocked) -> ConvBlocked:
    """See the axis along which neighbours share weights as the last one."""
    last = len(op.strides) - 1
    taps, places = k.inputs[1].region.shape[2:], k.out.region.shape[2:]
    axis = sliding_axis(taps[: last + 1], places[: last + 1])
    if axis == last or any(op.edges):
        return op

    def swapped(of: tuple[int, ...], first: int = 0) -> tuple[int, ...]:
        numbers = list(of)
        numbers[first + axis], numbers[first + last] = numbers[first + last], numbers[first + axis]
        return tuple(numbers)

    for w in [*k.inputs, k.out]:
        w.reshape(swapped(w.region.shape, 2), swapped(w.region.strides, 2))
    return replace(op, strides=swapped(op.strides), dilations=swapped(op.dilations))


def merge_pixels(windows: Sequence[Window], rank: int) -> None:
    """See all spatial axes as one where every operand steps through them evenly.

    Those of `rank` are blocked: lanes are behind them.
    """
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        last = len(shape) - (2 if len(shape) == rank else 1)
        for a in range(2, last):
            if strides[a] != strides[a + 1] * shape[a + 1] and shape[a] != 1:
                return
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        end = len(shape) - (1 if len(shape) == rank else 0)
        ones = (1,) * (end - 3)
        merged = (*shape[:2], *ones, math.prod(shape[2:end]), *shape[end:])
        w.reshape(merged, (*strides[:2], *(0,) * len(ones), strides[end - 1], *strides[end:]))
