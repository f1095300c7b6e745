"""Neighbours of two for attention in halves: what one instruction multiplies and adds at once.

A word, i32, holds two bf16.  Queries and keys have neighbours along their elements, which for keys
lie side by side in memory already.  Shares and values have them along keys: shares are rounded
where they are computed, and the values of a block of keys are put together anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.dims import Dim, ceil_div, is_open
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Bitcast, Compare, Const, Convert, Expr, Load, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import in_lanes
from alpenglow.machines.cpu.templates.attention_parts import AttentionParts


def pair(b: Builder, halves: Sequence[Expr]) -> Expr:
    """Return words of one or two vectors of bf16; a second one that is missing is 0."""
    low, *more = [Convert(Bitcast(x, "u16"), "i32") for x in halves]
    if not more:
        return b.let(low)
    high = Binary("shl", more[0], Const(16, "i32", low.lanes))
    return b.let(Binary("or", low, high))


def by_twos(b: Builder, count: Dim, row: Callable[[Expr, int], None]) -> None:
    """Run `row(number, 2)` for each two of `count`, and `row(number, 1)` for one that is left."""
    full, rest = divmod(count, 2)
    if is_open(full) or full:
        with b.loop(lift(full)) as i:
            row(i, 2)
    if is_open(rest):
        with b.when(Compare("gt", lift(rest), Const(0))):
            row(b.let(lift(full)), 1)
    elif rest:
        row(lift(full), 1)


class PairedShares:
    """The shares of a block: `words` has a row of `width` queries for each two keys."""

    def __init__(self, parts: AttentionParts, block: int, width: int) -> None:
        self.b, self.lanes, self.width = parts.b, parts.lanes, width
        self.words = self.b.array("i32", ceil_div(block, 2) * width)

    def fill(self, count: Dim, share: Callable[[Expr, int], Expr]) -> None:
        """Round `share(key, column)` for so many keys."""

        def row(i: Expr, keys: int) -> None:
            for j in range(self.width // self.lanes):
                halves = [Convert(share(i * 2 + n, j), "bf16") for n in range(keys)]
                self.b.store(self.words, i * self.width + j * self.lanes, pair(self.b, halves))

        by_twos(self.b, count, row)


class PairedValues:
    """The values of a block: `words` has a row of features for each two keys."""

    def __init__(self, parts: AttentionParts, block: int) -> None:
        self.parts, self.b, self.lanes = parts, parts.b, parts.lanes
        self.pitch = ceil_div(parts.features, self.lanes) * self.lanes
        self.words = self.b.array("i32", ceil_div(block, 2) * self.pitch)

    def fill(self, lead: list[Coord], start: Expr, count: Dim) -> None:
        """Put together the values of so many keys from `start` on."""

        def row(i: Expr, keys: int) -> None:
            first = self.b.let(start + i * 2)
            full, rest = divmod(self.parts.features, self.lanes)
            if full:
                with self.b.loop(full) as chunk:
                    self._chunk(lead, first, keys, i, chunk * self.lanes, None)
            if rest:
                mask = self.b.let(Coord(Const(0), 1, self.lanes).compare("lt", rest))
                self._chunk(lead, first, keys, i, Const(full * self.lanes), mask)

        by_twos(self.b, count, row)

    def _chunk(
        self, lead: list[Coord], key: Expr, keys: int, row: Expr, feature: Expr, mask: Expr | None
    ) -> None:
        v, batch = self.parts.v, self.parts.batch_of(lead)
        features = Coord(feature, 1, self.lanes)
        halves = [
            self.b.let(in_lanes(
                v.buffer, v.address([*batch, coord(key + n), features]), self.lanes, mask
            ))
            for n in range(keys)
        ]  # fmt: skip
        self.b.store(self.words, row * self.pitch + feature, pair(self.b, halves))

    def element(self, step: Expr, feature: Expr) -> Expr:
        """Return a word of two keys."""
        return Load(self.words, step * self.pitch + feature)
