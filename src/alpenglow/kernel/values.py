"""What integers of a kernel are, as sums (`kernel.inequality`), and what its conditions say.

Integers that come from memory are anything until they are compared or limited.  All lanes of a
vector are one number more, from 0 to one less than there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alpenglow.ir.types import DTYPES, INTS, UNSIGNED
from alpenglow.kernel.counters import Change
from alpenglow.kernel.expr import (
    Binary,
    Compare,
    Const,
    Convert,
    Expr,
    Index,
    Lanes,
    Register,
    Select,
    Splat,
    Unary,
)
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.sums import Monomial, Sum, constant, number, plus, product, scaled

Condition = tuple[tuple[Sum, ...], tuple[Sum, ...]]
"""What is not negative where a condition holds, and where it does not."""

UNKNOWN: Condition = ((), ())

FAR = 1 << 62
"""Half of what an i64 can say: two such numbers have a sum."""

LONG = 1 << 60
"""How far a counter can get: no loop has so many runs by small steps, it would take years."""

OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Values:
    """What registers hold, as sums, at one place of a kernel."""

    def __init__(self, facts: Premises) -> None:
        self.facts = facts
        self.sums: dict[str, Sum] = {}
        self.conditions: dict[str, Condition] = {}
        self.indices: dict[str, Sum] = {}
        self._lanes: dict[int, Sum] = {}
        self._data: set[int] = set()

    def assign(self, register: Register, value: Expr) -> None:
        """Let a register hold a value, as far as anything is known of its type."""
        if register.dtype == "bool":
            self.conditions[register.name] = self.condition(value)
        elif register.dtype in INTS:
            self.sums[register.name] = self.sum(value)

    def forget(self, register: Register) -> None:
        self.conditions.pop(register.name, None)
        self.sums.pop(register.name, None)

    def sum(self, e: Expr) -> Sum:
        """Return an expression of integers as a sum."""
        match e:
            case Binary(op, x, y):
                return self._binary(e, op, x, y)
            case Const(value, dtype):
                least, most = _limits(dtype)
                return number(int(value)) if least <= value <= most else self.anything(dtype)
            case Index(name, dim):
                if dim is not None:
                    return self.facts.extent(dim)
                if name not in self.indices:
                    self.indices[name] = self.facts.extent_of(name)
                return self.indices[name]
            case Register(name, dtype):
                if name not in self.sums:
                    self.sums[name] = self.anything(dtype)
                return self.sums[name]
            case Lanes(lanes):
                return self.lane(lanes)
            case Splat(x):
                return self.sum(x)
            case Unary("neg", x):
                return self._fitting(scaled(self.sum(x), -1), e.dtype)
            case Select(condition, x, y):
                a, b = self.sum(x), self.sum(y)
                if a == b:
                    return a
                yes, no = self.condition(condition)
                with self.derived(a, b):
                    return self.facts.one_of([(a, yes), (b, no)])
            case Convert(x, dtype) if x.dtype in INTS:
                return self._fitting(self.sum(x), dtype)
            case Convert(x) if x.dtype == "bool":
                return self.data(0, 1)
        return self.anything(e.dtype)

    def _binary(self, e: Expr, op: str, x: Expr, y: Expr) -> Sum:
        a, b = self.sum(x), self.sum(y)
        match op:
            case "add":
                return self._fitting(plus(a, b), e.dtype)
            case "sub":
                return self._fitting(plus(a, b, -1), e.dtype)
            case "mul":
                return self._fitting(product(a, b), e.dtype)
        with self.derived(a, b):
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
        return self.anything(dtype)

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
            case Compare("lt" | "le" as op, Convert(x, "u64"), y) if x.dtype == "i64":
                # As u64, what is negative is more than any i64.
                a, b = self.sum(x), self.sum(y)
                few = self.facts.most(b) < 1 << 63
                return (a, *self._compared(op, a, b)) if few else (), ()
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

    def counted(self, start: Sum, change: Change, times: Sum | None) -> Sum:
        """Return what a register that began at `start` holds after so many changes, None: many."""
        s = self.anything("i64")
        total = Change()
        total.add(change, times)
        if (total.up is None and total.down is None) or not self._near(start):
            return s
        low, high = (min(max(end, -FAR), FAR) for end in self.facts.hull(start))
        atom = self.facts.known(s)
        atom.low, atom.high = low - LONG, high + LONG
        if total.up is not None:
            top = plus(start, total.up)
            atom.uppers.append((1, top))
            atom.high = min(atom.high, self.facts.hull(top)[1])
        if total.down is not None:
            bottom = plus(start, total.down, -1)
            atom.lowers.append((1, bottom))
            atom.low = max(atom.low, self.facts.hull(bottom)[0])
        return s

    def most(self, extent: Expr) -> Sum | None:
        """Return what an extent never exceeds, wherever it is met; not negative."""
        match extent:
            case Const(value):
                return number(max(int(value), 0))
            case Index(_, dim) if dim is not None:
                return self.facts.extent(dim)
            case Binary("min", x, y):
                return self.most(x) or self.most(y)
        return None

    def lane(self, lanes: int) -> Sum:
        if lanes not in self._lanes:
            self._lanes[lanes] = self.facts.atom(0, lanes - 1)
        return self._lanes[lanes]

    def anything(self, dtype: str) -> Sum:
        """Return what may be any number of a type: it comes from memory, say."""
        return self.data(*_limits(dtype))

    def data(self, low: int, high: int) -> Sum:
        self._data.add(len(self.facts.atoms))
        return self.facts.atom(low, high)

    def _fitting(self, s: Sum, dtype: str) -> Sum:
        """Return a sum, if it cannot wrap; else anything.

        What is made of open extents, and of indices below them, is less than 2^63: there is no
        memory for more.
        """
        low, high = self.facts.hull(s)[0], self.facts.most(s)
        least, most = _limits(dtype)
        if least <= low and high <= most:
            return s
        return s if dtype == "i64" and self._near(s) else self.anything(dtype)

    def _near(self, s: Sum) -> bool:
        """Whether what a sum holds besides open extents is less than 2^62."""
        return sum(self._reach(m, c) for m, c in s.items()) <= FAR

    def _reach(self, product: Monomial, coefficient: int) -> int:
        """Return how far from 0 a product can be, open extents and indices below them apart."""
        reach = abs(coefficient)
        for a in product:
            atom = self.facts.atoms[a]
            if a in self._data or not self.facts.symbols:
                reach *= max(1, abs(atom.low), abs(atom.high))
        return reach

    def is_data(self, s: Sum) -> bool:
        return any(a in self._data for m in s for a in m)

    @contextmanager
    def derived(self, *sources: Sum) -> Iterator[None]:
        """Let atoms that are made inside this block depend on data if a source does."""
        first = len(self.facts.atoms)
        yield
        if any(map(self.is_data, sources)):
            self._data.update(range(first, len(self.facts.atoms)))


def _limits(dtype: str) -> tuple[int, int]:
    bits = 8 * DTYPES[dtype].itemsize
    if dtype in UNSIGNED:
        return 0, (1 << bits) - 1
    return -1 << (bits - 1), (1 << (bits - 1)) - 1
