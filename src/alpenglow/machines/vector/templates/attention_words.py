"""Neighbours in words, for attention in narrow types: what one instruction multiplies and adds.

A word, i32, holds two bf16 or four bytes.  Queries and keys have neighbours along their elements,
which for keys lie side by side in memory already.  Shares and values have them along keys: shares
are put together where they are computed, and the values of a block of keys anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Bitcast, Compare, Const, Convert, Expr, Load, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import in_lanes
from alpenglow.loops.instruction import side_by_side
from alpenglow.machines.vector.templates.attention_parts import AttentionParts

BYTES = 4
"""Bytes of a word."""


def word_of(b: Builder, elements: Sequence[Expr], bits: int) -> Expr:
    """Return words of vectors of elements of so many bits; those that are missing are 0."""
    total: Expr | None = None
    for i, x in enumerate(elements):
        part: Expr = Convert(Bitcast(x, f"u{bits}"), "i32")
        if total is None:
            total = b.let(part)
        else:
            part = Binary("shl", part, Const(i * bits, "i32", part.lanes))
            total = b.let(Binary("or", total, part))
    assert total is not None, "a word has elements"
    return total


def by_words(b: Builder, count: Dim, dots: int, row: Callable[[Expr, int], None]) -> None:
    """Run `row(number, dots)` for each word of `count` elements, and `row(number, n)` for a last
    one that has n only."""
    full, rest = divmod(count, dots)
    if is_open(full) or full:
        with b.loop(lift(full)) as i:
            row(i, dots)
    if is_open(rest):
        for n in range(1, dots):
            with b.when(Compare("eq", lift(rest), Const(n))):
                row(b.let(lift(full)), n)
    elif rest:
        row(lift(full), estimate(rest))


class SharesInWords:
    """The shares of a block: `words` has a row of `width` queries for each few keys."""

    def __init__(self, parts: AttentionParts, dots: int, block: int, width: int) -> None:
        self.b, self.lanes, self.width, self.dots = parts.b, parts.lanes, width, dots
        self.words = self.b.array("i32", ceil_div(block, dots) * width)

    def fill(
        self, count: Dim, share: Callable[[Expr, int], Expr],
        then: Callable[[int, Expr], None] = lambda column, word: None,
    ) -> None:  # fmt: skip
        """Put together `share(key, column)`, as rounded, for so many keys; each word is handed to
        `then` with its column."""

        def row(i: Expr, keys: int) -> None:
            for j in range(self.width // self.lanes):
                elements = [share(i * self.dots + n, j) for n in range(keys)]
                word = word_of(self.b, elements, 32 // self.dots)
                self.b.store(self.words, i * self.width + j * self.lanes, word)
                then(j, word)

        by_words(self.b, count, self.dots, row)


class ValuesInWords:
    """The values of a block: `words` has a row of features for each few keys."""

    def __init__(self, parts: AttentionParts, dots: int, block: int) -> None:
        self.parts, self.b, self.lanes, self.dots = parts, parts.b, parts.lanes, dots
        self.pitch = ceil_div(parts.features, self.lanes) * self.lanes
        self.words = self.b.array("i32", ceil_div(block, dots) * self.pitch)

    def fill(self, lead: list[Coord], start: Expr, count: Dim) -> None:
        """Put together the values of so many keys from `start` on."""
        b, lanes, features = self.b, self.lanes, self.parts.features
        # Four whole lines of bytes are interleaved as they are.
        wide = lanes * BYTES
        whole = features // wide if self.dots == BYTES else 0
        full, rest = divmod(features - whole * wide, lanes)

        def row(i: Expr, keys: int) -> None:
            first = b.let(start + i * self.dots)
            at = b.let(i * self.pitch)

            def lines(feature: Expr, size: int, mask: Expr | None = None) -> list[Expr]:
                return [self._line(lead, first + n, feature, size, mask) for n in range(keys)]

            if whole:
                with b.loop(whole) as chunk:
                    feature = b.let(chunk * wide)
                    self._interleave(at + feature, lines(feature, wide))
            if full:
                with b.loop(full) as chunk:
                    feature = b.let(chunk * lanes + whole * wide)
                    self._join(at + feature, lines(feature, lanes))
            if rest:
                mask = b.let(Coord(Const(0), 1, lanes).compare("lt", rest))
                last = Const(features - rest)
                self._join(at + last, lines(last, lanes, mask))

        by_words(b, count, self.dots, row)

    def _line(
        self, lead: list[Coord], key: Expr, feature: Expr, size: int, mask: Expr | None
    ) -> Expr:
        """Return `size` features of a key."""
        v, batch = self.parts.v, self.parts.batch_of(lead)
        at = v.address([*batch, coord(key), Coord(feature, 1, size)])
        return self.b.let(in_lanes(v.buffer, at, size, mask))

    def _join(self, at: Expr, lines: list[Expr]) -> None:
        self.b.store(self.words, at, word_of(self.b, lines, 32 // self.dots))

    def _interleave(self, at: Expr, lines: list[Expr]) -> None:
        zero = Const(0, lines[0].dtype, lines[0].lanes)
        square = side_by_side(self.b, lines + [zero] * (self.dots - len(lines)))
        for n, line in enumerate(square):
            self.b.store(self.words, at + n * self.lanes, Bitcast(line, "i32"))

    def element(self, step: Expr, feature: Expr) -> Expr:
        """Return a word of a few keys."""
        return Load(self.words, step * self.pitch + feature)
