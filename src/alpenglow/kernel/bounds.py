"""Whether a kernel reads and writes within its buffers: proved before it is rendered.

A kernel is run through once with sums (`kernel.inequality`) in place of numbers.  Loops, branches
and masks say what holds inside of them; a register that a loop changes may be anything there.
Integers that come from memory are anything, too, until they are compared or limited.  All lanes of
a vector are one number more, from 0 to one less than there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.ir.types import DTYPES, INTS, UNSIGNED
from alpenglow.kernel.expr import (
    Binary,
    Compare,
    Const,
    Convert,
    Expr,
    Index,
    Lanes,
    Load,
    Register,
    Select,
    Splat,
    Unary,
    children,
)
from alpenglow.kernel.inequality import LARGEST, Facts
from alpenglow.kernel.stmt import (
    Atomic,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    While,
    statements,
)
from alpenglow.kernel.sums import Sum, constant, number, plus, product, scaled
from alpenglow.kernel.text import print_expr

Condition = tuple[tuple[Sum, ...], tuple[Sum, ...]]
"""What is not negative where a condition holds, and where it does not."""

UNKNOWN: Condition = ((), ())

LEAVES = (Const, Register, Index, Lanes)

OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


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


def accesses(kernel: Kernel, facts: Facts, spans: Mapping[str, tuple[Sum, Sum]]) -> list[Access]:
    """Return all accesses of a kernel; `spans` says the first and last element of its operands."""
    # Extents come first: what loops and branches compare with them bounds what is younger.
    for e in kernel.extents:
        if e.dim is not None:
            facts.extent(e.dim)
    run = _Run(facts, {**spans, **{a.name: ({}, number(a.size - 1)) for a in kernel.arrays}})
    run.block(kernel.body)
    return run.found


class _Run:
    """What registers hold, as sums, at one place of a kernel."""

    def __init__(self, facts: Facts, spans: Mapping[str, tuple[Sum, Sum]]) -> None:
        self.facts, self.spans = facts, spans
        self.found: list[Access] = []
        self.sums: dict[str, Sum] = {}
        self.conditions: dict[str, Condition] = {}
        self.indices: dict[str, Sum] = {}
        self.lanes: dict[int, Sum] = {}
        self.data: set[int] = set()
        self._pending: dict[object, _Addresses] = {}
        self._sets: dict[int, list[Register]] = {}

    # ── statements ──

    def block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.statement(s)
        self._settle()

    def statement(self, s: Stmt) -> None:
        match s:
            case Set(register, value):
                self._read(value)
                self._assign(register, value)
            case Store(buffer, at, value, mask):
                self._read(at, value, mask)
                self._touch(buffer.name, at, value.lanes, mask)
            case Atomic(_, buffer, at, value):
                self._read(at, value)
                self._touch(buffer.name, at, value.lanes, None)
            case Prefetch(_, at):
                self._read(at)
            case For(index, extent, body):
                self._read(extent)
                self._loop(index.name, self.sum(extent), body)
            case If(condition, then, orelse):
                self._read(condition)
                self._branch(self.condition(condition), then, orelse)
            case While(condition, body):
                self._settle()
                self._forget(body)
                self._read(condition)
                with self.facts.holding(self.condition(condition)[0]):
                    self.block(body)
                self._forget(body)

    def _assign(self, register: Register, value: Expr) -> None:
        if register.dtype == "bool":
            self.conditions[register.name] = self.condition(value)
        elif register.dtype in INTS:
            self.sums[register.name] = self.sum(value)

    def _loop(self, name: str, extent: Sum, body: tuple[Stmt, ...]) -> None:
        self._settle()
        self._forget(body)
        most = plus(extent, number(1), -1)
        self.indices[name] = index = self.facts.atom(0, max(0, self.facts.hull(most)[1]))
        self.facts.known(index).uppers.append((1, most))
        with self.facts.holding([most]):
            self.block(body)
        self._forget(body)

    def _branch(
        self, condition: Condition, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...]
    ) -> None:
        self._settle()
        before = dict(self.sums)
        with self.facts.holding(condition[0]):
            self.block(then)
        after, self.sums = self.sums, dict(before)
        with self.facts.holding(condition[1]):
            self.block(orelse)
        for name in before:
            a, b = after[name], self.sums[name]
            if a != b:
                with self._derived(a, b):
                    self.sums[name] = self.facts.one_of([(a, condition[0]), (b, condition[1])])
        for register in (*self._changed(then), *self._changed(orelse)):
            self.conditions.pop(register.name, None)

    def _changed(self, body: tuple[Stmt, ...]) -> list[Register]:
        """Return the registers that a block sets of which something may be known."""
        if id(body) not in self._sets:
            sets = {s.register.name: s.register for s in statements(body) if isinstance(s, Set)}
            self._sets[id(body)] = [r for r in sets.values() if r.dtype in INTS | {"bool"}]
        return self._sets[id(body)]

    def _forget(self, body: tuple[Stmt, ...]) -> None:
        """Let registers that `body` changes be anything."""
        for register in self._changed(body):
            self.conditions.pop(register.name, None)
            if register.name in self.sums:
                self.sums[register.name] = self._anything(register.dtype)

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
            stack += children(e)

    def _touch(self, buffer: str, at: Expr, lanes: int, mask: Expr | None) -> None:
        address = self.sum(at)
        if at.lanes == 1 and lanes > 1:
            address = plus(address, self._lane(lanes))
        where = () if mask is None else self.condition(mask)[0]
        free = address.get((), 0)
        rest = frozenset((m, c) for m, c in address.items() if m)
        key = (buffer, rest, *(frozenset(f.items()) for f in where))
        known = self._pending.get(key)
        if known is None:
            self._pending[key] = _Addresses(buffer, address, free, free, at, where)
        else:
            known.low, known.high = min(known.low, free), max(known.high, free)

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
        prove = self.facts.nonnegative
        proved = prove(plus(lowest, first, -1)) and prove(plus(last, highest, -1))
        affine = not any(atom in self.data for m in a.sum for atom in m)
        return Access(a.buffer, print_expr(a.at), affine, proved)

    # ── expressions ──

    def sum(self, e: Expr) -> Sum:
        """Return an expression of integers as a sum."""
        match e:
            case Binary(op, x, y):
                return self._binary(e, op, x, y)
            case Const(value):
                return number(int(value))
            case Index(name, dim):
                if dim is not None:
                    return self.facts.extent(dim)
                if name not in self.indices:
                    self.indices[name] = self.facts.extent_of(name)
                return self.indices[name]
            case Register(name, dtype):
                if name not in self.sums:
                    self.sums[name] = self._anything(dtype)
                return self.sums[name]
            case Lanes(lanes):
                return self._lane(lanes)
            case Splat(x):
                return self.sum(x)
            case Unary("neg", x):
                return self._fitting(scaled(self.sum(x), -1), e.dtype)
            case Select(condition, x, y):
                a, b = self.sum(x), self.sum(y)
                if a == b:
                    return a
                yes, no = self.condition(condition)
                with self._derived(a, b):
                    return self.facts.one_of([(a, yes), (b, no)])
            case Convert(x, dtype) if x.dtype in INTS:
                return self._fitting(self.sum(x), dtype)
        return self._anything(e.dtype)

    def _binary(self, e: Expr, op: str, x: Expr, y: Expr) -> Sum:
        a, b = self.sum(x), self.sum(y)
        match op:
            case "add":
                return self._fitting(plus(a, b), e.dtype)
            case "sub":
                return self._fitting(plus(a, b, -1), e.dtype)
            case "mul":
                return self._fitting(product(a, b), e.dtype)
        with self._derived(a, b):
            return self._derive(op, a, b, e.dtype)

    def _derive(self, op: str, a: Sum, b: Sum, dtype: str) -> Sum:
        """Return what is no sum of products: an atom, if nothing simpler."""
        facts = self.facts
        match op:
            case "min":
                return facts.minimum(a, b)
            case "max":
                return facts.maximum(a, b)
            case "div" if facts.positive(b):
                return facts.quotient(a, b)
            case "rem" if facts.positive(b):
                return facts.remainder(a, b)
            case "shl" if (by := constant(b)) is not None and 0 <= by < 63:
                return self._fitting(scaled(a, 1 << by), dtype)
            case "shr" if (by := constant(b)) is not None and 0 <= by < 63 and facts.nonnegative(a):
                return facts.quotient(a, number(1 << by))
            case "and":
                most = min((h for s in (a, b) for lo, h in [facts.hull(s)] if lo >= 0), default=-1)
                if most >= 0:
                    return facts.atom(0, most)
            case "or" | "xor":
                hulls = [facts.hull(a), facts.hull(b)]
                if all(low >= 0 for low, _ in hulls):
                    bits = max(high.bit_length() for _, high in hulls)
                    return facts.atom(0, (1 << bits) - 1)
        return self._anything(dtype)

    def condition(self, e: Expr) -> Condition:
        """Return what a condition says where it holds, and where it does not."""
        match e:
            case Register(name):
                return self.conditions.get(name, UNKNOWN)
            case Splat(x):
                return self.condition(x)
            case Unary("not", x):
                yes, no = self.condition(x)
                return no, yes
            case Binary("and", x, y):
                return (*self.condition(x)[0], *self.condition(y)[0]), ()
            case Binary("or", x, y):
                return (), (*self.condition(x)[1], *self.condition(y)[1])
            case Compare(op, x, y) if x.dtype in INTS:
                a, b = self.sum(x), self.sum(y)
                return self._compared(op, a, b), self._compared(OPPOSITE[op], a, b)
        return UNKNOWN

    def _compared(self, op: str, a: Sum, b: Sum) -> tuple[Sum, ...]:
        apart = plus(b, a, -1)
        match op:
            case "lt":
                return (plus(apart, number(1), -1),)
            case "le":
                return (apart,)
            case "gt":
                return (plus(scaled(apart, -1), number(1), -1),)
            case "ge":
                return (scaled(apart, -1),)
            case "eq":
                return (apart, scaled(apart, -1))
        # Different: on the one side where it cannot be on the other.
        if self.facts.hull(apart)[0] >= 0:
            return (plus(apart, number(1), -1),)
        if self.facts.hull(apart)[1] <= 0:
            return (plus(scaled(apart, -1), number(1), -1),)
        return ()

    # ── atoms ──

    def _lane(self, lanes: int) -> Sum:
        if lanes not in self.lanes:
            self.lanes[lanes] = self.facts.atom(0, lanes - 1)
        return self.lanes[lanes]

    def _anything(self, dtype: str) -> Sum:
        """Return what may be any number of a type: it comes from memory, say."""
        self.data.add(len(self.facts.atoms))
        return self.facts.atom(*_limits(dtype))

    def _fitting(self, s: Sum, dtype: str) -> Sum:
        """Return a sum, if it cannot wrap; else anything.

        What is made of extents, and of indices below them, is less than 2^63: there is no memory
        for more.
        """
        if dtype == "i64" and not any(self._is_wild(a) for m in s for a in m):
            return s
        low, high = self.facts.hull(s)
        least, most = _limits(dtype)
        return s if least <= low and high <= most else self._anything(dtype)

    def _is_wild(self, atom: int) -> bool:
        """Whether an atom is data that nothing has limited."""
        known = self.facts.atoms[atom]
        return atom in self.data and not -LARGEST <= known.low <= known.high <= LARGEST

    def _is_data(self, s: Sum) -> bool:
        return any(a in self.data for m in s for a in m)

    @contextmanager
    def _derived(self, *sources: Sum) -> Iterator[None]:
        """Let atoms that are made inside this block depend on data if a source does."""
        first = len(self.facts.atoms)
        yield
        if any(map(self._is_data, sources)):
            self.data.update(range(first, len(self.facts.atoms)))


@dataclass(slots=True)
class _Addresses:
    """Addresses from `sum` + low - its constant to + high, met where `where` holds."""

    buffer: str
    sum: Sum
    low: int
    high: int
    at: Expr
    where: tuple[Sum, ...]


def _limits(dtype: str) -> tuple[int, int]:
    bits = 8 * DTYPES[dtype].itemsize
    if dtype in UNSIGNED:
        return 0, (1 << bits) - 1
    return -1 << (bits - 1), (1 << (bits - 1)) - 1
