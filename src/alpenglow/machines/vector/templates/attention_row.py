"""Attention of few queries, as where a decoder goes token by token: memory is the limit.

Each query goes through the keys by itself, in blocks.  Elements of a key stand in lanes, then keys,
then features of a value:

    scores     a vector of keys at a time: their products with the query, whose lanes are added up
               by turning a square of them
    shares     exp(scores - largest), where what was summed before is scaled down
    sums       a register for each vector of features
"""

from __future__ import annotations

import math

from alpenglow.ir.dims import is_open
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Load, Reduce, Select, Splat, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window, in_lanes
from alpenglow.machines.vector.templates.attention_parts import AttentionParts
from alpenglow.machines.vector.templates.attention_seen import SeenKeys
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.machines.vector.templates.transpose import transposed

BLOCK = 512
"""Keys of a block at most."""


def attention_row(parts: AttentionParts) -> None:
    """Build attention: parallel over queries."""
    with parts.k.loops.parallel([*parts.batch, parts.queries]) as (*lead, query):
        _Row(parts, lead, query).run()


class _Row:
    """One query: an element of `shares` for each key of a block."""

    def __init__(self, parts: AttentionParts, lead: list[Coord], query: Coord) -> None:
        self.parts, self.lead = parts, lead
        self.b, self.m, self.lanes = parts.b, parts.m, parts.lanes
        self.at = parts.place(lead, query)
        block = parts.count if not is_open(parts.count) and parts.count < BLOCK else BLOCK
        self.block = -(-block // self.lanes) * self.lanes
        self.shares = self.b.array("f32", self.block)

    def run(self) -> None:
        b, parts = self.b, self.parts
        self.query = [
            b.let(self._chunk(parts.q, [*self.at, c], c)) for c in self._chunks(parts.inner)
        ]
        self.known = parts.by_query(self.at, 1)
        self.top = b.var(Const(-math.inf, "f32"))
        self.total = b.var(Const(0.0, "f32"))
        zero = Const(0.0, "f32", self.lanes)
        self.sums = [b.var(zero) for _ in self._chunks(parts.features)]
        seen = SeenKeys(parts, [self.at])
        with b.loop(lift((parts.count + self.block - 1) // self.block)) as i:
            start = b.let(i * self.block)
            most = b.let(Binary("min", Const(self.block), lift(parts.count) - start))
            condition = seen.within(start, self.block)
            if condition is None:
                self._block(start, most)
            else:
                with b.when(condition):
                    self._block(start, most)
        factor = parts.factor(self.total)
        nothing = parts.nothing(self.lead, [factor])
        for c, total in zip(self._chunks(parts.features), self.sums, strict=True):
            none = None if nothing is None else Load(nothing, c.base, self.lanes)
            with parts.k.loops.vector(self.lanes, self._mask(c, parts.features)):
                parts.k.sink.store([*self.at, c], parts.answer(total, factor, none))

    def _chunks(self, extent: int) -> list[Coord]:
        """Return the vectors that an axis is made of."""
        return [Coord(Const(i), 1, self.lanes) for i in range(0, extent, self.lanes)]

    def _mask(self, c: Coord, extent: int) -> Expr | None:
        """Return which lanes of a vector are there; None if all are."""
        assert isinstance(c.base, Const), "vectors of an axis begin at numbers"
        within = c.base.value + self.lanes <= extent
        return None if within else self.b.let(c.compare("lt", extent))

    def _chunk(self, w: Window, at: list[Coord], c: Coord) -> Expr:
        """Return a vector along an axis, zeros past its end."""
        extent = w.region.shape[at.index(c)]
        mask = self._mask(c, extent)
        value = in_lanes(w.buffer, w.address(at), self.lanes, mask)
        return value if mask is None else Select(mask, value, Const(0.0, "f32", self.lanes))

    def _block(self, start: Expr, count: Expr) -> None:
        """Take in `count` keys from `start` on."""
        b, m, parts, lanes = self.b, self.m, self.parts, self.lanes
        minus = Const(-math.inf, "f32", lanes)
        highest = b.var(minus)
        with b.loop(b.let((count + (lanes - 1)) // lanes)) as i:
            key = b.let(start + i * lanes)
            logit = self._logits(key)
            b.store(self.shares, i * lanes, logit)
            b.set(highest, Select(Compare("gt", logit, highest), logit, highest))
        tallest = b.let(Reduce("max", highest))
        top = b.let(Select(Compare("gt", tallest, self.top), tallest, self.top))
        shift = parts.shift(top)
        scale = b.let(parts.share(self.top, shift))
        part = b.var(Const(0.0, "f32", lanes))
        with b.loop(b.let((count + (lanes - 1)) // lanes)) as i:
            at = b.let(i * lanes)
            share = b.let(parts.share(Load(self.shares, at, lanes), shift))
            b.store(self.shares, at, share)
            b.set(part, m.add(part, share))
        b.set(self.total, m.add(m.mul(self.total, scale), Reduce("add", part)))
        b.set(self.top, top)
        for total in self.sums:
            b.set(total, m.mul(total, scale))
        chunks = self._chunks(parts.features)
        batch = parts.batch_of(self.lead)
        with b.loop(count) as i:
            share = b.let(Splat(Load(self.shares, i), lanes))
            key = b.let(start + i)
            for c, total in zip(chunks, self.sums, strict=True):
                value = self._chunk(parts.v, [*batch, coord(key), c], c)
                b.set(total, multiply_add(share, value, total, parts.target))

    def _logits(self, key: Expr) -> Expr:
        """Return what the softmax is of for a vector of keys, -inf for those past the last."""
        b, parts, lanes = self.b, self.parts, self.lanes
        last = lift(parts.count - 1)
        batch = parts.batch_of(self.lead)
        rows: list[Expr] = []
        for r in range(lanes):
            at = coord(b.let(Binary("min", key + r, last)))
            total: Expr | None = None
            for c, q in zip(self._chunks(parts.inner), self.query, strict=True):
                k = self._chunk(parts.keys, [*batch, c, at], c)
                more = Binary("mul", q, k) if total is None else (
                    multiply_add(q, k, total, parts.target))  # fmt: skip
                total = b.let(more)
            assert total is not None, "keys have elements"
            rows.append(total)
        score = b.let(_added(b, transposed(b, rows)))
        ramp = Coord(key, 1, lanes)
        there = b.let(ramp.compare("lt", parts.count))
        clamped = b.let(Binary("min", ramp.expr(), Splat(last, lanes)))
        where = [*self.at, Coord(Const(0), 0, lanes, clamped)]
        logit = parts.logit(where, score, self.known)
        return b.let(Select(there, logit, Const(-math.inf, "f32", lanes)))


def _added(b: Builder, rows: list[Expr]) -> Expr:
    """Return the sum of vectors, by halves."""
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [b.let(Binary("add", x, y)) for x, y in pairs]
    return rows[0]
