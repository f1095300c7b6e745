"""Matrix products: the register tile over rows, with panels of packed columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Buffer, Const, Expr, Load, lift
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Window, in_lanes
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import LONGEST, PLAIN, MatMulPacked
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import Products, products
from alpenglow.machines.vector.templates.tile import (
    UNROLL,
    Tile,
    Tiles,
    dispatch,
    in_order,
    ladder,
    merge_batch,
    merge_shared,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.machines.vector.templates.transpose import transposed
from alpenglow.machines.vector.templates.vectors import shape_of
from alpenglow.ops.product.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr, Region

GROUP = 4
"""Rows of a turned operand that are packed on the stack take one part in so many of a core's cache.
"""

LEAST_TILES = 4
"""Tiles of rows that pay for packing the other operand for them again."""

PANELS = 8
"""Panels that pay for packing rows."""

SHARES = 8
"""Parts of a product that threads find work in."""

NEAR = 4
"""A turned operand is read where it lies if it takes one part in so many of a core's cache."""

SHORT = 32
"""Terms of a sum up to which results are stored row by row."""

Store = Callable[[Coord, Expr], None]


def _packed_fits(op: MatMulPacked, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether panels are as wide as vectors: a program may be made for another machine."""
    w = anchor.operands()[1].type
    return w.shape[2] % target.facts.lanes_for(w.dtype) == 0


@templates.on(MatMulPacked, "columns", _packed_fits)
def mat_mul_packed(k: Frame, op: MatMulPacked, target: Target) -> None:
    """Build x times a packed matrix: parallel over panels and tiles of rows."""
    x, w = k.inputs[:2]
    merge_batch([x, k.out, *k.inputs[2:]])
    *batch, rows, columns = k.out.region.shape
    panels, steps, width = w.region.shape[:3]
    lanes = target.facts.lanes_for(w.buffer.dtype)
    cols = width // lanes
    kind = products(x.region.type.dtype, lanes, target)
    inner = steps if kind.dots == 1 else x.region.shape[-1]
    tiles = split_rows(rows, cols, target, parts=kind.count, words=kind.dots > 1)
    product = Product(k, x, w.buffer, inner, columns, cols, kind, target)
    across = _goes_across(w, inner, rows, columns, target)
    count = tiles_in_parallel(tiles)
    with k.loops.parallel([*batch, *((count, panels) if across else (panels, count))]) as at:
        *lead, panel, t = (*at[:-2], at[-1], at[-2]) if across else at
        at_w = k.b.let(panel.base * (steps * width * kind.dots))
        ahead = None
        if w.buffer.dtype in PLAIN and not is_open(inner) and not across:
            line = target.facts.burst // DTYPES[w.buffer.dtype].itemsize
            ahead = Ahead(w.buffer, [at_w + inner * width], line, inner * width // line)

        def tile(height: int, start: Expr) -> None:
            product.tile(
                height, lead, start, panel.base * width, at_w, (t.base, tiles.count), ahead
            )

        dispatch(k.b, tiles, t, tile)


def _goes_across(w: Window, inner: int, rows: int, columns: int, target: Target) -> bool:
    """Return True if tiles of the same rows are computed one after another, not of a panel.

    Down a panel each row of a tile is stored in a page of its own.  Where sums are short, that
    takes longer than to read the panels from the cache of the core again.
    """
    if any(map(is_open, (inner, rows, columns))) or inner > SHORT:
        return False
    size = w.region.type.numpy.itemsize
    near = math.prod(w.region.shape) * size <= target.facts.own_cache // 2
    return near and rows * columns * size > target.facts.own_cache // 2


def fits_scratch(inner: int) -> bool:
    """Return True if there is room for a panel of this inner extent, which may be dynamic."""
    return 2 * inner <= LONGEST


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether x and y are f32 or f64 and a panel of y fits into scratch memory."""
    x, y = anchor.operands()[:2]
    if isinstance(x, Value):
        return False  # it is computed on the way: that is attention
    if shape_of(x, y, target) is not None:
        return False  # few vectors need no panels
    inner = x.type.extents[-1]
    plain = x.type.dtype in PLAIN and 0 not in instr.outs[0].shape
    if x.type.dtype == "i32" and 2 * estimate(instr.outs[0].shape[-1]) < target.facts.lanes:
        return False  # loops add products along both operands
    return plain and (fits_scratch(inner) if is_open(inner) else inner <= LONGEST)


@templates.on(MatMul, "wide", _fits)
def mat_mul(k: Frame, op: MatMul, target: Target) -> None:
    """Build x times y, both computed: each panel of y is packed into scratch memory first.

    What the next one is made of is asked for meanwhile.
    """
    x, y = k.inputs[:2]
    merge_shared(x, y, [k.out, *k.inputs[2:]])
    *batch, rows, columns = k.out.region.shape
    inner = x.region.shape[-1]
    dtype = x.buffer.dtype
    lanes = target.facts.lanes_for(dtype)
    cols = min(2, ceil_div(estimate(columns), lanes))
    width = cols * lanes
    panels = ceil_div(columns, width)
    scratch = k.b.array(dtype, LONGEST * lanes if is_open(inner) else max(inner, 1) * width)
    tiles = split_rows(rows, cols, target)
    kind = products(dtype, lanes, target)
    product = Product(k, x, scratch, inner, columns, cols, kind, target)
    group = _group(x, rows, columns, width, tiles.rows, target)
    if group is not None:
        _mat_mul_turned(k, product, y, group, panels)
        return
    with k.loops.parallel([*batch, panels]) as (*lead, panel):
        first = k.b.let(panel.base * width)
        _pack(k, y, scratch, lead, first, inner, columns, width, lanes)
        ahead = _next(k, y, lead, first + width, inner, width)

        def tile(height: int, start: Expr, number: Expr | None = None) -> None:
            turn = None if number is None else (number, tiles.count)
            product.tile(height, lead, start, first, Const(0), turn, ahead)

        if tiles.rest is not None:
            with k.b.loop(lift(tiles.count)) as t:
                tile(tiles.rows, k.b.let(t * tiles.rows))
            ladder(k.b, tiles, tile)
            return
        for begin, past, height in tiles.sizes():
            with k.b.loop(past - begin) as t:
                start = k.b.let((t + begin) * height + (tiles.larger if begin else 0))
                tile(height, start, t + begin)


def _group(
    x: Window, rows: int, columns: int, width: int, height: int, target: Target
) -> int | None:
    """Return how many rows of a turned x are put side by side; None if that does not pay."""
    down, across = x.region.strides[-2:]
    inner, size = x.region.shape[-1], x.region.type.numpy.itemsize
    if not is_number(down, 1) or any(map(is_open, (rows, inner, columns, across))):
        return None
    most = target.facts.own_cache // GROUP // (inner * size * height)
    near = rows * inner * size <= target.facts.own_cache // NEAR
    if most < LEAST_TILES or near or columns < PANELS * width:
        return None
    groups = ceil_div(rows, most * height)
    return ceil_div(rows, groups * height) * height


def _mat_mul_turned(k: Frame, product: Product, y: Window, group: int, panels: int) -> None:
    """Build x times y where columns of x lie side by side: rows of it are packed first, too.

    A tile would read a few elements of each column, each in a page of its own.
    """
    b, x, inner = k.b, product.x, product.inner
    *batch, rows, columns = k.out.region.shape
    lanes, width = product.lanes, product.cols * product.lanes
    packed = b.array(x.buffer.dtype, inner * group)
    full, rest = divmod(rows, group)
    groups = ceil_div(rows, group)
    part = max(PANELS, ceil_div(panels, ceil_div(SHARES, groups * math.prod(map(estimate, batch)))))

    def multiply(count: int, lead: list[Coord], begin: Expr, start: Expr) -> None:
        """Multiply so many rows from `begin` on by a part of the panels."""
        tiles = split_rows(count, product.cols, product.target)
        _pack_rows(k, x, packed, [*lead, coord(begin), coord(0)], tiles)
        ours = b.let(Binary("min", Const(panels) - start, Const(part)))
        with b.loop(ours) as i:
            first = b.let((start + i) * width)
            _pack(k, y, product.w, lead, first, inner, columns, width, lanes)

            def tile(height: int, row: Expr) -> None:
                strides = (*(0 for _ in batch), 1, height)
                kind = x.region.type.with_shape((*(1 for _ in batch), group, inner))
                product.x = Window(packed, Region("", kind, 0, strides))
                at = b.let(row * inner)
                product.tile(height, lead, b.let(begin + row), first, Const(0), row=at)

            in_order(b, tiles, tile)

    extents = [*batch, groups, ceil_div(panels, part)]
    with k.loops.parallel(extents) as (*lead, number, chunk):
        begin, start = b.let(number.base * group), b.let(chunk.base * part)
        if not rest:
            multiply(group, lead, begin, start)
            return
        with b.when(number.compare("lt", full)):
            multiply(group, lead, begin, start)
        with b.otherwise():
            multiply(rest, lead, begin, start)


def _pack_rows(k: Frame, x: Window, packed: Buffer, at: list[Coord], tiles: Tiles) -> None:
    """Copy rows of a turned x, from a place on: each tile in one piece, column by column."""
    b, lanes, (inner, across) = k.b, k.loops.lanes, (x.region.shape[-1], x.region.strides[-1])
    base = b.let(x.address(at).base)
    with b.loop(inner) as i:

        def copy(height: int, row: Expr) -> None:
            source, to = b.let(base + i * across + row), b.let(row * inner + i * height)
            done = 0
            while done < height:
                width = min(1 << (height - done).bit_length() - 1, lanes)
                b.store(packed, to + done, Load(x.buffer, source + done, width))
                done += width

        in_order(b, tiles, copy)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the next panel is read from: lines of memory, so many elements apart, at each start."""

    buffer: Buffer
    starts: list[Expr]
    apart: int
    lines: int


def _next(
    k: Frame, y: Window, lead: list[Coord], first: Expr, inner: int, width: int
) -> Ahead | None:
    """Return what the panel of the columns from `first` on is packed from.

    None where its columns stand neither side by side nor, one behind the other, in one piece.
    """
    down, across = y.region.strides[-2:]
    if is_open(inner) or is_open(down) or is_open(across) or across * down == 0:
        return None
    line = k.loops.facts.burst // DTYPES[y.buffer.dtype].itemsize
    start = k.b.let(y.address([*lead, coord(0), coord(0)]).base + first * across)
    if across == 1:
        return Ahead(y.buffer, [start + i for i in range(0, width, line)], down, inner)
    if down == 1 and across == inner:
        return Ahead(y.buffer, [start], line, inner * width // line)
    return None


def _pack(
    k: Frame, y: Window, scratch: Buffer, lead: list[Coord], first: Expr, inner: int,
    columns: int, width: int, lanes: int,
) -> None:  # fmt: skip
    """Copy columns `first` … of y into the scratch panel; columns past the end hold zero."""
    down, across = y.region.strides[-2:]
    base = k.b.let(y.address([*lead, coord(0), coord(0)]).base + first * across)
    partly = ragged(columns, width)
    if is_number(across, 1) or not is_number(down, 1):
        with k.b.loop(lift(inner)) as i:
            for column in range(0, width, lanes):
                ramp = Coord(first + column, 1, lanes)
                mask = k.b.let(ramp.compare("lt", columns)) if partly else None
                at = Coord(base + i * down + column * across, across, lanes)
                k.b.store(scratch, i * width + column, in_lanes(y.buffer, at, lanes, mask))
        return
    # y is transposed in memory: read along its columns, write across the panel.
    if lanes > 1 and not partly and not is_open(inner) and inner % lanes == 0:
        with k.b.loop(width // lanes) as block, k.b.loop(inner // lanes) as group:
            begin = k.b.let(base + (block * across + group) * lanes)
            lines = [k.b.let(Load(y.buffer, begin + j * across, lanes)) for j in range(lanes)]
            turned = k.b.let((group * width + block) * lanes)
            for r, line in enumerate(transposed(k.b, lines)):
                k.b.store(scratch, turned + r * width, line)
        return
    zero = Const(0 if y.buffer.dtype == "i32" else 0.0, y.buffer.dtype)
    with k.b.loop(width) as j:
        inside = Coord(first + j).compare("lt", columns)
        if partly:
            with k.b.when(inside), k.b.loop(lift(inner)) as i:
                k.b.store(scratch, i * width + j, Load(y.buffer, base + j * across + i))
            with k.b.otherwise(), k.b.loop(lift(inner)) as i:
                k.b.store(scratch, i * width + j, zero)
        else:
            with k.b.loop(lift(inner)) as i:
                k.b.store(scratch, i * width + j, Load(y.buffer, base + j * across + i))


def ragged(columns: Dim, width: int) -> bool:
    """Whether the last panel may be partly empty."""
    return is_open(columns) or columns % width != 0


class Product:
    """What the tiles of one product share."""

    def __init__(
        self, k: Frame, x: Window, w: Buffer, inner: int, columns: int, cols: int,
        kind: Products, target: Target,
    ) -> None:  # fmt: skip
        self.k, self.x, self.w, self.kind, self.target = k, x, w, kind, target
        self.inner, self.columns, self.cols = inner, columns, cols
        self.lanes = target.facts.lanes_for(kind.dtype)

    def tile(
        self, height: int, lead: list[Coord], start: Expr, column: Expr, at_w: Expr,
        turn: tuple[Expr, int] | None = None, ahead: Ahead | None = None, row: Expr | None = None,
    ) -> None:  # fmt: skip
        """Compute `height` rows from `start` on, for the panel of columns from `column` on.

        `turn` says which tile this is of the panel, and of how many; they read what is `ahead`.
        In x they begin at `row`, by default at `start`.
        """
        b, kind = self.k.b, self.kind
        down, across = self.x.region.strides[-2:]
        begin = coord(start if row is None else row)
        origin = b.let(self.x.address([*lead, begin, coord(0)]).base)
        tile = Tile(b, height, self.cols, self.lanes, self.target, kind)
        width = self.cols * self.lanes * kind.dots
        steps, part = divmod(self.inner, kind.dots) if kind.dots > 1 else (self.inner, 0)
        full, rest = divmod(steps, UNROLL)
        fetch = self._fetch(turn, ahead)
        self._fetch_results(height, lead, start, column)

        def step(i: Expr, used: int = kind.dots) -> None:
            def element(r: int) -> Expr:
                at = origin + i * (across * kind.dots) + r * down
                return kind.word(b, self.x.buffer, at, across, used)

            tile.step(self.w, at_w + i * width, element, ahead=fetch is None)

        def steps_at(i: Expr) -> None:
            if fetch is not None:
                fetch(i)
            for u in range(UNROLL):
                step(i * UNROLL + u)

        if is_open(full) or full:
            tile.run(full, UNROLL * kind.dots, steps_at)
        if is_open(rest):
            with b.loop(lift(rest)) as j:
                step(j + full * UNROLL)
            rest = 0
        for u in range(rest):
            step(Const(full * UNROLL + u))
        if part:
            step(Const(steps), part)
        store_tile(self.k, tile, lead, start, column, self.columns)

    def _fetch(
        self, turn: tuple[Expr, int] | None, ahead: Ahead | None
    ) -> Callable[[Expr], None] | None:
        """Return what asks in each turn of the loop over steps for a part of the next panel.

        The first tile of a panel would wait for memory as long as it computes, the others find its
        weights in the cache.  So each tile fetches a part of the panel after its own, from memory
        that is otherwise idle: 1 % of MiniLM-L6 on two threads.  None if a panel has a single tile.
        """
        turns = 0 if is_open(self.inner) else self.inner // UNROLL
        if turn is None or ahead is None or is_open(turn[1]) or turn[1] == 1 or not turns:
            return None
        number, count = turn
        lines = ceil_div(ahead.lines, turns * count)
        own = Binary("min", number * (turns * lines), Const(max(ahead.lines - turns * lines, 0)))
        starts = [self.k.b.let(start + own * ahead.apart) for start in ahead.starts]

        def fetch(i: Expr) -> None:
            for n in range(lines):
                for start in starts:
                    self.k.b.prefetch(
                        ahead.buffer, start + (i * lines + n) * ahead.apart, later=True
                    )

        return fetch

    def _fetch_results(self, height: int, lead: list[Coord], start: Expr, column: Expr) -> None:
        """Ask for the lines that the tile will be stored into, while it is computed.

        What is stored is read first, and may be far: a fortieth of a step of training an MLP.
        """
        if self.lanes == 1 or not self.target.facts.line:
            return
        out = self.k.out
        first = self.k.b.let(out.address([*lead, coord(start), coord(column)]).base)
        line = self.target.facts.burst // out.region.type.numpy.itemsize
        for r in range(height):
            for i in range(0, self.cols * self.lanes, line):
                self.k.b.prefetch(out.buffer, first + r * out.region.strides[-2] + i)


def store_tile(
    k: Frame, tile: Tile, lead: list[Coord], start: Expr, column: Expr, columns: Dim
) -> None:
    """Store a tile at rows from `start` and columns from `column` on, of which `columns` are."""
    lanes, width = tile.lanes, tile.cols * tile.lanes
    alone = not is_open(columns) and columns <= width
    for j in range(tile.cols):
        first = k.b.let(column + j * lanes)
        ramp = Coord(first, 1, lanes)
        there = ramp.compare("lt", columns)

        def store(row: Coord, total: Expr, ramp: Coord = ramp) -> None:
            k.sink.store([*lead, coord(start) + row, ramp], total)

        def finish(mask: Expr | None = None, j: int = j, store: Store = store) -> None:
            with k.loops.vector(lanes, mask):
                tile.finish(j, store)

        if not ragged(columns, width) or (alone and (j + 1) * lanes <= columns):
            finish()
        elif alone or not k.loops.facts.own_cache:
            finish(there)
        else:
            # On some CPUs masked stores take ten times as long: only the last panel has them.
            # A microcontroller has no room for both.
            with k.b.when(coord(first + (lanes - 1)).compare("lt", columns)):
                finish()
            with k.b.otherwise():
                finish(there)
