"""Winograd F(m×m, 3×3): patches in, (m + 2)² matrix products, blocks out.

The transforms work on vectors of channels and keep a patch in registers; the products are the
register tile of `tile`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from alpenglow.backends.cpu.templates.products import multiply_add
from alpenglow.backends.cpu.templates.tile import (
    Tile,
    dispatch,
    is_far,
    most_rows,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.backends.loops.coord import Coord, coord, is_number
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import Dim, ceil_div, is_open, known
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Const, Expr, Load
from alpenglow.ops.winograd import (
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
    block_of,
    transforms,
)


def winograd_input(k: Frame, op: WinogradInput, target: Target) -> None:
    """Build the transform of patches: parallel over images, channel blocks and rows of tiles."""
    (x,) = k.inputs
    n, blocks, height, width, lanes = x.region.shape
    size, patch = op.block, op.block + 2
    rows, columns = (height - 2) // size, (width - 2) // size
    matrix = transforms(size).input
    down, across = x.region.strides[2:4]
    ramp = Coord(Const(0), 1, lanes)
    b = k.b
    with (
        k.loops.parallel([n, blocks, rows]) as (image, block, row),
        k.loops.loop(columns) as column,
    ):
        at = b.let(x.address([image, block, row * size, column * size, coord(0)]).base)
        half = b.array("f32", patch * patch * lanes)
        with b.loop(patch) as j:
            start = b.let(at + j * across)
            xs = [b.let(Load(x.buffer, start + i * down, lanes)) for i in range(patch)]
            for a, y in enumerate(transformed(b, matrix, xs, target)):
                b.store(half, (j + a * patch) * lanes, y)
        tile = row * columns + column
        k.loops.current = lanes
        with b.loop(patch) as i:
            xs = [b.let(Load(half, (i * patch + c) * lanes, lanes)) for c in range(patch)]
            for c, y in enumerate(transformed(b, matrix, xs, target)):
                k.sink.store([coord(i) * patch + c, image, block, tile, ramp], y)
        k.loops.current = 1


def winograd_output(k: Frame, op: WinogradOutput, target: Target) -> None:
    """Build the transform back: parallel over images, channel blocks and rows of tiles."""
    m = k.inputs[0]
    n, blocks, height, width, lanes = k.out.region.shape
    size = block_of(m.region.shape[0])
    patch, matrix = size + 2, transforms(size).output
    rows, columns = ceil_div(height, size), ceil_div(width, size)
    b = k.b
    with (
        k.loops.parallel([n, blocks, rows]) as (image, block, row),
        k.loops.loop(columns) as column,
    ):
        at = b.let(m.address([coord(0), image, block, row * columns + column, coord(0)]).base)
        step = m.region.strides[0]

        half = b.array("f32", size * patch * lanes)
        with b.loop(patch) as c:
            start = b.let(at + c * step)
            xs = [b.let(Load(m.buffer, start + a * (patch * step), lanes)) for a in range(patch)]
            for i, y in enumerate(transformed(b, matrix, xs, target)):
                b.store(half, (c + i * patch) * lanes, y)
        for i in range(size):
            xs = [b.let(Load(half, Const((i * patch + c) * lanes), lanes)) for c in range(patch)]
            done = transformed(b, matrix, xs, target)
            _store_row(k, done, [image, block, row * size + i, column * size], i, lanes)


def _store_row(k: Frame, row: list[Expr], at: list[Coord], i: int, lanes: int) -> None:
    """Store a row of a block, as far as it lies inside the image."""
    height, width = k.out.region.shape[2:4]
    size = len(row)
    ramp = Coord(Const(0), 1, lanes)
    image, block, y, x = at

    def store(j: int) -> None:
        k.loops.current = lanes
        k.sink.store([image, block, y, x + j, ramp], row[j])
        k.loops.current = 1

    def columns() -> None:
        for j in range(size):
            if is_open(width) or (width % size and j >= width % size):
                with k.b.when((x + j).compare("lt", width)):
                    store(j)
            else:
                store(j)

    if is_open(height) or (height % size and i >= height % size):
        with k.b.when(y.compare("lt", height)):
            columns()
    else:
        columns()


def winograd_product(k: Frame, op: WinogradProduct, target: Target) -> None:
    """Build the products: parallel over points, panels of outputs, images and tiles.

    Where images have few patches, a tile takes those of several.
    """
    v, u = k.inputs[:2]
    points, panels, _, lanes, width = u.region.shape
    cols = width // lanes
    n, out_blocks, extent, _ = k.out.region.shape[1:]
    b = k.b
    assert known(op.channels)
    full, rest = divmod(op.channels, lanes)
    ramp = Coord(Const(0), 1, lanes)
    images = _images_a_tile(n, extent, cols, target)

    def patch(r: int) -> tuple[int, int]:
        """Return how many images and patches further row r of a tile is."""
        return (0, r) if images == 1 else divmod(r, extent)

    def tile(height: int, point: Coord, panel: Coord, image: Coord, start: Expr) -> None:
        at_v = b.let(v.address([point, image, coord(0), coord(start), coord(0)]).base)
        at_u = b.let(u.address([point, panel, coord(0), coord(0), coord(0)]).base)
        t = Tile(b, height, cols, lanes, target, far=is_far(u))

        def block(c: Expr, used: int) -> None:
            base_v = b.let(at_v + c * v.region.strides[2])
            base_u = b.let(at_u + c * u.region.strides[2])
            unroll = t.unroll if used % t.unroll == 0 else 1
            with b.loop(used // unroll) as s:
                for i in range(unroll):
                    lane = s * unroll + i

                    def element(r: int, lane: Expr = lane) -> Expr:
                        further, beside = patch(r)
                        step = further * v.region.strides[1] + beside * lanes
                        return Load(v.buffer, base_v + lane + step)

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
                    further, beside = patch(r)
                    place = [point, image + further, at, coord(start) + beside, ramp]
                    k.sink.store(place, t.acc[r][j])

            if out_blocks % cols and j:
                with b.when(at.compare("lt", out_blocks)):
                    column()
            else:
                column()
        k.loops.current = 1

    if images > 1:
        tiles = split_rows(n, cols, target, limit=images)
        with k.loops.parallel([points, panels, tiles_in_parallel(tiles)]) as (point, panel, number):
            dispatch(
                b,
                tiles,
                number,
                lambda count, first: tile(count * extent, point, panel, coord(first), Const(0)),
            )
        return
    tiles = split_rows(extent, cols, target)
    with k.loops.parallel([points, panels, n, tiles_in_parallel(tiles)]) as (
        point,
        panel,
        image,
        number,
    ):
        dispatch(b, tiles, number, lambda height, start: tile(height, point, panel, image, start))


def _images_a_tile(n: Dim, patches: Dim, cols: int, target: Target) -> int:
    """Return of how many images with so few patches a tile takes all."""
    if not isinstance(patches, int) or is_number(n, 1):
        return 1
    return max(1, most_rows(cols, target) // patches)


def transformed(b: Builder, matrix: Array, xs: Sequence[Expr], target: Target) -> list[Expr]:
    """Return the products of a small constant matrix and a vector of vectors.

    Points stand in pairs p and -p, so that rows of the matrix, or columns, differ in the signs of
    every other element: what such two have in common is computed once.
    """
    rows = matrix.tolist()
    mirrors = {i: j for i, j in itertools.pairwise(range(len(rows))) if _mirrored(rows[i], rows[j])}
    if mirrors:
        done: dict[int, Expr] = {}
        for i, j in mirrors.items():
            even = _combination(b, _every_other(rows[i], 0), xs, target)
            odd = _combination(b, _every_other(rows[i], 1), xs, target)
            done[i], done[j] = b.let(Binary("add", even, odd)), b.let(Binary("sub", even, odd))
        return [done.get(i) or _combination(b, row, xs, target) for i, row in enumerate(rows)]
    columns = list(zip(*rows, strict=True))
    sums = list(xs)
    pairs = [i for i in range(len(columns) - 1) if _mirrored(columns[i], columns[i + 1])]
    for i in pairs:
        sums[i] = b.let(Binary("add", xs[i], xs[i + 1]))
        sums[i + 1] = b.let(Binary("sub", xs[i + 1], xs[i]))
    # Rows of even number take the sums, the others the differences.
    unused = [{i + 1 - number % 2 for i in pairs} for number in range(len(rows))]
    return [
        _combination(b, [0.0 if i in without else c for i, c in enumerate(row)], sums, target)
        for row, without in zip(rows, unused, strict=True)
    ]


def _mirrored(one: Sequence[float], two: Sequence[float]) -> bool:
    """Whether two vectors differ in the signs of every other element, the second, the fourth …"""
    signs = [c == (-d if i % 2 else d) for i, (c, d) in enumerate(zip(one, two, strict=True))]
    return all(signs) and one != two


def _every_other(row: Sequence[float], first: int) -> list[float]:
    return [c if i % 2 == first else 0.0 for i, c in enumerate(row)]


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
