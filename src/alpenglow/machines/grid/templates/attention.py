"""Attention in one kernel: the scores of some queries exist for one block of keys at a time.

A group has a few queries.  Block by block it computes their scores as a tile of a product, keeps
the largest so far and the sum of exponentials of each row, and adds the product of shares and
values to what it has, which is scaled down where the largest has grown.  Shares go to the second
product through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Compare, Const, Expr, Load, Shuffle, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame
from alpenglow.loops.reduction.normalize import factor_of, share_of
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import below, groups
from alpenglow.machines.grid.templates.matmul import matrix
from alpenglow.machines.grid.templates.team import Split, Team
from alpenglow.machines.grid.templates.tile import Elements, Shape, Side, Tile
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.program.instr import Anchor, Instr

QUERIES, KEYS, DEPTH, HIGH, ACROSS = 32, 64, 16, 2, 16
"""Queries of a group, keys of a block, steps of a part; rows of a thread, and threads of a row."""

LEAST = 512
"""Keys from which on scores are not worth being in memory."""

MOST = 128
"""Features of a value, of which a group has sums of all."""


def takes_attention(scores: Node, product: Node, target: Target, dtype: str | None = None) -> bool:
    """Return whether a kernel computes all from `scores` to `product`."""
    q, keys, shares, v = (*scores.inputs, *product.inputs)
    assert q is not None and keys is not None and shares is not None and v is not None
    softmax = shares.producer
    extents = [*q.type.shape, *keys.type.shape, *v.type.shape]
    if target.facts.group < 256 or any(map(is_open, extents)) or 0 in extents:
        return False
    rows, (count, features) = q.type.extents[-2], v.type.extents[-2:]
    alike = {dtype or x.type.dtype for x in (q, keys, v)} == {"f32"}
    plain = softmax is not None and isinstance(softmax.op, Softmax)
    return alike and plain and rows >= QUERIES // 2 and count >= LEAST and features <= MOST


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether the instruction is attention, and not one product."""
    shares = anchor.operands()[0]
    if not isinstance(shares, Value) or instr.body is None or anchor.node is None:
        return False
    scores = [n for n in instr.body.nodes if isinstance(n.op, MatMul) and n is not anchor.node]
    return len(scores) == 1 and takes_attention(scores[0], anchor.node, target)


@templates.on(MatMul, "wide", _fits)
def attention(k: Frame, op: MatMul, target: Target) -> None:
    """Build attention: a group for each few queries."""
    *batch, rows, _ = k.out.region.shape
    threads = QUERIES // HIGH * ACROSS
    with groups(k, [*batch, ceil_div(rows, QUERIES)], threads) as ((*lead, panel), thread):
        _Panel(k, target, lead, k.b.let(panel.base * QUERIES), thread).run()


class _Panel:
    """Some queries, as one of the threads of their group sees them."""

    def __init__(
        self, k: Frame, target: Target, lead: list[Coord], first: Expr, thread: Expr
    ) -> None:
        assert k.body is not None, "attention is fused"
        self.k, self.b, self.m, self.lead, self.first = k, k.b, k.loops.m, lead, first
        self.scores, product = (n for n in k.body.nodes if isinstance(n.op, MatMul))
        (softmax,) = (n for n in k.body.nodes if isinstance(n.op, Softmax))
        assert isinstance(softmax.op, Softmax) and softmax.inputs[0] is not None
        self.softmax, self.logits = softmax.op, softmax.inputs[0]
        q, keys, v = *self.scores.inputs, product.inputs[1]
        assert q is not None and keys is not None and v is not None, "products have two operands"
        self.q = matrix(k, k.window(q), lead, "f32", turned=False)
        self.keys = matrix(k, k.window(keys), lead, "f32", turned=True)
        self.v = k.window(v)
        self.inner = q.type.extents[-1]
        self.count, self.features = v.type.extents[-2:]
        wide = max(1, 1 << (ceil_div(self.features, ACROSS) - 1).bit_length())
        shape = Shape(QUERIES, KEYS, DEPTH, HIGH, KEYS // ACROSS)
        self.square = Tile(k, shape, "f32", thread, target)
        self.sums = Tile(k, Shape(QUERIES, wide * ACROSS, DEPTH, HIGH, wide), "f32", thread, target)
        self.team = Team(k, Split(QUERIES // HIGH, ACROSS, True), thread)
        self.shares = k.b.array("f32", QUERIES * KEYS, "shared")
        self.tops = [k.b.var(Const(-math.inf, "f32")) for _ in range(HIGH)]
        self.totals = [k.b.var(Const(0.0, "f32")) for _ in range(HIGH)]

    def run(self) -> None:
        """Take in all blocks of keys, and store the results."""
        with self.b.loop(ceil_div(self.count, KEYS)) as number:
            self._block(self.b.let(number * KEYS))
        for row, total in zip(self.sums.sums, self.totals, strict=True):
            factor = factor_of(self.k.loops, self.softmax, total)
            for value in row:
                wide = factor if value.lanes == 1 else self.b.let(Splat(factor, value.lanes))
                self.b.set(value, share_of(self.k.loops, self.softmax, value, wide))

        def store(line: Expr, where: list[Coord], total: Expr) -> None:
            self.k.sink.store([*self.lead, coord(line), *where], total)

        self.sums.finish(
            self.q, self._values(Const(0)), self.first, Const(0), lambda c: [c], store,
            self.features,
        )  # fmt: skip

    def _block(self, start: Expr) -> None:
        """Take in a block of keys."""
        b, m = self.b, self.m
        for row in self.square.sums:
            for value in row:
                b.set(value, Const(0.0, "f32", value.lanes))
        self.square.multiply(self.inner, self.q, self.keys, self.first, start)
        logits = [self._logits(start, r) for r in range(HIGH)]
        largest = self._combined(logits, m.maximum)
        pairs = [self._scaled(r, *p) for r, p in enumerate(zip(logits, largest, strict=True))]
        added = self._combined([shares for shares, _ in pairs], m.add)
        for r, (more, (_, scale)) in enumerate(zip(added, pairs, strict=True)):
            b.set(self.totals[r], m.add(m.mul(self.totals[r], scale), more))
            for value in self.sums.sums[r]:
                b.set(value, m.mul(value, scale))
        self.sums.multiply(KEYS, self._shared(), self._values(start), Const(0), Const(0))

    def _scaled(self, r: int, logits: list[Expr], largest: Expr) -> tuple[list[Expr], Expr]:
        """Store the shares of a row; return them, and what those before are scaled by."""
        b, m = self.b, self.m
        top = b.let(m.maximum(self.tops[r], largest))
        # Where there is nothing but -inf so far, all shares are 0.
        shift = b.let(m.where(m.eq(top, -math.inf), 0.0, top))
        scale = b.let(m.exp_below(m.sub(self.tops[r], shift)))
        b.set(self.tops[r], top)
        shares = [b.let(m.exp_below(m.sub(x, shift))) for x in logits]
        at = self.square.line_of(r) * KEYS + self.square.column_of(0)
        for i, share in enumerate(shares):
            b.store(self.shares, at + i, share)
        return shares, scale

    def _combined(self, rows: list[list[Expr]], join: Callable[[Expr, Expr], Expr]) -> list[Expr]:
        """Return the elements of each row combined, over all threads that have some."""
        each = [reduce(lambda x, y: self.b.let(join(x, y)), row) for row in rows]
        return self.team.combined(each, lambda x, y: list(map(join, x, y)))

    def _logits(self, start: Expr, r: int) -> list[Expr]:
        """Return what the softmax is of for a row and keys of this thread; -inf past the last."""
        b, square = self.b, self.square
        rows = self.q.extent
        row = coord(below(self.k, self.first + square.line_of(r), rows))
        found = []
        for lane in range(square.lanes):
            key = b.let(start + square.column_of(0) + lane)
            at = [*self.lead, row, coord(below(self.k, key, self.count))]
            score = b.let(Shuffle(square.sums[r][0], (lane,)))
            logit = self.k.elsewhere(self.logits, at, self.scores.output, score)
            if self.count % KEYS:
                there = Compare("lt", key, Const(self.count))
                logit = self.k.loops.select(there, logit, Const(-math.inf, "f32"))
            found.append(b.let(logit))
        return found

    def _shared(self) -> Side:
        """Return the shares as the left operand of the second product."""

        def line(number: Expr) -> tuple[Elements, None]:
            return lambda step: self.b.let(Load(self.shares, number * KEYS + step)), None

        return Side(QUERIES, line, along=True)

    def _values(self, start: Expr) -> Side:
        """Return the values of a block of keys; 0 past the last."""
        loops = self.k.loops

        def line(number: Expr) -> tuple[Elements, None]:
            def element(step: Expr) -> Expr:
                key = self.b.let(start + step)

                def load() -> Expr:
                    return self.v.load(loops, [*self.lead, coord(key), coord(number)])

                if self.count % KEYS == 0:
                    return load()
                zero = Const(0.0, "f32")
                return loops.when(Compare("lt", key, Const(self.count)), load, zero)

            return element, None

        return Side(self.features, line, along=False)
