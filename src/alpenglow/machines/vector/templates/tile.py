"""The register tile: rows of the left operand times a few vectors of packed weights.

One micro-kernel serves convolution and matrix products.  For each step of the inner dimension it
loads `cols` vectors of weights, broadcasts one element a row, and issues rows * cols fused
multiply-adds on accumulators that stay in registers.  Of narrow types an element is a lane of
neighbours, and what is issued is what `products` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, estimate, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.address import Addresses
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Load,
    Register,
    Splat,
    lift,
)
from alpenglow.kernel.text import print_expr
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.templates.products import Products, products
from alpenglow.program.instr import Region

LONG = 17
"""Statements of what follows a sum that are written once for each row of a tile: as many as it
takes to requantize."""

UNROLL = 4
"""Steps of the inner dimension in the loop body; more loses to instruction fetch.

A large tile has one (`Tile.unroll`).
"""

MANY = 20
"""Multiply-adds of a step from which on one step fills the loop body: counting steps takes no time
beside them, and LLVM makes code of it in a third of the time.
"""

FEW = 6
"""Rows of a tile up to which what an open extent leaves over has code for each number of rows.

Few rows wait for their weights: of 5 rows as 4 and 1 the last takes half as long as the others.
"""

LOADS = 0.96
"""How many loads a multiply-add may have: two of each are begun in a cycle."""

AHEAD = 1024
"""How many elements before they are needed weights are asked for.

They lie in one piece in the order in which they are read, but the machine's own prefetching stops
at the end of each page.
"""

FAR_AHEAD = 4096
"""The same for weights that come from memory.

It takes long to answer, and the first level cache has no room for what is so far ahead: they are
asked for into the second.  That is worth 3 % of ResNet-50.
"""


@dataclass(frozen=True, slots=True)
class Tiles:
    """`count` tiles cover a row: the first `larger` have `rows` + 1 elements, the rest `rows`."""

    count: int
    rows: int
    larger: int
    rest: int | None = None
    """How many rows of an open extent are left after `count` tiles of `rows`."""

    def sizes(self) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the first tile, number past the last, rows) of each kind of tile."""
        if self.larger:
            yield 0, self.larger, self.rows + 1
        if self.larger < self.count:
            yield self.larger, self.count, self.rows


def is_far(operand: Window, target: Target) -> bool:
    """Return whether an operand is larger than the cache of a core."""
    size = math.prod(map(estimate, operand.region.shape))
    cache = target.facts.own_cache
    return bool(cache) and size * DTYPES[operand.region.type.dtype].itemsize > cache


def split_rows(
    extent: int, cols: int, target: Target, limit: int = 64, parts: int = 1, words: bool = False
) -> Tiles:
    """Split `extent` rows into tiles of nearly equal height that fit into the registers.

    No tile is higher than `limit`.  Operands are taken apart into `parts` vectors.
    """
    most = min(limit, most_rows(cols, target, parts, words))
    if is_open(extent):
        return Tiles(extent // most, most, 0, extent % most)
    count = -(-extent // most)
    rows, larger = divmod(extent, count)
    return Tiles(count, rows, larger)


def most_rows(cols: int, target: Target, parts: int = 1, words: bool = False) -> int:
    """Return how many rows the registers have room for."""
    # One register holds each of the weights and one the broadcast.  Where that multiplies a single
    # vector it can come from memory instead, but for instructions that multiply words.
    inline = cols == 1 and target.facts.registers >= 32 and not words
    spare = parts + 1 if parts > 1 else 0 if inline else 1
    least = 4 // cols if parts > 1 else 1
    return max(1, least, (target.facts.registers - cols * parts - spare) // cols)


def tiles_in_parallel(tiles: Tiles) -> int:
    """Return how many tiles there are, the rest of an open extent counted as one more."""
    return tiles.count if tiles.rest is None else tiles.count + 1


def shared_axis(k: Frame, batch: Dim, axis: int) -> int:
    """Return the axis of a loop over images, channels and, from `axis` on, places to be shared.

    Threads that take images, or places of one, leave what they read to themselves; were they to
    take channels, each would read all of the image, and a line that another core holds a copy of
    is written ten times as slowly later on.  But then each reads all weights, the second operand:
    where these are more bytes than the images, threads do take channels.
    """
    x, weights = k.inputs[:2]
    few = _nbytes(weights) <= _nbytes(x) + _nbytes(k.out)
    return axis if few and is_number(batch, 1) else 0


def _nbytes(w: Window) -> int:
    return math.prod(map(estimate, w.region.shape)) * DTYPES[w.buffer.dtype].itemsize


def merge_batch(windows: Sequence[Window]) -> None:
    """See leading axes and rows as one axis of rows where every operand steps evenly."""
    rank = len(windows[0].region.shape)
    while rank > 2:
        for w in windows:
            shape, strides = w.region.shape, w.region.strides
            if not is_number(shape[-3], 1) and strides[-3] != strides[-2] * shape[-2]:
                return
        for w in windows:
            shape, strides = w.region.shape, w.region.strides
            # Rows of extent 1 may have any stride: then the batch's is the one that counts.
            step = strides[-3] if is_number(shape[-2], 1) else strides[-2]
            w.reshape(
                (*shape[:-3], shape[-3] * shape[-2], shape[-1]), (*strides[:-3], step, strides[-1])
            )
        rank -= 1


def is_shared(y: Region) -> bool:
    """Return True if all matrices of a batch are multiplied by the same one."""
    return all(is_number(s, 0) for s in y.strides[:-2])


def merge_shared(x: Window, y: Window, others: Sequence[Window]) -> None:
    """See the rows of all x of a batch as those of one x, where all are multiplied by one y.

    `others` are the result and what is computed with it.
    """
    if not is_shared(y.region):
        return
    merge_batch([x, *others])
    batch = x.region.shape[:-2]
    shared, step = y.region.shape[-2:], y.region.strides[-2:]
    y.reshape((*batch, *shared), (*(0 for _ in batch), *step))


def ladder(b: Builder, tiles: Tiles, tile: Callable[[int, Expr], None]) -> None:
    """Run the rest of an open extent: as one tile, or as tiles of 8, 4, 2 and 1 rows, the bits of
    its number, where it may have many."""
    assert tiles.rest is not None, "numbers leave no rest"
    rest = lift(tiles.rest)
    if tiles.rows <= FEW:
        for height in range(1, tiles.rows):
            with b.when(Compare("eq", rest, Const(height))):
                tile(height, b.let(lift(tiles.count) * tiles.rows))
        return
    height = 1 << (tiles.rows - 1).bit_length()
    while height > 1:
        height //= 2
        # What is left below this bit and the higher ones: with the bit, at least `height`.
        low = b.let(rest % (2 * height))
        with b.when(Compare("ge", low, Const(height))):
            tile(height, b.let(rest - low + tiles.count * tiles.rows))


def dispatch(b: Builder, tiles: Tiles, t: Coord, tile: Callable[[int, Expr], None]) -> None:
    """Run `tile(rows, first row)` for tile number t, whichever height it has."""
    if tiles.rest is not None:
        with b.when(t.compare("lt", tiles.count)):
            tile(tiles.rows, b.let(t.base * tiles.rows))
        with b.otherwise():
            ladder(b, tiles, tile)
        return
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


def in_order(b: Builder, tiles: Tiles, tile: Callable[[int, Expr], None]) -> None:
    """Run `tile(rows, first row)` for all tiles, one after the other."""
    if tiles.rest is not None:
        with b.loop(lift(tiles.count)) as t:
            tile(tiles.rows, b.let(t * tiles.rows))
        ladder(b, tiles, tile)
        return
    for begin, past, height in tiles.sizes():
        with b.loop(past - begin) as t:
            tile(height, b.let((t + begin) * height + (tiles.larger if begin else 0)))


CHUNK = 256
"""About so many terms of a sum are added up in one register."""


class Tile:
    """Accumulators of one tile, and the step that feeds them."""

    def __init__(
        self, b: Builder, rows: int, cols: int, lanes: int, target: Target,
        kind: Products | None = None, far: bool = False,
    ) -> None:  # fmt: skip
        """Begin with sums of 0.  `far` weights come from memory."""
        self.b, self.far = b, far
        self.rows, self.cols, self.lanes = rows, cols, lanes
        self.kind = kind or products("f32", lanes, target)
        plain = self.kind.dtype in ("f32", "f64") and self.kind.dots == 1
        whole = plain and lanes == target.facts.lanes_for(self.kind.dtype)
        self.memory_operands = whole and target.facts.memory_operands
        self.burst = target.facts.burst
        zero = Const(0 if self.kind.dtype == "i32" else 0.0, self.kind.dtype, lanes)
        self._spilled: Buffer | None = None
        self._totals: Buffer | None = None
        self._common = [b.var(zero) for _ in range(cols)] if self.kind.common else []
        self.acc: list[list[Register]] = [[b.var(zero) for _ in range(cols)] for _ in range(rows)]

    @property
    def unroll(self) -> int:
        """How many steps of the inner dimension the loop body should have."""
        return 1 if self.rows * self.cols >= MANY else UNROLL

    def finish(self, column: int, store: Callable[[Coord, Expr], None]) -> None:
        """Hand the sums of a column of vectors to `store`, each with its row.

        What `store` does is written once for each row, while the sums are in registers.  Where that
        is long, it finds neither registers nor room in the instruction cache: then the sums go
        through memory, and a loop.
        """
        b, lanes = self.b, self.lanes
        sums = self.sums(column)
        if self.rows == 1 or b.length(lambda: store(coord(0), sums[0])) <= LONG:
            for r, total in enumerate(sums):
                store(coord(r), total)
            return
        if self._spilled is None:
            self._spilled = b.array(self.kind.dtype, self.rows * lanes)
        for r, total in enumerate(sums):
            b.store(self._spilled, r * lanes, total)
        with b.loop(self.rows) as i:
            store(coord(i), b.let(Load(self._spilled, i * lanes, lanes)))

    def run(self, count: Dim, terms: int, body: Callable[[Expr], None]) -> None:
        """Run `body` for 0 to `count`, which adds so many terms to each sum.

        Of a long sum of floats, every `CHUNK` terms or so are added up by themselves, and then to a
        total in memory: the error of rounding grows with the terms that one register has seen.
        """
        b, size = self.b, max(1, CHUNK // terms)
        floats = self.kind.dtype == "f32" and not self._common and self._totals is None
        if not floats or not isinstance(count, int) or count < 2 * size:
            with b.loop(lift(count)) as i:
                body(i)
            return
        lanes, zero = self.lanes, Const(0.0, "f32", self.lanes)
        sums = [acc for row in self.acc for acc in row]
        self._totals = totals = b.array("f32", len(sums) * lanes)
        for n in range(len(sums)):
            b.store(totals, n * lanes, zero)
        with b.loop(count // size) as chunk:
            with b.loop(size) as i:
                body(b.let(chunk * size + i))
            for n, acc in enumerate(sums):
                before = Load(totals, Const(n * lanes), lanes)
                b.store(totals, n * lanes, Binary("add", before, acc))
                b.set(acc, zero)
        if rest := count % size:
            with b.loop(rest) as i:
                body(b.let(i + (count - rest)))

    def sums(self, column: int) -> list[Expr]:
        """Return the sums of a column of vectors, one a row."""
        sums: list[Expr] = [row[column] for row in self.acc]
        if self._totals is not None:
            places = [(r * self.cols + column) * self.lanes for r in range(self.rows)]
            totals = [Load(self._totals, Const(at), self.lanes) for at in places]
            sums = [self.b.let(Binary("add", *pair)) for pair in zip(totals, sums, strict=True)]
        if self._common:
            return [self.b.let(Binary("add", total, self._common[column])) for total in sums]
        return sums

    def step(
        self, w: Buffer, at: Expr, element: Callable[[int], Expr], ahead: bool = True,
        apart: int | None = None,
    ) -> None:  # fmt: skip
        """Add the product of one column of elements (row -> scalar) and `cols` vectors at `at`.

        The vectors are so far `apart`, by default side by side.  They are asked for `ahead`, unless
        the caller does that.
        """
        b, kind = self.b, self.kind
        width = self.lanes if w.dtype == "i32" else self.lanes * kind.dots
        if ahead and self.lanes > 1:
            line = self.burst // DTYPES[w.dtype].itemsize
            for i in range(0, self.cols * width, line):
                b.prefetch(w, at + ((FAR_AHEAD if self.far else AHEAD) + i), later=self.far)
        pitch = width if apart is None else apart
        loaded = [b.let(kind.vector(w, at + j * pitch, self.lanes)) for j in range(self.cols)]
        weights = [[b.let(part) for part in kind.weights(one)] for one in loaded]
        elements = map(element, range(self.rows))
        for r, one in enumerate(self._in_memory(elements) if self.memory_operands else elements):
            x: Expr = Splat(one, self.lanes)
            in_memory = isinstance(one, Load) and one.operand
            if not in_memory and (self.cols > 1 or kind.count > 1):
                x = b.let(x)
            parts = kind.factors(x)
            if r == 0:
                self._add_common(parts, weights)
            for i, part in enumerate(parts[: kind.count - kind.common]):
                if self.cols > 1 and not in_memory:
                    part = b.let(part)
                for j in range(self.cols):
                    acc = self.acc[r][j]
                    b.set(acc, kind.add(part, weights[j][i], acc))

    def _in_memory(self, each: Iterable[Expr]) -> list[Expr]:
        """Return the elements of a step, of which multiply-adds take some from memory themselves.

        That saves the operation of loading it: with a thread of somebody else's on its core, an
        Intel machine begins three operations in a cycle, and a step of 14 by 2 has 46 in 14.  But
        each then loads once, so some are loaded first; and all are so if no pointer serves them.
        """
        rows, cols, elements = self.rows, self.cols, list(each)
        if not _fixed_apart(elements):
            return elements
        spare = int(LOADS * rows * cols) - rows - cols
        count = rows if cols == 1 else min(rows, max(0, spare // (cols - 1)))
        return [
            replace(e, operand=True)
            if isinstance(e, Load) and (r + 1) * count // rows > r * count // rows else e
            for r, e in enumerate(elements)
        ]  # fmt: skip

    def _add_common(self, parts: list[Expr], weights: list[list[Expr]]) -> None:
        """Add what is the same for all rows."""
        kind = self.kind
        for j, total in enumerate(self._common):
            for i in range(kind.count - kind.common, kind.count):
                self.b.set(total, kind.add(parts[i], weights[j][i], total))


def _fixed_apart(elements: list[Expr]) -> bool:
    """Whether elements are numbers in memory, as far from one another in every step."""
    addresses, terms = Addresses(print_expr), []
    for e in elements:
        if not isinstance(e, Load) or e.dtype not in ("f32", "f64") or e.mask is not None:
            return False
        terms.append((e.buffer.name, addresses.split(e.at)[0]))
    return all(t == terms[0] for t in terms)
