"""Products of integers by groups: rows of bytes times weights of few bits, scaled group by group.

Weights are the operand without a sign, activations the one with.  Their middle is then taken off by
what the sums of a group begin with, the same for all columns, and costs nothing.  Four bits become
bytes by a mask, once for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Bitcast, Const, Convert, Expr, Load, Register, Splat
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.few_bits import NIBBLES, WORD
from alpenglow.machines.vector.operators.quantized import BESIDE, MatMulGroups, words_of
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.matmul import store_tile
from alpenglow.machines.vector.templates.products import dot, multiply_add
from alpenglow.machines.vector.templates.tile import (
    Tile,
    dispatch,
    merge_batch,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.program.instr import Anchor, Instr

AHEAD = 8192
"""How many bytes before they are needed weights are asked for: with one row they come at memory's
speed with half of that, too, with four rows they then take a fifth longer.
"""

ONCE = 8
"""Rows that are one tile even if a few of their sums lie on the stack: weights are read once."""

UNROLL = 8
"""Vectors of weights of a column, at most, in the body of a loop."""

SPARE = 6
"""Registers that hold neither sums of a group nor sums of groups."""

FEW = 2
"""Rows of a tile that keep two sums a column within a group: one would wait for itself."""


def _fits(op: MatMulGroups, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether panels are as wide as vectors: a program may be made for another machine."""
    return anchor.operands()[1].type.shape[2] % target.facts.lanes == 0


@templates.on(MatMulGroups, "columns size", _fits)
def mat_mul_groups(k: Frame, op: MatMulGroups, target: Target) -> None:
    """Build x times the matrix: parallel over chunks of rows, panels and tiles of rows.

    The rows of a chunk stay in the cache of a core while they meet all panels.
    """
    x, q, grid = k.inputs[:3]
    merge_batch([x, k.out, *k.inputs[3:]])
    *batch, rows, _ = k.out.region.shape
    product = _Product(k, op, x, q, grid, target)
    limit = max(1, (target.facts.registers - SPARE) // (2 * product.cols))
    if not is_open(rows) and rows <= ONCE:
        limit = max(limit, rows)
    tiles = split_rows(rows, product.cols, target, limit=limit)
    count = tiles_in_parallel(tiles)
    chunks = ceil_div(count, max(1, target.facts.own_cache // 2 // (tiles.rows * product.row)))
    each = ceil_div(count, chunks)
    extents = [*batch, chunks, product.panels, each]
    with k.loops.parallel(extents) as (*lead, chunk, panel, number):
        t = coord(k.b.let((chunk * each + number).expr()))

        def run() -> None:
            dispatch(
                k.b, tiles, t, lambda height, start: product.tile(height, lead, start, panel.base)
            )

        if is_number(chunks, 1) or (is_number(count, estimate(count)) and count % chunks == 0):
            run()
        else:
            with k.b.when(t.compare("lt", count)):
                run()


class _Product:
    """What the tiles of one product share."""

    def __init__(
        self, k: Frame, op: MatMulGroups, x: Window, q: Window, grid: Window, target: Target
    ) -> None:
        self.k, self.op, self.x, self.target = k, op, x, target
        self.q, self.grid, self.lanes = q.buffer, grid.buffer, target.facts.lanes
        self.panels, self.steps, self.width = q.region.type.extents[:3]
        _, self.groups, self.shifted, _ = grid.region.type.extents
        self.cols = self.width // self.lanes
        self.held = NIBBLES if self.q.dtype == "u32" else WORD
        self.words = words_of(op.size)
        self.row = self.groups * self.words * DTYPES["i32"].itemsize
        self.down = x.region.strides[-2]
        self.dot = dot(target)

    def tile(self, height: int, lead: list[Coord], start: Expr, panel: Expr) -> None:
        """Compute `height` rows from `start` on for a panel of columns."""
        b = self.k.b
        tile = Tile(b, height, self.cols, self.lanes, self.target)
        origin = b.let(self.x.address([*lead, coord(start), coord(0)]).base)
        at_q = b.let(panel * (self.steps * self.width))
        at_grid = b.let(panel * (self.groups * self.shifted * self.width))
        with b.loop(self.groups) as group:
            at_x = b.let(origin + group * self.words)
            begin = [self.word(at_x, r, -1) for r in range(height)]
            sums = self.inside(at_x, b.let(at_q + self.place(group)), begin)
            at = b.let(at_grid + group * (self.shifted * self.width))
            self.add(tile.acc, at_x, at, sums, begin)
        store_tile(self.k, tile, lead, start, panel * self.width, self.op.columns)

    def place(self, group: Expr) -> Expr:
        """Return where the weights of a group begin in a panel, in words."""
        return group * (self.op.size // self.held * self.width)

    def word(self, at_x: Expr, row: int, number: int, beside: Expr | None = None) -> Expr:
        """Return a word of a group of a row, in all lanes; -1 is the last."""
        offset = number if number >= 0 else self.words + number
        at = at_x + (row * self.down + offset)
        if beside is not None:
            at = at + beside
        return self.k.b.let(Splat(Load(self.x.buffer, at), self.lanes))

    def inside(self, at_x: Expr, at_q: Expr, begin: Sequence[Expr]) -> list[list[Expr]]:
        """Return the sums of a group for each row and column, in i32."""
        b, parts = self.k.b, self.held // WORD
        zero = Const(0, "i32", self.lanes)
        apart = parts if len(begin) <= FEW else 1
        sums: list[list[list[Register]]] = [
            [
                [b.var(first if i == 0 and self.shifted == 1 else zero) for _ in range(self.cols)]
                for first in begin
            ]
            for i in range(apart)
        ]
        count = self.op.size // self.held
        full, rest = divmod(count, min(count, UNROLL))

        def step(i: Expr, number: int) -> None:
            """Add what one row of vectors holds: that of this number, behind i words of x."""
            at = at_q + (i + number) * self.width
            bytes_ = DTYPES["u32"].itemsize
            for j in range(0, self.width, self.target.facts.burst // bytes_):
                b.prefetch(self.q, (at + (AHEAD // bytes_ + j)) * self.unit)
            for p, weights in enumerate(self.weights(at)):
                for r, row in enumerate(sums[p % apart]):
                    x = self.word(at_x, r, number * parts + p, i * parts)
                    for total, w in zip(row, weights, strict=True):
                        b.set(total, self.dot(w, x, total))

        with b.loop(full) as i:
            for u in range(min(count, UNROLL)):
                step(i * UNROLL, u)
        for u in range(rest):
            step(Const(full * UNROLL), u)
        if apart == 1:
            return [list(row) for row in sums[0]]
        return [
            [b.let(Binary("add", v, w)) for v, w in zip(*pair, strict=True)]
            for pair in zip(*sums, strict=True)
        ]

    @property
    def unit(self) -> int:
        """How many elements of the buffer of weights a word is."""
        return DTYPES["u32"].itemsize // DTYPES[self.q.dtype].itemsize

    def weights(self, at: Expr) -> list[list[Expr]]:
        """Return the bytes of a row of vectors as words of 4: of four bits, two such rows."""
        b, lanes = self.k.b, self.lanes
        loaded = [
            b.let(Load(self.q, (at + j * lanes) * self.unit, lanes * self.unit))
            for j in range(self.cols)
        ]
        if self.held == WORD:
            return [[b.let(Bitcast(v, "i32")) for v in loaded]]
        mask, four = Const(0x0F0F0F0F, "u32", lanes), Const(4, "u32", lanes)
        lower = [b.let(Bitcast(Binary("and", v, mask), "i32")) for v in loaded]
        upper = [b.let(Bitcast(Binary("and", Binary("shr", v, four), mask), "i32")) for v in loaded]
        return [lower, upper]

    def add(
        self, acc: list[list[Register]], at_x: Expr, at_grid: Expr, sums: list[list[Expr]],
        begin: Sequence[Expr],
    ) -> None:  # fmt: skip
        """Add the sums of a group, scaled, to the accumulators."""
        b, lanes = self.k.b, self.lanes
        scales = [b.let(Load(self.grid, at_grid + j * lanes, lanes)) for j in range(self.cols)]
        for r, (totals, row) in enumerate(zip(acc, sums, strict=True)):
            scale = b.let(Bitcast(self.word(at_x, r, -BESIDE), "f32"))
            past = Convert(begin[r], "f32")
            for j, (total, one) in enumerate(zip(totals, row, strict=True)):
                whole: Expr = Convert(one, "f32")
                if self.shifted == 2:
                    zero = Load(self.grid, at_grid + (self.width + j * lanes), lanes)
                    whole = multiply_add(zero, past, whole, self.target)
                scaled = Binary("mul", whole, scales[j])
                b.set(total, multiply_add(scaled, scale, total, self.target))
