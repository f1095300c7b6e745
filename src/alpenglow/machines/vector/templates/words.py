"""Products of matrices of narrow types, both computed: rows of y are packed into words first.

A word holds 4 bytes, or 2 bf16.  Machines multiply u8 by i8.  Where x is i8, 128 is added to it,
and where y is u8, 128 is taken off: with x = x' - a and y = y' + b the sum over x y is that over
x' y', plus b times the sum of the row of x', less a times that of the column of y', less a b for
every product.  Columns are summed as they were packed, rows once for each panel.
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    Load,
    Reduce,
    Splat,
    lift,
)
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Window, in_lanes
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import LONGEST
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.matmul import ragged, store_tile
from alpenglow.machines.vector.templates.products import products
from alpenglow.machines.vector.templates.tile import UNROLL, Tile, in_order, split_rows
from alpenglow.machines.vector.templates.vectors import shape_of
from alpenglow.ops.product.contraction import BYTES, MatMul
from alpenglow.program.instr import Anchor, Instr

HALF = 128


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether x and y are bytes or both bf16, and a column fits into scratch memory."""
    left, right = anchor.operands()[:2]
    if isinstance(left, Value):
        return False  # it is computed on the way: that is attention
    if shape_of(left, right, target) is not None:
        return False  # few vectors need no words
    x, y = left.type, right.type
    inner = x.extents[-1]
    narrow = {x.dtype, y.dtype} <= BYTES or x.dtype == y.dtype == "bf16"
    fits = 0 < inner <= (LONGEST - 4 if is_open(inner) else LONGEST)
    return narrow and fits and target.facts.lanes > 1 and 0 not in instr.outs[0].shape


@templates.on(MatMul, "wide", _fits)
def mat_mul_words(k: Frame, op: MatMul, target: Target) -> None:
    """Build x times y: parallel over panels of columns."""
    _, columns = k.out.region.shape[-2:]
    words = _Words(k, target)
    batch = k.out.region.shape[:-2]
    with k.loops.parallel([*batch, ceil_div(columns, words.width)]) as (*lead, panel):
        first = k.b.let(panel.base * words.width)
        words.pack(lead, first)
        starts = words.column_starts()

        def tile(height: int, start: Expr) -> None:
            words.tile(height, lead, start, first, starts)

        in_order(k.b, words.tiles, tile)


class _Words:
    """What the panels of one product share."""

    def __init__(self, k: Frame, target: Target) -> None:
        self.k, self.target, self.lanes = k, target, target.facts.lanes
        self.x, self.y = k.inputs[:2]
        rows, self.columns = k.out.region.shape[-2:]
        self.inner = self.x.region.shape[-1]
        vectors = ceil_div(self.columns, self.lanes)
        self.cols = 1 if not is_open(vectors) and vectors < 2 else 2
        self.width = self.cols * self.lanes
        dtype = self.x.buffer.dtype
        self.kind = products("u8" if dtype in BYTES else dtype, self.lanes, target)
        self.dots = self.kind.dots
        self.tiles = split_rows(rows, self.cols, target, parts=self.kind.count)
        self.above = HALF if dtype == "i8" else 0
        self.below = HALF if self.y.buffer.dtype == "u8" else 0
        self.full, self.rest = divmod(self.inner, self.dots)
        words = (
            LONGEST * self.lanes
            if is_open(self.inner)
            else (self.full + (self.rest > 0)) * self.width
        )
        self.panel = k.b.array("i32", words)
        self.rows = k.b.array("i32", self.tiles.rows + 1) if self.below else None

    # ── operands ──

    def word(self, x: Window, at: Expr, step: int, used: int, moved: int) -> Expr:
        """Return `used` elements of x from `at` on as a word, upper bits changed if `moved`."""
        word = self.kind.word(self.k.b, x.buffer, at, step, used)
        return Binary("xor", word, _upper_bits(used, 1)) if moved else word

    def each_word(self, step: Callable[[Expr, Expr, int], None], unroll: int = 1) -> None:
        """Run step(first row, number of the word, rows in it) for all rows of y.

        Of an open extent what is left of a word has words of its own, with a row each.
        """
        b, dots = self.k.b, self.dots
        groups, left = divmod(self.full, unroll)
        if is_open(groups) or groups:
            with b.loop(lift(groups)) as i:
                for u in range(unroll):
                    step((i * unroll + u) * dots, i * unroll + u, dots)
        if is_open(left):
            with b.loop(lift(left)) as i:
                at = b.let(i + groups * unroll)
                step(at * dots, at, dots)
        else:
            for u in range(left):
                at = lift(groups * unroll + u)
                step(at * dots, at, dots)
        if is_open(self.rest):
            with b.loop(lift(self.rest)) as i:
                step(i + self.full * dots, i + self.full, 1)
        elif self.rest:
            step(lift(self.full * dots), lift(self.full), self.rest)

    def pack(self, lead: list[Coord], first: Expr) -> None:
        """Copy columns `first` … of y into the panel, a few rows to a word."""
        down, across = self.y.region.strides[-2:]
        b = self.k.b
        base = b.let(self.y.address([*lead, coord(0), coord(0)]).base + first * across)
        if not is_number(down, 1) or is_number(across, 1):
            self.each_word(lambda row, at, used: self._pack_step(row, at, used, base, first))
            return
        # A transposed y: its columns lie as they are read.
        with b.loop(self.width) as j:
            # Past the last column it is copied again: nobody reads the sums.
            column = Binary("min", j, Binary("sub", Const(0) + self.columns - 1, first))
            begin = b.let(base + column * across)

            def step(row: Expr, at: Expr, used: int) -> None:
                word = self.word(self.y, begin + row, 1, used, self.below)
                b.store(self.panel, at * self.width + j, word)

            self.each_word(step)

    def _pack_step(self, start: Expr, word: Expr, used: int, base: Expr, first: Expr) -> None:
        down, across = self.y.region.strides[-2:]
        b, lanes = self.k.b, self.lanes
        for column in range(0, self.width, lanes):
            mask = None
            if ragged(self.columns, self.width):
                mask = b.let(Coord(first + column, 1, lanes).compare("lt", self.columns))
            total: Expr = Const(0, "i32", lanes)
            for row in range(used):
                at = Coord(base + (start + row) * down + column * across, across, lanes)
                bits = 32 // self.dots
                loaded = Bitcast(in_lanes(self.y.buffer, at, lanes, mask), f"u{bits}")
                shift = Const(bits * row, "i32", lanes)
                moved = Binary("shl", Convert(loaded, "i32"), shift)
                total = b.let(Binary("or", total, moved))
            if self.below:
                total = Binary("xor", total, _upper_bits(used, lanes))
            b.store(self.panel, word * self.width + column, total)

    # ── sums ──

    def row_starts(self, height: int, origin: Expr) -> Buffer | None:
        """Return the sums of the rows of x', times what was taken off y, if that is not 0."""
        if self.rows is None:
            return None
        b = self.k.b
        down, across = self.x.region.strides[-2:]
        with b.loop(height) as r:
            total = self._row(b.let(origin + r * down), across)
            b.store(self.rows, r, Binary("mul", total, Const(self.below, "i32")))
        return self.rows

    def _row(self, at: Expr, across: int) -> Expr:
        """Return the sum of a row of x'."""
        b, lanes = self.k.b, self.lanes
        total = b.var(Const(0, "i32"))
        left = self.inner
        if is_number(across, 1):
            full, left = divmod(self.inner, 4 * lanes)
            if is_open(full) or full:
                many = b.var(Const(0, "i32", lanes))
                with b.loop(lift(full)) as i:
                    loaded = Load(self.x.buffer, at + i * (4 * lanes), 4 * lanes)
                    words: Expr = Bitcast(loaded, "i32")
                    if self.above:
                        words = Binary("xor", words, _upper_bits(4, lanes))
                    b.set(many, self._with_bytes(b.let(words), many))
                b.set(total, Reduce("add", many))
        if is_open(left) or left:
            with b.loop(lift(left)) as i:
                past = i + (self.inner - left)
                one = Convert(Load(self.x.buffer, at + past * across), "i32")
                moved = Binary("add", one, Const(self.above, "i32"))
                b.set(total, Binary("add", total, moved))
        return total

    def column_starts(self) -> list[Expr]:
        """Return what the sums of each vector of columns begin with, if not with 0."""
        b, lanes = self.k.b, self.lanes
        if not self.above:
            return [Const(0, "i32", lanes)] * self.cols
        sums = [b.var(Const(0, "i32", lanes)) for _ in range(self.cols)]

        def step(row: Expr, at: Expr, used: int) -> None:
            for j, total in enumerate(sums):
                word = Load(self.panel, at * self.width + j * lanes, lanes)
                b.set(total, self._of_ones(b.let(word), total))

        self.each_word(step)
        starts: list[Expr] = []
        number = Convert(lift(self.inner), "i32")
        every = b.let(Splat(Binary("mul", number, Const(-self.above * self.below, "i32")), lanes))
        for total in sums:
            scaled = Binary("mul", total, Const(-self.above, "i32", lanes))
            starts.append(b.let(Binary("add", scaled, every)))
        return starts

    def _with_bytes(self, words: Expr, acc: Expr) -> Expr:
        """Return acc plus the bytes, u8, of each word."""
        ones = Const(0x01010101, "i32", words.lanes)
        return self._dot(self.kind.factors(words), self.kind.weights(ones), acc)

    def _of_ones(self, words: Expr, acc: Expr) -> Expr:
        """Return acc plus the bytes, i8, of each word."""
        ones = Const(0x01010101, "i32", words.lanes)
        return self._dot(self.kind.factors(ones), self.kind.weights(words), acc)

    def _dot(self, factors: list[Expr], weights: list[Expr], acc: Expr) -> Expr:
        for factor, weight in zip(factors, weights, strict=True):
            acc = self.kind.add(factor, weight, acc)
        return acc

    # ── tiles ──

    def tile(
        self, height: int, lead: list[Coord], start: Expr, first: Expr, starts: list[Expr]
    ) -> None:
        """Compute `height` rows from `start` on, for the packed panel."""
        k, b, lanes = self.k, self.k.b, self.lanes
        down, across = self.x.region.strides[-2:]
        origin = b.let(self.x.address([*lead, coord(start), coord(0)]).base)
        tile = Tile(b, height, self.cols, lanes, self.target, self.kind)
        sums = self.row_starts(height, origin)
        for r, row in enumerate(tile.acc):
            if sums is not None:
                own = b.let(Splat(Load(sums, Const(r)), lanes))
                for j, acc in enumerate(row):
                    b.set(acc, Binary("add", own, starts[j]))
            elif self.above:
                for j, acc in enumerate(row):
                    b.set(acc, starts[j])

        def step(row: Expr, at: Expr, used: int) -> None:
            def element(r: int) -> Expr:
                return self.word(self.x, origin + row * across + r * down, across, used, self.above)

            tile.step(self.panel, at * self.width, element)

        self.each_word(step, UNROLL)
        store_tile(k, tile, lead, start, first, self.columns)


def _upper_bits(used: int, lanes: int) -> Const:
    """Return words with the upper bit of the first `used` bytes set."""
    bits = sum(HALF << (8 * i) for i in range(used))
    return Const(bits - (1 << 32) if bits >> 31 else bits, "i32", lanes)
