"""Inequalities between sums of products of integers: what is known of them, and what is asked.

An *atom* is an integer of which little is known but bounds, such as the index of a loop, a
quotient, the smaller of two sums.  Its bounds are sums over atoms that are older, and facts that
hold at one place add more.  Whether a sum is never negative is searched for (`kernel.search`); no
answer is not "no".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from alpenglow.ir.dims import Dim, Ratio, Sym, is_element
from alpenglow.kernel.search import STEPS, Search
from alpenglow.kernel.sums import (
    Atom,
    Bound,
    Sum,
    constant,
    divided,
    number,
    plus,
    product,
    scaled,
    split,
    without,
)

LARGEST = 1 << 46
"""More than any extent of a tensor: its bytes could not be addressed."""

SIZE = 1 << 50
"""More than what is made of open extents, and bounds an index: a number of elements, or a few."""


class Premises:
    """Atoms, and what holds at one place of a program."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.symbols: dict[object, Sum] = {}
        self.held: list[Sum] = []
        self._absurd = 0
        self._quotients: dict[object, Sum] = {}

    # ── atoms ──

    def atom(self, low: int, high: int) -> Sum:
        """Return a new atom, as a sum."""
        self.atoms.append(Atom(low, high))
        return {(len(self.atoms) - 1,): 1}

    def known(self, s: Sum) -> Atom:
        """Return what is known of a sum that is a single atom."""
        ((m, c),) = s.items()
        assert c == 1 and len(m) == 1, f"{s} is no atom"
        return self.atoms[m[0]]

    def extent(self, dim: Dim) -> Sum:
        """Return an extent of a tensor as a sum; it is not negative."""
        if not isinstance(dim, Sym):
            return number(dim)
        total: Sum = {}
        for monomial, coefficient in dim.terms:
            term = number(coefficient)
            for name in monomial:
                if name not in self.symbols:
                    self.symbols[name] = self._symbol(name)
                term = product(term, self.symbols[name])
            total = plus(total, term)
        return total

    def extent_of(self, name: str) -> Sum:
        """Return a run-time extent of which only the name is known."""
        if name not in self.symbols:
            self.symbols[name] = self.atom(0, LARGEST)
        return self.symbols[name]

    def _symbol(self, name: str | Ratio) -> Sum:
        if isinstance(name, str):
            return self.atom(-LARGEST if is_element(name) else 0, LARGEST)
        if name.op in ("max", "min"):
            pick = self.maximum if name.op == "max" else self.minimum
            return pick(self.extent(name.left), self.extent(name.right))
        # Of extents, quotients are rounded down.
        if name.op == "//":
            return self.quotient(*self._part_of(name), down=True)
        q = self.extent(name.left // name.right)  # others use that quotient, too
        return self._rest(self.extent(name.left), self.extent(name.right), q, down=True)

    def _part_of(self, ratio: Ratio) -> tuple[Sum, Sum]:
        """Return what is divided by what: a quotient that is there already, if it can be.

        (H+3)//4 rows beside (H+1)//2 are half as many: they are ((H+1)//2 + 1)//2.
        """
        by = _number(ratio.right)
        best, fraction = 1, (self.extent(ratio.left), self.extent(ratio.right))
        for other, s in self.symbols.items():
            if not isinstance(other, Ratio) or other.op != "//":
                continue
            less, more = _number(other.right), ratio.left - other.left
            if best < less < by and by % less == 0 and isinstance(more, int) and more % less == 0:
                best, fraction = less, (plus(s, number(more // less)), number(by // less))
        return fraction

    def minimum(self, a: Sum, b: Sum) -> Sum:
        """Return the smaller of two sums."""
        apart = self.hull(plus(b, a, -1))
        if apart[0] >= 0:
            return a
        if apart[1] <= 0:
            return b
        low = min(self.hull(a)[0], self.hull(b)[0])
        s = self.atom(low, min(self.most(a), self.most(b)))
        atom = self.known(s)
        atom.uppers += [(1, a), (1, b)]
        atom.cases = ((a, (plus(b, a, -1),)), (b, (plus(a, b, -1),)))
        return s

    def maximum(self, a: Sum, b: Sum) -> Sum:
        """Return the larger of two sums."""
        apart = self.hull(plus(b, a, -1))
        if apart[0] >= 0:
            return b
        if apart[1] <= 0:
            return a
        (low_a, high_a), (low_b, high_b) = self.hull(a), self.hull(b)
        s = self.atom(max(low_a, low_b), max(high_a, high_b))
        atom = self.known(s)
        atom.lowers += [(1, a), (1, b)]
        atom.cases = ((a, (plus(a, b, -1),)), (b, (plus(b, a, -1),)))
        return s

    def one_of(self, cases: Sequence[tuple[Sum, tuple[Sum, ...]]]) -> Sum:
        """Return a sum that is one of several, each under facts of its own."""
        hulls = [self.hull(s) for s, _ in cases]
        s = self.atom(min(h[0] for h in hulls), max(h[1] for h in hulls))
        self.known(s).cases = tuple(cases)
        return s

    def quotient(self, a: Sum, b: Sum, down: bool = False) -> Sum:
        """Return a / b for b > 0, truncated towards zero or rounded `down`."""
        by = constant(b)
        if by is not None and all(c % by == 0 for c in a.values()):
            return {m: c // by for m, c in a.items()}
        key = (frozenset(a.items()), frozenset(b.items()), down)
        if key not in self._quotients:
            exact, rest = divided(a, b)
            self._quotients[key] = self._quotient(a, b, down) if rest else exact
        return self._quotients[key]

    def _quotient(self, a: Sum, b: Sum, down: bool) -> Sum:
        low, high = self.hull(a)
        least = max(1, self.hull(b)[0])
        positive = self.nonnegative(a)
        floors = down or positive
        lowest = low // least if down else -(-low // least)
        lowest, highest = 0 if positive else lowest, max(high, 0) // least
        if lowest == highest:
            return number(lowest)
        s = self.atom(lowest, highest)
        atom = self.known(s)
        atom.quotient = a, b
        if positive:
            bounds = (self._floor(upper, b) for k, upper in [(1, a), *self._uppers(a)] if k == 1)
            atom.uppers += [(1, bound) for bound in bounds if bound is not None]
        if (by := constant(b)) is not None:
            slack = number(by - 1)
            atom.uppers.append((by, a if floors else plus(a, slack)))
            atom.lowers.append((by, plus(a, slack, -1)))
        return s

    def _floor(self, a: Sum, b: Sum) -> Sum | None:
        """Return a sum that a / b, rounded down, does not exceed."""
        whole, rest = divided(a, b)
        if self.nonnegative(plus(number(-1), rest, -1)):
            return plus(whole, number(1), -1)
        return whole if self.nonnegative(plus(plus(b, number(1), -1), rest, -1)) else None

    def remainder(self, a: Sum, b: Sum, down: bool = False) -> Sum:
        """Return a - (a / b) * b for b > 0: of the sign of a, or not negative if `down`."""
        return self._rest(a, b, self.quotient(a, b, down), down)

    def _rest(self, a: Sum, b: Sum, q: Sum, down: bool) -> Sum:
        """Return a - q * b, where q is a / b."""
        exact = plus(a, product(q, b), -1)
        if constant(exact) is not None or not q:
            return exact
        most = self.hull(b)[1] - 1
        s = self.atom(0 if down or self.nonnegative(a) else -most, most)
        atom = self.known(s)
        if constant(b) is None:
            atom.uppers.append((1, plus(b, number(1), -1)))
        atom.equal = exact
        return s

    def _uppers(self, s: Sum, steps: int = 4) -> Iterator[Bound]:
        """Yield bounds of a sum with its youngest atoms replaced by theirs, a few steps deep."""
        youngest = max((m[-1] for m in s if m), default=None)
        if youngest is None or not steps:
            return
        c = s.get((youngest,), 0)
        if c <= 0 or any(youngest in m for m in s if m != (youngest,)):
            return
        rest = {m: d for m, d in s.items() if m != (youngest,)}
        for k, upper in (*self.atoms[youngest].uppers, *self.atoms[youngest].held_uppers):
            if k == 1:
                bound = plus(rest, upper, c)
                yield 1, bound
                yield from self._uppers(bound, steps - 1)

    # ── facts ──

    @contextmanager
    def holding(self, facts: Iterable[Sum]) -> Iterator[None]:
        """Let sums be not negative inside this block."""
        undo: list[Callable[[], object]] = []
        quotients = self._quotients
        self._quotients = dict(quotients)
        for fact in facts:
            # Of two bounds the later one is tried first.
            if (same := self._expanded(fact)) is not None:
                self._add(same, undo)
            self._add(fact, undo)
        try:
            yield
        finally:
            # What was made here may rest on what holds here only.
            self._quotients = quotients
            for step in reversed(undo):
                step()

    def _add(self, fact: Sum, undo: list[Callable[[], object]]) -> None:
        """Remember a fact, and what it says of single atoms; add to `undo` how to forget it."""
        self.held.append(fact)
        undo.append(self.held.pop)
        if self.hull(fact)[1] < 0:
            self._absurd += 1
            undo.append(self._possible)
        for implied in (*self._factors(fact), *self._behind(fact)):
            self._add(implied, undo)
        for atom in {a for m in fact for a in m}:
            c = fact.get((atom,), 0)
            if not c or any(atom in m and m != (atom,) for m in fact):
                continue
            rest = {m: d for m, d in fact.items() if m != (atom,)}
            # Only atoms that are older may bound one, or there would be no end of it.
            if any(m[-1] > atom for m in rest if m):
                rest = self._above(rest, atom)
            bound, k = scaled(rest, -1) if c > 0 else rest, abs(c)
            if all(d % k == 0 for m, d in bound.items() if m):
                # An integer: the constant is rounded the way that holds.
                free = bound.get((), 0)
                whole = -(-free // k) if c > 0 else free // k
                bound = {m: d // k for m, d in bound.items() if m}
                k, bound = 1, {**bound, (): whole} if whole else bound
            self._limit(atom, k, bound, c > 0, undo)

    def _above(self, s: Sum, atom: int) -> Sum:
        """Return a sum that is not less than `s`, over atoms that are older than `atom` only."""
        bound = s
        while (youngest := max((m[-1] for m in bound if m), default=-1)) > atom:
            factor, rest = split(bound, youngest)
            c = None if factor is None else constant(factor)
            if c is None:
                break
            bound = plus(rest, self._near(self.atoms[youngest], c > 0), c)
        return number(self.hull(s)[1]) if youngest >= atom else bound

    def _near(self, atom: Atom, above: bool) -> Sum:
        """Return a bound of an atom, one that is no number if there is."""
        if above:
            bounds, last = (*atom.uppers, *atom.held_uppers), atom.high
        else:
            bounds, last = (*atom.lowers, *atom.held_lowers), atom.low
        close = [b for k, b in bounds if k == 1 and constant(b) is None]
        return close[-1] if close else number(last)

    def _expanded(self, s: Sum) -> Sum | None:
        """Return a sum with what its atoms are equal to in their place, if any is."""
        total: Sum = {}
        changed = False
        for m, c in s.items():
            term = number(c)
            for a in m:
                equal = self.atoms[a].equal
                changed |= equal is not None
                term = product(term, {(a,): 1} if equal is None else equal)
            total = plus(total, term)
        return total if changed else None

    def _limit(
        self, atom: int, k: int, bound: Sum, lower: bool, undo: list[Callable[[], object]]
    ) -> None:
        """Remember a bound of an atom."""
        known = self.atoms[atom]
        if constant(bound) is None:
            bounds = known.held_lowers if lower else known.held_uppers
            bounds.append((k, bound))
            undo.append(bounds.pop)
        undo.append(partial(known.within, known.low, known.high))
        least, most = self.hull(bound)[0], self.most(bound)
        if lower:
            known.low = max(known.low, -(-least // k))
        else:
            known.high = min(known.high, most // k)

    def most(self, s: Sum) -> int:
        """Return what a sum that bounds an index does not exceed."""
        high = self.hull(s)[1]
        if high <= SIZE:
            return high
        opened = {m[0] for extent in self.symbols.values() for m in extent if len(m) == 1}
        return SIZE if all(a in opened for m in s for a in m) else high

    def _possible(self) -> None:
        self._absurd -= 1

    def _factors(self, fact: Sum) -> Iterator[Sum]:
        """Yield factors less 1 of what a fact says to be at least 1: they are, too."""
        rest = {m: c for m, c in fact.items() if m}
        if fact.get((), 0) >= 0 or max(map(len, rest), default=0) < 2:
            return
        common = [a for a in set(next(iter(rest))) if all(a in m for m in rest)]
        common = [a for a in common if self.atoms[a].low >= 0]
        for a in common:
            rest = {over: c for m, c in rest.items() if (over := without(m, (a,))) is not None}
            yield {(a,): 1, (): -1}
        if common:
            yield plus(rest, number(1), -1)

    def _behind(self, fact: Sum) -> Iterator[Sum]:
        """Yield what must be so for a single atom to be so large: the least of two sums, say."""
        least = -fact.get((), 0)
        atoms = [m for m in fact if m]
        if least <= 0 or len(atoms) != 1 or len(atoms[0]) != 1 or fact[atoms[0]] != 1:
            return
        atom = self.atoms[atoms[0][0]]
        for k, upper in atom.uppers:
            if constant(upper) is None:
                yield plus(upper, number(k * least), -1)
        if atom.quotient is not None:
            # What is positive has been rounded down.
            a, b = atom.quotient
            yield plus(a, scaled(b, least), -1)
            yield plus(a, product(b, {atoms[0]: 1}), -1)
        possible = [case for case in atom.cases if self.hull(case[0])[1] >= least]
        if len(possible) == 1:
            ((case, facts),) = possible
            yield plus(case, number(least), -1)
            yield from facts

    # ── questions ──

    def hull(self, s: Sum) -> tuple[int, int]:
        """Return numbers between which a sum lies, by what is known of each atom alone."""
        low = high = 0
        for m, c in s.items():
            if len(m) == 1:
                atom = self.atoms[m[0]]
                a, b = c * atom.low, c * atom.high
                low, high = (low + a, high + b) if c > 0 else (low + b, high + a)
                continue
            a = b = c
            for which in m:
                atom = self.atoms[which]
                x, y = atom.low, atom.high
                ends = (a * x, a * y, b * x, b * y)
                a, b = min(ends), max(ends)
            low, high = low + a, high + b
        return low, high

    def nonnegative(self, s: Sum, steps: int = STEPS) -> bool:
        """Whether a sum is proved in so many steps not to be negative, or not to be met at all."""
        if self.hull(s)[0] >= 0 or self._absurd:
            return True
        return Search(self, steps).proves(s)

    def positive(self, s: Sum) -> bool:
        """Whether a sum is proved to be at least 1; 0 is not, even where nothing is met at all."""
        if not s:
            return False
        if self.nonnegative(plus(s, number(1), -1)):
            return True
        for fact in self.held:
            if fact.get((), 0) >= 0:
                continue
            # Where a product is at least 1 and one factor is not negative, both are positive.
            for large in (fact, self._raised(fact)):
                other, rest = divided(plus(large, number(1)), s)
                if not rest and (self.nonnegative(s) or self.nonnegative(other)):
                    return True
        return False

    def _raised(self, s: Sum) -> Sum:
        """Return a sum without what only makes it smaller, but the constant."""
        return {
            m: c for m, c in s.items() if not m or c > 0 or any(self.atoms[a].low < 0 for a in m)
        }


def _number(x: Sym) -> int:
    """Return the number that x is; 0 if it is none."""
    monomial, coefficient = x.terms[0]
    return coefficient if not monomial else 0
