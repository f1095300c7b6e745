"""Attention of bytes: shares are rounded to bytes, as the model says, before they are summed by.

What a share is rounded to depends on the sum of them all.  So a panel of queries has all its
scores first, of which their largest and the sum of their exponentials are found; then, for a block
of keys,

    shares = what follows exp(scores - largest) / sum, bytes at last, put together in words
    sums = valuesᵀ × shares, in i32

Scores for which the stack has no room, or of an open number of keys, are computed a second time
instead of kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Const, Expr, Load, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.machines.vector.templates.attention_panels import Panels
from alpenglow.machines.vector.templates.attention_parts import AttentionParts
from alpenglow.machines.vector.templates.products import dot, products

ONES = 0x01010101
"""A word of bytes of 1: a product by it sums up."""


class BytePanels(Panels):
    """Panels of bytes: `rounded` are the shares that the values are multiplied by."""

    def __init__(self, parts: AttentionParts) -> None:
        room = parts.target.facts.scratch // DTYPES["f32"].itemsize
        self.kept = not is_open(parts.count) and parts.count * 2 * parts.lanes <= room
        kind = products("u8", parts.lanes, parts.target).turned()
        super().__init__(parts, kind, parts.count if self.kept else None)
        self.dot = dot(parts.target)
        if parts.summed is not None:
            self.bytes = self.b.array("i32", self.width)

    def run(self, lead: list[Coord], panel: Coord) -> None:
        """Compute a panel of queries."""
        b, parts = self.b, self.parts
        self.begin(lead, panel)
        if self.kept:
            self.each_block(lambda start, count: self.score(start, count, self.tops, start))
            self.shifts = [parts.shift(top) for top in self.tops]
            self._add_shares()
        else:
            self.each_block(self._look)
            self.shifts = [parts.shift(top) for top in self.tops]
        self.factors = [parts.factor(total) for total in self.totals]
        zero = Const(0, "i32", self.lanes)
        self.numbers = [b.var(zero) for _ in range(self.cols)]
        with b.loop(parts.features * self.cols) as i:
            b.store(self.sums, i * self.lanes, zero)
        self.each_block(self._block)
        if parts.summed is not None:
            for j, number in enumerate(self.numbers):
                b.store(self.bytes, j * self.lanes, number)
        self.store(lambda row, j: b.let(self._sums(self.at(row, j))), self._known)

    def _sums(self, at: Expr) -> Expr:
        return Load(self.sums, at, self.lanes)

    def _add_shares(self) -> None:
        """Add up the shares of all keys, which take the place of the logits."""
        b = self.b
        with b.loop(lift(self.parts.count)) as i:
            for j in range(self.cols):
                found = b.let(self._share(i, j))
                b.store(self.logits, self.at(i, j), found)
                b.set(self.totals[j], self.m.add(self.totals[j], found))

    def _share(self, i: Expr, j: int) -> Expr:
        logit = Load(self.logits, self.at(i, j), self.lanes)
        return self.parts.share(logit, self.shifts[j])

    def _look(self, start: Expr, count: int) -> None:
        """Take in the largest score and the sum of shares of some keys."""
        b, m, parts = self.b, self.m, self.parts
        highest = [b.var(top) for top in self.tops]
        self.score(start, count, highest)
        shifts = [parts.shift(h) for h in highest]
        for j, (top, shift) in enumerate(zip(self.tops, shifts, strict=True)):
            b.set(self.totals[j], m.mul(self.totals[j], parts.share(top, shift)))
            b.set(top, highest[j])
        with b.loop(lift(count)) as i:
            for j, shift in enumerate(shifts):
                logit = Load(self.logits, self.at(i, j), self.lanes)
                b.set(self.totals[j], m.add(self.totals[j], parts.share(logit, shift)))

    def _block(self, start: Expr, count: int) -> None:
        """Add the values of `count` keys from `start` on."""
        b, parts = self.b, self.parts
        if not self.kept:
            self.score(start, count, [b.var(top) for top in self.tops])

        def share(i: Expr, j: int) -> Expr:
            key = b.let(start + i)
            found = Load(self.logits, self.at(key, j), self.lanes) if self.kept else (
                self._share(i, j)
            )  # fmt: skip
            part = parts.part(b.let(found), self.factors[j])
            return parts.rounded([*self.places[j], coord(key)], part)

        def count_bytes(j: int, word: Expr) -> None:
            if parts.summed is not None:
                ones = Const(ONES, "i32", self.lanes)
                b.set(self.numbers[j], self.dot(word, ones, self.numbers[j]))

        self.values.fill(self.lead, start, count)
        self.paired.fill(count, share, count_bytes)
        self.mix(start, count, self.paired.words, lambda at, j: self._sums(at))

    def _known(self, query: Expr | int) -> Mapping[Value, Expr]:
        """Return the sum of the bytes of a query's shares, if that is asked for."""
        summed = self.parts.summed
        return {} if summed is None else {summed: self.b.let(Load(self.bytes, lift(query)))}
