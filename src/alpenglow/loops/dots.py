"""Sums of products of bytes, four neighbours in a lane: what every machine can.

Templates and loop forms ask for `Dot(x, w, acc)`: acc plus, in each lane of i32, the products of
four u8 of x and four i8 of w.  A machine with an instruction for it brings its own
(`machines/vector/templates/products.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.kernel.expr import Binary, Bitcast, Const, Expr

Dot = Callable[[Expr, Expr, Expr], Expr]


def multiplied_bytes(x: Expr, w: Expr, acc: Expr) -> Expr:
    """Return acc + x·w by a product of i32 for each byte."""
    for one, weight in zip(single_bytes(x), signed_bytes(w), strict=True):
        acc = multiplied(one, weight, acc)
    return acc


def multiplied(x: Expr, w: Expr, acc: Expr) -> Expr:
    return Binary("add", acc, Binary("mul", x, w))


def signed_bytes(w: Expr) -> list[Expr]:
    """Return the four i8 in each lane, lowest first."""
    parts = [shifted("shl", w, 24 - 8 * i) for i in range(4)]
    return [shifted("shr", part, 24) for part in parts]


def single_bytes(x: Expr) -> list[Expr]:
    """Return the four u8 in each lane, lowest first."""
    unsigned = Bitcast(x, "u32")
    mask = Const(255, "u32", x.lanes)
    parts = [Binary("and", shifted("shr", unsigned, 8 * i), mask) for i in range(4)]
    return [Bitcast(part, "i32") for part in parts]


def shifted(op: str, x: Expr, bits: int) -> Expr:
    return x if bits == 0 else Binary(op, x, Const(bits, x.dtype, x.lanes))
