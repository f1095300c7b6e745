"""Extents of open programs as code: what rows of state come to, in LLVM IR, C and JavaScript.

Whatever is open in a bundle follows from one number, the rows that its state holds as a call
begins; extents are polynomials in that (`ir.dims`).  Quotients are rounded down, whatever the
signs, as extents are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from alpenglow.ir.dims import Atom, Dim, Sym

ROWS = "rows"
"""The name of the extent that is the number of rows at entry."""


class LlvmExtents:
    """Extents as values of LLVM's i64: `of` names them, `lines` computes them, each once."""

    def __init__(self, prefix: str = "n") -> None:
        self.lines: list[str] = []
        self._names: dict[Sym, str] = {}
        self._fresh: Callable[[], str] = (f"%{prefix}{i}" for i in count()).__next__

    def of(self, d: Dim) -> str:
        """Return what an extent is; the lines so far compute it."""
        if not isinstance(d, Sym):
            return str(d)
        if d not in self._names:
            total = "0"
            for monomial, coefficient in d.terms:
                term = "1" if monomial else str(coefficient)
                for atom in monomial:
                    term = self._emit("mul", term, self._atom(atom))
                if monomial:
                    term = self._emit("mul", term, str(coefficient))
                total = self._emit("add", total, term)
            self._names[d] = total
        return self._names[d]

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            assert atom == ROWS, f"{atom} is no extent of a bundle"
            return f"%{ROWS}"
        left, right = self.of(atom.left), self.of(atom.right)
        if atom.op in ("max", "min"):
            first = self._line(f"icmp s{'gt' if atom.op == 'max' else 'lt'} i64 {left}, {right}")
            return self._line(f"select i1 {first}, i64 {left}, i64 {right}")
        rest = self._line(f"srem i64 {left}, {right}")
        signs = self._line(f"xor i64 {rest}, {right}")
        apart = self._line(f"icmp slt i64 {signs}, 0")
        some = self._line(f"icmp ne i64 {rest}, 0")
        low = self._line(f"and i1 {apart}, {some}")
        if atom.op == "%":
            moved = self._line(f"add i64 {rest}, {right}")
            return self._line(f"select i1 {low}, i64 {moved}, i64 {rest}")
        quotient = self._line(f"sdiv i64 {left}, {right}")
        lower = self._line(f"sub i64 {quotient}, 1")
        return self._line(f"select i1 {low}, i64 {lower}, i64 {quotient}")

    def _emit(self, op: str, x: str, y: str) -> str:
        neutral = "1" if op == "mul" else "0"
        if neutral in (x, y):
            return y if x == neutral else x
        return self._line(f"{op} i64 {x}, {y}")

    def _line(self, text: str) -> str:
        name = self._fresh()
        self.lines.append(f"  {name} = {text}")
        return name


def spelled(d: Dim) -> str:
    """Return an extent as an expression of C and of JavaScript, where functions are defined."""
    if not isinstance(d, Sym):
        return str(d)
    terms = []
    for monomial, coefficient in d.terms:
        factors = [_spelled_atom(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.append(str(coefficient))
        terms.append(" * ".join(factors))
    text = " + ".join(terms).replace("+ -", "- ")
    return f"({text})" if len(terms) > 1 else text


def _spelled_atom(atom: Atom) -> str:
    if isinstance(atom, str):
        assert atom == ROWS, f"{atom} is no extent of a bundle"
        return ROWS
    return f"{_FUNCTIONS[atom.op]}({spelled(atom.left)}, {spelled(atom.right)})"


_FUNCTIONS = {"//": "quotient_of", "%": "rest_of", "max": "larger_of", "min": "smaller_of"}

C_FUNCTIONS = """\
/* Quotients and remainders that are rounded down, and the larger and the smaller of two. */
static inline int64_t quotient_of(int64_t x, int64_t y) {
  return x / y - (x % y != 0 && (x % y < 0) != (y < 0));
}
static inline int64_t rest_of(int64_t x, int64_t y) {
  return x - y * quotient_of(x, y);
}
static inline int64_t larger_of(int64_t x, int64_t y) { return x > y ? x : y; }
static inline int64_t smaller_of(int64_t x, int64_t y) { return x < y ? x : y; }
"""
"""What expressions call."""
