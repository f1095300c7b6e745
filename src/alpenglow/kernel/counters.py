"""Registers that count: by how much a block of statements can change them.

A loop that only adds to a register, or only takes from it, leaves it on one side of what it held
before; and in a loop that runs n times, what one run adds at most limits what all of them add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from alpenglow.kernel.expr import Binary, Const, Convert, Expr, Register, Select
from alpenglow.kernel.stmt import For, If, Set, Stmt, While, blocks
from alpenglow.kernel.sums import Sum, constant, number, plus, product

SMALL = 16
"""A counter goes by steps that are not larger."""

Extent = Callable[[Expr], Sum | None]
"""Returns what an extent never exceeds, wherever it is met, as a sum that is not negative."""


@dataclass(slots=True)
class Change:
    """A register stays at most `up` above and `down` below what it was; None: that is not known."""

    up: Sum | None = field(default_factory=dict)
    down: Sum | None = field(default_factory=dict)

    def add(self, other: Change, times: Sum | None) -> None:
        """Add what happens if another change happens so many times; None: any number of times."""
        self.up = _added(self.up, other.up, times)
        self.down = _added(self.down, other.down, times)


Changes = dict[str, Change]


@dataclass(frozen=True, slots=True)
class Near:
    """A value from `low` to `high` above a register, or above 0."""

    base: str
    low: int
    high: int


class Counters:
    """What blocks of a kernel do to its registers of scalar i64."""

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        self._known: dict[int, Changes] = {}

    def changes(self, body: tuple[Stmt, ...]) -> Changes:
        """Return by how much one run of a block changes each register that it sets."""
        if id(body) not in self._known:
            self._known[id(body)] = self._block(body, {})
        return self._known[id(body)]

    def _block(self, body: Iterable[Stmt], values: dict[str, Near]) -> Changes:
        """Return the changes of a block; `values` are what registers hold at its beginning."""
        total: Changes = {}
        for s in body:
            if isinstance(s, Set):
                if s.register.dtype == "i64" and s.register.lanes == 1:
                    name = s.register.name
                    total.setdefault(name, Change()).add(_assigned(s, values), number(1))
                continue
            for name, change, times in self._inner(s, values):
                total.setdefault(name, Change()).add(change, times)
                _drop(name, values)
        return total

    def _inner(self, s: Stmt, values: dict[str, Near]) -> list[tuple[str, Change, Sum | None]]:
        """Return the changes of the blocks in a statement, and how often each happens."""
        if isinstance(s, If):
            branches = [self._block(block, dict(values)) for block in blocks(s)]
            return [(n, c, number(1)) for changes in branches for n, c in changes.items()]
        if isinstance(s, For | While):
            times = self._extent(s.extent) if isinstance(s, For) else None
            return [(n, c, times) for n, c in self.changes(s.body).items()]
        return []


def _assigned(s: Set, values: dict[str, Near]) -> Change:
    """Return the change of one statement, and remember what the register holds from here on."""
    name = s.register.name
    near = _near(s.value, values)
    _drop(name, values)
    if near is None or max(abs(near.low), abs(near.high)) > SMALL:
        return Change(None, None)
    if near.base != name:
        values[name] = near
        return Change(None, None)
    return Change(number(max(near.high, 0)), number(max(-near.low, 0)))


def _drop(name: str, values: dict[str, Near]) -> None:
    """Forget what registers hold if that is said by one that changes."""
    for other in [n for n, near in values.items() if name in (n, near.base)]:
        del values[other]


def _near(e: Expr, values: dict[str, Near]) -> Near | None:
    """Return near which register, or near 0, a value is."""
    match e:
        case Const(value):
            return Near("", int(value), int(value))
        case Convert(x) if x.dtype == "bool":
            return Near("", 0, 1)
        case Register(name):
            return values.get(name, Near(name, 0, 0))
        case Binary("add" | "sub" as op, x, y):
            a, b = _near(x, values), _near(y, values)
            if a is None or b is None:
                return None
            if op == "sub":
                return None if b.base else Near(a.base, a.low - b.high, a.high - b.low)
            return None if a.base and b.base else Near(
                a.base or b.base, a.low + b.low, a.high + b.high
            )  # fmt: skip
        case Select(_, x, y):
            a, b = _near(x, values), _near(y, values)
            if a is None or b is None or a.base != b.base:
                return None
            return Near(a.base, min(a.low, b.low), max(a.high, b.high))
    return None


def _added(a: Sum | None, b: Sum | None, times: Sum | None) -> Sum | None:
    """Return a + times * b for numbers that are not negative."""
    if b is not None and constant(b) == 0:
        return a
    if a is None or b is None or times is None:
        return None
    return plus(a, product(b, times))
