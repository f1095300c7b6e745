"""Products of bytes, four neighbours at once, where a device has an instruction for that.

A word is an i32 that holds the bytes of four steps in a row, the first one lowest.  Sums are those
of the bytes one by one: integers wrap, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Compare, Const, Expr, Intrinsic
from alpenglow.loops.instruction import Frame
from alpenglow.machines.grid.templates.tile import Elements, Side
from alpenglow.ops.tensor.packing import DOTS

Sum = Callable[[Expr, Expr, Expr], Expr]
"""Returns the last operand plus products of the first two, of the left and of the right."""

WORD = DOTS["u8"]
"""Bytes in a word."""


def sum_of_words(left: str, right: str, target: Target) -> Sum | None:
    """Return how products of words of two types are added; None where bytes go one by one."""
    if not {left, right} <= set(target.facts.multiplies):
        return None
    match left, right:
        case "u8", "i8":
            return lambda x, y, total: Intrinsic("usdot", (total, x, y))
        case "i8", "u8":
            return lambda x, y, total: Intrinsic("usdot", (total, y, x))
        case "i8", "i8":
            return lambda x, y, total: Intrinsic("sdot", (total, x, y))
    return None


def in_words(k: Frame, left: Side, right: Side, inner: int) -> tuple[Side, Side, int]:
    """Return operands of `inner` bytes a line as operands of words, and how many words those are.

    Bytes past the end are 0.
    """
    return _in_words(k, left, inner), _in_words(k, right, inner), ceil_div(inner, WORD)


def _in_words(k: Frame, side: Side, inner: int) -> Side:

    def line(number: Expr) -> tuple[Elements, Expr | None]:
        element, there = side.line(number)

        def word(at: Expr) -> Expr:
            first = k.b.let(at * WORD)
            total = _part(element(first), 0)
            for i in range(1, WORD):
                step = k.b.let(first + i)
                byte = element(step) if inner % WORD == 0 else _inside(k, element, step, inner)
                total = Binary("or", total, _part(byte, i))
            return k.b.let(total)

        return word, there

    return replace(side, line=line)


def _inside(k: Frame, element: Elements, step: Expr, inner: int) -> Expr:
    zero = Const(0, "i32")
    return k.loops.when(Compare("lt", step, Const(inner)), lambda: element(step), zero)


def _part(byte: Expr, place: int) -> Expr:
    """Return a byte, which came as an i32 with its sign, at its place in a word."""
    bits = Binary("and", byte, Const(255, "i32"))
    return Binary("shl", bits, Const(8 * place, "i32")) if place else bits
