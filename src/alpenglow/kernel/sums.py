"""Sums of products of integers that are not known: polynomials over numbered atoms."""

from __future__ import annotations

Monomial = tuple[int, ...]
Sum = dict[Monomial, int]
"""Coefficients by the numbers of the atoms in a product; () is that of the constant."""


def number(value: int) -> Sum:
    return {(): value} if value else {}


def constant(s: Sum) -> int | None:
    """Return the number that a sum is, if it is one."""
    if not s:
        return 0
    return s.get(()) if len(s) == 1 else None


def plus(a: Sum, b: Sum, times: int = 1) -> Sum:
    """Return a + times * b."""
    total = dict(a)
    for m, c in b.items():
        value = total.get(m, 0) + times * c
        if value:
            total[m] = value
        else:
            total.pop(m, None)
    return total


def scaled(a: Sum, factor: int) -> Sum:
    return {m: c * factor for m, c in a.items()} if factor else {}


def product(a: Sum, b: Sum) -> Sum:
    one = constant(b)
    if one is not None:
        return scaled(a, one)
    one = constant(a)
    if one is not None:
        return scaled(b, one)
    total: Sum = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n))
            total[key] = total.get(key, 0) + c * d
    return {m: c for m, c in total.items() if c}


def divided(a: Sum, b: Sum) -> tuple[Sum, Sum]:
    """Return q and r with a = q * b + r, where as many terms as possible went into q."""
    leading = max(b, key=_degree)
    by = b[leading]
    quotient: Sum = {}
    rest, left = dict(a), {}
    while rest:
        m = max(rest, key=_degree)
        over = without(m, leading)
        times = 0 if over is None else rest[m] // by
        if over is not None and times:
            part = {over: times}
            quotient = plus(quotient, part)
            rest = plus(rest, product(part, b), -1)
        if m in rest:
            left[m] = rest.pop(m)
    return quotient, left


def _degree(m: Monomial) -> tuple[int, Monomial]:
    """Return by what monomials are put in order: an order that holds for products, too."""
    return len(m), m


def without(m: Monomial, atoms: Monomial) -> Monomial | None:
    left = list(m)
    for a in atoms:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def split(s: Sum, atom: int) -> tuple[Sum | None, Sum]:
    """Return f and r with s = f * atom + r; no f if the atom is multiplied by itself."""
    factor: Sum = {}
    rest: Sum = {}
    for m, c in s.items():
        if atom not in m:
            rest[m] = c
            continue
        over = without(m, (atom,))
        assert over is not None
        if atom in over:
            return None, s
        factor[over] = c
    return factor, rest


def powers(s: Sum, atom: int) -> dict[int, Sum]:
    """Return the factors of the powers of an atom that a sum is made of."""
    factors: dict[int, Sum] = {}
    for m, c in s.items():
        factors.setdefault(m.count(atom), {})[tuple(a for a in m if a != atom)] = c
    return factors


Bound = tuple[int, Sum]
"""(k, s) of an atom a: k * a <= s, or k * a >= s; k > 0."""


class Atom:
    """An integer between `low` and `high`, and whatever else is known of it.

    `uppers` and `lowers` are bounds, `held_uppers` and `held_lowers` those that hold at one place;
    if there are `cases`, it is one of these, each under facts.  It may be `equal` to a sum of which
    less is seen at once: a remainder is.  A `quotient` is one of two sums, rounded.
    """

    __slots__ = (
        "cases", "equal", "held_lowers", "held_uppers", "high", "low", "lowers", "quotient",
        "uppers",
    )  # fmt: skip

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.uppers: list[Bound] = []
        self.lowers: list[Bound] = []
        self.held_uppers: list[Bound] = []
        self.held_lowers: list[Bound] = []
        self.cases: tuple[tuple[Sum, tuple[Sum, ...]], ...] = ()
        self.equal: Sum | None = None
        self.quotient: tuple[Sum, Sum] | None = None

    def within(self, low: int, high: int) -> None:
        self.low, self.high = low, high
