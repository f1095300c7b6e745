"""Winograd F(4×4, 3×3): patches in, 36 matrix products, blocks out.

The transforms work on vectors of channels and keep a patch in registers; the products are the
register tile of `tile`.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.backends.cpu.templates.products import multiply_add
from alpenglow.backends.cpu.templates.tile import (
    UNROLL,
    Tile,
    dispatch,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import is_open, known
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Const, Expr, Load
from alpenglow.ops.winograd import (
    BLOCK,
    INPUT,
    OUTPUT,
    PATCH,
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)


def winograd_input(k: Frame, op: WinogradInput, target: Target) -> None:
    """Build the transform of patches: parallel over images, channel blocks and rows of tiles."""
    (x,) = k.inputs
    n, blocks, height, width, lanes = x.region.shape
    rows, columns = (height - 2) // BLOCK, (width - 2) // BLOCK
    down, across = x.region.strides[2:4]
    ramp = Coord(Const(0), 1, lanes)
    b = k.b
    with (
        k.loops.parallel([n, blocks, rows]) as (image, block, row),
        k.loops.loop(columns) as column,
    ):
        at = b.let(x.address([image, block, row * BLOCK, column * BLOCK, coord(0)]).base)

        def patch(i: int, j: int, at: Expr = at, down: int = down, across: int = across) -> Expr:
            return b.let(Load(x.buffer, at + (i * down + j * across), lanes))

        half = [transformed(b, _input_row, [patch(i, j) for i in range(PATCH)], target)
                    for j in range(PATCH)]  # fmt: skip
        tile = row * columns + column
        k.loops.current = lanes
        for a in range(PATCH):
            done = transformed(b, _input_row, [half[j][a] for j in range(PATCH)], target)
            for c in range(PATCH):
                k.sink.store([coord(a * PATCH + c), image, block, tile, ramp], done[c])
        k.loops.current = 1


def winograd_output(k: Frame, op: WinogradOutput, target: Target) -> None:
    """Build the transform back: parallel over images, channel blocks and rows of tiles."""
    m = k.inputs[0]
    n, blocks, height, width, lanes = k.out.region.shape
    rows, columns = -(-height // BLOCK), -(-width // BLOCK)
    b = k.b
    with (
        k.loops.parallel([n, blocks, rows]) as (image, block, row),
        k.loops.loop(columns) as column,
    ):
        at = b.let(m.address([coord(0), image, block, row * columns + column, coord(0)]).base)
        step = m.region.strides[0]

        def point(i: int, at: Expr = at, step: int = step) -> Expr:
            return b.let(Load(m.buffer, at + i * step, lanes))

        half = [transformed(b, _output_row, [point(a * PATCH + c) for a in range(PATCH)], target)
                for c in range(PATCH)]  # fmt: skip
        for i in range(BLOCK):
            done = transformed(b, _output_row, [half[c][i] for c in range(PATCH)], target)
            _store_row(k, done, [image, block, row * BLOCK + i, column * BLOCK], i, lanes)


def _store_row(k: Frame, row: list[Expr], at: list[Coord], i: int, lanes: int) -> None:
    """Store a row of a block, as far as it lies inside the image."""
    height, width = k.out.region.shape[2:4]
    ramp = Coord(Const(0), 1, lanes)
    image, block, y, x = at

    def store(j: int) -> None:
        k.loops.current = lanes
        k.sink.store([image, block, y, x + j, ramp], row[j])
        k.loops.current = 1

    def columns() -> None:
        for j in range(BLOCK):
            if is_open(width) or (width % BLOCK and j >= width % BLOCK):
                with k.b.when((x + j).compare("lt", width)):
                    store(j)
            else:
                store(j)

    if is_open(height) or (height % BLOCK and i >= height % BLOCK):
        with k.b.when(y.compare("lt", height)):
            columns()
    else:
        columns()


def winograd_product(k: Frame, op: WinogradProduct, target: Target) -> None:
    """Build the 36 products: parallel over points, panels of outputs, images and tiles."""
    v, u = k.inputs[:2]
    points, panels, _, lanes, width = u.region.shape
    cols = width // lanes
    n, out_blocks, extent, _ = k.out.region.shape[1:]
    tiles = split_rows(extent, cols, target)
    b = k.b
    assert known(op.channels)
    full, rest = divmod(op.channels, lanes)
    ramp = Coord(Const(0), 1, lanes)

    def tile(height: int, point: Coord, panel: Coord, image: Coord, start: Expr) -> None:
        at_v = b.let(v.address([point, image, coord(0), coord(start), coord(0)]).base)
        at_u = b.let(u.address([point, panel, coord(0), coord(0), coord(0)]).base)
        t = Tile(b, height, cols, lanes, target)

        def block(c: Expr, used: int) -> None:
            base_v = b.let(at_v + c * v.region.strides[2])
            base_u = b.let(at_u + c * u.region.strides[2])
            unroll = UNROLL if used % UNROLL == 0 else 1
            with b.loop(used // unroll) as s:
                for i in range(unroll):
                    lane = s * unroll + i

                    def element(r: int, lane: Expr = lane) -> Expr:
                        return Load(v.buffer, base_v + lane + r * lanes)

                    t.step(u.buffer, base_u + lane * width, element)

        if full:
            with b.loop(full) as c:
                block(c, lanes)
        if rest:
            block(Const(full), rest)
        k.loops.current = lanes
        for j in range(cols):
            at = panel * cols + j

            def column(j: int = j, at: Coord = at) -> None:
                for r in range(height):
                    k.sink.store([point, image, at, coord(start) + r, ramp], t.acc[r][j])

            if out_blocks % cols and j:
                with b.when(at.compare("lt", out_blocks)):
                    column()
            else:
                column()
        k.loops.current = 1

    with k.loops.parallel([points, panels, n, tiles_in_parallel(tiles)]) as (
        point,
        panel,
        image,
        number,
    ):
        dispatch(b, tiles, number, lambda height, start: tile(height, point, panel, image, start))


def transformed(
    b: Builder, rows: Sequence[Sequence[float]], xs: Sequence[Expr], target: Target
) -> list[Expr]:
    """Return the products of a small constant matrix and a vector of vectors."""
    return [_combination(b, row, xs, target) for row in rows]


def _combination(b: Builder, row: Sequence[float], xs: Sequence[Expr], target: Target) -> Expr:
    total: Expr | None = None
    for c, x in sorted(zip(row, xs, strict=True), key=lambda t: abs(t[0]) != 1):
        if c == 0:
            continue
        if total is None:
            total = x if c == 1 else Binary("mul", x, Const(float(c), "f32", x.lanes))
        elif c == 1:
            total = Binary("add", total, x)
        elif c == -1:
            total = Binary("sub", total, x)
        else:
            total = multiply_add(x, Const(float(c), "f32", x.lanes), total, target)
    assert total is not None
    return b.let(total)


_input_row: list[list[float]] = INPUT.tolist()
_output_row: list[list[float]] = OUTPUT.tolist()
