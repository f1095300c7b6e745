"""Whether a kernel reads and writes within its buffers: proved before it is rendered.

A kernel is run through once with sums (`kernel.inequality`) in place of numbers.  Loops, branches
and masks say what holds inside of them; a register that a loop changes may be anything there,
unless it counts (`kernel.counters`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from alpenglow.ir.types import INTS
from alpenglow.kernel.counters import Counters
from alpenglow.kernel.expr import (
    Const,
    Expr,
    Index,
    Lanes,
    Load,
    Register,
    Shape,
    children,
)
from alpenglow.kernel.fragments import Tile
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.search import PATIENCE
from alpenglow.kernel.stmt import (
    Atomic,
    Copy,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    While,
    statements,
)
from alpenglow.kernel.sums import Sum, number, plus
from alpenglow.kernel.text import print_expr
from alpenglow.kernel.values import Condition, Values

LEAVES = (Const, Register, Index, Lanes)


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses of one buffer, in one block, that differ by numbers only.

    They are `affine` if they do not depend on data or on what a loop changes.
    """

    buffer: str
    text: str
    affine: bool
    proved: bool

    def __str__(self) -> str:
        return f"{self.buffer}[{self.text}]"


def accesses(kernel: Kernel, facts: Premises, spans: Mapping[str, tuple[Sum, Sum]]) -> list[Access]:
    """Return all accesses of a kernel; `spans` says the first and last element of its operands."""
    # Extents come first: what loops and branches compare with them bounds what is younger.
    for e in kernel.extents:
        if e.dim is not None:
            facts.extent(e.dim)
    run = _BoundsWalk(facts, {**spans, **{a.name: ({}, number(a.size - 1)) for a in kernel.arrays}})
    run.block(kernel.body)
    return run.found


class _BoundsWalk:
    """Goes through a kernel once, and looks at what is read and written."""

    def __init__(self, facts: Premises, spans: Mapping[str, tuple[Sum, Sum]]) -> None:
        self.facts, self.spans = facts, spans
        self.found: list[Access] = []
        self.values = Values(facts)
        self._pending: dict[object, _Addresses] = {}
        self._sets: dict[int, list[Register]] = {}
        self._counters = Counters(self.values.most)

    # ── statements ──

    def block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.statement(s)
        self._settle()

    def statement(self, s: Stmt) -> None:
        match s:
            case Set(register, value):
                self._read(value)
                self.values.assign(register, value)
            case Store(buffer, at, value, mask):
                self._read(at, value, mask)
                self._touch(buffer.name, at, value.lanes, mask)
            case StoreTile(buffer, at, stride, value):
                self._read(at, stride, value)
                self._touch_tile(buffer.name, at, stride, value.shape)
            case Atomic(_, buffer, at, value):
                self._read(at, value)
                self._touch(buffer.name, at, value.lanes, None)
            case Copy(to, at, source, source_at, lanes, mask):
                self._read(at, source_at, mask)
                self._touch(to.name, at, lanes, None)
                self._touch(source.name, source_at, lanes, mask)
            case Prefetch(_, at):
                self._read(at)
            case For(index, extent, body):
                self._read(extent)
                self._loop(index.name, self.values.sum(extent), body)
            case If(condition, then, orelse):
                self._read(condition)
                self._branch(self.values.condition(condition), then, orelse)
            case While(condition, body):
                self._settle()
                before = dict(self.values.sums)
                self._vary(body, before, None)
                self._read(condition)
                self._settle()
                with self.facts.holding(self.values.condition(condition)[0]):
                    self.block(body)
                self._vary(body, before, None)

    def _loop(self, name: str, extent: Sum, body: tuple[Stmt, ...]) -> None:
        self._settle()
        before = dict(self.values.sums)
        most = plus(extent, number(1), -1)
        self.values.indices[name] = index = self.facts.atom(0, max(0, self.facts.most(most)))
        self.facts.known(index).uppers.append((1, most))
        self._vary(body, before, index)
        with self.facts.holding([most]):
            self.block(body)
        self._vary(body, before, self.facts.maximum(extent, {}))

    def _branch(
        self, condition: Condition, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...]
    ) -> None:
        self._settle()
        before = dict(self.values.sums)
        with self.facts.holding(condition[0]):
            self.block(then)
        after, self.values.sums = self.values.sums, dict(before)
        with self.facts.holding(condition[1]):
            self.block(orelse)
        orelse_sums, self.values.sums = self.values.sums, {}
        # What only one branch sets is not known to be set.
        for name in sorted(after.keys() & orelse_sums.keys()):
            self.values.sums[name] = self._joined(condition, after[name], orelse_sums[name])
        for register in (*self._changed(then), *self._changed(orelse)):
            self.values.conditions.pop(register.name, None)

    def _joined(self, condition: Condition, a: Sum, b: Sum) -> Sum:
        """Return what is `a` where a condition holds, and else `b`."""
        if a == b:
            return a
        with self.values.derived(a, b):
            return self.facts.one_of([(a, condition[0]), (b, condition[1])])

    def _changed(self, body: tuple[Stmt, ...]) -> list[Register]:
        """Return the registers that a block sets of which something may be known."""
        if id(body) not in self._sets:
            sets = {s.register.name: s.register for s in statements(body) if isinstance(s, Set)}
            self._sets[id(body)] = [r for r in sets.values() if r.dtype in INTS | {"bool"}]
        return self._sets[id(body)]

    def _vary(self, body: tuple[Stmt, ...], before: dict[str, Sum], times: Sum | None) -> None:
        """Let registers that `body` changes be anything that so many runs of it make of them."""
        changes = self._counters.changes(body)
        for register in self._changed(body):
            name = register.name
            self.values.forget(register)
            if name in before and name in changes:
                s = self.values.counted(before[name], changes[name], times)
                self.values.sums[name] = s

    # ── memory ──

    def _read(self, *roots: Expr | None) -> None:
        """Look at all loads in expressions."""
        stack = [e for e in roots if e is not None]
        while stack:
            e = stack.pop()
            if isinstance(e, LEAVES):
                continue
            if isinstance(e, Load):
                self._touch(e.buffer.name, e.at, e.lanes, e.mask)
            elif isinstance(e, Tile):
                self._touch_tile(e.buffer.name, e.at, e.stride, e.shape)
            stack += children(e)

    def _touch(self, buffer: str, at: Expr, lanes: int, mask: Expr | None) -> None:
        address = self.values.sum(at)
        if at.lanes == 1 and lanes > 1:
            address = plus(address, self.values.lane(lanes))
        where = () if mask is None else self.values.condition(mask)[0]
        free = address.get((), 0)
        rest = frozenset((m, c) for m, c in address.items() if m)
        key = (buffer, rest, *(frozenset(f.items()) for f in where))
        known = self._pending.get(key)
        if known is None:
            self._pending[key] = _Addresses(buffer, address, free, free, at, where)
        else:
            known.low, known.high = min(known.low, free), max(known.high, free)

    def _touch_tile(self, buffer: str, at: Expr, stride: Expr, shape: Shape | None) -> None:
        """Look at the ends of the first and last row: all else lies between."""
        assert shape is not None, "a tile has rows and columns"
        rows, columns = shape
        for first in (at, at + stride * Const(rows - 1)):
            self._touch(buffer, first, columns, None)

    def _settle(self) -> None:
        """Prove what has been touched since the last time: the same things hold."""
        for a in self._pending.values():
            with self.facts.holding(a.where):
                self.found.append(self._judge(a))
        self._pending.clear()

    def _judge(self, a: _Addresses) -> Access:
        first, last = self.spans[a.buffer]
        lowest = {**a.sum, (): a.low}
        highest = {**a.sum, (): a.high}
        prove = partial(self.facts.nonnegative, steps=PATIENCE)
        proved = prove(plus(lowest, first, -1)) and prove(plus(last, highest, -1))
        return Access(a.buffer, print_expr(a.at), not self.values.is_data(a.sum), proved)


@dataclass(slots=True)
class _Addresses:
    """Addresses from `sum` + low - its constant to + high, met where `where` holds."""

    buffer: str
    sum: Sum
    low: int
    high: int
    at: Expr
    where: tuple[Sum, ...]
