"""Addresses as sums: which of them lie a fixed way apart."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.kernel.expr import Binary, Const, Expr
from alpenglow.kernel.sums import Monomial, Sum, number, plus, product

Terms = tuple[tuple[Monomial, int], ...]
"""A sum but for the number in it."""


class Addresses:
    """Numbers what addresses are made of by what `name` calls it, if it is no sum or product."""

    def __init__(self, name: Callable[[Expr], str]) -> None:
        self._name = name
        self._atoms: dict[str, int] = {}

    def split(self, at: Expr) -> tuple[Terms, int]:
        """Return terms and a number: addresses of the same terms lie as far apart as numbers do."""
        total = self._sum(at)
        return tuple(sorted((m, c) for m, c in total.items() if m)), total.get((), 0)

    def _sum(self, at: Expr) -> Sum:
        match at:
            case Const(value=int(n)):
                return number(n)
            case Binary("add" | "sub" as op, x, y):
                return plus(self._sum(x), self._sum(y), 1 if op == "add" else -1)
            case Binary("mul", x, y):
                return product(self._sum(x), self._sum(y))
        return {(self._atoms.setdefault(self._name(at), len(self._atoms)),): 1}
