"""Products by weights of few bits, which become floats in registers, panel by panel.

Bytes are extended and converted.  Words of four bits hold eight neighbours of the inner dimension
for each output: a word is shifted, and its lowest bits choose among the sixteen numbers there are,
by one instruction where the machine has it.

With one scale an output the sums are scaled at the end.  With groups, a tile of few rows has
registers to sum each group by itself and scale that; higher tiles scale the weights.  Where there
are many tiles a panel becomes floats once, in scratch memory, and they read that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    Intrinsic,
    Lanes,
    Load,
    Register,
    Splat,
)
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.few_bits import NIBBLES, MatMulFewBits, shift_of
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.matmul import Product, fits_scratch, store_tile
from alpenglow.machines.vector.templates.products import multiply_add, products
from alpenglow.machines.vector.templates.tile import (
    UNROLL,
    Tile,
    dispatch,
    merge_batch,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.program.instr import Anchor, Instr

AHEAD = 4096
"""How many bytes before they are needed weights are asked for.

The machine's own prefetching stops at the end of each page: with one row, 4096 x 4096 weights of 8
bits take 0.62 ms so, and without anything between 0.7 and 1.7.
"""

MANY = 4
"""Tiles of rows, at least, that a panel in scratch memory pays for."""

PANELS = 8
"""Panels, at least, that threads share if tiles do not."""

SPARE = 4
"""Registers of a tile that hold neither sums nor what belongs to a column."""


def _fits(op: MatMulFewBits, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether panels are as wide as vectors: a program may be made for another machine."""
    return anchor.operands()[1].type.shape[-1] % target.facts.lanes == 0


@templates.on(MatMulFewBits, "columns size middle", _fits)
def mat_mul_few_bits(k: Frame, op: MatMulFewBits, target: Target) -> None:
    """Build x times the matrix: parallel over panels and tiles of rows."""
    x, q, grid = k.inputs[:3]
    merge_batch([x, k.out, *k.inputs[3:]])
    *batch, rows, columns = k.out.region.shape
    panels, _, width = q.region.type.extents
    cols = width // target.facts.lanes
    tiles = split_rows(rows, cols, target, parts=2)
    widened = _Widened(k, op, x, q, grid, columns, target)
    many = not is_open(rows) and tiles.count >= MANY and panels >= PANELS
    if many and fits_scratch(widened.inner):
        _by_panel(k, widened, x, target)
        return
    with k.loops.parallel([*batch, panels, tiles_in_parallel(tiles)]) as (*lead, panel, t):
        dispatch(k.b, tiles, t, lambda height, start: widened.tile(height, lead, start, panel.base))


def _by_panel(k: Frame, widened: _Widened, x: Window, target: Target) -> None:
    """Build the product of many rows: parallel over panels, each of which is widened once."""
    *batch, rows, columns = k.out.region.shape
    inner, cols, width = widened.inner, widened.cols, widened.width
    tiles = split_rows(rows, cols, target)
    scratch = k.b.array("f32", inner * width)
    kind = products("f32", target.facts.lanes, target)
    product = Product(k, x, scratch, inner, columns, cols, kind, target)
    with k.loops.parallel([*batch, widened.panels]) as (*lead, panel):
        first = k.b.let(panel.base * width)
        widened.fill(scratch, panel.base)
        for begin, past, height in tiles.sizes():
            with k.b.loop(past - begin) as t:
                start = k.b.let((t + begin) * height + (tiles.larger if begin else 0))
                product.tile(height, lead, start, first, Const(0))


Weight = Callable[[int, Expr], Expr]
"""Makes what is multiplied of the number of a column."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of the inner dimension: where it begins, and what it has for each column."""

    first: Expr
    """The first neighbour of the group."""
    grid: Expr
    """Where its scales lie."""
    zeros: list[Expr]


class _Widened:
    """Weights that become floats in registers."""

    def __init__(
        self, k: Frame, op: MatMulFewBits, x: Window, q: Window, grid: Window, columns: Dim,
        target: Target,
    ) -> None:  # fmt: skip
        self.k, self.op, self.x, self.target, self.columns = k, op, x, target, columns
        self.q, self.grid = q.buffer, grid.buffer
        self.lanes = target.facts.lanes
        self.panels, self.steps, self.width = q.region.type.extents
        _, self.groups, self.shifted, _ = grid.region.type.extents
        self.cols = self.width // self.lanes
        self.inner = x.region.type.extents[-1]
        self.numbers: _Bytes | _Nibbles = (
            _Nibbles(k, op.middle, self.lanes, target)
            if self.q.dtype == "u32"
            else _Bytes(k, op.middle, self.lanes)
        )

    def tile(self, height: int, lead: list[Coord], start: Expr, panel: Expr) -> None:
        """Compute `height` rows from `start` on for a panel of columns."""
        b = self.k.b
        tile = Tile(b, height, self.cols, self.lanes, self.target,
                    products("f32", self.lanes, self.target))  # fmt: skip
        rows = _Rows(self.k, self.x, height, lead, start)
        at_q = b.let(panel * (self.steps * self.width))
        at_grid = b.let(panel * (self.groups * self.shifted * self.width))
        needed = self.cols * (2 * height + self.shifted) + SPARE
        if self.groups == 1:
            group = self.group(Const(0), at_grid)
            self.add(tile.acc, rows, at_q, group, self.inner, self.plain(group))
            for j, scale in enumerate(self.scales(group)):
                for sums in tile.acc:
                    b.set(sums[j], Binary("mul", sums[j], scale))
        elif needed <= self.target.facts.registers:
            self.each_group(at_grid, lambda g, n: self.apart(tile.acc, rows, at_q, g, n))
        else:
            self.each_group(
                at_grid, lambda g, n: self.add(tile.acc, rows, at_q, g, n, self.scaled(g))
            )
        store_tile(self.k, tile, lead, start, panel * self.width, self.columns)

    def fill(self, scratch: Buffer, panel: Expr) -> None:
        """Write a panel of columns to scratch memory."""
        b = self.k.b

        def store(i: Expr, w: list[Expr]) -> None:
            for j, one in enumerate(w):
                b.store(scratch, i * self.width + j * self.lanes, one)

        at_q = b.let(panel * (self.steps * self.width))
        at_grid = b.let(panel * (self.groups * self.shifted * self.width))
        self.each_group(at_grid, lambda g, n: self.each(at_q, g, n, self.scaled(g), store))

    def each_group(self, at_grid: Expr, body: Callable[[_Group, int], None]) -> None:
        """Run `body` on each group and how many neighbours it has."""
        b, size = self.k.b, self.op.size
        full, rest = divmod(self.inner, size)
        with b.loop(full) as i:
            body(self.group(i, at_grid), size)
        if rest:
            body(self.group(Const(full), at_grid), rest)

    def group(self, number: Expr, at_grid: Expr) -> _Group:
        at = self.k.b.let(at_grid + number * (self.shifted * self.width))
        zeros = [self.column(at + self.width, j) for j in range(self.cols * (self.shifted - 1))]
        return _Group(self.k.b.let(number * self.op.size), at, zeros)

    def column(self, at: Expr, j: int) -> Expr:
        return self.k.b.let(Load(self.grid, at + j * self.lanes, self.lanes))

    def scales(self, group: _Group) -> list[Expr]:
        return [self.column(group.grid, j) for j in range(self.cols)]

    def plain(self, group: _Group) -> Weight:
        """Return what makes steps from the zero point of a column's numbers."""
        zeros = group.zeros
        return lambda j, w: Binary("sub", w, zeros[j]) if zeros else w

    def scaled(self, group: _Group) -> Weight:
        """Return what makes weights of a column's numbers."""
        plain, scales = self.plain(group), self.scales(group)
        return lambda j, w: Binary("mul", plain(j, w), scales[j])

    def apart(
        self, acc: list[list[Register]], rows: _Rows, at_q: Expr, group: _Group, count: int
    ) -> None:
        """Add the scaled sums of a group to the accumulators."""
        b = self.k.b
        part = [[b.var(Const(0.0, "f32", self.lanes)) for _ in sums] for sums in acc]
        self.add(part, rows, at_q, group, count, self.plain(group))
        for j, scale in enumerate(self.scales(group)):
            for total, sums in zip(acc, part, strict=True):
                b.set(total[j], multiply_add(sums[j], scale, total[j], self.target))

    def add(
        self, acc: list[list[Register]], rows: _Rows, at_q: Expr, group: _Group, count: int,
        weight: Weight,
    ) -> None:  # fmt: skip
        """Add `count` products of each row and column of a group."""
        b = self.k.b

        def multiply(i: Expr, w: list[Expr]) -> None:
            for r, sums in enumerate(acc):
                x = b.let(Splat(rows.element(r, i), self.lanes))
                for j, total in enumerate(sums):
                    b.set(total, multiply_add(x, w[j], total, self.target))

        self.each(at_q, group, count, weight, multiply)

    def each(
        self, at_q: Expr, group: _Group, count: int, weight: Weight,
        use: Callable[[Expr, list[Expr]], None],
    ) -> None:  # fmt: skip
        """Hand `count` neighbours of a group to `use`, each with its weights for the panel."""
        b, numbers, lanes = self.k.b, self.numbers, self.lanes
        size = DTYPES[self.q.dtype].itemsize

        def step(i: Expr, used: int) -> None:
            """Do what one row of vectors holds, the first neighbour being i."""
            at = at_q + (i // numbers.held) * self.width
            for j in range(0, self.width, self.target.facts.burst // size):
                b.prefetch(self.q, at + (AHEAD // size + j))
            held = [b.let(Load(self.q, at + j * lanes, lanes)) for j in range(self.cols)]
            for n in range(used):
                use(i + n, [b.let(weight(j, numbers.number(v, n))) for j, v in enumerate(held)])

        each = max(numbers.held, UNROLL)
        full, rest = divmod(count, each)
        with b.loop(full) as i:
            first = b.let(group.first + i * each)
            for n in range(0, each, numbers.held):
                step(first + n, numbers.held)
        for n in range(0, rest, numbers.held):
            step(b.let(group.first + (full * each + n)), min(numbers.held, rest - n))


class _Rows:
    """The rows of x that a tile takes."""

    def __init__(self, k: Frame, x: Window, height: int, lead: list[Coord], start: Expr) -> None:
        self.down, self.across = x.region.strides[-2:]
        self.buffer = x.buffer
        self.origin = k.b.let(x.address([*lead, coord(start), coord(0)]).base)

    def element(self, r: int, i: Expr) -> Expr:
        return Load(self.buffer, self.origin + i * self.across + r * self.down)


class _Bytes:
    """Weights of eight bits."""

    held = 1

    def __init__(self, k: Frame, middle: int, lanes: int) -> None:
        self.k, self.middle, self.lanes = k, middle, lanes

    def number(self, v: Expr, n: int) -> Expr:
        """Return the numbers of a vector as f32."""
        wide: Expr = Convert(v, "i32")
        if self.middle:
            wide = Binary("sub", wide, Const(self.middle, "i32", self.lanes))
        return Convert(wide, "f32")


class _Nibbles:
    """Weights of four bits."""

    held = NIBBLES

    def __init__(self, k: Frame, middle: int, lanes: int, target: Target) -> None:
        self.k, self.middle, self.lanes = k, middle, lanes
        self.table: Expr | None = None
        if lanes == 16 and target.has("avx512f"):
            below = Const(float(middle), "f32", lanes)
            self.table = k.b.let(Binary("sub", Convert(Lanes(lanes), "f32"), below))

    def number(self, v: Expr, n: int) -> Expr:
        """Return number `n` of each word as f32."""
        moved = Binary("shr", v, Const(shift_of(n), "u32", self.lanes)) if n else v
        if self.table is not None:
            return Intrinsic("vpermps", (self.table, Bitcast(moved, "i32")))
        low = Bitcast(Binary("and", moved, Const(15, "u32", self.lanes)), "i32")
        return Convert(Binary("sub", low, Const(self.middle, "i32", self.lanes)), "f32")
