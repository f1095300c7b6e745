"""Products of matrices of narrow types, both computed: rows of y are packed into words first.

A word holds 4 bytes, or 2 bf16.  Machines multiply u8 by i8.  Where x is i8, 128 is added to it,
and where y is u8, 128 is taken off: with x = x' - a and y = y' + b the sum over x y is that over
x' y', plus b times the sum of the row of x', less a times that of the column of y', less a b for
every product.  Columns are summed as they were packed, rows once for each panel.
"""

from __future__ import annotations

from alpenglow.backends.cpu.templates.matmul import SCRATCH, ragged, store_tile
from alpenglow.backends.cpu.templates.products import products
from alpenglow.backends.cpu.templates.tile import UNROLL, Tile, split_rows
from alpenglow.backends.loops.coord import Coord, coord, is_number
from alpenglow.backends.loops.form import Window
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import TensorType
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Const,
    Convert,
    Expr,
    Load,
    Reduce,
    Splat,
)
from alpenglow.ops.contraction import BYTES, MatMul

HALF = 128
MOST_ROWS = 4096
"""Of so many rows the sums lie on the stack."""


def multiplies_words(x: TensorType, y: TensorType, target: Target) -> bool:
    """Whether `mat_mul_words` implements the product of these operands."""
    *_, rows, inner = x.extents
    narrow = {x.dtype, y.dtype} <= BYTES or x.dtype == y.dtype == "bf16"
    if not narrow or is_open(inner) or is_open(rows):
        return False
    fits = 0 < inner <= SCRATCH // (4 * target.lanes) - 4
    return fits and 0 < rows <= MOST_ROWS and target.lanes > 1


def mat_mul_words(k: Frame, op: MatMul, target: Target) -> None:
    """Build x times y: parallel over panels of columns."""
    _, columns = k.out.region.shape[-2:]
    made = _Words(k, target)
    batch = k.out.region.shape[:-2]
    with k.loops.parallel([*batch, ceil_div(columns, made.width)]) as (*lead, panel):
        first = k.b.let(panel.base * made.width)
        made.pack(lead, first)
        made.sum_rows(lead)
        starts = made.column_starts()
        for begin, past, height in made.tiles.sizes():
            with k.b.loop(past - begin) as t:
                start = (t + begin) * height + (made.tiles.larger if begin else 0)
                made.tile(height, lead, k.b.let(start), first, starts)


class _Words:
    """What the panels of one product share."""

    def __init__(self, k: Frame, target: Target) -> None:
        self.k, self.target, self.lanes = k, target, target.lanes
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
        steps = -(-self.inner // self.dots)
        self.panel = k.b.array("i32", steps * self.width)
        self.rows = k.b.array("i32", rows) if self.below else None

    # ── operands ──

    def word(self, x: Window, at: Expr, step: int, used: int, moved: int) -> Expr:
        """Return `used` elements of x from `at` on as a word, upper bits changed if `moved`."""
        found = self.kind.word(self.k.b, x.buffer, at, step, used)
        return Binary("xor", found, _upper_bits(used, 1)) if moved else found

    def pack(self, lead: list[Coord], first: Expr) -> None:
        """Copy columns `first` … of y into the panel, a few rows to a word."""
        down, across = self.y.region.strides[-2:]
        b = self.k.b
        base = b.let(self.y.address([*lead, coord(0), coord(0)]).base + first * across)
        full, rest = divmod(self.inner, self.dots)
        if is_number(down, 1) and not is_number(across, 1):
            self._pack_columns(base, first, across)
            return
        with b.loop(full) as i:
            self._pack_step(i, self.dots, base, first)
        if rest:
            self._pack_step(Const(full), rest, base, first)

    def _pack_columns(self, base: Expr, first: Expr, across: int) -> None:
        """Copy a transposed y: its columns lie as they are read."""
        b, dots = self.k.b, self.dots
        full, rest = divmod(self.inner, dots)
        with b.loop(self.width) as j:
            # Past the last column it is copied again: nobody reads the sums.
            column = Binary("min", j, Binary("sub", Const(0) + self.columns - 1, first))
            at = b.let(base + column * across)
            with b.loop(full) as i:
                word = self.word(self.y, at + i * dots, 1, dots, self.below)
                b.store(self.panel, i * self.width + j, word)
            if rest:
                word = self.word(self.y, at + full * dots, 1, rest, self.below)
                b.store(self.panel, j + full * self.width, word)

    def _pack_step(self, i: Expr, used: int, base: Expr, first: Expr) -> None:
        down, across = self.y.region.strides[-2:]
        b, lanes = self.k.b, self.lanes
        for column in range(0, self.width, lanes):
            mask = None
            if ragged(self.columns, self.width):
                mask = b.let(Coord(first + column, 1, lanes).compare("lt", self.columns))
            total: Expr = Const(0, "i32", lanes)
            for row in range(used):
                at = Coord(base + (i * self.dots + row) * down + column * across, across, lanes)
                address = at.base if is_number(across, 1) else at.expr()
                bits = 32 // self.dots
                loaded = Bitcast(Load(self.y.buffer, address, lanes, mask), f"u{bits}")
                shift = Const(bits * row, "i32", lanes)
                moved = Binary("shl", Convert(loaded, "i32"), shift)
                total = b.let(Binary("or", total, moved))
            if self.below:
                total = Binary("xor", total, _upper_bits(used, lanes))
            b.store(self.panel, i * self.width + column, total)

    # ── sums ──

    def sum_rows(self, lead: list[Coord]) -> None:
        """Store the sums of the rows of x', times what was taken off y."""
        if self.rows is None:
            return
        b = self.k.b
        down, across = self.x.region.strides[-2:]
        origin = b.let(self.x.address([*lead, coord(0), coord(0)]).base)
        count = self.k.out.region.shape[-2]
        with b.loop(count) as r:
            total = self._row(b.let(origin + r * down), across)
            scaled = Binary("mul", total, Const(self.below, "i32"))
            b.store(self.rows, r, scaled)

    def _row(self, at: Expr, across: int) -> Expr:
        """Return the sum of a row of x'."""
        b, lanes = self.k.b, self.lanes
        total = b.var(Const(0, "i32"))
        done = 0
        if is_number(across, 1):
            full = self.inner // (4 * lanes)
            done = full * 4 * lanes
            if full:
                many = b.var(Const(0, "i32", lanes))
                with b.loop(full) as i:
                    loaded = Load(self.x.buffer, at + i * (4 * lanes), 4 * lanes)
                    words: Expr = Bitcast(loaded, "i32")
                    if self.above:
                        words = Binary("xor", words, _upper_bits(4, lanes))
                    b.set(many, self._with_bytes(b.let(words), many))
                b.set(total, Reduce("add", many))
        if self.inner - done:
            with b.loop(self.inner - done) as i:
                one = Convert(Load(self.x.buffer, at + (i + done) * across), "i32")
                moved = Binary("add", one, Const(self.above, "i32"))
                b.set(total, Binary("add", total, moved))
        return total

    def column_starts(self) -> list[Expr]:
        """Return what the sums of each vector of columns begin with, if not with 0."""
        b, lanes = self.k.b, self.lanes
        if not self.above:
            return [Const(0, "i32", lanes)] * self.cols
        sums = [b.var(Const(0, "i32", lanes)) for _ in range(self.cols)]
        with b.loop(-(-self.inner // 4)) as i:
            for j, total in enumerate(sums):
                word = Load(self.panel, i * self.width + j * lanes, lanes)
                b.set(total, self._of_ones(b.let(word), total))
        found: list[Expr] = []
        for total in sums:
            scaled = Binary("mul", total, Const(-self.above, "i32", lanes))
            every = Const(-self.above * self.below * self.inner, "i32", lanes)
            found.append(b.let(Binary("add", scaled, every)))
        return found

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
        for r, row in enumerate(tile.acc):
            if self.rows is not None:
                own = b.let(Splat(Load(self.rows, start + r), lanes))
                for j, acc in enumerate(row):
                    b.set(acc, Binary("add", own, starts[j]))
            elif self.above:
                for j, acc in enumerate(row):
                    b.set(acc, starts[j])

        def step(i: Expr, used: int = self.dots) -> None:
            def element(r: int) -> Expr:
                at = origin + i * (across * self.dots) + r * down
                return self.word(self.x, at, across, used, self.above)

            tile.step(self.panel, i * self.width, element)

        steps, rest = divmod(self.inner, self.dots)
        full, left = divmod(steps, UNROLL)
        if full:
            with b.loop(full) as i:
                for u in range(UNROLL):
                    step(i * UNROLL + u)
        for u in range(left):
            step(Const(full * UNROLL + u))
        if rest:
            step(Const(steps), rest)
        store_tile(k, tile, lead, start, first, self.columns)


def _upper_bits(used: int, lanes: int) -> Const:
    """Return words with the upper bit of the first `used` bytes set."""
    bits = sum(HALF << (8 * i) for i in range(used))
    return Const(bits - (1 << 32) if bits >> 31 else bits, "i32", lanes)
