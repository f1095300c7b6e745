"""Addresses as sums: which of them lie a fixed way apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from alpenglow.kernel.expr import Binary, Const, Expr

Terms = Mapping[str, int]
"""What is added, by name, and how often."""


def linear(at: Expr, name: Callable[[Expr], str]) -> tuple[Terms, int]:
    """Return an address as terms and a number; `name` calls what is no sum and no multiple.

    Addresses of the same terms lie as far apart as their numbers do.
    """
    match at:
        case Const(value=int(n)):
            return {}, n
        case Binary("add" | "sub" as op, x, y):
            (terms, number), (others, more) = linear(x, name), linear(y, name)
            sign = 1 if op == "add" else -1
            sums = {v: terms.get(v, 0) + sign * others.get(v, 0) for v in {**terms, **others}}
            return {v: count for v, count in sums.items() if count}, number + sign * more
        case Binary("mul", x, Const(value=int(n))) if n:
            terms, number = linear(x, name)
            return {v: count * n for v, count in terms.items()}, number * n
    return {name(at): 1}, 0
