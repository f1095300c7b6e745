"""Gradients of 3×3 filters by F(m×m, 3×3): blocks in, (m + 2)² matrix products, filters out."""

from __future__ import annotations

from alpenglow.ir.dims import estimate
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Const, Expr, Load, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.winograd import TAPS, block_of, transforms
from alpenglow.machines.vector.operators.winograd_back import (
    WinogradBlocks,
    WinogradFilterBack,
    WinogradSums,
)
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.filters import logical
from alpenglow.machines.vector.templates.tile import Tile, split_rows
from alpenglow.machines.vector.templates.winograd import transformed

CHUNK = 64
"""How many blocks are gone through for all rows of a panel, so that they are in the nearest cache.

The sums of the other rows rest in memory meanwhile.
"""


@templates.on(WinogradBlocks, "block")
def winograd_blocks(k: Frame, op: WinogradBlocks, target: Target) -> None:
    """Build the transform of blocks: parallel over images, channel blocks and rows of blocks."""
    (dy,) = k.inputs
    n, channels, height, width, lanes = dy.region.shape
    size, patch = op.block, op.block + 2
    matrix = transforms(size).output.T
    rows, columns = height // size, width // size
    down, across = dy.region.strides[2:4]
    ramp = Coord(Const(0), 1, lanes)
    b = k.b
    with (
        k.loops.parallel([n, channels, rows]) as (image, channel, row),
        k.loops.loop(columns) as column,
    ):
        place = [image, channel, row * size, column * size, coord(0)]
        at = b.let(dy.address(place).base)
        done = []
        for j in range(size):
            xs = [b.let(Load(dy.buffer, at + (i * down + j * across), lanes)) for i in range(size)]
            done.append(transformed(b, matrix, xs, target))
        with k.loops.vector(lanes):
            for a in range(patch):
                for c, y in enumerate(transformed(b, matrix, [ys[a] for ys in done], target)):
                    to = [coord(a * patch + c), image, channel, row * columns + column, ramp]
                    k.sink.store(to, y)


@templates.on(WinogradSums, "outputs inputs")
def winograd_sums(k: Frame, op: WinogradSums, target: Target) -> None:
    """Build the products: parallel over points, panels of outputs and blocks of inputs."""
    v, d = k.inputs[:2]
    points, n, blocks, tiles, inner = v.region.shape
    outputs, lanes = d.region.shape[2], d.region.shape[4]
    cols = 2 if outputs % 2 == 0 else 1
    kinds = list(split_rows(inner, cols, target).sizes())
    chunk = max(1, min(CHUNK, estimate(tiles)))
    ramp = Coord(Const(0), 1, lanes)
    b = k.b
    with k.loops.parallel([points, outputs // cols, blocks]) as (point, panel, block):
        sums = b.array("f32", inner * cols * lanes)
        with b.loop(inner * cols) as i:
            b.store(sums, i * lanes, Const(0.0, "f32", lanes))
        with b.loop(lift(n)) as image, b.loop((lift(tiles) + (chunk - 1)) // chunk) as part:
            begin = b.let(part * chunk)
            count = b.let(Binary("min", lift(tiles) - begin, Const(chunk)))
            there = coord(begin)
            at_v = b.let(v.address([point, coord(image), block, there, coord(0)]).base)
            at_d = b.let(d.address([point, coord(image), panel * cols, there, coord(0)]).base)
            for first, past, height in kinds:
                start = inner - (past - first) * height if first else 0
                with b.loop(past - first) as number:
                    row = b.let(number * height + start)
                    tile = Tile(b, height, cols, lanes, target)
                    place = b.let(row * (cols * lanes))
                    each = [(r, j, place + (r * cols + j) * lanes)
                            for r in range(height) for j in range(cols)]  # fmt: skip
                    for r, j, at in each:
                        b.set(tile.acc[r][j], Load(sums, at, lanes))
                    with b.loop(count) as t:
                        pixel = b.let(at_v + t * inner + row)

                        def element(r: int, pixel: Expr = pixel) -> Expr:
                            return Load(v.buffer, pixel + r)

                        at_t, apart = b.let(at_d + t * lanes), d.region.strides[2]
                        tile.step(d.buffer, at_t, element, ahead=False, apart=apart)
                    for r, j, at in each:
                        b.store(sums, at, tile.acc[r][j])
        with k.loops.vector(lanes), b.loop(inner) as row:
            for j in range(cols):
                total = Load(sums, (row * cols + j) * lanes, lanes)
                output, number = panel * cols + j, block.base * inner + row
                value = logical(total, output * lanes + ramp, op.outputs, number, op.inputs, inner)
                k.sink.store([point, output, block, coord(row), ramp], b.let(value))


@templates.on(WinogradFilterBack)
def winograd_filter_back(k: Frame, op: WinogradFilterBack, target: Target) -> None:
    """Build the transform back: parallel over blocks of outputs, of inputs, and inputs."""
    (u,) = k.inputs
    points, outputs, blocks, inner, lanes = u.region.shape
    patch = block_of(points) + 2
    matrix = transforms(block_of(points)).filter.T
    step = u.region.strides[0]
    ramp = Coord(Const(0), 1, lanes)
    b = k.b
    with k.loops.parallel([outputs, blocks, inner]) as (output, block, row):
        at = b.let(u.address([coord(0), output, block, row, coord(0)]).base)
        half = []
        for c in range(patch):
            xs = [b.let(Load(u.buffer, at + (a * patch + c) * step, lanes)) for a in range(patch)]
            half.append(transformed(b, matrix, xs, target))
        with k.loops.vector(lanes):
            for i in range(TAPS):
                for j, y in enumerate(transformed(b, matrix, [ys[i] for ys in half], target)):
                    k.sink.store([output, block, coord(i), coord(j), row, ramp], y)
