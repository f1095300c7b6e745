"""Convolution as a product: outputs are rows, pixels of all images columns, weights and taps steps.

No image is rearranged in memory: where an element of the right operand lies is computed as it is
copied.  Where there are enough channels, steps are channels at one tap, so that which pixel a
column reads, and whether it is padding, is known before its channels are.  All taps are gone
through before the next channels: what they read is in a cache then.  Of few channels all taps are
steps in a row.
"""

from __future__ import annotations

import math

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.loops.window.contraction import either, within
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import below, groups, is_plain, merge_axes, operands
from alpenglow.machines.grid.templates.matmul import SHORT, TAKEN, summed
from alpenglow.machines.grid.templates.tile import Elements, Shape, Side, Tile, shape_for
from alpenglow.machines.grid.templates.words import WORD, in_words, sum_of_words
from alpenglow.ops.product.contraction import Conv
from alpenglow.program.instr import Anchor, Instr

MOSTLY = 4
"""Outputs or pixels up to which a tile would be mostly empty."""

WASTE = 1.25
"""Steps of taps one by one, each rounded up to whole parts, to those of all taps in a row."""


def _fits(op: Conv, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether a group of channels has more than a few outputs, and steps to each."""
    if not is_plain(anchor, instr):
        return False
    x, w = (r.type for r in anchor.operands()[:2])
    (out,) = instr.outs
    outputs, pixels = w.extents[0] // op.group, math.prod(out.shape) // w.extents[0]
    steps = math.prod(w.extents[1:])
    return (
        x.dtype in TAKEN
        and min(outputs, pixels) > MOSTLY
        and steps >= SHORT
        and shape_for(outputs, pixels, op.group, summed(x.dtype), target) is not None
    )


@templates.on(Conv, "strides pads dilations group wide", _fits)
def conv(k: Frame, op: Conv, target: Target) -> None:
    """Build the convolution: a group for each tile of outputs and pixels."""
    geometry = _Geometry(k, op, target)
    shape = shape_for(geometry.outputs, geometry.pixels, op.group, geometry.dtype, target)
    assert shape is not None, "a tile fits"
    rows, columns = ceil_div(geometry.outputs, shape.rows), ceil_div(geometry.pixels, shape.columns)
    with groups(k, [op.group, rows, columns], shape.threads) as ((band, down, across), thread):
        tile = Tile(k, shape, geometry.dtype, thread, target, geometry.dot)
        row, column = k.b.let(down.base * shape.rows), k.b.let(across.base * shape.columns)
        taps = [t for t in geometry.taps if t > 1]
        if not taps or _is_wasted(geometry, shape):
            left, right, steps = geometry.sides(band, None)
            tile.multiply(steps, left, right, row, column)
        else:
            blocks = ceil_div(geometry.steps, shape.depth)
            with k.b.loop(blocks) as block, k.b.loop(math.prod(taps)) as number:
                left, right, steps = geometry.sides(band, k.loops.split(number, geometry.taps))
                parts = tile.parts(steps, left, right, row, column)
                tile.add(parts, k.b.let(block * shape.depth))

        def store(line: Expr, where: list[Coord], total: Expr) -> None:
            channel = coord(k.b.let(band.base * geometry.outputs + line))
            n, *place = where
            k.sink.store([n, channel, *place], geometry.with_bias(total, channel))

        tile.finish(left, right, row, column, geometry.place, store, geometry.run)


def _is_wasted(geometry: _Geometry, shape: Shape) -> bool:
    """Return whether channels tap by tap are so few that many steps would be of nothing."""
    whole = ceil_div(geometry.steps, shape.depth) * shape.depth
    return whole > WASTE * geometry.steps


class _Geometry:
    """Where the operands of a convolution lie."""

    def __init__(self, k: Frame, op: Conv, target: Target) -> None:
        self.k, self.op = k, op
        x, w, *bias = operands(k)
        self.x, self.w = x, w
        self.bias: Window | None = bias[0] if bias else None
        self.dtype = summed(x.buffer.dtype)
        spatial = len(x.region.shape) - 2
        self.pads, self.strides, self.dilations = op.window(spatial)
        self.taps = w.region.shape[2:]
        results = [k.out, *k.inputs[2 + len(bias) :]]
        self.places = k.out.region.shape[2:]
        self.merged = merge_axes(results, 2, 1 + spatial)
        if self._is_pointwise() and merge_axes([x], 2, 1 + spatial) and self.merged:
            self.pads, self.strides, self.dilations = (0, 0), (1,), (1,)
            self.taps, self.places = (1,), (math.prod(self.places),)
            w.reshape((*w.region.shape[:2], 1), (*w.region.strides[:2], 0))
        self.outputs = w.region.shape[0] // op.group
        self.channels = w.region.shape[1]
        self.dot = sum_of_words(w.buffer.dtype, x.buffer.dtype, target)
        self.steps = ceil_div(self.channels, WORD) if self.dot else self.channels
        self.area = math.prod(self.places)
        self.pixels = x.region.shape[0] * self.area
        self.run = self.area if self.merged else 1

    def _is_pointwise(self) -> bool:
        """Return whether each result is made of the pixel at its place."""
        return {*self.taps, *self.strides} == {1} and not any(self.pads)

    def place(self, column: Coord) -> list[Coord]:
        """Return the image of a column, and its place there as the result is seen."""
        image, at = self._pixel(column.base)
        if self.merged:
            return [image, Coord(at, 1, column.lanes)]
        return [image, *self.k.loops.split(at, self.places)]

    def _pixel(self, column: Expr) -> tuple[Coord, Expr]:
        """Return the image and the place in it of a column."""
        b, at = self.k.b, below(self.k, column, self.pixels)
        if self.pixels == self.area:
            return coord(0), at
        return coord(b.let(at // self.area)), b.let(at % self.area)

    def with_bias(self, total: Expr, channel: Coord) -> Expr:
        if self.bias is None:
            return total
        return self.k.loops.m.add(total, self.bias.load(self.k.loops, [channel]))

    def sides(self, band: Coord, tap: list[Coord] | None) -> tuple[Side, Side, int]:
        """Return the weights and the image at a tap, or at all taps in a row, and their steps."""
        left, right = self.weights(band, tap), self.image(band, tap)
        inner = self.channels * (math.prod(self.taps) if tap is None else 1)
        return (left, right, inner) if self.dot is None else in_words(self.k, left, right, inner)

    def weights(self, band: Coord, tap: list[Coord] | None) -> Side:
        """Return the weights of outputs at a tap; without one, those of all taps in a row."""
        k, w = self.k, self.w

        def line(number: Expr) -> tuple[Elements, None]:
            output = coord(k.b.let(band.base * self.outputs + number))

            def element(step: Expr) -> Expr:
                channel, at = self._step(step, tap)
                return k.loops.m.cast(w.load(k.loops, [output, channel, *at]), self.dtype)

            return element, None

        return Side(self.outputs, line, along=True)

    def _step(self, step: Expr, tap: list[Coord] | None) -> tuple[Coord, list[Coord]]:
        """Return the channel and the tap of a step."""
        if tap is not None:
            return coord(step), tap
        extents = [self.channels, *self.taps]
        channel, *at = self.k.loops.split(below(self.k, step, math.prod(extents)), extents)
        return channel, at

    def image(self, band: Coord, tap: list[Coord] | None) -> Side:
        """Return the elements that pixels are made of, at a tap or at all taps in a row."""
        k = self.k

        def line(number: Expr) -> tuple[Elements, Expr | None]:
            image, at = self._pixel(number)
            starts = [
                coord(k.b.let((c * stride - pad).base))
                for c, stride, pad in zip(
                    k.loops.split(at, self.places), self.strides, self.pads, strict=False
                )
            ]
            first = band * self.channels
            where, inside = (None, None) if tap is None else self._reached(starts, tap)

            def element(step: Expr) -> Expr:
                channel, taps = self._step(step, tap)
                at, there = (where, None) if where is not None else self._reached(starts, taps)

                def load() -> Expr:
                    value = self.x.load(k.loops, [image, channel + first, *at])
                    return k.loops.m.cast(value, self.dtype)

                zero = k.loops.constant(0, self.dtype)
                return load() if there is None else k.loops.when(there, load, zero)

            return element, inside

        return Side(self.pixels, line, along=False)

    def _reached(self, starts: list[Coord], taps: list[Coord]) -> tuple[list[Coord], Expr | None]:
        """Return the pixel of x under a tap, and the condition that it is not padding."""
        k = self.k.loops
        at = [
            coord(k.b.let((start + tap * dilation).base))
            for start, tap, dilation in zip(starts, taps, self.dilations, strict=True)
        ]
        inside = within(k, at, self.x.region.shape[2:], [bool(a) for a in either(self.pads)])
        return at, inside if inside is None else k.b.let(inside)
