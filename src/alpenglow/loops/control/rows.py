"""Groups of rows that take the iterations of a scan together, and local arrays of their columns.

The product of one row reads the weights row by row, as they lie in memory, several rows at a time.
The product of a group reads them once for all of its rows, a few columns at a time, with sums in
registers.  Either way an element's sum takes the weights' rows in turn, so that its bits do not
depend on the grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.types import HALVES, TensorType
from alpenglow.kernel.expr import Buffer, Const, Expr, Load, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Source

WEIGHTS = 8
"""Rows of the weights that are added to the sums of one row at once."""

TOGETHER = 8
"""Rows in a group, at most."""

OPEN = 4
"""Rows in a group if their number is dynamic."""

GROUPS = 4
"""Groups for threads to share, at least, beyond pairs of rows."""


def group_size(rows: int, sums: int, total: int, scratch: int) -> int:
    """Return how many rows make a group; each has so many bytes of sums, and of arrays in total."""
    fitting = max(1, min(scratch // max(1, sums), 4 * scratch // max(1, total)))
    if is_open(rows):
        return min(OPEN, fitting)
    wanted = max(1, min(TOGETHER, fitting, rows, max(2, rows // GROUPS)))
    return ceil_div(rows, ceil_div(rows, wanted)) if rows else 1


@dataclass(frozen=True)
class Columns:
    """The columns of a row, which are taken in vectors."""

    k: Loops
    count: int

    @property
    def lanes(self) -> int:
        """Return how many columns are taken at a time."""
        lanes = self.k.lanes
        while lanes > self.count:
            lanes //= 2
        return lanes

    def each(self, body: Callable[[Coord], None], done: int = 0) -> None:
        """Run `body` on all columns, a vector at a time, but for the first `done` vectors."""
        lanes = self.lanes
        full, rest = divmod(self.count, lanes)
        if full > done:
            with self.k.vector(lanes), self.k.b.loop(full - done) as i:
                body(Coord((i + done) * lanes, 1, lanes))
        if rest:
            ramp = Coord(Const(full * lanes), 1, lanes)
            with self.k.vector(lanes, ramp.compare("lt", self.count)):
                body(ramp)

    def several(self, body: Callable[[list[Coord]], None], most: int) -> None:
        """Run `body` on all columns, up to `most` vectors of them at a time."""
        lanes = self.lanes
        blocks = self.count // lanes // most
        with self.k.vector(lanes), self.k.b.loop(blocks) as i:
            body([Coord((i * most + v) * lanes, 1, lanes) for v in range(most)])
        self.each(lambda u: body([u]), blocks * most)


@dataclass(frozen=True)
class Rows:
    """A local array with a row for each of a group, f32 for half precision."""

    columns: Columns
    buffer: Buffer
    size: int

    @classmethod
    def of(cls, k: Loops, t: TensorType, size: int) -> Rows:
        """Return an array for `size` rows of a matrix of type t."""
        dtype, columns = "f32" if t.dtype in HALVES else t.dtype, int(t.shape[1])
        return cls(Columns(k, columns), k.b.array(dtype, size * columns), size)

    def first(self, j: Expr) -> Expr:
        """Return the place of the first column of row j."""
        return j * self.columns.count

    def read(self, j: Expr, u: Coord) -> Expr:
        """Return the elements of row j in the columns u."""
        k, at = self.columns.k, u + self.first(j)
        if at.lanes == 1:
            return k.b.let(Load(self.buffer, at.base))
        return k.b.let(Load(self.buffer, at.base, at.lanes, k.mask_for(at.lanes)))

    def write(self, j: Expr, u: Coord, value: Expr) -> None:
        k, at = self.columns.k, u + self.first(j)
        # What is stretched over the columns is one element for all of them.
        wide = value if value.lanes == at.lanes else Splat(value, at.lanes)
        k.b.store(self.buffer, at.base, wide, k.mask_for(at.lanes))

    def clear(self) -> None:
        """Set all rows to zero."""
        k = self.columns.k
        zero = k.constant(0, self.buffer.dtype)
        with k.b.loop(self.size) as j:
            self.columns.each(lambda u: self.write(j, u, zero))


@dataclass(frozen=True)
class Group:
    """`count` rows from `first` on, with room for `size`, that take their iterations together."""

    k: Loops
    size: int
    first: Expr
    count: Expr

    @contextmanager
    def each(self) -> Iterator[tuple[Expr, Coord]]:
        """Loop over the rows: yields the number of each in the group, and of all."""
        with self.k.b.loop(self.count) as j:
            yield j, coord(self.first + j)

    def add_product(self, sums: Rows, rows: Rows, weights: Source) -> None:
        """Add rows times weights to sums."""
        b = self.k.b
        if self.size == 1:
            self._alone(sums, rows, weights)
        elif isinstance(self.count, Const):
            self._together(sums, rows, weights)
        else:
            with b.when(self.k.m.gt(self.count, 1)):
                self._together(sums, rows, weights)
            with b.otherwise():
                self._alone(sums, rows, weights)

    def _alone(self, sums: Rows, rows: Rows, weights: Source) -> None:
        """Multiply one row: several rows of the weights at a time, all columns."""
        full, rest = divmod(rows.columns.count, WEIGHTS)
        if full:
            with self.k.b.loop(full) as i:
                self._add(sums, rows, weights, [i * WEIGHTS + j for j in range(WEIGHTS)])
        if rest:
            self._add(sums, rows, weights, [Const(full * WEIGHTS + j) for j in range(rest)])

    def _add(self, sums: Rows, rows: Rows, weights: Source, inner: Sequence[Expr]) -> None:
        k, only = self.k, Const(0)
        factors = [k.b.let(Load(rows.buffer, i)) for i in inner]

        def columns(u: Coord) -> None:
            total = sums.read(only, u)
            for i, factor in zip(inner, factors, strict=True):
                total = k.m.fma(weights([i, u]), factor, total)
            sums.write(only, u, total)

        sums.columns.each(columns)

    def _together(self, sums: Rows, rows: Rows, weights: Source) -> None:
        """Multiply all rows, absent ones as well: a few columns, all rows of the weights."""
        k = self.k
        members = [Const(j) for j in range(self.size)]

        def columns(us: list[Coord]) -> None:
            totals = [[k.b.var(sums.read(j, u)) for u in us] for j in members]
            with k.b.loop(rows.columns.count) as i:
                block = [k.b.let(weights([i, u])) for u in us]
                for j, into in zip(members, totals, strict=True):
                    factor = k.b.let(Load(rows.buffer, i + rows.first(j)))
                    for total, weight in zip(into, block, strict=True):
                        k.b.set(total, k.m.fma(weight, factor, total))
            for j, into in zip(members, totals, strict=True):
                for u, total in zip(us, into, strict=True):
                    sums.write(j, u, total)

        registers = 16 if k.lanes >= 16 else 8
        sums.columns.several(columns, max(1, registers // self.size))
