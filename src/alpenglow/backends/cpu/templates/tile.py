"""The register tile: rows of the left operand times a few vectors of packed weights.

One micro-kernel serves convolution and matrix products.  For each step of the inner dimension it
loads `cols` vectors of weights, broadcasts one element a row, and issues rows * cols fused
multiply-adds on accumulators that stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alpenglow.backends.loops.coord import Coord
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Buffer, Const, Expr, Fma, Load, Register, Splat

UNROLL = 4
"""Steps of the inner dimension in the loop body; more loses to instruction fetch."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """`count` tiles cover a row: the first `larger` have `rows` + 1 elements, the rest `rows`."""

    count: int
    rows: int
    larger: int

    def sizes(self) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the first tile, number past the last, rows) of each kind of tile."""
        if self.larger:
            yield 0, self.larger, self.rows + 1
        if self.larger < self.count:
            yield self.larger, self.count, self.rows


def split_rows(extent: int, cols: int, target: Target, limit: int = 64) -> Tiles:
    """Split `extent` rows into tiles of nearly equal height that fit into the registers.

    No tile is higher than `limit`.
    """
    # One register holds each of the weights; the broadcast comes from memory where it can.
    spare = 0 if target.registers >= 32 else 1
    most = min(limit, max(1, (target.registers - cols - spare) // cols))
    count = -(-extent // most)
    rows, larger = divmod(extent, count)
    return Tiles(count, rows, larger)


def dispatch(b: Builder, tiles: Tiles, t: Coord, tile: Callable[[int, Expr], None]) -> None:
    """Run `tile(rows, first row)` for tile number t, whichever height it has."""
    kinds = list(tiles.sizes())

    def run(height: int, shift: int) -> None:
        tile(height, b.let(t.base * height + shift))

    if len(kinds) == 1:
        run(kinds[0][2], 0)
        return
    (_, past, high), (_, _, low) = kinds
    with b.when(t.compare("lt", past)):
        run(high, 0)
    with b.otherwise():
        run(low, tiles.larger)


class Tile:
    """Accumulators of one tile, and the step that feeds them."""

    def __init__(self, b: Builder, rows: int, cols: int, lanes: int) -> None:
        self.b = b
        self.rows, self.cols, self.lanes = rows, cols, lanes
        zero = Const(0.0, "f32", lanes)
        self.acc: list[list[Register]] = [[b.var(zero) for _ in range(cols)] for _ in range(rows)]

    def step(self, w: Buffer, at: Expr, element: Callable[[int], Expr]) -> None:
        """Add the product of one column of elements (row -> scalar) and `cols` vectors at `at`."""
        weights = [self.b.let(Load(w, at + j * self.lanes, self.lanes)) for j in range(self.cols)]
        for r in range(self.rows):
            x: Expr = Splat(element(r), self.lanes)
            if self.cols > 1:
                x = self.b.let(x)
            for j in range(self.cols):
                acc = self.acc[r][j]
                self.b.set(acc, Fma(x, weights[j], acc))
