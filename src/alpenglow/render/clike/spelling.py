"""How languages that descend from C write signs, addresses, numbers and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Container

import numpy as np

from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Const, Expr, fold

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip

WRAPPING = ("add", "sub", "mul", "shl")
"""Operations whose overflow C leaves open where operands are signed."""

KEYWORDS = frozenset(
    {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
        "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
        "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
        "union", "unsigned", "void", "volatile", "while", "asm", "typeof",
    }
)  # fmt: skip


def address(e: Expr, value: Callable[[Expr], str], least: int = 1) -> str:
    """Return an address or extent, in parentheses if it binds less tightly than `least`.

    It is plain arithmetic of i64, which stays in range; `value` writes all else.
    """
    match _computed(e):
        case Const(value=number, lanes=1) as c:
            return str(int(number)) if number >= 0 else value(c)
        case Binary("add" | "sub" as op, x, y) if e.lanes == 1:
            text = f"{address(x, value, 1)} {SIGNS[op]} {address(y, value, 2)}"
            return text if least == 1 else f"({text})"
        case Binary("mul" | "div" | "rem" as op, x, y) if e.lanes == 1:
            text = f"{address(x, value, 2)} {SIGNS[op]} {address(y, value, 3)}"
            return text if least <= 2 else f"({text})"
    return value(e)


def _computed(e: Expr) -> Expr:
    """Return numbers alone as the number that they make: to C they are arithmetic of int."""
    if not isinstance(e, Binary) or e.lanes > 1:
        return e
    x, y = _computed(e.x), _computed(e.y)
    return fold(e.op, x, y) if isinstance(x, Const) and isinstance(y, Const) else e


def identifier(name: str, reserved: Container[str]) -> str:
    """Return a name that the language accepts."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in reserved or plain[:1].isdigit() else plain


def vector(dtype: str, lanes: int) -> str:
    """Return the mark of a type in the names of functions."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def unsigned(dtype: str) -> str:
    """Return the unsigned type of the width of `dtype`."""
    return f"u{DTYPES[dtype].itemsize * 8}"


def decimal(c: Const) -> str:
    """Return a literal of f32 or f64, exactly; "" for what has none."""
    value = DTYPES[c.dtype].type(c.value)
    if not np.isfinite(value):
        return ""
    digits = str(value)
    plain = digits if re.search(r"[.e]", digits) else f"{digits}.0"
    return plain + ("f" if c.dtype == "f32" else "")


def bare(text: str) -> str:
    """Take off parentheses around a whole expression."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


def negative(text: str) -> str:
    """Put a literal that begins with a sign in parentheses."""
    return f"({text})" if text.startswith("-") else text


def mentions(text: str, name: str) -> bool:
    """Whether `name` stands in C text as a word."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            return True
        at = text.find(name, at + 1)
    return False
