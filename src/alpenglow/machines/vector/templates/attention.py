"""Attention in one kernel: the scores of some queries exist for one block of keys at a time.

Of the scores of a block (`attention_panels`) only the largest so far and the sum of

    shares = exp(scores - largest)   what was summed before is scaled down where that has grown

are kept, and what the shares sum up to of the values.  In the end those sums are divided by those
of the shares (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao and
others, FlashAttention, 2022).  Of few queries each goes through the keys alone (`attention_row`).
Bytes are summed by shares that are rounded, which takes all scores first (`attention_bytes`).

Blocks in which no query of the panel sees a key are left out, as far as conditions on positions
tell.
"""

from __future__ import annotations

from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Convert, Expr, Load, Splat, lift
from alpenglow.loops.coord import Coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.attention_bytes import BytePanels
from alpenglow.machines.vector.templates.attention_panels import Panels
from alpenglow.machines.vector.templates.attention_parts import AttentionParts
from alpenglow.machines.vector.templates.attention_row import attention_row
from alpenglow.machines.vector.templates.attention_seen import SeenKeys
from alpenglow.machines.vector.templates.products import products
from alpenglow.ops.product.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether the instruction is attention, and not one product."""
    return isinstance(anchor.operands()[0], Value)


@templates.on(MatMul, "wide", _fits)
def attention(k: Frame, op: MatMul, target: Target) -> None:
    """Build attention: parallel over panels of queries, or over queries."""
    parts = AttentionParts(k, target)
    if parts.dtype == "f32" and parts.queries * 2 < parts.lanes:
        attention_row(parts)
        return
    kernel = BytePanels(parts) if parts.dtype == "u8" else RunningPanels(parts)
    with k.loops.parallel([*parts.batch, kernel.panels]) as (*lead, panel):
        kernel.run(lead, panel)


class RunningPanels(Panels):
    """Panels of floats, whose sums run along with the keys."""

    def __init__(self, parts: AttentionParts) -> None:
        super().__init__(parts, products(parts.dtype, parts.lanes, parts.target))

    def run(self, lead: list[Coord], panel: Coord) -> None:
        """Compute a panel of queries."""
        b, parts = self.b, self.parts
        self.begin(lead, panel)
        self.seen = SeenKeys(parts, self.places)
        self.one_block = self.seen.all and is_number(parts.count, self.block)
        if not self.one_block:
            with b.loop(parts.features * self.cols) as i:
                b.store(self.sums, i * self.lanes, Const(0.0, "f32", self.lanes))
        self.each_block(self._seen_block)
        self._store_quotients()

    def _seen_block(self, start: Expr, count: int) -> None:
        """Take in `count` keys from `start` on, if a query may see any."""
        condition = self.seen.within(start, count)
        if condition is None:
            self._block(start, count)
            return
        with self.b.when(condition):
            self._block(start, count)

    def _block(self, start: Expr, count: int) -> None:
        b, m, parts = self.b, self.m, self.parts
        highest = [b.var(top) for top in self.tops]
        self.score(start, count, highest)
        shifts = [parts.shift(h) for h in highest]
        scales = [b.let(parts.share(t, s)) for t, s in zip(self.tops, shifts, strict=True)]
        sums = [b.var(Const(0.0, "f32", self.lanes)) for _ in range(self.cols)]

        def share(i: Expr, j: int) -> Expr:
            found = b.let(parts.share(Load(self.logits, self.at(i, j), self.lanes), shifts[j]))
            b.set(sums[j], m.add(sums[j], found))
            return found

        if parts.halves:
            self.values.fill(self.lead, start, count)
            self.paired.fill(count, lambda i, j: Convert(share(i, j), "bf16"))
        else:
            with b.loop(lift(count)) as i:
                for j in range(self.cols):
                    b.store(self.logits, self.at(i, j), share(i, j))
        for j in range(self.cols):
            b.set(self.totals[j], m.add(m.mul(self.totals[j], scales[j]), sums[j]))
            b.set(self.tops[j], highest[j])

        def before(at: Expr, j: int) -> Expr:
            return m.mul(Load(self.sums, at, self.lanes), scales[j])

        shares = self.paired.words if parts.halves else self.logits
        self.mix(start, count, shares, None if self.one_block else before)

    def _store_quotients(self) -> None:
        parts, lanes = self.parts, self.lanes
        factors = [parts.factor(total) for total in self.totals]
        nothing = parts.nothing(self.lead, factors)

        def answer(row: Expr, j: int) -> Expr:
            none = None if nothing is None else Splat(Load(nothing, row), lanes)
            return parts.answer(Load(self.sums, self.at(row, j), lanes), factors[j], none)

        self.store(answer)
