"""Extents: an int, or a polynomial in named symbols when the model leaves a size open.

A `Sym` is kept in one canonical form, a sum of integer multiples of products of atoms, so that
equal expressions compare equal.  An atom is a name, a floor quotient or remainder that does not
divide out, or the larger or smaller of two extents.  `bind` puts numbers in place of names.

Under an `Assumption` a Sym behaves as the number that it stands for: it can be compared, counted
to, and used as an index.  Every answer that another number might have changed is written down as
a guard, so that what was built by such answers is right wherever all the guards hold.  That is
how code that is written for numbers compiles models whose extents are open.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeGuard, overload

from alpenglow.base.errors import ParseError
from alpenglow.base.expression import parse_expression
from alpenglow.base.words import shown


class Assumption:
    """What symbols are taken to stand for, and what has been concluded from it.

    `guards` holds each conclusion as (expression, relation): ``expression relation 0``.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = dict(values)
        self.guards: dict[tuple[Sym, str], None] = {}

    def decide(self, x: Dim, relation: str) -> bool:
        """Return whether ``x relation 0``; remember the answer where it depends on symbols."""
        value = bind(x, self.values)
        assert isinstance(value, int), f"{value} is open under {self.values}"
        holds = RELATIONS[relation](value)
        if isinstance(x, Sym):
            self.guards[x, relation if holds else OPPOSITE[relation]] = None
        return holds

    def differ(self, x: Dim) -> bool:
        """Whether x is not 0, without a guard."""
        return bind(x, self.values) != 0

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether all that was concluded is true of other values of the symbols, too."""
        return holds(tuple(self.guards), values)


class Told(Assumption):
    """An assumption from a file, maybe not of all symbols: the others may not be compared."""

    def decide(self, x: Dim, relation: str) -> bool:
        if missing := names(x) - self.values.keys():
            raise ParseError(
                f"{x} has no value: {', '.join(sorted(missing))} is missing in the values"
            )
        return super().decide(x, relation)


RELATIONS: dict[str, Callable[[int], bool]] = {
    "==": lambda x: x == 0,
    "!=": lambda x: x != 0,
    "<": lambda x: x < 0,
    ">=": lambda x: x >= 0,
}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


def holds(guards: Guards, values: Mapping[str, int]) -> bool:
    """Whether conclusions are true of these values of the symbols."""
    for x, relation in guards:
        value = bind(x, values)
        if not isinstance(value, int) or not RELATIONS[relation](value):
            return False
    return True


_current: ContextVar[Assumption | None] = ContextVar("assumption", default=None)


@contextlib.contextmanager
def assuming(assumption: Assumption | None) -> Iterator[Assumption | None]:
    """Let symbols be numbers inside this block; None ends an assumption for its duration."""
    token = _current.set(assumption)
    try:
        yield assumption
    finally:
        _current.reset(token)


def assumed() -> Assumption | None:
    """Return the present assumption."""
    return _current.get()


def is_open(dim: object) -> bool:
    """Whether an extent is a symbol, also where it passes for a number under an assumption."""
    return isinstance(dim, Sym)


def known(dim: object) -> TypeGuard[int]:
    """Whether `dim` is a number, or stands for one under the present assumption."""
    if isinstance(dim, int):
        return True
    assumption = _current.get()
    if assumption is None or not isinstance(dim, Sym):
        return False
    return names(dim) <= assumption.values.keys()


def estimate(dim: Dim) -> int:
    """Return the number that `dim` stands for, without a guard: for choices that are right anyway.

    Only heuristics may ask: which order, which tile, which thread.
    """
    if isinstance(dim, int):
        return dim
    assumption = _current.get()
    assert assumption is not None, f"{dim} is open"
    value = bind(dim, assumption.values)
    assert isinstance(value, int), f"{dim} is open under {assumption.values}"
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """An atom of two extents: `left // right` or `left % right`, where the division does not come
    out even, or ``max(left,right)`` or ``min(left,right)``, where it depends."""

    op: str
    left: Sym
    right: Sym

    # Whether expressions are the same is no question about numbers: see Sym.__eq__.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ratio):
            return NotImplemented
        mine, theirs = (self.left.terms, self.right.terms), (other.left.terms, other.right.terms)
        return self.op == other.op and mine == theirs

    def __hash__(self) -> int:
        return hash((self.op, self.left.terms, self.right.terms))

    def __str__(self) -> str:
        if self.op in ("max", "min"):
            return f"{self.op}({self.left},{self.right})"
        left = f"({self.left})" if len(self.left.terms) > 1 else str(self.left)
        # On the right of // and % a product needs parentheses too: N//2*M is (N//2)*M.
        right = str(self.right)
        if len(self.right.terms) > 1 or "*" in right:
            right = f"({right})"
        return f"({left}{self.op}{right})"


Atom = str | Ratio
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sym:
    """A polynomial: sorted (monomial, coefficient) pairs without zeros."""

    terms: tuple[tuple[Monomial, int], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sym | int):
            return NotImplemented
        if isinstance(other, Sym) and self.terms == other.terms:
            return True
        assumption = _current.get()
        if assumption is None:
            return False
        # What is built for extents that differ is right, if not as good, where they are the same.
        # Only being 0 or 1 is special: there is nothing to compute, or it is stretched.
        special = isinstance(other, int) and other in (0, 1)
        if not special and assumption.differ(self - other):
            return False
        return _decide(self - other, "==")

    def __hash__(self) -> int:
        return hash(self.terms)

    def __lt__(self, other: Dim) -> bool:
        return _decide(self - other, "<")

    def __ge__(self, other: Dim) -> bool:
        return not self < other

    def __gt__(self, other: Dim) -> bool:
        return _decide(other - self, "<")

    def __le__(self, other: Dim) -> bool:
        return not self > other

    def __index__(self) -> int:
        value = estimate(self)
        _decide(self - value, "==")
        return value

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __truediv__(self, other: float) -> float:
        return int(self) / other

    def __rtruediv__(self, other: float) -> float:
        return other / int(self)

    def __bool__(self) -> bool:
        # Outside of assumptions, as for any object: a Sym is something.
        return _current.get() is None or not _decide(self, "==")

    def __add__(self, other: Dim) -> Dim:
        return _collect((*self.terms, *_terms(other)))

    def __mul__(self, other: Dim) -> Dim:
        return _collect([(_sorted(m + n), a * b) for m, a in self.terms for n, b in _terms(other)])

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __neg__(self) -> Dim:
        return self * -1

    def __floordiv__(self, other: Dim) -> Dim:
        return _divide(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _divide(other, self)

    def __mod__(self, other: Dim) -> Dim:
        if isinstance(other, int) and all(c % other == 0 for _, c in self.terms):
            return 0
        return Sym((((Ratio("%", self, _sym(other)),), 1),))

    def __rmod__(self, other: Dim) -> Dim:
        return Sym((((Ratio("%", _sym(other), self),), 1),))

    def __divmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return self // other, self % other

    def __abs__(self) -> Dim:
        return -self if self < 0 else self

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        text = "+".join(_term_text(m, c) for m, c in self.terms).replace("+-", "-")
        return text or "0"

    __repr__ = __str__


Dim = int | Sym

MOST_TERMS = 16
"""A quotient of more terms is left as it stands."""

_ELEMENT = re.compile(r"__e\d+$")

Guards = Sequence[tuple[Sym, str]]
"""Conclusions from an assumption: ``expression relation 0``."""


def symbol(name: str) -> Sym:
    """Return the extent that is called `name` (a Python identifier)."""
    assert name.isidentifier(), name
    return Sym((((name,), 1),))


def product(dims: Sequence[Dim]) -> Dim:
    """Return the product of all `dims`; 1 for none."""
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


def element(of: str, number: int) -> Sym:
    """Return the symbol of an element of an integer tensor, which may be negative."""
    return symbol(f"{of}__e{number}")


def is_element(name: str) -> bool:
    """Whether a symbol is that of an element; the others are those of extents."""
    return _ELEMENT.search(name) is not None


def larger(a: Dim, b: Dim) -> Dim:
    """Return the larger of two extents."""
    return _pick("max", a, b)


def smaller(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two extents."""
    return _pick("min", a, b)


def natural(x: Dim) -> bool:
    """Whether x >= 0 for all extents there are; elements of tensors may be anything."""
    if not isinstance(x, Sym):
        return x >= 0
    return all(c > 0 and all(map(_is_natural, monomial)) for monomial, c in x.terms)


def _is_natural(atom: Atom) -> bool:
    if isinstance(atom, str):
        return not is_element(atom)
    if atom.op == "max":
        return natural(atom.left) or natural(atom.right)
    if atom.op == "%":  # what is left has the sign of what is divided by
        return natural(atom.right)
    return natural(atom.left) and natural(atom.right)


def solution(x: Dim) -> tuple[str, int] | None:
    """Return a symbol and the number that it must be if x is 0; None if x leaves it open."""
    terms = x.terms if isinstance(x, Sym) else ()
    rest = sum(c for monomial, c in terms if not monomial)
    match [(monomial, c) for monomial, c in terms if monomial]:
        case [((str() as name,), factor)] if rest % factor == 0:
            return name, -rest // factor
    return None


def names(dim: Dim) -> set[str]:
    """Return the symbols that occur in `dim`."""
    symbols: set[str] = set()
    if isinstance(dim, Sym):
        for monomial, _ in dim.terms:
            for atom in monomial:
                symbols |= {atom} if isinstance(atom, str) else names(atom.left) | names(atom.right)
    return symbols


def bind(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Put `values` in place of the symbols they name."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        total = total + coefficient * product([_bind_atom(a, values) for a in monomial])
    return total


def parse(text: str) -> Dim:
    """Read what `str` wrote."""
    if text.isdecimal() and len(text) < 20:  # nearly always, and Python's own parser is slow
        return int(text)
    return from_ast(parse_expression(text, "dimension"))


def from_ast(tree: ast.expr) -> Dim:
    """Turn a Python expression over ints and names into an extent."""
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return from_ast(x) * -1
        case ast.BinOp(left=x, op=op, right=y):
            a, b = from_ast(x), from_ast(y)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case _ if not is_open(b) and b == 0:  # reading a text asks nothing of symbols
                    text = shown(ast.unparse(tree))
                    raise ParseError(f"dimension '{text}' divides by 0, expected another divisor")
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
        case ast.Call(func=ast.Name(id="max" | "min" as pick), args=[x, y], keywords=[]):
            return _pick(pick, from_ast(x), from_ast(y))
    raise ParseError(f"dimension is '{shown(ast.unparse(tree))}', expected an integer expression")


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: Dim, b: Dim) -> Dim: ...
def ceil_div(a: Dim, b: Dim) -> Dim:
    """Return a / b rounded up, for b > 0."""
    return (a + b - 1) // b


def decided(x: Dim, relation: str) -> bool:
    """Whether ``x relation 0``: of a number, or under an assumption, with a guard."""
    return _decide(x, relation)


def quotient(a: Dim, b: int) -> Dim:
    """Return a // b in one form: multiples of b outside, and the quotient of a quotient as one.

    `//` keeps what is divided as it stands, which says what a loop in tiles goes through; extents
    deep in a network, halved again and again, would be towers of quotients.
    """
    if not isinstance(a, Sym) or b <= 0:
        return a // b
    outside = [(m, c // b) for m, c in a.terms if not m or c % b == 0]
    inside = _collect([(m, c if m else c % b) for m, c in a.terms if not m or c % b])
    if isinstance(inside, int):
        return _collect(outside)
    (monomial, factor), *others = inside.terms
    rest = others[0][1] if others else 0
    if factor == 1 and len(monomial) == 1 and all(not m for m, _ in others):
        atom = monomial[0]
        by = atom.right.terms if isinstance(atom, Ratio) and atom.op == "//" else ()
        if isinstance(atom, Ratio) and len(by) == 1 and by[0][0] == () and by[0][1] > 0:
            whole = quotient(atom.left + rest * by[0][1], b * by[0][1])
            return _collect([*outside, *_terms(whole)])
    return _collect([*outside, *_terms(inside // b)])


def _decide(x: Dim, relation: str) -> bool:
    if isinstance(x, int):
        return RELATIONS[relation](x)
    assumption = _current.get()
    if assumption is None:
        raise TypeError(f"cannot decide {x} {relation} 0: expected fixed dimensions")
    return assumption.decide(x, relation)


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, Sym) else (((), dim),)


def _sym(dim: Dim) -> Sym:
    return dim if isinstance(dim, Sym) else Sym(_terms(dim))


def _sorted(monomial: Monomial) -> Monomial:
    return tuple(sorted(monomial, key=str))


def _collect(terms: Sequence[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = {m: c for m, c in total.items() if c}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    # The constant comes last, as people write it.
    return Sym(tuple(sorted(kept.items(), key=lambda t: (not t[0], str(t[0])))))


def _pick(op: str, a: Dim, b: Dim) -> Dim:
    """Return the larger or the smaller of two extents: one of them where that is plain."""
    difference = a - b
    if natural(difference):
        return a if op == "max" else b
    if natural(-difference):
        return b if op == "max" else a
    left, right = sorted((_sym(a), _sym(b)), key=str)
    return Sym((((Ratio(op, left, right),), 1),))


def _divide(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int) and b == 1:
        return a
    if isinstance(a, Sym) and isinstance(b, Sym) and a.terms == b.terms:
        return 1
    if isinstance(b, int) and isinstance(a, Sym) and all(c % b == 0 for _, c in a.terms):
        return _collect([(m, c // b) for m, c in a.terms])
    if isinstance(b, Sym) and len(b.terms) == 1 and isinstance(a, Sym):
        exact = [_cancel(m, c, *b.terms[0]) for m, c in a.terms]
        if all(t is not None for t in exact):
            return _collect([t for t in exact if t is not None])
    if isinstance(b, Sym) and isinstance(a, Sym) and (ratio := _quotient(a, b)) is not None:
        return ratio
    return Sym((((Ratio("//", _sym(a), _sym(b)),), 1),))


def _quotient(a: Sym, b: Sym) -> Dim | None:
    """Return a / b where that comes out even, in few terms: b times it is a."""
    ratio: Dim = 0
    rest: Dim = a
    for _ in range(MOST_TERMS):
        assert isinstance(rest, Sym), "what is left has a term"
        term = _cancel(*_leading(rest), *_leading(b))
        if term is None:
            return None
        ratio = ratio + Sym((term,))
        rest = rest - b * Sym((term,))
        if isinstance(rest, int):
            return ratio if rest == 0 else None
    return None


def _leading(x: Sym) -> tuple[Monomial, int]:
    """Return the term that comes first in an order of monomials that products keep."""
    return max(x.terms, key=lambda t: (len(t[0]), [str(a) for a in t[0]]))


def _cancel(m: Monomial, c: int, by: Monomial, d: int) -> tuple[Monomial, int] | None:
    rest = list(m)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return None if c % d else (tuple(rest), c // d)


def _bind_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        return values.get(atom, symbol(atom))
    a, b = bind(atom.left, values), bind(atom.right, values)
    if atom.op in ("max", "min"):
        return _pick(atom.op, a, b)
    return a // b if atom.op == "//" else a % b


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [str(a) for a in monomial]
    if not factors:
        return str(coefficient)
    if coefficient == -1:
        return "-" + "*".join(factors)
    return "*".join([*([str(coefficient)] if coefficient != 1 else []), *factors])
