"""The tile of a product: what a group of threads computes of rows times columns.

In turn the threads copy a part of the left operand and one of the right into shared memory, meet,
multiply, and meet again.  Each holds a few rows and columns of sums in registers.  A product says
by a `Side` for each operand where its elements come from: of matrices, or of the windows of an
image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Buffer, Compare, Const, Expr, Load, Shuffle, Splat
from alpenglow.loops.coord import Coord
from alpenglow.loops.instruction import Frame
from alpenglow.machines.grid.templates.groups import multiply_add

PIECE = 4
"""Neighbours that a thread reads from shared memory at once."""

PAD = 4
"""Elements between the steps of lines that are written across them, so that banks differ."""

LONG = 40
"""Statements of what follows a sum that are written once for each sum."""

WIDEST = {8: 4, 4: 8}
"""The most rows and columns of sums that a thread has registers for, by the bytes of an element."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`rows` times `columns` sums of a group, `high` times `wide` of a thread, steps by `depth`."""

    rows: int
    columns: int
    depth: int
    high: int
    wide: int

    @property
    def threads(self) -> int:
        return (self.rows // self.high) * (self.columns // self.wide)

    @property
    def speed(self) -> float:
        """Multiply-adds in a time that is 1 if all operands were there: each is loaded, too."""
        return 1 / (1 + (self.high + self.wide) / (self.high * self.wide))


SHAPES = (
    Shape(128, 128, 8, 8, 8),
    Shape(64, 64, 16, 4, 4),
    Shape(32, 64, 16, 2, 4),
    Shape(16, 64, 16, 1, 4),
    Shape(64, 16, 16, 4, 1),
    Shape(32, 32, 16, 4, 4),
    Shape(16, 16, 16, 2, 2),
)
"""What a group may compute; those of the last two have 64 threads."""


def shape_for(rows: int, columns: int, count: int, dtype: str, target: Target) -> Shape | None:
    """Return the tile that computes `count` products soonest; None if groups are too small."""
    facts, most = target.facts, WIDEST[max(DTYPES[dtype].itemsize, 4)]

    def rounds(s: Shape) -> float:
        tiles = count * ceil_div(rows, s.rows) * ceil_div(columns, s.columns)
        return ceil_div(tiles, facts.units) * s.rows * s.columns / s.speed

    fitting = [s for s in SHAPES if s.threads <= facts.group and s.wide <= most]
    return min(fitting, key=rounds, default=None)


Elements = Callable[[Expr], Expr]
"""Returns the element of a line at a step."""


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: `extent` lines, rows of the left one or columns of the right one.

    `line` returns the elements of one, and where they are not all there the condition that they
    are: others are 0.  It is called once for each line that a thread copies, and may compute there
    what is the same in all steps.  If `along`, neighbours in memory are steps of a line, else they
    are lines.
    """

    extent: int
    line: Callable[[Expr], tuple[Elements, Expr | None]]
    along: bool


class Tile:
    """The sums of a group, as one of its threads sees them."""

    def __init__(
        self, k: Frame, shape: Shape, dtype: str, thread: Expr, target: Target,
        add: Callable[[Expr, Expr, Expr], Expr] | None = None,
    ) -> None:  # fmt: skip
        """`add` returns its last operand plus what the first two, of the left and of the right,
        give; without it that is their product."""
        self.k, self.b, self.shape, self.dtype = k, k.b, shape, dtype
        self.thread = thread
        self.product = add or partial(multiply_add, target)
        across = shape.columns // shape.wide
        self.down = min(PIECE, shape.high)
        self.lanes = min(PIECE, shape.wide)
        b = self.b
        self._row = b.let(thread // across * self.down)
        self._column = b.let(thread % across * self.lanes)
        zero = k.loops.constant(0, dtype)
        wide = Const(zero.value, dtype, self.lanes)
        self.sums = [
            [b.var(wide) for _ in range(shape.wide // self.lanes)] for _ in range(shape.high)
        ]

    # ── the sums ──

    def multiply(self, inner: int, left: Side, right: Side, row: Expr, column: Expr) -> None:
        """Add up the products of lines from `row` and `column` on, in all `inner` steps."""
        parts = self.parts(inner, left, right, row, column)
        with self.b.loop(ceil_div(inner, self.shape.depth)) as turn:
            self.add(parts, self.b.let(turn * self.shape.depth))

    def parts(self, inner: int, left: Side, right: Side, row: Expr, column: Expr) -> Parts:
        """Return what is copied of both operands, of lines from `row` and `column` on."""
        rows = CopiedPart(self, inner, left, row, self.shape.rows)
        return rows, CopiedPart(self, inner, right, column, self.shape.columns)

    def add(self, parts: Parts, first: Expr) -> None:
        """Add up the products of a part, of the steps from `first` on."""
        copied = [list(part.elements(first)) for part in parts]
        for part, elements in zip(parts, copied, strict=True):
            part.keep(elements)
        self.b.barrier()
        with self.b.loop(self.shape.depth, "unrolled") as step:
            self._step(*parts, step)
        self.b.barrier()

    def _step(self, left: CopiedPart, right: CopiedPart, step: Expr) -> None:
        b, shape = self.b, self.shape
        factors = left.read(step, self._row, self.down, shape.high)
        weights = right.read(step, self._column, self.lanes, shape.wide)
        for r, row in enumerate(self.sums):
            piece, lane = divmod(r, self.down)
            one = factors[piece] if self.down == 1 else Shuffle(factors[piece], (lane,))
            factor = one if self.lanes == 1 else b.let(Splat(one, self.lanes))
            for weight, total in zip(weights, row, strict=True):
                b.set(total, self.product(factor, weight, total))

    # ── the results ──

    def finish(
        self, rows: Side, columns: Side, row: Expr, column: Expr,
        place: Callable[[Coord], list[Coord]],
        store: Callable[[Expr, list[Coord], Expr], None], run: int,
    ) -> None:  # fmt: skip
        """Hand each sum to `store` with its row and what `place` makes of its column.

        Columns that are neighbours in runs of so many are stored together if they make whole fours.
        """
        b, loops = self.b, self.k.loops
        together = self.lanes if run % self.lanes == 0 else 1
        probe = Coord(column, 1, together)
        zero = Const(loops.constant(0, self.dtype).value, self.dtype, together)
        with loops.vector(together):
            length = b.length(lambda: store(row, place(probe), zero))
        if length > LONG and self.shape.high * self.shape.wide > 1:
            self._finish_in_loop(rows, columns, row, column, place, store)
            return
        for j, lane in self._columns(together):
            at = b.let(column + self.column_of(j)) + lane
            with loops.vector(together), self._inside(columns, self.shape.columns, at) as c:
                where = place(Coord(c, 1, together))
                for r in range(self.shape.high):
                    total: Expr = self.sums[r][j]
                    if together < self.lanes:
                        total = b.let(Shuffle(total, (lane,)))
                    with self._inside(rows, self.shape.rows, row + self.line_of(r)) as line:
                        store(line, where, total)

    def _finish_in_loop(
        self, rows: Side, columns: Side, row: Expr, column: Expr,
        place: Callable[[Coord], list[Coord]],
        store: Callable[[Expr, list[Coord], Expr], None],
    ) -> None:  # fmt: skip
        """Hand sums to `store` one by one in a loop: what it does is long, and written once."""
        b, shape, lanes, down = self.b, self.shape, self.lanes, self.down
        kept = b.array(self.dtype, shape.high * shape.wide)
        for r, totals in enumerate(self.sums):
            for j, total in enumerate(totals):
                b.store(kept, r * shape.wide + j * lanes, total)
        rows_apart = shape.rows // shape.high * down
        columns_apart = shape.columns // shape.wide * lanes
        with b.loop(shape.wide) as i:
            right = self._column + i // lanes * columns_apart + i % lanes
            with self._inside(columns, shape.columns, column + right) as c:
                where = place(Coord(c))
                with b.loop(shape.high) as h:
                    below = self._row + h // down * rows_apart + h % down
                    with self._inside(rows, shape.rows, row + below) as line:
                        store(line, where, b.let(Load(kept, h * shape.wide + i)))

    def _columns(self, together: int) -> Iterator[tuple[int, int]]:
        """Yield the number of a vector of sums and a lane from which on columns are stored."""
        for j in range(self.shape.wide // self.lanes):
            for lane in range(0, self.lanes, together):
                yield j, lane

    def column_of(self, j: int) -> Expr:
        """Return the column of the tile at which a vector of this thread's sums begins."""
        return self._column + j * (self.shape.columns // self.shape.wide * self.lanes)

    def line_of(self, r: int) -> Expr:
        """Return the row of the tile of a row of this thread's sums."""
        piece, lane = divmod(r, self.down)
        return self._row + (piece * (self.shape.rows // self.shape.high * self.down) + lane)

    @contextmanager
    def _inside(self, side: Side, tile: int, at: Expr) -> Iterator[Expr]:
        """Open a block for a line, which runs if the operand has it."""
        line = self.b.let(at)
        if side.extent % tile == 0:
            yield line
            return
        with self.b.when(Compare("lt", line, Const(side.extent))):
            yield line


class CopiedPart:
    """The part of an operand that is in shared memory, step by step."""

    def __init__(self, tile: Tile, inner: int, side: Side, first: Expr, lines: int) -> None:
        self.b, self.k, self.tile = tile.b, tile.k, tile
        self.inner, self.side, self.lines = inner, side, lines
        depth, threads = tile.shape.depth, tile.shape.threads
        self.pitch = lines + (PAD if side.along else 0)
        self.array: Buffer = tile.b.array(tile.dtype, self.pitch * depth, "shared")
        fast = depth if side.along else lines
        assert threads % fast == 0 and lines * depth % threads == 0, "threads copy as many elements"
        b = tile.b
        slow, quick = b.let(tile.thread // fast), b.let(tile.thread % fast)
        self.places: list[tuple[Expr, Expr]] = []
        for i in range(lines * depth // threads):
            other = slow + i * (threads // fast)
            self.places.append((other, quick) if side.along else (quick, other))
        # What is the same in all steps; where lines are neighbours, a thread copies of one line.
        each = self.places if side.along else self.places[:1]
        self.sources = [self._source(b.let(first + line)) for line, _ in each]

    def _source(self, line: Expr) -> tuple[Elements, Expr | None]:
        """Return the elements of a line, and the condition that they are there."""
        elements, there = self.side.line(line)
        if self.side.extent % self.lines == 0:
            return elements, there
        inside = Compare("lt", line, Const(self.side.extent))
        return elements, self.b.let(inside if there is None else Binary("and", inside, there))

    def elements(self, first: Expr) -> Iterator[Expr]:
        """Yield what this thread copies of the steps from `first` on; 0 where there is nothing."""
        k, zero = self.k.loops, self.k.loops.constant(0, self.tile.dtype)
        at, more = self._step(first, self.places[0][1])
        for i, (_, step) in enumerate(self.places):
            element, inside = self.sources[i if self.side.along else 0]
            if i and not self.side.along:
                at, more = self._step(first, step)
            both = [c for c in (inside, more) if c is not None]
            load = partial(element, at)
            yield k.when(reduce(k.both, both), load, zero) if both else load()

    def _step(self, first: Expr, step: Expr) -> tuple[Expr, Expr | None]:
        """Return a step of the product, and the condition that there is one."""
        at = self.b.let(first + step)
        if self.inner % self.tile.shape.depth == 0:
            return at, None
        return at, self.b.let(Compare("lt", at, Const(self.inner)))

    def keep(self, elements: list[Expr]) -> None:
        """Store what this thread copies."""
        for (line, step), value in zip(self.places, elements, strict=True):
            self.b.store(self.array, step * self.pitch + line, value)

    def read(self, step: Expr, first: Expr, lanes: int, count: int) -> list[Expr]:
        """Return the elements of a thread's lines at a step, in vectors of `lanes`."""
        apart = self.lines // count * lanes
        return [
            self.b.let(Load(self.array, step * self.pitch + (first + i * apart), lanes))
            for i in range(count // lanes)
        ]


Parts = tuple[CopiedPart, CopiedPart]
"""A part of the left operand, and one of the right."""
