"""Winograd F(m×m, 3×3): patches in, (m + 2)² matrix products, blocks out.

The transforms work on vectors of channels and keep a patch in registers; the products are the
register tile of `tile`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from alpenglow.ir.dims import Dim, ceil_div, is_open, known
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Const, Expr, Load
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.winograd import (
    WinogradFilter,
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
    block_of,
    transforms,
)
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.machines.vector.templates.tile import (
    Tile,
    dispatch,
    is_far,
    most_rows,
    split_rows,
    tiles_in_parallel,
)


@templates.on(WinogradInput, "block")
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
        with k.loops.vector(lanes), b.loop(patch) as i:
            xs = [b.let(Load(half, (i * patch + c) * lanes, lanes)) for c in range(patch)]
            for c, y in enumerate(transformed(b, matrix, xs, target)):
                k.sink.store([coord(i) * patch + c, image, block, tile, ramp], y)


@templates.on(WinogradFilter, "block")
def winograd_filter(k: Frame, op: WinogradFilter, target: Target) -> None:
    """Build the transform of filters that are computed: parallel over panels, blocks and inputs."""
    (w,) = k.inputs
    panels, blocks, taps, _, inputs, width = w.region.shape
    lanes, patch = target.facts.lanes, op.block + 2
    matrix = transforms(op.block).filter
    down, across = w.region.strides[2:4]
    b = k.b
    with (
        k.loops.parallel([panels, blocks, inputs]) as (panel, block, row),
        k.loops.loop(width // lanes) as part,
    ):
        column = part * lanes
        at = b.let(w.address([panel, block, coord(0), coord(0), row, column]).base)
        columns = []
        for j in range(taps):
            xs = [b.let(Load(w.buffer, at + i * down + j * across, lanes)) for i in range(taps)]
            columns.append([b.let(y) for y in transformed(b, matrix, xs, target)])
        with k.loops.vector(lanes):
            for a in range(patch):
                done = transformed(b, matrix, [column_[a] for column_ in columns], target)
                for c, y in enumerate(done):
                    place = [coord(a * patch + c), panel, block, row, Coord(column.base, 1, lanes)]
                    k.sink.store(place, y)


@templates.on(WinogradOutput, "outputs height width")
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
        with k.loops.vector(lanes):
            k.sink.store([image, block, y, x + j, ramp], row[j])

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


@templates.on(WinogradProduct, "channels outputs")
def winograd_product(k: Frame, op: WinogradProduct, target: Target) -> None:
    """Build the products: parallel over points, panels of outputs, images and tiles.

    Where images have few patches, a tile takes those of several.
    """
    p = _Products(k, op, target)
    points, panels = p.points, p.panels
    if p.images > 1:
        tiles = split_rows(p.n, p.cols, target, limit=p.images)
        with k.loops.parallel([points, panels, tiles_in_parallel(tiles)]) as (point, panel, number):
            dispatch(
                k.b,
                tiles,
                number,
                lambda count, first: p.tile(
                    count * p.extent, (point, panel, coord(first)), Const(0)
                ),
            )
        return
    tiles = split_rows(p.extent, p.cols, target)
    outer = [points, panels, p.n, tiles_in_parallel(tiles)]
    with k.loops.parallel(outer) as (point, panel, image, number):
        dispatch(
            k.b, tiles, number, lambda height, start: p.tile(height, (point, panel, image), start)
        )


class _Products:
    """The tiles of Winograd's products: v[points, images, blocks, patches, lanes] by packed u."""

    def __init__(self, k: Frame, op: WinogradProduct, target: Target) -> None:
        self.k, self.b, self.target = k, k.b, target
        self.v, self.u = k.inputs[:2]
        self.points, self.panels, _, self.lanes, self.width = self.u.region.shape
        self.cols = self.width // self.lanes
        self.n, self.out_blocks, self.extent, _ = k.out.region.shape[1:]
        assert known(op.channels)
        self.full, self.rest = divmod(op.channels, self.lanes)
        self.images = _images_a_tile(self.n, self.extent, self.cols, target)

    def tile(self, height: int, place: tuple[Coord, Coord, Coord], start: Expr) -> None:
        """Build the patches from `start` on of one panel at one point, of an image or several."""
        (point, panel, image), b, v, u = place, self.b, self.v, self.u
        at_v = b.let(v.address([point, image, coord(0), coord(start), coord(0)]).base)
        at_u = b.let(u.address([point, panel, coord(0), coord(0), coord(0)]).base)
        t = Tile(b, height, self.cols, self.lanes, self.target, far=is_far(u, self.target))
        if self.full:
            with b.loop(self.full) as c:
                self._block(t, at_v, at_u, c, self.lanes)
        if self.rest:
            self._block(t, at_v, at_u, Const(self.full), self.rest)
        for j in range(self.cols):
            if self.out_blocks % self.cols and j:
                with b.when((panel * self.cols + j).compare("lt", self.out_blocks)):
                    self._store(t, j, place, start)
            else:
                self._store(t, j, place, start)

    def _patch(self, r: int) -> tuple[int, int]:
        """Return how many images and patches further row r of a tile is."""
        return (0, r) if self.images == 1 else divmod(r, self.extent)

    def _block(self, t: Tile, at_v: Expr, at_u: Expr, c: Expr, used: int) -> None:
        """Add the products of one block of channels, of which some lanes are used."""
        b, v, u = self.b, self.v, self.u
        base_v = b.let(at_v + c * v.region.strides[2])
        base_u = b.let(at_u + c * u.region.strides[2])
        unroll = t.unroll if used % t.unroll == 0 else 1
        with b.loop(used // unroll) as s:
            for i in range(unroll):
                lane = s * unroll + i

                def element(r: int, lane: Expr = lane) -> Expr:
                    further, beside = self._patch(r)
                    step = further * v.region.strides[1] + beside * self.lanes
                    return Load(v.buffer, base_v + lane + step)

                t.step(u.buffer, base_u + lane * self.width, element)

    def _store(self, t: Tile, j: int, place: tuple[Coord, Coord, Coord], start: Expr) -> None:
        """Store one block of outputs of a tile."""
        point, panel, image = place
        at = panel * self.cols + j
        for r, sums in enumerate(t.acc):
            further, beside = self._patch(r)
            to = [point, image + further, at, coord(start) + beside, Coord(Const(0), 1, self.lanes)]
            with self.k.loops.vector(self.lanes):
                self.k.sink.store(to, sums[j])


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
