"""Gradients of weights in blocked layout: register tiles of weights, summed over all pixels.

A tile is some rows of one block of inputs by a few blocks of outputs, for one tap: each pixel adds
the product of a column of x and the vectors of dy.  A few rows of an image at a time are gone
through for all taps, so that they are read from the nearest cache; the sums rest in memory between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from itertools import product

from alpenglow.ir.dims import estimate
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Load,
    Register,
    Select,
    Splat,
    lift,
)
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window, element
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.filters import (
    ConvFilterBlocked,
    DepthwiseFilter,
    UnpackConv,
)
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.conv import merge_pixels
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.machines.vector.templates.tile import (
    Tile,
    dispatch,
    split_rows,
    tiles_in_parallel,
)

PIXELS = 64
"""How many pixels pay for taking up the sums of a tile and putting them back."""

Range = tuple[Expr, Expr]
"""The first place along an axis, and how many there are."""


@templates.on(ConvFilterBlocked, "outputs inputs taps strides pads dilations")
def conv_filter_blocked(k: Frame, op: ConvFilterBlocked, target: Target) -> None:
    """Build the loops: parallel over panels of outputs, blocks of inputs and tiles of these."""
    filters = _Filters(k, op, target)
    tiles = split_rows(filters.rows, filters.cols, target)
    panels = filters.dy.region.shape[1] // filters.cols
    extents = [panels, filters.x.region.shape[1], tiles_in_parallel(tiles)]
    with k.loops.parallel(extents) as (panel, block, t):
        dispatch(k.b, tiles, t, lambda height, first: filters.tile(height, first, panel, block))


class _Filters:
    """What the tiles of one gradient share.

    The rows of a tile are inputs of a block or, where x is plain, taps of the last axis.
    """

    def __init__(self, k: Frame, op: ConvFilterBlocked, target: Target) -> None:
        self.k, self.op, self.target = k, op, target
        self.x, self.dy = k.inputs[:2]
        self.spatial = len(op.taps)
        self.lanes = self.dy.region.shape[-1]
        self.plain = len(self.x.region.shape) == self.spatial + 2
        if not self.plain and set(op.taps) == set(op.strides) == {1} and not any(op.pads):
            merge_pixels([self.x, self.dy], self.spatial + 3)
        self.rows = op.taps[-1] if self.plain else self.x.region.shape[-1]
        self.visited = op.taps[:-1] if self.plain else op.taps
        blocks = self.dy.region.shape[1]
        choices = (4, 3, 2) if self.plain else (2,)
        room = target.facts.registers
        self.cols = next(
            (c for c in choices if blocks % c == 0 and min(self.rows, 8) * c + c < room), 1
        )

    def tile(self, height: int, first: Expr, panel: Coord, block: Coord) -> None:
        """Compute `height` rows from `first` on, of a block of inputs, for a panel of outputs."""
        b = self.k.b
        size = height * self.cols * self.lanes
        visits = math.prod(self.visited)
        sums = b.array("f32", visits * size)
        with b.loop(visits * height * self.cols) as i:
            b.store(sums, i * self.lanes, Const(0.0, "f32", self.lanes))
        *outer, rows, _ = (1, *self.dy.region.shape[2 : 2 + self.spatial])
        few = rows if visits == 1 else _few(rows, self.dy.region.shape[1 + self.spatial])
        with ExitStack() as stack:
            n = stack.enter_context(b.loop(lift(self.dy.region.shape[0])))
            far = [stack.enter_context(b.loop(lift(d))) for d in outer[1:]]
            part = stack.enter_context(b.loop((lift(rows) + (few - 1)) // few))
            begin = b.let(part * few)
            past = b.let(Binary("min", lift(rows), begin + few))
            taps = [stack.enter_context(b.loop(t)) for t in self.visited]
            place = b.let(_flat(taps, self.visited) * size)
            tile = Tile(b, height, self.cols, self.lanes, self.target)
            self._each(tile, lambda r, j: b.set(tile.acc[r][j], self._sum(sums, place, r, j)))
            self._add(tile, n, far, (begin, past), taps, first, panel, block)
            self._each(tile, lambda r, j: b.store(sums, self._at(place, r, j), tile.acc[r][j]))
        self._store(sums, size, height, first, panel, block)

    def _each(self, tile: Tile, do: Callable[[int, int], None]) -> None:
        for r in range(tile.rows):
            for j in range(self.cols):
                do(r, j)

    def _at(self, place: Expr, r: int | Expr, j: int) -> Expr:
        return place + (lift(r) * self.cols + j) * self.lanes

    def _sum(self, sums: Buffer, place: Expr, r: int | Expr, j: int) -> Expr:
        return Load(sums, self._at(place, r, j), self.lanes)

    def _add(
        self, tile: Tile, n: Expr, far: Sequence[Expr], rows: Range, taps: Sequence[Expr],
        first: Expr, panel: Coord, block: Coord,
    ) -> None:  # fmt: skip
        """Add the products of some rows of image `n` for one tap."""
        b, op = self.k.b, self.op
        xs, dys = self.x.region.strides, self.dy.region.strides
        at_x = n * xs[0] + block.base * xs[1] + first
        at_dy = n * dys[0] + panel.base * (self.cols * dys[1])
        with ExitStack() as stack:
            count = b.let(rows[1] - rows[0])
            row = rows[0] + stack.enter_context(b.loop(count)) if self.spatial > 1 else Const(0)
            for axis, place in enumerate([*far, row][: self.spatial - 1]):
                pixel = b.let(place * op.strides[axis] + self._ahead(axis, taps[axis]))
                if op.pads[axis] or op.pads[self.spatial + axis]:
                    stack.enter_context(b.when(Compare("ge", pixel, Const(0))))
                    inside = Compare("lt", pixel, lift(self.x.region.shape[2 + axis]))
                    stack.enter_context(b.when(inside))
                at_x = at_x + pixel * xs[2 + axis]
                at_dy = at_dy + place * dys[2 + axis]
            last = self.spatial - 1
            tap = Const(0) if self.plain else taps[-1]
            begin, count = self._places(last, tap)
            place = begin + stack.enter_context(b.loop(count))
            pixel = place * op.strides[-1] + self._ahead(last, tap)
            at_x = b.let(at_x + pixel * xs[2 + last])
            at_dy = b.let(at_dy + place * dys[2 + last])
            pitch = op.dilations[-1] * xs[1 + self.spatial] if self.plain else 1

            def element(r: int) -> Expr:
                return Load(self.x.buffer, at_x + r * pitch)

            tile.step(self.dy.buffer, at_dy, element, ahead=False, apart=dys[1])

    def _ahead(self, axis: int, tap: Expr) -> Expr:
        """Return how far ahead of the first pixel of its window a tap is."""
        return tap * self.op.dilations[axis] - self.op.pads[axis]

    def _places(self, axis: int, tap: Expr) -> Range:
        """Return the places along an axis at which a tap meets x."""
        b, op = self.k.b, self.op
        extent, step = lift(self.dy.region.shape[2 + axis]), op.strides[axis]
        before, after = op.pads[axis], op.pads[self.spatial + axis]
        if not before and not after:
            return Const(0), extent
        ahead = self._ahead(axis, tap)
        begin: Expr = Binary("max", Const(0), (Const(step - 1) - ahead) // step)
        room = lift(self.x.region.shape[2 + axis]) - ahead
        past = Binary("min", extent, (room + (step - 1)) // step)
        begin = b.let(Binary("min", begin, extent))
        return begin, b.let(Binary("max", Const(0), past - begin))

    def _store(
        self, sums: Buffer, size: int, height: int, first: Expr, panel: Coord, block: Coord
    ) -> None:
        k, b, op = self.k, self.k.b, self.op
        ramp = Coord(Const(0), 1, self.lanes)
        with ExitStack() as stack, k.loops.vector(self.lanes):
            taps = [stack.enter_context(b.loop(t)) for t in self.visited]
            row = stack.enter_context(b.loop(height))
            place = b.let(_flat(taps, self.visited) * size)
            for j in range(self.cols):
                value = self._sum(sums, place, row, j)
                outputs = panel * self.cols + j
                number = block.base * self.rows + (first + row)
                inner = 1 if self.plain else self.rows
                value = logical(
                    value, outputs * self.lanes + ramp, op.outputs, number, op.inputs, inner
                )
                at = [outputs, block, *map(coord, taps)]
                at += [coord(first + row), *([coord(0)] if self.plain else []), ramp]
                k.sink.store(at, b.let(value))


def logical(value: Expr, output: Coord, outputs: int, row: Expr, inputs: int, inner: int) -> Expr:
    """Return the weights of a vector of outputs in a row of inputs, 0 for those that there are not.

    Inputs lie in blocks of `inner`.  What lanes beyond the channels of an operand hold is
    unspecified.
    """
    lanes = output.lanes
    tests: list[Expr] = []
    if outputs % lanes:
        tests.append(output.compare("lt", outputs))
    if inputs % inner:
        tests.append(Splat(Compare("lt", row, Const(inputs)), lanes))
    if not tests:
        return value
    return Select(reduce(partial(Binary, "and"), tests), value, Const(0.0, "f32", lanes))


def _few(rows: int, width: int) -> int:
    """Return how many rows of so many pixels are taken at once."""
    return max(1, min(estimate(rows), -(-PIXELS // max(1, estimate(width)))))


def _flat(taps: Sequence[Expr], extents: Sequence[int]) -> Expr:
    flat: Expr = Const(0)
    for tap, extent in zip(taps, extents, strict=True):
        flat = flat * extent + tap
    return flat


@templates.on(UnpackConv, "outputs inputs")
def unpack_conv(k: Frame, op: UnpackConv, target: Target) -> None:
    """Build the loops: parallel over blocks; each output's part of one is gathered into its row."""
    (w,) = k.inputs[:1]
    blocks, inner, *taps, lanes, width = w.region.shape
    size = lanes * math.prod(taps)
    left = (op.inputs % lanes or lanes) * math.prod(taps)  # the last block may be partly full
    vector = target.facts.lanes
    b = k.b
    with k.loops.parallel([blocks, inner]) as (panel, block):
        origin = w.address([panel, block, *[coord(0)] * (len(taps) + 2)]).base
        with b.loop(width) as o:
            output = panel.base * width + o
            with b.when(Compare("lt", output, Const(op.outputs))):
                last = Compare("eq", block.base, Const(inner - 1))
                if left < size:
                    with b.when(last):
                        _gather_row(k, w, origin + o, output, block.base * size, left, vector)
                    with b.otherwise():
                        _gather_row(k, w, origin + o, output, block.base * size, size, vector)
                else:
                    _gather_row(k, w, origin + o, output, block.base * size, size, vector)


def _gather_row(
    k: Frame, w: Window, origin: Expr, output: Expr, first: Expr, count: int, lanes: int
) -> None:
    """Store `count` weights of one output: those of an input, tap by tap, and of the next ones."""
    *_, inner, width = w.region.shape
    taps = math.prod(w.region.shape[2:-2])
    for begin in range(0, count, lanes):
        number = Coord(Const(begin), 1, lanes)
        at = number % taps * (inner * width) + number // taps * width + origin
        there = min(lanes, count - begin)
        ramp = Coord(Const(0), 1, lanes)
        with k.loops.vector(lanes, ramp.compare("lt", there) if there < lanes else None):
            value = k.b.let(element(w.buffer, at, k.loops.mask))
            k.sink.store([coord(output), Coord(first + begin, 1, lanes)], value)


@templates.on(DepthwiseFilter, "taps strides dilations")
def depthwise_filter(k: Frame, op: DepthwiseFilter, target: Target) -> None:
    """Build the loops: parallel over blocks of channels and runs of taps."""
    x, dy = k.inputs[:2]
    lanes, spatial = dy.region.shape[-1], len(op.taps)
    most = target.facts.registers - 4
    each = list(product(*map(range, op.taps)))
    runs = [each[i : i + most] for i in range(0, len(each), most)]
    b = k.b
    with k.loops.parallel([dy.region.shape[1]]) as (block,):
        for taps in runs:
            acc: list[Register] = [b.var(Const(0.0, "f32", lanes)) for _ in taps]
            with ExitStack() as stack:
                n, *place = (
                    coord(stack.enter_context(b.loop(lift(d))))
                    for d in (dy.region.shape[0], *dy.region.shape[2 : 2 + spatial])
                )
                moved = [p * s for p, s in zip(place, op.strides, strict=True)]
                at = b.let(x.address([n, block, *moved, coord(0)]).base)
                by = b.let(Load(dy.buffer, dy.address([n, block, *place, coord(0)]).base, lanes))
                for total, tap in zip(acc, taps, strict=True):
                    steps = zip(tap, op.dilations, x.region.strides[2:], strict=False)
                    ahead = sum(t * d * s for t, d, s in steps)
                    pixel = Load(x.buffer, at + ahead, lanes)
                    b.set(total, multiply_add(pixel, by, total, target))
            with k.loops.vector(lanes):
                for total, tap in zip(acc, taps, strict=True):
                    ramp = Coord(Const(0), 1, lanes)
                    k.sink.store([coord(0), block, *map(coord, tap), ramp], total)
