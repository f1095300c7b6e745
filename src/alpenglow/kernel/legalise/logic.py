"""Arithmetic on truth, by the operations that bits have."""

from __future__ import annotations

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Binary, Compare, Expr, Reduce
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import halved
from alpenglow.kernel.rewrite import rewrite
from alpenglow.kernel.stmt import Kernel

BITS = {"min": "and", "mul": "and", "max": "or", "add": "or"}


def without_logic(kernel: Kernel, lacks: Lacks) -> Kernel:
    """min(x, y)  =>  x and y; x < y  =>  not x and y; and so on for the other orders."""

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        match e:
            case Binary(op) if e.dtype == "bool" and op in BITS:
                return m.binary(BITS[op], *parts)
            case Reduce(op, x) if x.dtype == "bool" and BITS.get(op, op) == "or":
                return m.b.let(Reduce("or", parts[0])) if op != "or" else None
            case Reduce(op, x) if x.dtype == "bool" and op in BITS:
                return halved(m, parts[0], lambda a, b: m.bit_and(a, b))
            case Compare("lt" | "le" | "gt" | "ge" as op, x) if x.dtype == "bool":
                a, b = parts if op in ("lt", "le") else reversed(parts)
                return m.binary("and" if op in ("lt", "gt") else "or", m.bit_not(a), b)
        return None

    return rewrite(kernel, law) if lacks.logic else kernel
