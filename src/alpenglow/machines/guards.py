"""Guards as proofs take them: fewer that say the same.

A network of many layers leaves hundreds of guards (`ir.dims`): multiples of each other, weaker
ones, and some that no extents break.  A search for a proof gets longer with each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from alpenglow.ir.dims import Atom, Dim, Monomial, Ratio, Sym, is_element

Guard = tuple[Sym, str]
Terms = tuple[tuple[Monomial, int], ...]


def strongest(guards: Iterable[Guard]) -> list[Guard]:
    """Return fewer guards that say the same: each layer of a network leaves multiples of some, and
    much that no extents break."""
    others: dict[Guard, None] = {}
    least: dict[Terms, int] = {}
    for x, relation in guards:
        y = x * -1 - 1 if relation == "<" else x
        assert isinstance(y, Sym), "a guard is open"
        terms, free = tuple((m, c) for m, c in y.terms if m), dict(y.terms).get((), 0)
        by = math.gcd(*(c for _, c in terms))
        if relation in ("==", "!=") and terms[0][1] < 0:
            by = -by
        part = tuple((m, c // by) for m, c in terms)
        if relation in (">=", "<"):
            # An integer is not less than a fraction: it is not less than the next integer.
            least[part] = min(free // by, least.get(part, free // by))
        elif free % by == 0:
            others[_sum(part, free // by), relation] = None
        else:
            assert relation == "!=", f"{x} is never 0"
    bounds = {terms: free for terms, free in least.items() if free < 0 or not _natural(terms)}
    kept = [(x, r) for x, r in others if r == "==" or not _is_positive(x, bounds)]
    return [*kept, *((_sum(terms, free), ">=") for terms, free in bounds.items())]


def _sum(terms: Terms, free: int) -> Sym:
    return Sym((*terms, ((), free))) if free else Sym(terms)


def _is_positive(x: Sym, bounds: Mapping[Terms, int]) -> bool:
    """Whether a sum is plainly more than 0, by its signs or by a bound of it."""
    terms, free = tuple(t for t in x.terms if t[0]), dict(x.terms).get((), 0)
    return free > bounds[terms] if terms in bounds else free > 0 and _natural(terms)


def _natural(terms: Terms) -> bool:
    """Whether a sum is plainly no less than 0: extents are not."""
    return all(c > 0 and all(map(_natural_atom, m)) for m, c in terms)


def _natural_atom(atom: Atom) -> bool:
    if isinstance(atom, str):
        return not is_element(atom)
    if atom.op == "max":
        return _natural(atom.left.terms) or _natural(atom.right.terms)
    return _natural(atom.left.terms) and _natural(atom.right.terms)


def atoms(d: Dim) -> set[Atom]:
    """Return names and quotients that an extent is made of, also what is divided."""
    parts: set[Atom] = set()
    for monomial, _ in d.terms if isinstance(d, Sym) else ():
        for atom in monomial:
            parts.add(atom)
            if isinstance(atom, Ratio):
                parts |= atoms(atom.left) | atoms(atom.right)
    return parts
