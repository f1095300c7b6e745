"""Complex numbers during import: their parts, functions of these, and their order."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.complex_functions import FUNCTIONS, Pair
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ops.comparison import Equal, Greater, Less
from alpenglow.ops.complex import bare_parts, joined
from alpenglow.ops.logic import BitAnd, BitOr
from alpenglow.ops.movement import append_axes


def parts_of(s: Site, x: Value) -> tuple[Value, Value]:
    """Return the real parts and the imaginary ones, in the shape of x."""
    real, imaginary = bare_parts(s.g, x)
    return real, imaginary


def of_parts(s: Site, real: Value, imaginary: Value) -> Value:
    """Return the complex numbers of these parts."""
    return joined(s.g, append_axes(s.g, real, 1), append_axes(s.g, imaginary, 1))


def by_parts(s: Site, op: type[Op], x: Value) -> Value:
    """Return a function of complex numbers that is called as an operator on reals."""
    if op not in FUNCTIONS:
        raise s.refuse("operands are complex")
    return by_function(s, FUNCTIONS[op], x)


def by_function(s: Site, function: Callable[[Graph, Pair], Pair], x: Value) -> Value:
    """Return a function of complex numbers that is given by what it makes of parts."""
    return of_parts(s, *function(s.g, parts_of(s, x)))


def lexical(s: Site, direction: str, x: Value, y: Value) -> Value:
    """Return where x is less (LT) or greater (GT) than y, by real parts, then imaginary ones."""
    op = Less() if direction == "LT" else Greater()
    (a, b), (c, d) = parts_of(s, x), parts_of(s, y)
    within = s.g(BitAnd(), s.g(Equal(), a, c), s.g(op, b, d))
    return s.g(BitOr(), s.g(op, a, c), within)
