"""The search for a proof that a sum is not negative, by what is known of its atoms.

The youngest atom of a sum is replaced by a bound of it, until numbers are left (Blume and
Eigenmann, "Symbolic range propagation", 1995).  The search gives up rather than go on for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from math import comb
from typing import Protocol

from alpenglow.kernel.sums import (
    Atom,
    Bound,
    Sum,
    constant,
    number,
    plus,
    powers,
    product,
    scaled,
    split,
)

STEPS = 2_000
"""How many sums are looked at for one question: what is answered takes 500 at most, as far as all
operators' examples tell, and what cannot be is given up for so many."""

PATIENCE = 400_000
"""The same for an address, on whose proof it depends whether a kernel is used."""


class Atoms(Protocol):
    """What a search is told: atoms by number, the sums that are not negative here, and more."""

    atoms: list[Atom]
    held: list[Sum]

    def hull(self, s: Sum) -> tuple[int, int]:
        """Return numbers between which a sum is."""

    def holding(self, facts: Iterable[Sum]) -> AbstractContextManager[None]:
        """Let sums be known not to be negative within a block."""


class Search:
    """One question, and what has been tried to answer it."""

    def __init__(self, facts: Atoms, steps: int = STEPS) -> None:
        self.facts = facts
        self._steps = steps
        self._case: frozenset[tuple[int, int]] = frozenset()
        self._failed: set[object] = set()

    def proves(self, s: Sum) -> bool:
        """Whether a proof is found that s >= 0."""
        return self._stands(s) or self._prove(s, {})

    def _stands(self, s: Sum) -> bool:
        """Whether a multiple of something that holds here is at most s: but for a number, s."""
        lead = next((m for m in s if m), ())
        for fact in self.facts.held:
            if lead in fact and fact.keys() | {()} == s.keys() | {()} and fact[lead] * s[lead] > 0:
                apart = plus(scaled(s, abs(fact[lead])), fact, -abs(s[lead]))
                d = constant(apart)
                if d is not None and d >= 0:
                    return True
        return False

    def _prove(self, s: Sum, chosen: dict[int, Sum]) -> bool:
        """Prove that s >= 0, where some atoms have been `chosen` to be one of their cases."""
        if self.facts.hull(s)[0] >= 0:
            return True
        self._steps -= 1
        if self._steps < 0:
            return False
        question = (frozenset(s.items()), self._case)
        if question in self._failed:
            return False
        if self._replaced(s, chosen):
            return True
        self._failed.add(question)
        return False

    def _replaced(self, s: Sum, chosen: dict[int, Sum]) -> bool:
        """Prove s >= 0 by a bound of its youngest atom, or by cases."""
        youngest = max((a for m in s for a in m), default=None)
        if youngest is None:
            return False
        factor, rest = split(s, youngest)
        if factor is None:
            return self._by_powers(s, youngest, chosen)
        if youngest in chosen:
            return self._prove(plus(rest, product(factor, chosen[youngest])), chosen)
        sign = self._sign(factor, chosen)
        if not sign:
            return False
        for k, bound in self._candidates(youngest, sign):
            # An integer of which k times is more than -k is not negative.
            by = plus(product(factor, bound), number(k - 1))
            if self._prove(plus(scaled(rest, k), by), chosen):
                return True
        return self._by_product(s, youngest, chosen) or self._by_cases(s, youngest, chosen)

    def _by_powers(self, s: Sum, atom: int, chosen: dict[int, Sum]) -> bool:
        """Prove s >= 0 of a polynomial in an atom, as one in how far that is from its ends."""
        if self._stands(s):
            return True
        factors = powers(s, atom)
        for end, sign in ((self.facts.atoms[atom].low, 1), (self.facts.atoms[atom].high, -1)):
            shifted: dict[int, Sum] = {}
            for n, f in factors.items():
                for k in range(n + 1):
                    times = comb(n, k) * end ** (n - k) * sign**k
                    shifted[k] = plus(shifted.get(k, {}), f, times)
            if all(self._prove(f, chosen) for f in shifted.values()):
                return True
        return False

    def _by_product(self, s: Sum, atom: int, chosen: dict[int, Sum]) -> bool:
        """Prove s >= 0 by what holds of a product that its youngest atom is part of."""
        products = [m for m in s if len(m) > 1 and atom in m]
        for m, fact in [(m, fact) for m in products for fact in self.facts.held]:
            c = fact.get(m, 0)
            if c * s[m] <= 0 or any(a > atom for n in fact for a in n):
                continue
            less = plus(scaled(s, abs(c)), fact, -abs(s[m]))
            # With fewer products each time, or there would be no end of it.
            fewer = sum(len(n) > 1 and atom in n for n in less) < len(products)
            if fewer and self._prove(plus(less, number(abs(c) - 1)), chosen):
                return True
        return False

    def _sign(self, factor: Sum, chosen: dict[int, Sum]) -> int:
        one = constant(factor)
        if one is not None:
            return 1 if one > 0 else -1
        if self._prove(factor, chosen):
            return 1
        return -1 if self._prove(scaled(factor, -1), chosen) else 0

    def _candidates(self, atom: int, sign: int) -> Iterator[Bound]:
        """Yield the bounds by which an atom may be replaced: lower ones for a positive factor.

        What is known of an atom by itself is made of older ones, the oldest of which say most.
        """
        known = self.facts.atoms[atom]
        if sign > 0:
            yield from (*reversed(known.held_lowers), *sorted(known.lowers, key=_youngest))
            yield 1, number(known.low)
        else:
            yield from self._exact_quotient(known)
            yield from (*reversed(known.held_uppers), *sorted(known.uppers, key=_youngest))
            yield 1, number(self._highest(known))
        if known.equal is not None:
            yield 1, known.equal

    def _exact_quotient(self, atom: Atom) -> Iterator[Bound]:
        """Yield how large a quotient is if it is positive here, and so has been rounded down."""
        if atom.quotient is None:
            return
        divisor = constant(atom.quotient[1])
        numbers = ((k, constant(s)) for k, s in atom.held_lowers)
        least = max((-(-n // k) for k, n in numbers if n is not None), default=atom.low)
        if divisor is not None and divisor > 0 and max(atom.low, least) > 0:
            yield divisor, atom.quotient[0]

    def _highest(self, atom: Atom) -> int:
        """Return a number that an atom does not exceed, by what holds here of what it is made."""
        if atom.quotient is None:
            return atom.high
        a, b = (self.facts.hull(s) for s in atom.quotient)
        return min(atom.high, max(a[1], 0) // max(b[0], 1))

    def _by_cases(self, s: Sum, atom: int, chosen: dict[int, Sum]) -> bool:
        """Prove s for each case of an atom, or that the case cannot be."""
        cases = self.facts.atoms[atom].cases
        if not cases:
            return False
        before = self._case
        try:
            for which, (case, facts) in enumerate(cases):
                # What failed elsewhere may be proved in this case.
                self._case = before | {(atom, which)}
                choice = {**chosen, atom: case}
                if self._absurd_if(choice):
                    continue
                # The case is what the atom is known to be, also by its bounds alone.
                least = plus(case, number(self.facts.atoms[atom].low), -1)
                with self.facts.holding((*facts, least)):
                    if not self._prove(s, choice) and not self._refuted(choice):
                        return False
            return True
        finally:
            self._case = before

    def _absurd_if(self, chosen: dict[int, Sum]) -> bool:
        """Whether something that holds here plainly is not so, with the choices made."""
        return any(
            self.facts.hull(self._with(fact, chosen))[1] < 0
            for fact in self.facts.held
            if any(a in chosen for m in fact for a in m)
        )

    def _with(self, s: Sum, chosen: dict[int, Sum]) -> Sum:
        """Return a sum with what is chosen in the place of atoms."""
        for atom in sorted(chosen, reverse=True):
            factor, rest = split(s, atom)
            if factor:
                s = plus(rest, product(factor, chosen[atom]))
        return s

    def _refuted(self, chosen: dict[int, Sum]) -> bool:
        """Whether what holds here cannot, with the choices made."""
        return any(
            self._prove(plus(scaled(fact, -1), number(-1)), chosen) for fact in self.facts.held[-6:]
        )


def _youngest(bound: Bound) -> int:
    """Return the youngest atom that a bound is made of, -1 for a number."""
    return max((a for m in bound[1] for a in m), default=-1)
