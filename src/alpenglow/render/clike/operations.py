"""The operations of the kernel language as expressions of C.

Operands are text and bind tightly: names, calls, literals, or what stands in parentheses.  So does
each result.  Signed integers wrap by way of unsigned ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from alpenglow.ir.types import DTYPES, FLOATS, INTS, UNSIGNED
from alpenglow.kernel.expr import Const, signed
from alpenglow.render.clike.library import Library
from alpenglow.render.clike.spelling import SIGNS, WRAPPING, bare, unsigned, vector

_LOGIC = {"and": "&", "min": "&", "mul": "&", "or": "|", "max": "|", "add": "|", "xor": "^"}
_WHOLE = ("abs", "floor", "ceil", "round", "trunc")
"""Unary operations that leave unsigned integers as they are, and all but the first the others."""


class Operations(ABC):
    """Writes expressions of `lanes` elements, and notes in `library` what they call."""

    def __init__(self, library: Library, lanes: int = 1) -> None:
        self.library = library
        self.lanes = lanes

    def kind(self, dtype: str) -> str:
        return self.library.type(dtype, self.lanes)

    # ── what a dialect says ──

    @abstractmethod
    def constant(self, c: Const) -> str:
        """Return a number in all lanes."""

    @abstractmethod
    def called(self, op: str, dtype: str, *operands: str) -> str:
        """Return what has no operator, as a call."""

    @abstractmethod
    def truncated(self, x: str, source: str, target: str) -> str:
        """Convert floats to i32, i64 or u64; what does not fit becomes the least integer."""

    @abstractmethod
    def bitcast(self, x: str, source: str, target: str) -> str:
        """Return the bits of x as elements of the same width."""

    def lookup(self, table: tuple[float, ...], at: str) -> str:
        raise self.library.lacks("a table lookup")

    def intrinsic(self, name: str, *operands: str) -> str:
        raise self.library.lacks(name)

    def zero(self, dtype: str) -> str:
        return "0"

    def cast(self, x: str, target: str) -> str:
        """Convert numbers, but not floats to integers."""
        return f"(({self.kind(target)}){x})"

    def reread(self, x: str, target: str) -> str:
        """Return integers as those of another sign, as an operand of a binary operation."""
        return f"({self.kind(target)}){x}"

    # ── what all say ──

    def binary(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype in FLOATS:
            if op in ("add", "sub", "mul", "div"):
                return f"({a} {SIGNS[op]} {b})"
            return self.called(op, dtype, a, b)
        if dtype == "bool":
            if op not in _LOGIC:
                raise self.library.lacks(f"{op} of bool")
            return f"({a} {_LOGIC[op]} {b})"
        return self.integral(op, dtype, a, b)

    def integral(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype not in INTS:
            raise self.library.lacks(f"{op} of {dtype}")
        if op not in SIGNS:
            return self.called(op, dtype, a, b)
        widened = self.lanes == 1 and DTYPES[dtype].itemsize < 4
        if op in WRAPPING and (signed(dtype) or widened):
            wide = "u32" if widened else unsigned(dtype)
            total = f"({self.reread(a, wide)} {SIGNS[op]} {self.reread(b, wide)})"
            text = self.reread(total, dtype)
            return f"({text})" if text.startswith("(") else text
        return self.cut(f"{a} {SIGNS[op]} {b}", dtype)

    def cut(self, text: str, dtype: str) -> str:
        """Undo the widening of narrow scalars to int."""
        widened = self.lanes == 1 and DTYPES[dtype].itemsize < 4
        return f"(({self.kind(dtype)})({text}))" if widened else f"({text})"

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype in UNSIGNED and b in ("0", "0u", "0ull") and op in ("lt", "ge"):
            # Compilers wonder at what is always so.
            return "0" if op == "lt" else "1"
        return f"({a} {SIGNS[op]} {b})"

    def fma(self, dtype: str, a: str, b: str, c: str, loose: bool = False) -> str:
        """Return a * b + c, rounded once; if `loose`, twice where that is faster."""
        if dtype in FLOATS:
            return self.called("accumulate" if loose else "fma", dtype, a, b, c)
        return self.binary("add", dtype, self.binary("mul", dtype, a, b), c)

    def unary(self, op: str, dtype: str, x: str) -> str:
        if dtype in FLOATS:
            return f"(-{x})" if op == "neg" else self.called(op, dtype, x)
        if op == "not":
            return f"(!{x})" if dtype == "bool" and self.lanes == 1 else self.cut(f"~{x}", dtype)
        if op == "neg":
            return self.binary("sub", dtype, self.zero(dtype), x)
        if op in _WHOLE and (op != "abs" or not signed(dtype)):
            return x
        return self.called(op, dtype, x)

    def select(self, dtype: str, condition: str, x: str, y: str) -> str:
        text = f"{condition} ? {x} : {y}"
        return f"({text})" if dtype == "bool" else self.cut(text, dtype)

    def convert(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        if target == "bool":
            return self.compare("ne", source, x, self.constant(Const(0, source)))
        if source in FLOATS and target not in FLOATS:
            through = "i64" if target == "u32" else "i32"
            through = target if target in ("i64", "u64") else through
            return self.convert(self.truncated(x, source, through), through, target)
        return self.cast(x, target)


class Vectors(Operations):
    """Writes expressions on vectors that are values of the language.

    A bool in a vector is an i32 of 0 or -1, as comparisons give it.
    """

    scalars: Operations

    @abstractmethod
    def at(self, lanes: int) -> Vectors:
        """Return what writes expressions on other vectors."""

    @abstractmethod
    def splat(self, x: str, dtype: str) -> str:
        """Return a scalar in all lanes."""

    @abstractmethod
    def iota(self) -> str:
        """Return the vector 0, 1, … of i64."""

    @abstractmethod
    def shuffle(self, x: str, dtype: str, order: tuple[int, ...]) -> str:
        """Return lanes of the vector that `x` names; a scalar if it is one."""

    def constant(self, c: Const) -> str:
        return self.splat(self.scalars.constant(Const(c.value, c.dtype)), c.dtype)

    def reduce(self, op: str, dtype: str) -> str:
        """Define the function that combines the halves until one lane is left; return its name."""
        half = self.lanes // 2
        parts = (self.shuffle("x", dtype, tuple(range(i, i + half))) for i in (0, half))
        if half == 1:
            lines, total = [], bare(self.scalars.binary(op, dtype, *parts))
        else:
            below = self.at(half)
            inner, kind = below.reduce(op, dtype), below.kind(dtype)
            lines = [
                f"const {kind} {x} = {y};" for x, y in zip(("low", "high"), parts, strict=True)
            ]
            total = f"{inner}({bare(below.binary(op, dtype, 'low', 'high'))})"
        name = f"reduce_{op}_{vector(dtype, self.lanes)}"
        parameter = f"{self.kind(dtype)} x"
        return self.library.define(
            self.library.type(dtype), name, parameter, *lines, f"return {total};"
        )
