"""Panels of queries in lanes: what all kernels of attention of many queries do alike.

A panel of queries is packed once.  Then, for a block of keys,

    scores = keys × queries          rows of a register tile are keys
    what follows the scores, elementwise; the largest of them so far
    sums = valuesᵀ × shares          rows of a tile are features

so keys and values are read as they lie in memory, an element for a row of the tile, and neither
maximum nor sum goes across lanes.  Of narrow types a lane holds neighbours, all of which one
instruction takes (`products`): queries are packed so, and shares and values are put together anew
(`attention_words`).

Lanes past the last query repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.ir.graph import Value
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
from alpenglow.machines.vector.templates.attention_mask import TurnedMask
from alpenglow.machines.vector.templates.attention_parts import AttentionParts
from alpenglow.machines.vector.templates.attention_words import (
    SharesInWords,
    ValuesInWords,
    word_of,
)
from alpenglow.machines.vector.templates.products import Products
from alpenglow.machines.vector.templates.tile import Tile, Tiles, in_order, split_rows
from alpenglow.machines.vector.templates.transpose import transposed

BLOCK = 128
"""Keys of a block at most: its shares stay in the first cache, and sums are seldom scaled."""

OPEN_BLOCK = 112
"""The same where their number is open: tiles of as many rows as there are registers for fit in."""

Element = Callable[[Expr, int, int], Expr]
"""An operand of a tile: of a step and a row, so many of the neighbours in a lane."""

UNROLLED = 2
"""Steps of a product in a loop body at least: on a core that is shared attention takes 3 to 10 %
longer with one, which counts and addresses as often, and 8 to 13 % with 16."""

SOON = 16
"""How many keys before they are needed values are asked for."""

Fetch = Callable[[Expr, Expr], None]
"""Asks for memory that is needed soon, in a turn and a step of it."""

MASKS = 2
"""Masks that are turned at most; of others, elements are gathered."""


class Panels:
    """What a kernel is made of, beside its operands: arrays of a panel of `width` queries.

    `packed` holds the queries.  `logits`, what the softmax is of, have a row for each key of a
    block, or of `rows` keys.
    """

    def __init__(self, parts: AttentionParts, kind: Products, rows: int | None = None) -> None:
        """`kind` multiplies elements of keys and values by queries and shares in lanes."""
        self.parts, self.kind = parts, kind
        self.b, self.m, self.lanes = parts.b, parts.m, parts.lanes
        self.cols = min(2, ceil_div(estimate(parts.queries), self.lanes))
        self.width = self.cols * self.lanes
        self.panels = ceil_div(parts.queries, self.width)
        # Steps in which a product takes a line of each of its rows.
        self.steps = parts.target.facts.burst // 4
        if is_open(parts.count):
            self.block = OPEN_BLOCK
        else:
            self.block = ceil_div(parts.count, ceil_div(parts.count, BLOCK))
        self.words = ceil_div(parts.inner, kind.dots)
        self.packed = self.b.array("f32" if kind.dots == 1 else "i32", self.words * self.width)
        self.logits = self.b.array("f32", (rows or self.block) * self.width)
        if kind.dots > 1:
            self.paired = SharesInWords(parts, kind.dots, self.block, self.width)
            self.values = ValuesInWords(parts, kind.dots, self.block)
        self.sums = self.b.array(kind.dtype, parts.features * self.width)
        self.turned = [
            TurnedMask(parts, v, self.block, self.width)
            for v in parts.masks()[:MASKS]
            if v.type.dtype in ("f32", "bool")
        ]

    def begin(self, lead: list[Coord], panel: Coord) -> None:
        """Take the queries of a panel, which have seen no key."""
        b, parts = self.b, self.parts
        self.lead = lead
        self.first = b.let(panel.base * self.width)
        self.places = [parts.place(lead, self._clamped(j)) for j in range(self.cols)]
        self.known = [parts.by_query(at, self.lanes) for at in self.places]
        self._pack()
        for mask in self.turned:
            mask.begin(lead, self.first)
        zero = Const(0.0, "f32", self.lanes)
        self.tops = [b.var(Const(-math.inf, "f32", self.lanes)) for _ in range(self.cols)]
        self.totals = [b.var(zero) for _ in range(self.cols)]

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
                        b.store(self.packed, self.at(block * lanes + e, j), line)
            return
        full, rest = divmod(parts.inner, dots)
        with b.loop(full) as row:
            for j in range(self.cols):
                b.store(self.packed, self.at(row, j), self._queries(row * dots, dots, j))
        if rest:
            for j in range(self.cols):
                word = self._queries(Const(full * dots), rest, j)
                b.store(self.packed, self.at(Const(full), j), word)

    def _queries(self, first: Expr, count: int, j: int) -> Expr:
        """Return `count` neighbours of each query in the lanes of a column."""
        q, lanes = self.parts.q, self.lanes
        found = [
            self.b.let(in_lanes(q.buffer, q.address([*self.places[j], coord(first + i)]), lanes))
            for i in range(count)
        ]
        return found[0] if self.kind.dots == 1 else word_of(self.b, found, 32 // self.kind.dots)

    def at(self, row: Expr, column: int) -> Expr:
        """Return where a vector of an array begins."""
        return row * self.width + column * self.lanes

    # ── blocks of keys ──

    def each_block(self, run: Callable[[Expr, int], None]) -> None:
        """Run what takes in so many keys from one on, for all of them."""
        b, block = self.b, self.block
        full, rest = divmod(self.parts.count, block)
        if is_open(full) or full:
            with b.loop(lift(full)) as i:
                run(b.let(i * block), block)
        if is_open(rest):
            with b.when(Compare("gt", lift(rest), Const(0))):
                run(b.let(lift(full * block)), rest)
        elif rest:
            run(Const(full * block), rest)

    def score(
        self, start: Expr, count: int, highest: list[Register], base: Expr | None = None
    ) -> None:
        """Keep the logits of `count` keys from `start` on, from the row `base` or the first on."""
        for mask in self.turned:
            mask.turn(start, count)

        def tile(height: int, row: Expr) -> None:
            self._score(height, start, row, highest, base)

        self.tiles(self.split(count), tile)

    def split(self, rows: int) -> Tiles:
        kind = self.kind
        return split_rows(rows, self.cols, self.parts.target, parts=kind.count, words=kind.dots > 1)

    def tiles(self, tiles: Tiles, tile: Callable[[int, Expr], None]) -> None:
        in_order(self.b, tiles, tile)

    def _score(
        self, height: int, start: Expr, row: Expr, highest: list[Register], base: Expr | None
    ) -> None:
        """Score the keys of a tile from `start + row` on."""
        b, parts = self.b, self.parts
        *_, across, down = parts.keys.region.strides
        first = b.let(start + row)
        tile = self.tile(height)
        origin = parts.key(self.lead, first)

        def element(i: Expr, r: int, used: int) -> Expr:
            at = origin + i * (across * self.kind.dots) + r * down
            return self.kind.word(b, parts.keys.buffer, at, across, used)

        fetch = self._fetch(height, origin, first)
        steps, part = divmod(parts.inner, self.kind.dots)
        self.multiply(tile, element, steps, self.packed, fetch, part)
        for j, at in enumerate(self.places):
            sums = tile.sums(j)
            logits: list[Expr] = []
            for r in range(height):
                key = coord(b.let(first + r))
                place = b.let(self.at(row + r, j))
                masks = {mask.value: mask.element(place) for mask in self.turned}
                logit = parts.logit([*at, key], sums[r], {**self.known[j], **masks})
                logit = b.let(logit)
                b.store(self.logits, place if base is None else place + base * self.width, logit)
                logits.append(logit)
            while len(logits) > 1:
                pairs = zip(logits[::2], logits[1::2], strict=False)
                odd = logits[-1:] if len(logits) % 2 else []
                logits = [b.let(_larger(x, y)) for x, y in pairs] + odd
            b.set(highest[j], _larger(logits[0], highest[j]))

    def _fetch(self, height: int, origin: Expr, first: Expr) -> Fetch | None:
        """Return what asks for the keys of the next tile, which this one would wait for.

        Where few queries share keys, these come from memory, and so do the values of this tile.
        """
        parts, b = self.parts, self.b
        *_, across, down = parts.keys.region.strides
        if not is_number(across, 1) or is_open(down) or self.kind.dots > 1:
            return None
        ahead = b.let(origin + height * down)
        few = self.cols == 1 and parts.v.region.strides[-2:] == (parts.features, 1)
        value = parts.value(self.lead, first, Const(0)) if few else Const(0)
        each = ceil_div(height * parts.features, parts.inner)

        def fetch(turn: Expr, step: Expr) -> None:
            for key in range(0, height, self.steps):
                at = ahead + turn * self.steps + step * down
                b.prefetch(parts.keys.buffer, at + key * down if key else at)
            for n in range(0, each if few else 0, self.steps):
                b.prefetch(parts.v.buffer, value + (turn * self.steps + step) * each + n)

        return fetch

    def tile(self, height: int) -> Tile:
        return Tile(self.b, height, self.cols, self.lanes, self.parts.target, self.kind)

    def multiply(
        self, tile: Tile, element: Element, steps: Dim, w: Buffer, fetch: Fetch | None = None,
        part: int = 0,
    ) -> None:  # fmt: skip
        """Add to a tile the product of rows of elements and the rows of an array.

        A last step has a `part` of its neighbours only.
        """
        b = self.b

        def step(i: Expr, used: int = self.kind.dots) -> None:
            tile.step(w, i * self.width, lambda r: element(i, r, used), ahead=False)

        unroll = max(tile.unroll, UNROLLED)
        done: Dim = 0
        if fetch is not None and (is_open(steps) or steps >= self.steps):
            turns, steps = divmod(steps, self.steps)
            done = turns * self.steps
            with b.loop(lift(turns)) as turn, b.loop(self.steps // unroll) as i:
                for u in range(unroll):
                    fetch(turn, i * unroll + u)
                    step(turn * self.steps + i * unroll + u)
        full, rest = divmod(steps, unroll)
        if is_open(full) or full:
            with b.loop(lift(full)) as i:
                for u in range(unroll):
                    step(i * unroll + u + done)
        done += full * unroll
        if is_open(rest):
            with b.loop(lift(rest)) as i:
                step(i + done)
        else:
            for u in range(rest):
                step(lift(done + u))
        if part:
            step(lift(done + rest), part)

    def mix(
        self, start: Expr, count: int, shares: Buffer, before: Callable[[Expr, int], Expr] | None
    ) -> None:
        """Add the values of `count` keys from `start` on, by their shares, to the sums.

        These begin with what is there `before` at a place of a column, or with 0.
        """

        def tile(height: int, row: Expr) -> None:
            self._mix(height, row, start, count, shares, before)

        self.tiles(self.split(self.parts.features), tile)

    def _mix(
        self, height: int, row: Expr, start: Expr, count: int, shares: Buffer,
        before: Callable[[Expr, int], Expr] | None,
    ) -> None:  # fmt: skip
        """Do so for the features of a tile from a row on."""
        b, parts = self.b, self.parts
        down, across = parts.v.region.strides[-2:]
        tile = self.tile(height)
        places = [[b.let(self.at(row + r, j)) for j in range(self.cols)] for r in range(height)]
        if before is not None:
            for line, sums in zip(places, tile.acc, strict=True):
                for j, (at, acc) in enumerate(zip(line, sums, strict=True)):
                    b.set(acc, before(at, j))
        origin = parts.value(self.lead, start, row)

        def element(i: Expr, r: int, used: int) -> Expr:
            if self.kind.dots > 1:
                return self.values.element(i, row + r)
            return Load(parts.v.buffer, origin + i * down + r * across)

        def fetch(turn: Expr, i: Expr) -> None:
            for feature in (0, height - 1):  # of one line, or of two
                at = origin + (turn * self.steps + i + SOON) * down + feature
                b.prefetch(parts.v.buffer, at)

        near = is_number(across, 1) and self.kind.dots == 1 and not is_open(down)
        steps = ceil_div(count, self.kind.dots)
        self.multiply(tile, element, steps, shares, fetch if near else None)
        for j in range(self.cols):
            for r, total in enumerate(tile.sums(j)):
                b.store(self.sums, places[r][j], total)

    # ── the end ──

    def store(
        self, answer: Callable[[Expr, int], Expr],
        known: Callable[[Expr | int], Mapping[Value, Expr]] = lambda query: MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Store `answer(row of the sums, column)`, which stands in lanes, a row for each query.

        Of what follows the product, something may be `known` for each query of the panel.
        """
        b, lanes = self.b, self.lanes
        full, rest = divmod(self.parts.features, lanes)
        for j in range(self.cols):
            with b.loop(full) as block:
                lines = transposed(b, [answer(block * lanes + r, j) for r in range(lanes)])
                for r, line in enumerate(lines):
                    self._answer(j * lanes + r, Coord(block * lanes, 1, lanes), line, known)
            if rest:
                with b.loop(rest) as f:
                    feature = f + full * lanes
                    b.store(self.sums, self.at(feature, j), answer(feature, j))
        if rest:
            with b.loop(self.width) as query, b.loop(rest) as f:
                feature = b.let(f + full * lanes)
                value = Load(self.sums, feature * self.width + query)
                self._answer(query, coord(feature), value, known)

    def _answer(
        self, r: Expr | int, features: Coord, value: Expr,
        known: Callable[[Expr | int], Mapping[Value, Expr]],
    ) -> None:  # fmt: skip
        """Store features of query r of the panel, if it is one."""
        b, parts = self.b, self.parts
        number = b.let(self.first + r)
        exists = Compare("lt", number, lift(parts.queries))
        with b.when(exists), parts.k.loops.vector(features.lanes):
            parts.k.store([*parts.place(self.lead, coord(number)), features], value, known(r))


def _larger(x: Expr, y: Expr) -> Expr:
    """Return the larger of two; NaN, which this may not see, is in the shares all the same."""
    return Select(Compare("gt", x, y), x, y)
