"""PyTorch's expressions of extents, and what it knows of their symbols, as ours.

An object's expression (sympy's) is text of Python's, with a few functions whose names PyTorch made
up (torch.utils._sympy.functions).  In a file the same is written with functions alone (`srepr`):
``Add(Symbol('s0', integer=True), Integer(1))``.  Conditions on extents become guards: each is
``expression relation 0``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.expression import parse_expression
from alpenglow.base.words import shown
from alpenglow.ir.dims import (
    OPPOSITE,
    RELATIONS,
    Atom,
    Dim,
    Guards,
    Monomial,
    Sym,
    bind,
    element,
    is_element,
    larger,
    natural,
    product,
    smaller,
    symbol,
)

UNBACKED = re.compile(r"u(\d+)")
"""Symbols whose values are data, as elements of tensors: they may be negative."""

FLOAT = re.compile(r"zu?f\d+")
"""Symbols of numbers that may have fractions."""

UNTOLD = "u_"
"""What our symbols for them are elements of: no word of the runtime's ends so."""

OPERATORS: Mapping[str, ast.operator] = {"Add": ast.Add(), "Mul": ast.Mult(), "Pow": ast.Pow()}
COMPARISONS: Mapping[str, ast.cmpop] = {
    "Eq": ast.Eq(), "Equality": ast.Eq(), "Ne": ast.NotEq(), "Unequality": ast.NotEq(),
    "GreaterThan": ast.GtE(), "StrictGreaterThan": ast.Gt(), "LessThan": ast.LtE(),
    "StrictLessThan": ast.Lt(),
}  # fmt: skip
"""The names of operators in `srepr` of sympy, which writes functions alone."""

LONGEST = 4000
"""How many letters the names in a polynomial may have, with one for each term."""

MOST_TERMS = 4096
"""How many terms a product may have."""

Ranges = Mapping[str, tuple[int, int | None]]

LEAST = -(1 << 62)
"""A lower bound that says nothing."""

FINEST = 1 << 20
"""The largest denominator of a factor: products of larger ones and extents are rounded."""


def extent(text: str) -> Dim:
    """Read an expression of symbols; raise UnsupportedError if `Dim` cannot express it."""
    if text.isdecimal():
        return int(text)
    return _Reader(text).dim(parse_expression(text, "dimension"))


def named(name: str) -> Sym:
    """Return the symbol for a name in PyTorch."""
    if not name.isidentifier():
        raise ModelError(f"symbol '{shown(name)}' is not supported, expected an identifier")
    if FLOAT.fullmatch(name):
        raise UnsupportedError(f"symbol '{name}' is a float, expected an integer")
    unbacked = UNBACKED.fullmatch(name)
    return symbol(name) if unbacked is None else element(UNTOLD, int(unbacked[1]))


def untold(name: str, prefix: str) -> Sym:
    """Return the symbol of a copied function that a symbol of the function becomes."""
    number = re.sub(r"\D", "", name.rpartition("__e")[2])
    return element(f"{UNTOLD}{re.sub('[^A-Za-z0-9]', '_', prefix)}", int(number or 0))


def is_untold(name: str) -> bool:
    """Return True if a symbol is the value of data in PyTorch."""
    return name.startswith(UNTOLD) and is_element(name)


def conditions(text: str, leaf: Callable[[ast.expr], Dim | None] | None = None) -> Guards:
    """Read a condition on extents: what must hold, all of it; () if it always does.

    `leaf` returns the extent of an expression that is not made of symbols.
    Raises UnsupportedError for a condition that guards cannot express, and ModelError for a
    condition that never holds.
    """
    reader = _Reader(text, leaf)
    demands: list[tuple[Sym, str]] = []
    for x, relation in reader.demands(parse_expression(text, "condition")):
        if isinstance(x, Sym):
            demands.append((x, relation))
        elif not RELATIONS[relation](x):
            raise ModelError(f"the condition '{shown(text)}' never holds, "
                             "expected one that can be true")  # fmt: skip
    return tuple(demands)


@dataclass(frozen=True, slots=True)
class _Real:
    """A real number ``over / under``; `exact` if PyTorch computes it without rounding."""

    over: Dim
    under: Dim = 1
    exact: bool = True


class _Reader:
    """The reading of one text, which messages show."""

    def __init__(
        self, text: str, leaf: Callable[[ast.expr], Dim | None] | None = None
    ) -> None:  # fmt: skip
        self._text = text
        self._leaf = leaf

    def dim(self, tree: ast.expr) -> Dim:
        """Return a whole number."""
        if self._leaf is not None and (told := self._leaf(tree)) is not None:
            return told
        match tree:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                return named(name)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return self.dim(x) * -1
            case ast.BinOp(left=x, op=op, right=y):
                return self._combined(op, self.dim(x), self.dim(y))
            case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
                return named(name)
            case ast.Call(args=arguments, keywords=[]):
                return self._applied(_name(tree.func), arguments)
        raise self._unsayable()

    def _applied(self, function: str, arguments: list[ast.expr]) -> Dim:
        match function, arguments:
            case "Integer", [x]:
                return self.dim(x)
            case "Add" | "Mul" | "Pow", [first, *others]:
                total = self.dim(first)
                for other in others:
                    total = self._combined(OPERATORS[function], total, self.dim(other))
                return total
            case "FloorDiv" | "CleanDiv", [x, y]:
                return self._combined(ast.FloorDiv(), self.dim(x), self.dim(y))
            case "Mod" | "PythonMod", [x, y]:
                return self._combined(ast.Mod(), self.dim(x), self.dim(y))
            case "CeilDiv", [x, y]:
                return -self._combined(ast.FloorDiv(), -self.dim(x), self.dim(y))
            case "ModularIndexing", [x, y, z]:
                whole = self._combined(ast.FloorDiv(), self.dim(x), self.dim(y))
                return self._combined(ast.Mod(), whole, self.dim(z))
            case "PowByNatural", [x, y]:
                return self._combined(ast.Pow(), self.dim(x), self.dim(y))
            case "Piecewise", [ast.Tuple(elts=[x, condition]), ast.Tuple(elts=[y, _])]:
                otherwise = self.dim(y)
                return otherwise + (self.dim(x) - otherwise) * indicator(self.demands(condition))
            case "Identity", [x]:
                return self.dim(x)
            case "Max" | "max" | "Min" | "min", [first, *others]:
                pick = larger if function.lower() == "max" else smaller
                best = self.dim(first)
                for other in others:
                    best = self._short(pick(best, self.dim(other)))
                return best
            case "Abs" | "abs", [x]:
                inner = self.dim(x)
                return larger(inner, -inner)
            case "TruncToInt" | "trunc", [x]:
                return self._truncated(self._real(x))
            case "FloorToInt" | "floor", [x]:
                return self._rounded_down(self._real(x))
            case "CeilToInt" | "ceil" | "ceiling", [x]:
                real = self._real(x)
                return -self._rounded_down(_Real(-real.over, real.under, real.exact))
        raise self._unsayable()

    def _real(self, tree: ast.expr) -> _Real:
        match tree:
            case ast.Constant(value=float(value)):
                over, under = self._fraction(value)
                return _Real(over, under)
            case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(digits))]):
                return _Real(*self._fraction(float(digits)))
            case ast.Call(func=ast.Name(id="Add" | "Mul" as name), args=[first, *others]):
                total = self._real(first)
                for other in others:
                    total = self._exactly(OPERATORS[name], total, self._real(other))
                return total
            case ast.UnaryOp(op=ast.USub(), operand=x):
                real = self._real(x)
                return _Real(-real.over, real.under, real.exact)
            case ast.BinOp(left=x, op=ast.Mult() | ast.Add() | ast.Sub() as op, right=y):
                return self._exactly(op, self._real(x), self._real(y))
            case ast.BinOp(left=x, op=ast.Div(), right=y):
                return self._quotient(self._real(x), self._real(y))
            case ast.Call(args=[x, y]) if _name(tree.func) in ("IntTrueDiv", "FloatTrueDiv"):
                return self._quotient(self._real(x), self._real(y))
            case ast.Call(args=[x]) if _name(tree.func) in ("ToFloat", "float"):
                return self._real(x)
        return _Real(self.dim(tree))

    def _fraction(self, value: float) -> tuple[int, int]:
        if value in (float("inf"), float("-inf")) or value != value:
            raise self._unsayable()
        over, under = value.as_integer_ratio()
        if under > FINEST or abs(over) > FINEST:
            raise self._refused(f"computed from {value}", "a short binary fraction")
        return over, under

    def _exactly(self, op: ast.operator, a: _Real, b: _Real) -> _Real:
        """Return a sum or product of what nothing has rounded: it is below 2^53, so it is exact."""
        if not a.exact or not b.exact:
            raise self._rounded()
        if isinstance(op, ast.Mult):
            return _Real(a.over * b.over, a.under * b.under)
        left, right = a.over * b.under, b.over * a.under
        return _Real(left + right if isinstance(op, ast.Add) else left - right, a.under * b.under)

    def _quotient(self, a: _Real, b: _Real) -> _Real:
        """Return a quotient, rounded once: of numbers below 2^53 it is whole only if it is so."""
        if not a.exact or not b.exact:
            raise self._rounded()
        under = a.under * b.over
        if not natural(under) or under == 0:
            raise self._unsayable()
        return _Real(a.over * b.under, under, exact=False)

    def _rounded_down(self, real: _Real) -> Dim:
        return self._combined(ast.FloorDiv(), real.over, real.under)

    def _truncated(self, real: _Real) -> Dim:
        if natural(real.over):
            return self._rounded_down(real)
        away = self._rounded_down(_Real(larger(-real.over, 0), real.under))
        return self._rounded_down(_Real(larger(real.over, 0), real.under)) - away

    def _combined(self, op: ast.operator, a: Dim, b: Dim) -> Dim:
        """Return the result of an operator on two extents.

        A short text can say a polynomial that has no end: powers of sums, quotients of powers.
        """
        if isinstance(op, ast.Mult) and len(_terms(a)) * len(_terms(b)) > MOST_TERMS:
            raise self._too_long()
        return self._short(self._computed(op, a, b))

    def _short(self, x: Dim) -> Dim:
        """Return an extent; raise UnsupportedError if it is long, or its factors are."""
        terms = _terms(x)
        length = sum(1 + sum(len(str(name)) for name in names) for names, _ in terms)
        if length > LONGEST or any(abs(factor) >> 63 for _, factor in terms):
            raise self._too_long()
        return x

    def _computed(self, op: ast.operator, a: Dim, b: Dim) -> Dim:
        match op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.Pow() if isinstance(b, int) and 0 <= b <= 8:
                power: Dim = 1
                for _ in range(b):
                    power = self._combined(ast.Mult(), power, a)
                return power
            case ast.FloorDiv() | ast.Mod() if isinstance(b, int) and b == 0:
                raise ModelError(f"the dimension '{shown(self._text)}' divides by 0, expected "
                                 "another divisor")  # fmt: skip
            case ast.FloorDiv():
                return a // b
            case ast.Mod():
                return a % b
        raise self._unsayable()

    def demands(self, tree: ast.expr) -> list[tuple[Dim, str]]:
        """Return the guards that a condition demands, all of them."""
        match tree:
            case ast.Constant(value=bool(value)):
                return [(0, "==" if value else "!=")]
            case ast.BoolOp(op=ast.And(), values=parts):
                return [d for part in parts for d in self.demands(part)]
            case ast.BoolOp(op=ast.Or(), values=parts):
                return [self._one_of(parts)]
            case ast.BinOp(left=x, op=ast.BitOr(), right=y):
                return [self._one_of([x, y])]
            case ast.Call(func=ast.Name(id="Or"), args=parts):
                return [self._one_of(parts)]
            case ast.BinOp(left=x, op=ast.BitAnd(), right=y):
                return [*self.demands(x), *self.demands(y)]
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=x):
                inner = self.demands(x)
                if len(inner) != 1:
                    raise self._unsayable()
                return [(inner[0][0], OPPOSITE[inner[0][1]])]
            case ast.Name(id="true" | "false" as name):
                return [(0, "==" if name == "true" else "!=")]
            case ast.Call(func=ast.Name(id="And"), args=parts):
                return [d for part in parts for d in self.demands(part)]
            case ast.Call(func=ast.Name(id="Not"), args=[x]):
                return self.demands(ast.UnaryOp(ast.Not(), x))
            case ast.Call(args=[x, y]) if (function := _name(tree.func)) in COMPARISONS:
                return self._comparison(x, COMPARISONS[function], y)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                pairs = zip(sides, ops, sides[1:], strict=False)
                return [d for a, op, b in pairs for d in self._comparison(a, op, b)]
        raise self._no_comparison()

    def _one_of(self, parts: Sequence[ast.expr]) -> tuple[Dim, str]:
        """Return that one of several conditions holds: that not all of them are 0."""
        truths = [indicator(self.demands(part)) for part in parts]
        return reduce(larger, truths), "!="

    def _comparison(
        self, left: ast.expr, op: ast.cmpop, right: ast.expr
    ) -> list[tuple[Dim, str]]:  # fmt: skip
        """Return the guards of a comparison; a maximum or minimum gives one guard per argument."""
        lows, highs = [left], [right]
        if isinstance(op, ast.Lt | ast.LtE):
            lows, highs = _several(left, "max"), _several(right, "min")
        elif isinstance(op, ast.Gt | ast.GtE):
            lows, highs = _several(left, "min"), _several(right, "max")
        return [self._compared(self.dim(a), op, self.dim(b)) for a in lows for b in highs]

    def _compared(self, a: Dim, op: ast.cmpop, b: Dim) -> tuple[Dim, str]:
        match op:
            case ast.Eq():
                return a - b, "=="
            case ast.NotEq():
                return a - b, "!="
            case ast.Lt():
                return a - b, "<"
            case ast.GtE():
                return a - b, ">="
            case ast.Gt():
                return b - a, "<"
            case ast.LtE():
                return b - a, ">="
        raise self._no_comparison()

    def _no_comparison(self) -> UnsupportedError:
        return UnsupportedError(
            f"the condition '{shown(self._text)}' is not supported, expected a comparison"
        )

    def _too_long(self) -> UnsupportedError:
        return self._refused("too long", f"at most {MOST_TERMS} terms of 63-bit factors")

    def _unsayable(self) -> UnsupportedError:
        return self._refused("not supported", "polynomials of dimensions or a quotient")

    def _rounded(self) -> UnsupportedError:
        return self._refused("rounded twice as a float", "at most once")

    def _refused(self, found: str, expected: str) -> UnsupportedError:
        what = f"the dimension '{shown(self._text)}'"
        return UnsupportedError(f"{what} is {found}, expected {expected}")


def _terms(x: Dim) -> tuple[tuple[Monomial, int], ...]:
    return x.terms if isinstance(x, Sym) else (((), x),)


def _several(tree: ast.expr, function: str) -> list[ast.expr]:
    """Return the arguments of a largest or smallest number, or the expression itself."""
    if isinstance(tree, ast.Call) and _name(tree.func).lower() == function:
        return list(tree.args)
    return [tree]


def _name(function: ast.expr) -> str:
    """Return the last part of a function's name: ``trunc`` for ``math.trunc``."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def guards(ranges: Ranges, symbols: set[str]) -> Guards:
    """Return the guards for the ranges of these symbols."""
    demands: list[tuple[Sym, str]] = []
    for name in sorted(symbols & ranges.keys()):
        demands += [(x, r) for x, r in bounds(symbol(name), *ranges[name]) if isinstance(x, Sym)]
    return tuple(demands)


def bounds(x: Dim, low: int, high: int | None) -> list[tuple[Dim, str]]:
    """Return the guards by which x is from `low` to `high`."""
    lower: list[tuple[Dim, str]] = [(x - low, ">=")] if low > LEAST else []
    return [*lower, *([] if high is None else [(x - high - 1, "<")])]


class Tidy:
    """Extents in fewer words, by what is known of their symbols.

    Of two extents the larger is one of them where ranges say so; one that must be the same as
    another is that other where it is shorter.
    """

    def __init__(self, ranges: Ranges, demands: Guards) -> None:
        self._least = {n: symbol(n) + low for n, (low, _) in ranges.items() if low > 0}
        self._zero = [x for x, relation in demands if relation == "=="]
        self._known: dict[Sym, Dim] = {}

    def __call__(self, x: Dim) -> Dim:
        """Return an extent in fewer words."""
        if not isinstance(x, Sym):
            return x
        if x not in self._known:
            self._known[x] = self._shorter(self._picked(x))
        return self._known[x]

    def _picked(self, x: Dim) -> Dim:
        total: Dim = 0
        for monomial, c in x.terms if isinstance(x, Sym) else (((), x),):
            total = total + c * product([self._atom(a) for a in monomial])
        return total

    def _atom(self, atom: Atom) -> Dim:
        if isinstance(atom, str):
            return symbol(atom)
        left, right = self._picked(atom.left), self._picked(atom.right)
        if atom.op == "//":
            return left // right
        if atom.op == "%":
            return left % right
        high = natural(bind(left - right, self._least))
        if high or natural(bind(right - left, self._least)):
            return left if high == (atom.op == "max") else right
        return larger(left, right) if atom.op == "max" else smaller(left, right)

    def _shorter(self, x: Dim) -> Dim:
        for zero in self._zero:
            x = min((x, x - zero, x + zero), key=lambda d: len(str(d)))
        return x


def indicator(guards: Iterable[tuple[Dim, str]]) -> Dim:
    """Return 1 where all guards hold, else 0, as an extent."""
    return product([_indicator(x, relation) for x, relation in guards])


def _indicator(x: Dim, relation: str) -> Dim:
    if relation in ("<", ">="):
        less = smaller(larger(-x, 0), 1)
        return less if relation == "<" else 1 - less
    differs = smaller(larger(x, -x), 1)
    return differs if relation == "!=" else 1 - differs
