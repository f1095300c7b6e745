"""Rewriting kernels: from the parts of an expression to the whole, statement after statement.

A law says what takes the place of one expression.  What it computes on the way goes into registers
set before the statement in which the expression stands; nothing is written between the two, so what
is read there is what would have been read.  A kernel to which no law applies is left as it is: the
same object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Buffer, Expr, Index, Register, children, parts, rebuilt
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
    operands,
    statements,
)

Law = Callable[[Arithmetic, Expr, tuple[Expr, ...]], Expr | None]
"""What takes the place of an expression whose parts have been rewritten; None declines."""


def rewrite(kernel: Kernel, law: Law) -> Kernel:
    """Return `kernel` with `law` applied to each of its expressions."""

    class Lawful(Rewriter):
        def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
            return law(self.m, e, parts)

    return Lawful(kernel).rewritten()


class Rewriter:
    """Rebuilds one kernel.  Laws that concern statements or operands override what they change.

    `m` computes into registers before the statement that is being rebuilt; `known` holds what each
    expression of that statement has become.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.b = Builder(kernel.name, _unused(kernel), kernel.subgroup)
        self.m = Arithmetic(self.b)
        self.known: dict[int, tuple[Expr, ...]] = {}

    def rewritten(self) -> Kernel:
        k = self.kernel
        body = self.block(k.body)
        buffers = tuple(map(self.buffer, k.buffers))
        arrays = tuple(map(self.buffer, k.arrays))
        if body is k.body and (buffers, arrays) == (k.buffers, k.arrays):
            return k
        return replace(k, buffers=buffers, arrays=arrays, body=body)

    # ── what laws override ──

    def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        return None

    def buffer(self, b: Buffer) -> Buffer:
        return b

    def register(self, r: Register) -> Register:
        return r

    def set(self, s: Set) -> None:
        value = self.expr(s.value)
        self.b.add(_changed(s, register=self.register(s.register), value=value))

    def store(self, s: Store) -> None:
        at, value = self.expr(s.at), self.expr(s.value)
        mask = None if s.mask is None else self.expr(s.mask)
        self.b.add(_changed(s, buffer=self.buffer(s.buffer), at=at, value=value, mask=mask))

    def store_tile(self, s: StoreTile) -> None:
        at, stride, value = map(self.expr, operands(s))
        buffer = self.buffer(s.buffer)
        self.b.add(_changed(s, buffer=buffer, at=at, stride=stride, value=value))

    def atomic(self, s: Atomic) -> None:
        at, value = self.expr(s.at), self.expr(s.value)
        self.b.add(_changed(s, buffer=self.buffer(s.buffer), at=at, value=value))

    def copy(self, s: Copy) -> None:
        at, source_at = self.expr(s.at), self.expr(s.source_at)
        mask = None if s.mask is None else self.expr(s.mask)
        to, source = self.buffer(s.to), self.buffer(s.source)
        self.b.add(_changed(s, to=to, at=at, source=source, source_at=source_at, mask=mask))

    # ── statements ──

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        with self.b.block() as lines:
            for s in body:
                self.known.clear()
                self.statement(s)
        same = len(lines) == len(body) and all(x is y for x, y in zip(lines, body, strict=True))
        return body if same else tuple(lines)

    def statement(self, s: Stmt) -> None:
        match s:
            case Set():
                self.set(s)
            case Store():
                self.store(s)
            case StoreTile():
                self.store_tile(s)
            case Atomic():
                self.atomic(s)
            case Copy():
                self.copy(s)
            case Prefetch(buffer, at):
                self.b.add(_changed(s, buffer=self.buffer(buffer), at=self.expr(at)))
            case For(_, extent, body):
                extent = self.expr(extent)
                self.b.add(_changed(s, extent=extent, body=self.block(body)))
            case If(condition, then, orelse):
                test = self.expr(condition)
                self.b.add(
                    _changed(s, condition=test, then=self.block(then), orelse=self.block(orelse))
                )
            case While():
                self._repeat(s)
            case _:
                self.b.add(s)

    def _repeat(self, s: While) -> None:
        """Rebuild a loop; what its condition needs is computed before each turn."""
        with self.b.block() as before:
            test = self.expr(s.condition)
        body = self.block(s.body)
        if not before:
            self.b.add(_changed(s, condition=test, body=body))
            return
        for line in before:
            self.b.add(line)
        goes_on = self.b.var(test)
        again = (*body, *before, Set(goes_on, test))
        self.b.add(While(goes_on, again))

    # ── expressions ──

    def expr(self, e: Expr) -> Expr:
        """Return what takes the place of `e`; the same for the same expression of a statement."""
        if id(e) not in self.known:
            new = tuple(map(self.expr, children(e)))
            lawful = self.law(e, new)
            self.known[id(e)] = (rebuilt(e, new) if lawful is None else lawful,)
        return self.known[id(e)][0]


def _changed(s: Any, **parts: Any) -> Any:
    """Return a statement with other parts; itself if they are its own."""
    return s if all(getattr(s, name) is x for name, x in parts.items()) else replace(s, **parts)


def expressions(kernel: Kernel) -> Iterator[Expr]:
    """Yield every expression of a kernel, and all that they are made of."""
    for s in statements(kernel.body):
        for e in operands(s):
            yield from parts(e)


def _unused(kernel: Kernel) -> int:
    """Return a number from which on none stands in a name of the kernel."""
    names = [e.name for e in expressions(kernel) if isinstance(e, Register | Index)]
    for s in statements(kernel.body):
        # A register may be set and never read.
        if isinstance(s, For | Set):
            names.append(s.index.name if isinstance(s, For) else s.register.name)
    numbers = (int(n) for name in names for n in re.findall(r"\d+", name))
    return 1 + max(numbers, default=-1)
