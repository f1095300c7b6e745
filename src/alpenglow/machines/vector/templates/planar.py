"""Convolution of plain images: vectors lie along pixels, and each weight is broadcast.

It serves where blocks of channels would be mostly padding: few outputs, or narrow groups.  Each
vector of neighbouring pixels is loaded once for all outputs of a register tile.  Of bytes a pixel
is a word of four channels.
"""

from __future__ import annotations

import math

from alpenglow.ir.dims import estimate, is_open
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Bitcast, Const, Expr, Load, Splat
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import ConvPlanar
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import products
from alpenglow.machines.vector.templates.tile import Tiles, dispatch
from alpenglow.ops.product.contraction import Conv
from alpenglow.program.instr import Anchor, Instr

MOST_VECTORS = 8
"""Vectors of pixels in a tile: enough to hide the latency of additions."""


def _fits(op: Conv, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether this is a convolution of f32, without padding, to few channels or by groups.

    A bias that is computed stays with the loops.
    """
    x, (out,) = anchor.left(), instr.outs
    rank = len(out.shape)
    return (
        len(anchor.operands()) == 2
        and x.type.dtype == "f32"
        and not any(op.window(rank - 2)[0])
        and set(op.window(rank - 2)[1][-1:]) == {1}
        and (out.shape[1] <= target.facts.lanes // 2 or op.group > 1)
        and 0 not in out.shape
        and is_number(x.strides[-1], 1)
        and is_number(out.strides[-1], 1)
    )


def _words_fit(op: ConvPlanar, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether vectors can be masked, and rows of words are dense."""
    x, (out,) = anchor.left(), instr.outs
    masks = target.has("avx512bw") or target.facts.lanes < 16
    return (
        masks
        and target.facts.lanes > 1
        and op.strides[-1] == 1
        and out.shape[1] <= target.facts.lanes // 2
        and 0 not in out.shape
        and x.strides[-2:] == (4, 1)
        and is_number(out.strides[-1], 1)
    )


@templates.on(Conv, "strides pads dilations group wide", _fits)
@templates.on(ConvPlanar, "strides dilations", _words_fit)
def conv_planar(k: Frame, op: Conv | ConvPlanar, target: Target) -> None:
    """Build the loops: parallel over images, groups, tiles of outputs, rows, and tiles of a row."""
    group = op.group if isinstance(op, Conv) else 1
    _merge_rows(k, op)
    _, outputs, *place = k.out.region.shape
    lanes = target.facts.lanes
    width = place[-1]
    vectors = -(-width // lanes)
    tile = _Tiling(k, op, outputs // group, target)
    most = _vectors(outputs // group, estimate(vectors), tile.kind.count, target)
    high = _rows(most, tile.kind.count, target)
    rows = _even(outputs // group, min(outputs // group, high))
    whole = [k.out.region.shape[0], group, rows.count, *place[:-1]]
    if is_open(width):
        # Tiles of `most` vectors, then the rest one by one; any of them may be the last.
        full = vectors // most
        with k.loops.parallel([*whole, full + vectors % most]) as (n, which, o, *outer, t):
            with k.b.when(t.compare("lt", full)):
                first = k.b.let(t.base * (most * lanes))
                tile.run(n, which, rows, o, outer, first, most, width)
            with k.b.otherwise():
                first = k.b.let((t.base + full * (most - 1)) * lanes)
                tile.run(n, which, rows, o, outer, first, 1, width)
        return
    across = _even(vectors, most)
    with k.loops.parallel([*whole, across.count]) as (n, which, o, *outer, t):

        def run(count: int, begin: Expr, last: bool) -> None:
            limit = width if last else None
            tile.run(n, which, rows, o, outer, k.b.let(begin * lanes), count, limit)

        # The first `larger` tiles have a vector more; the last of all may be ragged.
        ragged = across.count - (width % lanes != 0)
        for begin, past, count, last in (
            (0, across.larger, across.rows + 1, False),
            (across.larger, ragged, across.rows, False),
            (ragged, across.count, across.rows, True),
        ):
            if begin == 0 and past == across.count:
                run(count, t.base * count, last)
            elif begin < past:
                inside = k.loops.m.bit_and(t.compare("ge", begin), t.compare("lt", past))
                with k.b.when(k.b.let(inside)):
                    run(count, t.base * count + (across.larger if begin else 0), last)


def _vectors(outputs: int, vectors: int, parts: int, target: Target) -> int:
    """Return how many vectors of pixels a tile takes, so that least is loaded.

    A tile loads each of its vectors and broadcasts a weight for each of its outputs, a step.
    """

    def loads(v: int) -> int:
        rows = min(outputs, _rows(v, parts, target))
        return -(-outputs // rows) * vectors + -(-vectors // v) * outputs

    most = min(MOST_VECTORS, vectors, max((target.facts.registers - 2 * parts) // (2 * parts), 1))
    return min(range(1, max(most, 1) + 1), key=lambda v: (loads(v), v))


def _rows(vectors: int, parts: int, target: Target) -> int:
    """Return how many outputs fit the registers beside so many vectors and a weight."""
    return max((target.facts.registers - (vectors + 1) * parts) // vectors, 1)


def _even(extent: int, most: int) -> Tiles:
    """Split an extent into tiles of nearly equal size, at most `most`."""
    count = -(-extent // most)
    return Tiles(count, *divmod(extent, count))


def _merge_rows(k: Frame, op: Conv | ConvPlanar) -> None:
    """See all pixels of an image as one row where each is made of its like alone."""
    if isinstance(op, ConvPlanar):
        return
    spatial = len(k.out.region.shape) - 2
    taps = k.inputs[1].region.shape[2:]
    pads, strides, _ = op.window(spatial)
    if spatial < 2 or math.prod(taps) != 1 or set(strides) != {1} or any(pads):
        return
    windows = [k.inputs[0], k.out, *k.inputs[2:]]
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        for a in range(2, 1 + spatial):
            if strides[a] != strides[a + 1] * shape[a + 1]:
                return
    ones = (1,) * (spatial - 1)
    for w in windows:
        shape, strides = w.region.shape, w.region.strides
        merged = (*shape[:2], *ones, math.prod(shape[2:]))
        w.reshape(merged, (*strides[:2], *(0 for _ in ones), strides[-1]))


class _Tiling:
    """What all tiles of one convolution share."""

    def __init__(self, k: Frame, op: Conv | ConvPlanar, outputs: int, target: Target) -> None:
        self.k, self.outputs, self.lanes = k, outputs, target.facts.lanes
        self.x, self.w = k.inputs[:2]
        spatial = len(k.out.region.shape) - 2
        if isinstance(op, ConvPlanar):
            self.strides, self.dilations = op.strides, op.dilations
        else:
            _, self.strides, self.dilations = op.window(spatial)
        self.kind = products(self.x.buffer.dtype, target.facts.lanes, target)

    def pixels(self, at: Expr, mask: Expr | None) -> list[Expr]:
        """Return the parts of a vector of pixels."""
        b, dots = self.k.b, self.kind.dots
        loaded = Load(self.x.buffer, at, self.lanes * dots, mask)
        return [b.let(p) for p in self.kind.factors(loaded if dots == 1 else self.word(loaded))]

    def word(self, loaded: Expr) -> Expr:
        return self.k.b.let(Bitcast(loaded, "i32"))

    def run(
        self, n: Coord, group: Coord, rows: Tiles, o: Coord, outer: list[Coord], first: Expr,
        count: int, limit: int | None,
    ) -> None:  # fmt: skip
        """Compute tile number `o` of the outputs of a group, whichever height it has."""

        def tile(height: int, output: Expr) -> None:
            self.build(n, group, output, height, outer, first, count, limit)

        dispatch(self.k.b, rows, o, tile)

    def build(
        self, n: Coord, group: Coord, output: Expr, height: int, rows: list[Coord], first: Expr,
        count: int, limit: int | None,
    ) -> None:  # fmt: skip
        """Compute `count` vectors of pixels from `first` on, of `height` outputs of a group."""
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
        acc = [[b.var(zero) for _ in range(count)] for _ in range(height)]
        origin = n.base * x.strides[0] + group.base * (w.shape[1] * x.strides[1]) + first * dots
        for axis, c in enumerate(rows):
            origin = origin + c.base * (strides[axis] * x.strides[2 + axis])
        origin = b.let(origin)
        place = b.let(group.base * self.outputs + output)
        weights_at = b.let(place * w.strides[0])
        with k.loops.loops([w.shape[1], *w.shape[2 : 3 + len(rows)]]) as (c, *taps):
            at_x = origin + c.base * x.strides[1]
            at_w = weights_at + c.base * w.strides[1]
            for axis, tap in enumerate(taps):
                at_x = at_x + tap.base * (dilations[axis] * x.strides[2 + axis])
                at_w = at_w + tap.base * w.strides[2 + axis]
            at_x, at_w = b.let(at_x), b.let(at_w)
            pixels = [self.pixels(at_x + v * lanes * dots, inside[v]) for v in range(count)]
            for o in range(height):
                one = kind.word(b, self.w.buffer, at_w + o * w.strides[0], 1, dots)
                weights = [b.let(p) for p in kind.weights(b.let(Splat(one, lanes)))]
                for v in range(count):
                    for part, weight in zip(pixels[v], weights, strict=True):
                        b.set(acc[o][v], kind.add(part, weight, acc[o][v]))
        for o in range(height):
            for v in range(count):
                with k.loops.vector(lanes, masks[v]):
                    k.sink.store([n, coord(place) + o, *rows, ramps[v]], acc[o][v])
