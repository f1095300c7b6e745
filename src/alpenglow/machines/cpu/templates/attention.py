"""Attention in one kernel: the scores of some queries exist for one block of keys at a time.

Many queries stand in lanes.  A panel of them is packed once; then, for a block of keys,

    scores = keys × queries          rows of a register tile are keys
    what follows the scores, elementwise; the largest of them so far
    shares = exp(scores - largest)   what was summed before is scaled down where that has grown
    sums = valuesᵀ × shares          rows of a tile are features

so keys and values are read as they lie in memory, an element for a row of the tile, and neither
maximum nor sum goes across lanes.  In the end the sums are divided by those of the shares (Milakov
and Gimelshein, Online normalizer calculation for softmax, 2018; Dao and others, FlashAttention,
2022).  Of few queries each goes through the keys alone (`attention_row`).

Of halves a lane holds two neighbours, of which one instruction takes both (`products`): queries are
packed so, shares are rounded and paired, and so are the values of a block (`attention_pairs`).

Lanes past the last query repeat it.  Blocks in which no query of the panel sees a key are left out,
as far as conditions on positions tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Load,
    Register,
    Select,
    Splat,
    lift,
)
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import in_lanes
from alpenglow.loops.instruction import Frame
from alpenglow.machines.cpu.templates import templates
from alpenglow.machines.cpu.templates.attention_mask import TurnedMask
from alpenglow.machines.cpu.templates.attention_pairs import PairedShares, PairedValues, pair
from alpenglow.machines.cpu.templates.attention_parts import AttentionParts, SeenKeys
from alpenglow.machines.cpu.templates.attention_row import attention_row
from alpenglow.machines.cpu.templates.products import products
from alpenglow.machines.cpu.templates.tile import LINE, Tile, Tiles, ladder, split_rows
from alpenglow.machines.cpu.templates.transpose import transposed
from alpenglow.ops.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr

BLOCK = 128
"""Keys of a block at most: its shares stay in the first cache, and sums are seldom scaled."""

OPEN_BLOCK = 112
"""The same where their number is open: tiles of as many rows as there are registers for fit in."""

Element = Callable[[Expr, int, int], Expr]
"""An operand of a tile: of a step and a row, so many of the neighbours in a lane."""

Fetch = Callable[[Expr], None]
"""Asks for memory that is needed soon, in a step of a product."""

MASKS = 2
"""Masks that are turned at most; of others, elements are gathered."""


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether the instruction is attention, and not one product."""
    return isinstance(anchor.operands()[0], Value)


@templates.on(MatMul, "wide", _fits)
def attention(k: Frame, op: MatMul, target: Target) -> None:
    """Build attention: parallel over panels of queries, or over queries."""
    parts = AttentionParts(k, target)
    if not parts.halves and parts.queries * 2 < parts.lanes:
        attention_row(parts)
        return
    kernel = _Panels(parts)
    with k.loops.parallel([*parts.batch, kernel.panels]) as (*lead, panel):
        kernel.run(lead, panel)


class _Panels:
    """What the kernel is made of, beside its operands: arrays of a panel of `width` queries.

    `packed` holds the queries, `shares` those of a block, with a row for each key, and `sums` has a
    row for each feature.
    """

    def __init__(self, parts: AttentionParts) -> None:
        self.parts = parts
        self.b, self.m, self.lanes = parts.b, parts.m, parts.lanes
        self.cols = min(2, ceil_div(estimate(parts.queries), self.lanes))
        self.width = self.cols * self.lanes
        self.panels = ceil_div(parts.queries, self.width)
        if is_open(parts.count):
            self.block = OPEN_BLOCK
        else:
            self.block = ceil_div(parts.count, ceil_div(parts.count, BLOCK))
        self.kind = products(parts.q.region.type.dtype, self.lanes, parts.target)
        self.words = ceil_div(parts.inner, self.kind.dots)
        self.packed = self.b.array("i32" if parts.halves else "f32", self.words * self.width)
        self.shares = self.b.array("f32", self.block * self.width)
        if parts.halves:
            self.paired = PairedShares(parts, self.block, self.width)
            self.values = PairedValues(parts, self.block)
        self.sums = self.b.array("f32", parts.features * self.width)
        self.turned = [
            TurnedMask(parts, v, self.block, self.width)
            for v in parts.masks()[:MASKS]
            if v.type.dtype in ("f32", "bool")
        ]

    def run(self, lead: list[Coord], panel: Coord) -> None:
        """Compute a panel of queries."""
        b, parts = self.b, self.parts
        self.lead = lead
        self.first = b.let(panel.base * self.width)
        self.places = [parts.place(lead, self._clamped(j)) for j in range(self.cols)]
        self.known = [parts.by_query(at, self.lanes) for at in self.places]
        self.seen = SeenKeys(self.parts, self.places)
        self.one_block = self.seen.all and is_number(self.parts.count, self.block)
        self._pack()
        for mask in self.turned:
            mask.begin(lead, self.first)
        zero = Const(0.0, "f32", self.lanes)
        self.tops = [b.var(Const(-math.inf, "f32", self.lanes)) for _ in range(self.cols)]
        self.totals = [b.var(zero) for _ in range(self.cols)]
        if not self.one_block:
            with b.loop(self.parts.features * self.cols) as i:
                b.store(self.sums, i * self.lanes, zero)
        self._blocks()
        self._store([self.parts.factor(total) for total in self.totals])

    def _clamped(self, j: int) -> Coord:
        """Return the queries in the lanes of a column."""
        queries = self.parts.queries
        ramp = Coord(self.b.let(self.first + j * self.lanes), 1, self.lanes)
        if not is_open(queries) and queries % self.width == 0:
            return ramp
        last = Splat(lift(queries - 1), self.lanes)
        return Coord(Const(0), 0, self.lanes, self.b.let(Binary("min", ramp.expr(), last)))

    def _pack(self) -> None:
        """Copy the queries into lanes: a row of the array for each of their elements."""
        b, parts, lanes = self.b, self.parts, self.lanes
        across, dots = parts.q.region.strides[-1], self.kind.dots
        if is_number(across, 1) and parts.inner % (lanes * dots) == 0:
            last = lift(parts.queries - 1)
            starts = [
                parts.query(self.lead, b.let(Binary("min", self.first + r, last)))
                for r in range(self.width)
            ]
            with b.loop(self.words // lanes) as block:
                for j in range(self.cols):
                    at = [s + block * (lanes * dots) for s in starts[j * lanes : (j + 1) * lanes]]
                    lines = [b.let(self.kind.vector(parts.q.buffer, a, lanes)) for a in at]
                    for e, line in enumerate(transposed(b, lines)):
                        b.store(self.packed, self._at(block * lanes + e, j), line)
            return
        full, rest = divmod(parts.inner, dots)
        with b.loop(full) as row:
            for j in range(self.cols):
                b.store(self.packed, self._at(row, j), self._queries(row * dots, dots, j))
        if rest:
            for j in range(self.cols):
                word = self._queries(Const(full * dots), rest, j)
                b.store(self.packed, self._at(Const(full), j), word)

    def _queries(self, first: Expr, count: int, j: int) -> Expr:
        """Return `count` neighbours of each query in the lanes of a column."""
        q, lanes = self.parts.q, self.lanes
        found = [
            self.b.let(in_lanes(q.buffer, q.address([*self.places[j], coord(first + i)]), lanes))
            for i in range(count)
        ]
        return pair(self.b, found) if self.parts.halves else found[0]

    def _at(self, row: Expr, column: int) -> Expr:
        """Return where a vector of an array begins."""
        return row * self.width + column * self.lanes

    # ── blocks of keys ──

    def _blocks(self) -> None:
        b, block = self.b, self.block
        full, rest = divmod(self.parts.count, block)

        def run(start: Expr, count: int) -> None:
            condition = self.seen.within(start, count)
            if condition is None:
                self._block(start, count)
                return
            with b.when(condition):
                self._block(start, count)

        if is_open(full) or full:
            with b.loop(lift(full)) as i:
                run(b.let(i * block), block)
        if is_open(rest):
            with b.when(Compare("gt", lift(rest), Const(0))):
                run(b.let(lift(full * block)), rest)
        elif rest:
            run(Const(full * block), rest)

    def _block(self, start: Expr, count: int) -> None:
        """Take in `count` keys from `start` on."""
        b, m = self.b, self.m
        for mask in self.turned:
            mask.turn(start, count)
        highest = [b.var(top) for top in self.tops]
        keys = self._split(count)
        self._tiles(keys, lambda height, row: self._score(height, start, row, highest))
        shifts = [self.parts.shift(h) for h in highest]
        scales = [b.let(self.parts.share(t, s)) for t, s in zip(self.tops, shifts, strict=True)]
        sums = [b.var(Const(0.0, "f32", self.lanes)) for _ in range(self.cols)]

        def share(i: Expr, j: int) -> Expr:
            score = Load(self.shares, self._at(i, j), self.lanes)
            found = b.let(self.parts.share(score, shifts[j]))
            b.set(sums[j], m.add(sums[j], found))
            return found

        if self.parts.halves:
            self.values.fill(self.lead, start, count)
            self.paired.fill(count, share)
        else:
            with b.loop(lift(count)) as i:
                for j in range(self.cols):
                    b.store(self.shares, self._at(i, j), share(i, j))
        for j in range(self.cols):
            b.set(self.totals[j], m.add(m.mul(self.totals[j], scales[j]), sums[j]))
            b.set(self.tops[j], highest[j])
        features = self._split(self.parts.features)
        self._tiles(features, lambda height, row: self._mix(height, row, start, count, scales))

    def _split(self, rows: int) -> Tiles:
        kind = self.kind
        return split_rows(rows, self.cols, self.parts.target, parts=kind.count, words=kind.dots > 1)

    def _tiles(self, tiles: Tiles, tile: Callable[[int, Expr], None]) -> None:
        b = self.b
        if tiles.rest is not None:
            with b.loop(lift(tiles.count)) as t:
                tile(tiles.rows, b.let(t * tiles.rows))
            ladder(b, tiles, tile)
            return
        for begin, past, height in tiles.sizes():
            with b.loop(past - begin) as t:
                tile(height, b.let((t + begin) * height + (tiles.larger if begin else 0)))

    def _score(self, height: int, start: Expr, row: Expr, highest: list[Register]) -> None:
        """Score the keys of a tile from `start + row` on, and keep what follows for the block."""
        b, parts = self.b, self.parts
        *_, across, down = parts.keys.region.strides
        first = b.let(start + row)
        tile = self._tile(height)
        origin = parts.key(self.lead, first)

        def element(i: Expr, r: int, used: int) -> Expr:
            at = origin + i * (across * self.kind.dots) + r * down
            return self.kind.word(b, parts.keys.buffer, at, across, used)

        fetch = self._fetch(height, origin, first)
        steps, part = divmod(parts.inner, self.kind.dots)
        self._multiply(tile, element, steps, self.packed, fetch, part)
        for r in range(height):
            key = coord(b.let(first + r))
            for j, at in enumerate(self.places):
                place = b.let(self._at(row + r, j))
                masks = {mask.value: mask.element(place) for mask in self.turned}
                known = {**self.known[j], **masks}
                logit = parts.logit([*at, key], tile.acc[r][j], known)
                b.store(self.shares, place, logit)
                # NaN, which this does not see, is in the shares all the same.
                above = Compare("gt", logit, highest[j])
                b.set(highest[j], Select(above, logit, highest[j]))

    def _fetch(self, height: int, origin: Expr, first: Expr) -> Fetch | None:
        """Return what asks, step by step, for the keys of the next tile and the values of this one.

        Where few queries share keys, these come from memory, which would have to be waited for: a
        tile reads a line of each of its rows before any of them again.
        """
        parts, b = self.parts, self.b
        dense = parts.v.region.strides[-2:] == (parts.features, 1) and (
            parts.keys.region.strides[-2:] == (1, parts.inner))  # fmt: skip
        if self.cols > 1 or not dense or parts.halves:
            return None
        line = LINE // 4
        ahead = b.let(origin + height * parts.inner)
        value = parts.value(self.lead, first, Const(0))
        each = ceil_div(height * parts.features, parts.inner)

        def fetch(i: Expr) -> None:
            for n in range(0, height, line):
                b.prefetch(parts.keys.buffer, ahead + i * height + n)
            for n in range(0, each, line):
                b.prefetch(parts.v.buffer, value + i * each + n)

        return fetch

    def _mix(self, height: int, row: Expr, start: Expr, count: int, scales: list[Expr]) -> None:
        """Add the values of a block, by their shares, to the sums of some features."""
        b, parts = self.b, self.parts
        down, across = parts.v.region.strides[-2:]
        tile = self._tile(height)
        places = [[b.let(self._at(row + r, j)) for j in range(self.cols)] for r in range(height)]
        if not self.one_block:
            for line, sums in zip(places, tile.acc, strict=True):
                for at, acc, scale in zip(line, sums, scales, strict=True):
                    b.set(acc, self.m.mul(Load(self.sums, at, self.lanes), scale))
        origin = parts.value(self.lead, start, row)

        def element(i: Expr, r: int, used: int) -> Expr:
            if parts.halves:
                return self.values.element(i, row + r)
            return Load(parts.v.buffer, origin + i * down + r * across)

        shares = self.paired.words if parts.halves else self.shares
        self._multiply(tile, element, ceil_div(count, self.kind.dots), shares)
        for line, sums in zip(places, tile.acc, strict=True):
            for at, acc in zip(line, sums, strict=True):
                b.store(self.sums, at, acc)

    def _tile(self, height: int) -> Tile:
        return Tile(self.b, height, self.cols, self.lanes, self.parts.target, self.kind)

    def _multiply(
        self, tile: Tile, element: Element, steps: Dim, w: Buffer, fetch: Fetch | None = None,
        part: int = 0,
    ) -> None:  # fmt: skip
        """Add to a tile the product of rows of elements and the rows of an array.

        A last step has a `part` of its neighbours only.
        """
        b = self.b

        def step(i: Expr, used: int = self.kind.dots) -> None:
            if fetch is not None:
                fetch(i)
            tile.step(w, i * self.width, lambda r: element(i, r, used), ahead=False)

        full, rest = divmod(steps, tile.unroll)
        if is_open(full) or full:
            with b.loop(lift(full)) as i:
                for u in range(tile.unroll):
                    step(i * tile.unroll + u)
        if is_open(rest):
            with b.loop(lift(rest)) as i:
                step(i + full * tile.unroll)
        else:
            for u in range(rest):
                step(lift(full * tile.unroll + u))
        if part:
            step(lift(steps), part)

    # ── the end ──

    def _store(self, factors: list[Expr]) -> None:
        """Store what the queries are answered, a row each."""
        b, lanes = self.b, self.lanes
        full, rest = divmod(self.parts.features, lanes)
        nothing = self.parts.nothing(self.lead, factors)
        for j, factor in enumerate(factors):

            def scaled(row: Expr, j: int = j, factor: Expr = factor) -> Expr:
                value = Load(self.sums, self._at(row, j), lanes)
                none = None if nothing is None else Splat(Load(nothing, row), lanes)
                return self.parts.answer(value, factor, none)

            with b.loop(full) as block:
                lines = transposed(b, [scaled(block * lanes + r) for r in range(lanes)])
                for r, line in enumerate(lines):
                    self._answer(j * lanes + r, Coord(block * lanes, 1, lanes), line)
            if rest:
                with b.loop(rest) as f:
                    feature = f + full * lanes
                    b.store(self.sums, self._at(feature, j), scaled(feature))
        if rest:
            with b.loop(self.width) as lane, b.loop(rest) as f:
                feature = b.let(f + full * lanes)
                value = Load(self.sums, feature * self.width + lane)
                self._answer(lane, coord(feature), value)

    def _answer(self, r: Expr | int, features: Coord, value: Expr) -> None:
        """Store features of the query in lane r, if it is one."""
        b, parts = self.b, self.parts
        number = b.let(self.first + r)
        with b.when(Compare("lt", number, lift(parts.queries))):
            parts.k.loops.current = features.lanes
            parts.k.sink.store([*parts.place(self.lead, coord(number)), features], value)
            parts.k.loops.current = 1
