"""Convolution with few output channels: vectors lie along the last axis of plain images.

Blocks of channels would be mostly padding.  Here each vector of neighbouring pixels is loaded once
for all outputs, and each weight is broadcast: a register tile of outputs times vectors.  Of bytes a
pixel is a word of four channels.
"""

from __future__ import annotations

from alpenglow.backends.cpu.templates.products import products
from alpenglow.backends.loops.coord import Coord, coord, is_number
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import is_open
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Bitcast, Const, Expr, Load, Splat
from alpenglow.ops.blocked import ConvPlanar
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


def words_fit(op: ConvPlanar, x: Region, out: Region, target: Target) -> bool:
    """Whether `conv_planar` implements this convolution of bytes."""
    masks = target.has("avx512bw") or target.lanes < 16
    return (
        masks
        and target.lanes > 1
        and op.strides[-1] == 1
        and out.shape[1] <= target.lanes // 2
        and 0 not in out.shape
        and x.strides[-2:] == (4, 1)
        and is_number(out.strides[-1], 1)
    )


def conv_planar(k: Frame, op: Conv | ConvPlanar, target: Target) -> None:
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

    def __init__(self, k: Frame, op: Conv | ConvPlanar, outputs: int, target: Target) -> None:
        self.k, self.outputs, self.lanes = k, outputs, target.lanes
        self.x, self.w = k.inputs[:2]
        spatial = len(k.out.region.shape) - 2
        if isinstance(op, ConvPlanar):
            self.strides, self.dilations = op.strides, op.dilations
        else:
            _, self.strides, self.dilations = op.window(spatial)
        self.kind = products(self.x.buffer.dtype, target.lanes, target)

    def pixels(self, at: Expr, mask: Expr | None) -> list[Expr]:
        """Return the parts of a vector of pixels."""
        b, dots = self.k.b, self.kind.dots
        loaded = Load(self.x.buffer, at, self.lanes * dots, mask)
        return [b.let(p) for p in self.kind.factors(loaded if dots == 1 else self.word(loaded))]

    def word(self, loaded: Expr) -> Expr:
        return self.k.b.let(Bitcast(loaded, "i32"))

    def build(
        self, n: Coord, rows: list[Coord], first: Expr, count: int, limit: int | None
    ) -> None:
        """Compute `count` vectors of pixels from `first` on, of all outputs."""
        k, b, lanes, kind = self.k, self.k.b, self.lanes, self.kind
        strides, dilations, dots = self.strides, self.dilations, kind.dots
        x, w = self.x.region, self.w.region
        ramps = [Coord(first + v * lanes, 1, lanes) for v in range(count)]
        masks: list[Expr | None] = [None] * count
        if limit is not None:
            masks[-1] = b.let(ramps[-1].compare("lt", limit))
        inside: list[Expr | None] = list(masks)
        if limit is not None and dots > 1:
            last = Coord((first + (count - 1) * lanes) * dots, 1, lanes * dots)
            inside[-1] = b.let(last.compare("lt", limit * dots))
        zero = Const(0 if kind.dtype == "i32" else 0.0, kind.dtype, lanes)
        acc = [[b.var(zero) for _ in range(count)] for _ in range(self.outputs)]
        origin = n.base * x.strides[0] + first * dots
        for axis, c in enumerate(rows):
            origin = origin + c.base * (strides[axis] * x.strides[2 + axis])
        origin = b.let(origin)
        with k.loops.loops([w.shape[1], *w.shape[2 : 3 + len(rows)]]) as (c, *taps):
            at_x = origin + c.base * x.strides[1]
            at_w = c.base * w.strides[1]
            for axis, tap in enumerate(taps):
                at_x = at_x + tap.base * (dilations[axis] * x.strides[2 + axis])
                at_w = at_w + tap.base * w.strides[2 + axis]
            at_x, at_w = b.let(at_x), b.let(at_w)
            pixels = [self.pixels(at_x + v * lanes * dots, inside[v]) for v in range(count)]
            for o in range(self.outputs):
                one = kind.word(b, self.w.buffer, at_w + o * w.strides[0], 1, dots)
                weights = [b.let(p) for p in kind.weights(b.let(Splat(one, lanes)))]
                for v in range(count):
                    for part, weight in zip(pixels[v], weights, strict=True):
                        b.set(acc[o][v], kind.add(part, weight, acc[o][v]))
        k.loops.current = lanes
        for o in range(self.outputs):
            for v in range(count):
                k.loops.mask = masks[v]
                k.sink.store([n, coord(o), *rows, ramps[v]], acc[o][v])
        k.loops.mask, k.loops.current = None, 1
