"""What all kernels of attention share: their operands, and which keys queries see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial, reduce
from types import MappingProxyType

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Splat,
    lift,
)
from alpenglow.kernel.transcendental_f32 import share
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import in_lanes
from alpenglow.loops.instruction import Frame
from alpenglow.ops.product.contraction import BYTES, MatMul
from alpenglow.ops.reduction.reduction import SumBytes
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast

LONGEST = 512
"""Elements of a query and of a value together, at most: both lie on the stack."""


def takes_attention(scores: Node, product: Node, target: Target, dtype: str | None = None) -> bool:
    """Return whether a kernel computes all from `scores` to `product`, with operands of `dtype` if
    that is not the one they have."""
    q, v = scores.inputs[0], product.inputs[1]
    assert q is not None and v is not None, "products have two operands"
    inner, features = q.type.shape[-1], v.type.shape[-1]
    if is_open(inner) or is_open(features) or inner + features > LONGEST:
        return False
    if q.type.rank != v.type.rank or q.type.rank < 2:
        return False
    if target.facts.lanes < 4 or 0 in (*q.type.shape, *v.type.shape):
        return False
    # What few queries are compared with is read from memory once: to round it takes longer.
    many = estimate(q.type.shape[-2]) * 2 >= target.facts.lanes
    if q.type.dtype in BYTES:
        return many and all(_of_bytes(node) for node in (scores, product))
    if q.type.dtype != v.type.dtype:
        return False
    if (dtype or q.type.dtype) == "f32":
        return True
    sums = dtype is not None or all(_is_wide(node) for node in (scores, product))
    fast = "bf16" in target.facts.multiplies and "bf16" not in target.facts.slower
    return (dtype or q.type.dtype) == "bf16" and fast and many and sums


def _is_wide(node: Node) -> bool:
    return isinstance(node.op, MatMul) and node.op.wide


def _of_bytes(node: Node) -> bool:
    """Whether a product is of bytes that machines multiply."""
    return [v.type.dtype for v in node.inputs if v is not None] == ["u8", "i8"]


class AttentionParts:
    """The operands of attention, softmax(f(q k)) v, in a kernel that is being built.

    q is [*batch, rows, inner], k [*batch, inner, count] and v [*batch, count, features].  Where
    queries of the last axis of the batch see the same keys, as those of a group of heads do, and
    rows are few, all of them together are the `queries` of what is left of the batch.
    """

    def __init__(self, k: Frame, target: Target) -> None:
        assert k.body is not None, "attention is fused"
        self.k, self.b, self.m, self.target = k, k.b, k.loops.m, target
        self.body = k.body
        self.lanes = target.facts.lanes
        self.scores, self.product = (n for n in k.body.nodes if isinstance(n.op, MatMul))
        (self.softmax,) = (n for n in k.body.nodes if isinstance(n.op, Softmax))
        q, keys = self.scores.inputs
        v = self.product.inputs[1]
        assert q is not None and keys is not None and v is not None, "products have two operands"
        self.q, self.keys, self.v = k.window(q), k.window(keys), k.window(v)
        *self.batch, self.rows, self.inner = self.q.region.shape
        self.count, self.features = self.v.region.shape[-2:]
        self.dtype = self.q.region.type.dtype
        self.halves = self.dtype == "bf16"
        self.queries = self.rows
        self.grouped = self._shares_keys() and estimate(self.rows) < 2 * self.lanes
        if self.grouped:
            self.queries = self.rows * self.batch.pop()

    def _shares_keys(self) -> bool:
        """Whether queries along the last axis of the batch see the same keys and values."""
        if not self.batch or is_number(self.batch[-1], 1):
            return False
        return all(is_number(w.region.strides[-3], 0) for w in (self.keys, self.v))

    @property
    def summed(self) -> Value | None:
        """The sums of the bytes that shares are rounded to, if they are asked for."""
        shares = self.product.inputs[0]
        sums = [n.output for n in self.body.nodes if isinstance(n.op, SumBytes)]
        assert all(v.producer is not None and v.producer.inputs == (shares,) for v in sums)
        return sums[0] if sums else None

    @property
    def logits(self) -> Value:
        """What the softmax is of."""
        (x,) = self.softmax.inputs
        assert x is not None, "a softmax has an operand"
        return x

    def same_for_all_keys(self, v: Value) -> bool:
        """Whether an element of the body is the same for all keys."""
        node = v.producer
        if node is None:
            strides = None if v.array is not None else self.k.window(v).region.strides
            return strides is None or is_number(strides[-1], 0)
        if isinstance(node.op, Iota):
            return not is_key(v)
        if not isinstance(node.op, Elementwise | Broadcast):
            return False
        return all(self.same_for_all_keys(x) for x in node.inputs if x is not None)

    def by_query(self, at: list[Coord], lanes: int) -> dict[Value, Expr]:
        """Return what does not depend on the key, in lanes, for queries at a place."""
        fixed: dict[Value, None] = {}
        waiting = [self.logits]
        while waiting:
            node = waiting.pop().producer
            if node is None or node is self.scores:
                continue
            for x in node.inputs:
                if x is None or x.array is not None or x is self.scores.output:
                    continue
                if not self.same_for_all_keys(x):
                    waiting.append(x)
                elif not _is_number(x):
                    fixed[x] = None
        with self.k.loops.vector(lanes):
            return {v: self.b.let(self.k.elsewhere(v, [*at, coord(0)])) for v in fixed}

    def masks(self) -> list[Value]:
        """Return operands of what follows the scores that differ by query and by key."""
        found: dict[Value, None] = {}
        waiting = [self.logits]
        while waiting:
            v = waiting.pop()
            if v.producer is not None and v.producer is not self.scores:
                waiting += [x for x in v.producer.inputs if x is not None]
            elif v.producer is None and v.array is None:
                found[v] = None
        dense = []
        for v in found:
            *_, down, across = self.k.window(v).region.strides
            if not is_number(down, 0) and is_number(across, 1):
                dense.append(v)
        return dense

    def place(self, lead: list[Coord], query: Coord) -> list[Coord]:
        """Return the coordinates of a query in the whole batch."""
        if not self.grouped:
            return [*lead, query]
        if is_number(self.rows, 1):
            return [*lead, query, coord(0)]
        return [*lead, self._let(query // self.rows), self._let(query % self.rows)]

    def _let(self, c: Coord) -> Coord:
        """Return a coordinate that is computed once."""
        if c.vector is None:
            return Coord(self.b.let(c.base), c.step, c.lanes)
        return Coord(c.base, 0, c.lanes, self.b.let(c.vector))

    def batch_of(self, lead: list[Coord]) -> list[Coord]:
        """Return the coordinates of keys and values in the whole batch."""
        return [*lead, coord(0)] if self.grouped else lead

    def key(self, lead: list[Coord], key: Expr) -> Expr:
        """Return where a key begins."""
        return self.b.let(self.keys.address([*self.batch_of(lead), coord(0), coord(key)]).base)

    def value(self, lead: list[Coord], key: Expr, feature: Expr) -> Expr:
        """Return where an element of a value stands."""
        at = [*self.batch_of(lead), coord(key), coord(feature)]
        return self.b.let(self.v.address(at).base)

    def query(self, lead: list[Coord], number: Expr) -> Expr:
        """Return where a query begins."""
        at = [*self.place(lead, coord(number)), coord(0)]
        return self.b.let(self.q.address(at).expr())

    def logit(
        self, at: list[Coord], score: Expr, known: Mapping[Value, Expr] = MappingProxyType({})
    ) -> Expr:
        """Return what the softmax is of, in lanes, for a score at a place.

        What is `known` of masks there is not read.
        """
        with self.k.loops.vector(self.lanes):
            value = self.k.elsewhere(self.logits, at, self.scores.output, score, known)
        return self.wide(value)

    def wide(self, x: Expr) -> Expr:
        return x if x.lanes == self.lanes else Splat(x, self.lanes)

    def shift(self, highest: Expr) -> Expr:
        """Return what is subtracted: of nothing but -inf so far, no number but 0."""
        return self.b.let(self.m.where(self.m.eq(highest, -math.inf), 0.0, highest))

    def share(self, logit: Expr, shift: Expr) -> Expr:
        """Return the share of a key, whose logit is `shift` at most, beside 1 for that."""
        return share(self.m, self.m.sub(logit, shift), self.halves)

    def part(self, share: Expr, factor: Expr) -> Expr:
        """Return what a softmax makes of a share, with the `factor` for all of them."""
        y = self.b.let(self.m.mul(share, factor))
        if self._zeros != "undefined":
            return y
        return self.b.let(self.m.where(self.m.eq(y, y), y, 0.0))

    def rounded(self, at: list[Coord], part: Expr) -> Expr:
        """Return what values are multiplied by, for a part of 1 at a place."""
        (result,) = (v for v in self.product.inputs[:1] if v is not None)
        with self.k.loops.vector(self.lanes):
            value = self.k.elsewhere(result, at, self.softmax.output, part)
        return self.b.let(self.wide(value))

    def factor(self, total: Expr) -> Expr:
        """Return what sums are multiplied by; where there is nothing to share, 1 or infinity."""
        if self._zeros:
            total = self.b.let(self.m.where(self.m.eq(total, 0.0), 1.0, total))
        return self.b.let(self.m.div(1.0, total))

    def nothing(self, lead: list[Coord], factors: list[Expr]) -> Buffer | None:
        """Return what undefined shares give where they are taken for zeros: for each feature the
        values of all keys times 0, in vectors.  That is NaN if any is infinite or no number.

        None if undefined shares stay.  It is computed where one of the `factors` is undefined.
        """
        if self._zeros != "undefined":
            return None
        b, m, lanes = self.b, self.m, self.lanes
        chunks = ceil_div(self.features, lanes)
        sums = b.array("f32", chunks * lanes)
        zero = Const(0.0, "f32", lanes)
        with b.loop(chunks) as i:
            b.store(sums, i * lanes, zero)
        ones = [Const(1.0, "f32", f.lanes) for f in factors]
        marks = [b.let(m.where(m.eq(f, f), 0.0, one)) for f, one in zip(factors, ones, strict=True)]
        flags = [f if f.lanes == 1 else Reduce("max", f) for f in marks]
        undefined = b.let(reduce(partial(Binary, "max"), flags))
        batch = self.batch_of(lead)
        full, rest = divmod(self.features, lanes)

        def add(key: Expr, first: Expr, mask: Expr | None) -> None:
            place = self.v.address([*batch, coord(key), Coord(first, 1, lanes)])
            value = b.let(in_lanes(self.v.buffer, place, lanes, mask))
            value = self.k.loops.widened(value) if self.halves else value
            value = value if mask is None else Select(mask, value, zero)
            b.store(sums, first, m.fma(value, 0.0, Load(sums, first, lanes)))

        with b.when(Compare("gt", undefined, Const(0.0, "f32"))), b.loop(lift(self.count)) as key:
            if full:
                with b.loop(full) as i:
                    add(key, b.let(i * lanes), None)
            if rest:
                within = Coord(Const(0), 1, lanes).compare("lt", rest)
                add(key, Const(full * lanes), b.let(within))
        return sums

    def answer(self, total: Expr, factor: Expr, nothing: Expr | None) -> Expr:
        """Return an element of the result from its sum; `nothing` if its shares are undefined."""
        y = self.b.let(self.m.mul(total, factor))
        if nothing is None:
            return y
        return self.b.let(self.m.where(self.m.eq(factor, factor), y, nothing))

    @property
    def _zeros(self) -> str:
        op = self.softmax.op
        assert isinstance(op, Softmax), "the softmax of attention"
        return op.zeros


def _is_number(v: Value) -> bool:
    """Whether a value is one constant, stretched."""
    match v.producer:
        case Node(Broadcast(), [Value() as only]):
            return only.array is not None
    return False


def is_key(v: Value) -> bool:
    """Whether an element is the position of its key."""
    node = v.producer
    return node is not None and isinstance(node.op, Iota) and node.op.axis in (-1, v.type.rank - 1)
