"""Convolution with few output channels: vectors lie along the last axis of plain images.

Blocks of channels would be mostly padding.  Here each vector of neighbouring pixels is loaded once
for all outputs, and each weight is broadcast: a register tile of outputs times vectors.
"""

from __future__ import annotations

from alpenglow.backends.cpu.templates.tile import multiply_add
from alpenglow.backends.loops.coord import Coord, coord, is_number
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import is_open
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Expr, Load, Splat
from alpenglow.ops.contraction import Conv
from alpenglow.program.instr import Region

MOST_VECTORS = 8
"""Vectors of pixels in a tile: enough to hide the latency of additions."""


def planar_fits(op: Conv, x: Region, out: Region, target: Target) -> bool:
    """Whether `conv_planar` implements this convolution."""
    rank = len(out.shape)
    return (
        out.type.dtype == x.type.dtype == "f32"
        and op.group == 1
        and not any(op.window(rank - 2)[0])
        and set(op.window(rank - 2)[1][-1:]) == {1}
        and out.shape[1] <= target.lanes // 2
        and 0 not in out.shape
        and is_number(x.strides[-1], 1)
        and is_number(out.strides[-1], 1)
    )


def conv_planar(k: Frame, op: Conv, target: Target) -> None:
    """Build the loops: parallel over images, rows, and tiles of a row."""
    _, outputs, *place = k.out.region.shape
    lanes = target.lanes
    registers = max(target.registers - 8, 4)
    most = min(MOST_VECTORS, max(registers // outputs, 1))
    width = place[-1]
    vectors = -(-width // lanes)
    tile = _Tile(k, op, outputs, target)
    if is_open(width):
        # Tiles of `most` vectors, then the rest one by one; any of them may be the last.
        full = vectors // most
        shape = [k.out.region.shape[0], *place[:-1], full + vectors % most]
        with k.loops.parallel(shape) as (n, *rows, t):
            with k.b.when(t.compare("lt", full)):
                tile.build(n, rows, k.b.let(t.base * (most * lanes)), most, width)
            with k.b.otherwise():
                start = k.b.let((t.base + full * (most - 1)) * lanes)
                tile.build(n, rows, start, 1, width)
        return
    tiles = -(-vectors // most)
    high, larger = divmod(vectors, tiles)  # tiles of nearly equal width
    with k.loops.parallel([k.out.region.shape[0], *place[:-1], tiles]) as (n, *rows, t):

        def run(count: int, first: Expr, last: bool) -> None:
            ragged = last and width % lanes != 0
            tile.build(n, rows, k.b.let(first * lanes), count, width if ragged else None)

        # The first `larger` tiles have a vector more; the last of all may be ragged.
        for begin, past, count, last in (
            (0, larger, high + 1, False),
            (larger, tiles - 1, high, False),
            (tiles - 1, tiles, high, True),
        ):
            if begin == 0 and past == tiles:
                run(count, t.base * count, last)
            elif begin < past:
                inside = k.loops.m.bit_and(t.compare("ge", begin), t.compare("lt", past))
                with k.b.when(k.b.let(inside)):
                    run(count, t.base * count + (larger if begin else 0), last)


class _Tile:
    """What all tiles of one convolution share."""

    def __init__(self, k: Frame, op: Conv, outputs: int, target: Target) -> None:
        self.k, self.op, self.outputs, self.lanes = k, op, outputs, target.lanes
        self.target = target
        self.x, self.w = k.inputs[:2]

    def build(
        self, n: Coord, rows: list[Coord], first: Expr, count: int, limit: int | None
    ) -> None:
        """Compute `count` vectors of pixels from `first` on, of all outputs."""
        k, b, lanes = self.k, self.k.b, self.lanes
        _, strides, dilations = self.op.window(len(rows) + 1)
        x, w = self.x.region, self.w.region
        ramps = [Coord(first + v * lanes, 1, lanes) for v in range(count)]
        masks: list[Expr | None] = [None] * count
        if limit is not None:
            masks[-1] = b.let(ramps[-1].compare("lt", limit))
        zero = Const(0.0, "f32", lanes)
        acc = [[b.var(zero) for _ in range(count)] for _ in range(self.outputs)]
        origin = n.base * x.strides[0] + first
        for axis, c in enumerate(rows):
            origin = origin + c.base * (strides[axis] * x.strides[2 + axis])
        origin = b.let(origin)
        with k.loops.loops([w.shape[1], *w.shape[2:]]) as (c, *taps):
            at_x = origin + c.base * x.strides[1]
            at_w = c.base * w.strides[1]
            for axis, tap in enumerate(taps):
                at_x = at_x + tap.base * (dilations[axis] * x.strides[2 + axis])
                at_w = at_w + tap.base * w.strides[2 + axis]
            at_x, at_w = b.let(at_x), b.let(at_w)
            pixels = [b.let(Load(self.x.buffer, at_x + v * lanes, lanes, masks[v]))
                      for v in range(count)]  # fmt: skip
            for o in range(self.outputs):
                weight = b.let(Splat(Load(self.w.buffer, at_w + o * w.strides[0]), lanes))
                for v in range(count):
                    total = multiply_add(pixels[v], weight, acc[o][v], self.target)
                    b.set(acc[o][v], total)
        k.loops.current = lanes
        for o in range(self.outputs):
            for v in range(count):
                k.loops.mask = masks[v]
                k.sink.store([n, coord(o), *rows, ramps[v]], acc[o][v])
        k.loops.mask, k.loops.current = None, 1
