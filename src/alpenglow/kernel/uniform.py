"""What is the same for all threads of a group, or of a subgroup, and where their ways part.

Threads that meet, at a barrier or to exchange values, must all come there.  They do if the branches
and loops around ask of nothing that differs among them: constants, extents, numbers of groups, and
what is computed of these.  What is loaded may differ.
"""

from __future__ import annotations

from typing import get_args

from alpenglow.kernel.across import COMBINES, Across
from alpenglow.kernel.expr import Binary, Const, Expr, Index, Load, Register, children
from alpenglow.kernel.stmt import For, If, Kernel, Kind, Set, Stmt, While


def partings(kernel: Kernel, together: int = 0) -> dict[int, str]:
    """Return where not all threads come: the branch or loop to blame, by the ids of statements.

    Threads go `together` in subgroups of so many, or all of a group (0).  A `while` whose condition
    differs is to blame for itself, as that is asked again.
    """
    walk = _Walk(kernel, together)
    known = -1
    while len(walk.varying) > known:
        known = len(walk.varying)
        walk.block(kernel.body, "")
    return walk.apart


class _Walk:
    """Goes through a kernel; `varying` are the names of what differs among threads."""

    def __init__(self, kernel: Kernel, together: int) -> None:
        self.together = together
        self.varying: set[str] = set()
        self.apart: dict[int, str] = {}
        self.steps: dict[str, tuple[int, int]] = {}
        """By how much the number of a thread grows with the index of a loop, and with all of it."""
        step = 1
        for loop in kernel.launch.threads:
            extent = int(loop.extent.value) if isinstance(loop.extent, Const) else 0
            self.steps[loop.index.name] = step, step * extent
            step *= extent

    def block(self, body: tuple[Stmt, ...], apart: str) -> None:
        for s in body:
            if apart:
                self.apart[id(s)] = apart
            self.statement(s, apart)

    def statement(self, s: Stmt, apart: str) -> None:
        match s:
            case Set(register, value):
                if apart or not self.same(value):
                    self.varying.add(register.name)
            case For(index, extent, body, kind):
                same = kind == "group" or self.same(extent)
                if not same or (kind == "thread" and not self.whole(index)):
                    self.varying.add(index.name)
                self.block(body, apart if same else _loop(kind))
            case If(condition, then, orelse):
                inside = apart if self.same(condition) else _loop("if")
                self.block(then, inside)
                self.block(orelse, inside)
            case While(condition, body):
                inside = apart if self.same(condition) else _loop("while")
                if inside:
                    self.apart[id(s)] = inside
                self.block(body, inside)

    def whole(self, index: Index, divisor: int = 1) -> bool:
        """Whether an index, divided by a number, is the same for all threads of each subgroup."""
        step, turn = self.steps.get(index.name, (0, 0))
        if not self.together or not step or (divisor > 1 and turn % self.together):
            return False
        return step * divisor % self.together == 0

    def same(self, e: Expr) -> bool:
        """Whether an expression is the same for all threads that go together."""
        match e:
            case Index(name) | Register(name):
                return name not in self.varying
            case Binary("div", Index() as index, Const(value=int(number))) if number > 0:
                return self.whole(index, number) or index.name not in self.varying
            case Load():
                return False
            case Across(op) if op not in COMBINES or not self.together:
                return False
            case Across():
                return True
        return all(map(self.same, children(e)))


def _loop(kind: str) -> str:
    return f"a {kind} loop" if kind in get_args(Kind) else f"the '{kind}'"
