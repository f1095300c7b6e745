"""Loads and stores of some lanes, and what no other thread may interrupt."""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.kernel.expr import Binary, Const, Expr, Load, fold
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import joined, lane
from alpenglow.kernel.rewrite import Rewriter
from alpenglow.kernel.stmt import Atomic, Commit, Copy, For, Kernel, Stmt, Store, Wait, statements


def without_masks(kernel: Kernel, lacks: Lacks) -> Kernel:
    """x.N[at if mask]  =>  the vector of x[at + i if lane i of mask], and stores alike, in order.

    Lanes that are left out are neither read nor written, as before.
    """
    return _Masks(kernel).rewritten() if lacks.masks else kernel


class _Masks(Rewriter):
    def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not isinstance(e, Load) or e.mask is None or e.lanes == 1:
            return None
        at, mask = map(self.b.let, parts)
        scalars = [
            self.b.let(Load(e.buffer, _place(at, i), 1, lane(mask, i))) for i in range(e.lanes)
        ]
        return joined(self.b, scalars)

    def store(self, s: Store) -> None:
        if s.mask is None or s.value.lanes == 1:
            super().store(s)
            return
        at, value, mask = (self.b.let(self.expr(e)) for e in (s.at, s.value, s.mask))
        for i in range(value.lanes):
            self.b.store(s.buffer, _place(at, i), lane(value, i), lane(mask, i))


def _place(at: Expr, i: int) -> Expr:
    """Return the address of a lane: of neighbours, or its own."""
    return lane(at, i) if at.lanes > 1 else fold("add", at, Const(i))


def without_copies(kernel: Kernel, lacks: Lacks) -> Kernel:
    """copy a[i] = x[j]  =>  a[i] = x[j]: it is there at once, and nobody waits for it."""
    return _Copies(kernel).rewritten() if lacks.copies else kernel


class _Copies(Rewriter):
    def statement(self, s: Stmt) -> None:
        if not isinstance(s, Commit | Wait):
            super().statement(s)

    def copy(self, s: Copy) -> None:
        mask = None if s.mask is None else self.expr(s.mask)
        loaded = Load(s.source, self.expr(s.source_at), s.lanes, mask)
        self.b.store(s.to, self.expr(s.at), loaded)


def without_atomics(kernel: Kernel, lacks: Lacks) -> Kernel:
    """atomic.op x[at] = y  =>  x[at] = op(x[at], y), where one thread runs."""
    if not lacks.atomics:
        return kernel
    return _Atomics(kernel, lacks.atomics).rewritten()


class _Atomics(Rewriter):
    def __init__(self, kernel: Kernel, dtypes: frozenset[str]) -> None:
        super().__init__(kernel)
        self.dtypes = dtypes
        kinds = {s.kind for s in statements(kernel.body) if isinstance(s, For)}
        self.shared = bool(kinds & {"parallel", "group", "thread"})

    def atomic(self, s: Atomic) -> None:
        if s.buffer.dtype not in self.dtypes:
            super().atomic(s)
            return
        if self.shared:
            raise UnsupportedError(
                f"atomic {s.op} of {s.buffer.dtype} on {s.buffer.name}, which threads share, is "
                f"not supported on this target (kernel {self.kernel.name})"
            )
        at, value = self.b.let(self.expr(s.at)), self.b.let(self.expr(s.value))
        for i in range(value.lanes):
            place = lane(at, i)
            self.b.store(s.buffer, place, Binary(s.op, Load(s.buffer, place), lane(value, i)))
