"""A mask of attention, turned: queries stand in lanes, but lie a row of keys apart in memory."""

from __future__ import annotations

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.graph import Value
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Load, Select, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.machines.vector.templates.attention_parts import AttentionParts
from alpenglow.machines.vector.templates.transpose import transposed


class TurnedMask:
    """The elements of a mask, f32 or bool, for a panel of queries and a block of keys.

    They are in `array`, f32 with a row for each key, a square of lanes at a time.
    """

    def __init__(self, parts: AttentionParts, value: Value, block: int, width: int) -> None:
        """Turn a mask for panels of `width` queries and blocks of so many keys."""
        self.parts, self.value, self.width = parts, value, width
        self.b, self.lanes = parts.b, parts.lanes
        self.array = parts.b.array("f32", ceil_div(block, self.lanes) * self.lanes * width)
        self.window = parts.k.window(value)

    def begin(self, lead: list[Coord], first: Expr) -> None:
        """Note where the rows of the queries of a panel begin; past the last, that is repeated."""
        b, last = self.b, lift(self.parts.queries - 1)
        self.rows: list[Expr] = []
        for r in range(self.width):
            query = b.let(Binary("min", first + r, last))
            at = [*self.parts.place(lead, coord(query)), coord(0)]
            self.rows.append(b.let(self.window.address(at).expr()))

    def turn(self, start: Expr, count: int) -> None:
        """Fill the array for `count` keys from `start` on."""
        b, lanes = self.b, self.lanes
        full, rest = divmod(count, lanes)
        if is_open(full) or full:
            with b.loop(lift(full)) as i:
                self._square(start, b.let(i * lanes), None)
        if is_open(rest):
            with b.when(Compare("gt", lift(rest), Const(0))):
                self._square(start, b.let(lift(full * lanes)), rest)
        elif rest:
            self._square(start, Const(full * lanes), rest)

    def _square(self, start: Expr, key: Expr, rest: int | None) -> None:
        """Turn as many keys as there are lanes, or the `rest`."""
        b, lanes = self.b, self.lanes
        mask = None if rest is None else b.let(Coord(Const(0), 1, lanes).compare("lt", rest))
        for j in range(0, self.width, lanes):
            lines = [b.let(self._line(r + start + key, mask)) for r in self.rows[j : j + lanes]]
            for k, line in enumerate(transposed(b, lines)):
                b.store(self.array, (key + k) * self.width + j, line)

    def _line(self, at: Expr, mask: Expr | None) -> Expr:
        line = Load(self.window.buffer, at, self.lanes, mask)
        if self.window.buffer.dtype == "f32":
            return line
        one, zero = (Const(x, "f32", self.lanes) for x in (1.0, 0.0))
        return Select(line, one, zero)

    def element(self, place: Expr) -> Expr:
        """Return the mask in lanes, at a place of the array."""
        x = self.b.let(Load(self.array, place, self.lanes))
        if self.window.buffer.dtype == "f32":
            return x
        return self.b.let(Compare("ne", x, Const(0.0, "f32", self.lanes)))
