"""Formulas of elementwise operators as nodes of ONNX: the vocabulary of `ir.vocabulary`.

An operator that ONNX lacks is written out by what its formula calls.  Operands are tensors and
Python's numbers, which take the type of the other operand.  Where ONNX leaves open what the
vocabulary defines (division of integers by 0, shifts by more than the width), nodes are added that
say it; numbers that rule such a case out save them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.exporters.onnx.elements import CODES, EIGHT_BITS
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.types import DTYPES, INTS, SIGNED, UNSIGNED, Array, width
from alpenglow.ir.vocabulary import NUMPY

Term = Any
"""A tensor, or a number: as NumPy array where it is a constant of the graph."""


@dataclass(frozen=True, slots=True)
class OnnxMath:
    """The vocabulary as nodes of a model."""

    w: Writer

    def node(self, op_type: str, *terms: Term, **attributes: Any) -> Tensor:
        """Add a node; numbers become constants of the type of its tensors."""
        return self.w(op_type, *self.alike(*terms), **attributes)

    def alike(self, *terms: Term) -> list[Any]:
        """Return terms with numbers as arrays of the type of the others."""
        dtype = next((self.w.dtype(t) for t in terms if not is_number(t)), "f64")
        return [number(t, dtype) if is_number(t) else t for t in terms]

    # ── arithmetic ──

    def add(self, x: Term, y: Term) -> Tensor:
        return self.node("Add", x, y)

    def sub(self, x: Term, y: Term) -> Tensor:
        return self.node("Sub", x, y)

    def mul(self, x: Term, y: Term) -> Tensor:
        return self.node("Mul", x, y)

    def div(self, x: Term, y: Term) -> Tensor:
        x, y = self.alike(x, y)
        if self.w.dtype(x) not in INTS:
            return self.w("Div", x, y)
        quotient = self.w("Div", x, self._divisor(y))
        if divides(y):
            return quotient
        if self.w.dtype(x) in SIGNED:
            quotient = self.where(self.eq(y, -1), self.neg(x), quotient)
        return self.where(self.eq(y, 0), 0, quotient)

    def mod(self, x: Term, y: Term) -> Tensor:
        x, y = self.alike(x, y)
        if self.w.dtype(x) in INTS:
            return self.w("Mod", x, self._divisor(y))
        rest = self.w("Mod", x, y, fmod=1)
        other = self.bit_and(self.ne(rest, 0), self.ne(self.lt(rest, 0), self.lt(y, 0)))
        moved = self.where(other, self.add(rest, y), rest)
        zero = self.where(self.lt(y, 0), -0.0, self.where(self.gt(y, 0), 0.0, y))
        return self.where(self.eq(rest, 0), zero, moved)

    def fmod(self, x: Term, y: Term) -> Tensor:
        x, y = self.alike(x, y)
        divisor = self._divisor(y) if self.w.dtype(x) in INTS else y
        return self.w("Mod", x, divisor, fmod=1)

    def _divisor(self, y: Term) -> Term:
        """Return y with 1 in the place of 0 and -1, by which processors do not divide."""
        if divides(y):
            return y
        bad = self.eq(y, 0)
        if self.w.dtype(y) in SIGNED:
            bad = self.bit_or(bad, self.eq(y, -1))
        return self.where(bad, 1, y)

    def pow(self, x: Term, y: Term) -> Tensor:
        x, y = self.alike(x, y)
        if self.w.dtype(x) in INTS:
            return self._integer_power(x, y)
        return self.w("Pow", x, self.cast(y, self.w.dtype(x)))

    def _integer_power(self, x: Term, y: Term) -> Tensor:
        """Raise integers by squaring: runtimes do it in floats, which do not wrap around.

        As in the vocabulary: a negative exponent leaves 1, -1 and 0.
        """
        few = isinstance(y, np.ndarray) and y.size and int(y.min()) >= 0
        bits = int(y.max()).bit_length() if few else width(self.w.dtype(y))
        result = self.where(self.eq(y, y), 1, y)
        base, rest = x, y if few else self.maximum(y, 0)
        for i in range(bits):
            odd = self.ne(self.bit_and(rest, 1), 0)
            result = self.where(odd, self.mul(result, base), result)
            if i + 1 < bits:
                base, rest = self.mul(base, base), self.shift_right(rest, 1)
        if few or self.w.dtype(y) not in SIGNED:
            return result
        unit = self.where(self.ne(self.bit_and(y, 1), 0), -1, self.where(self.eq(y, y), 1, y))
        less = self.where(self.eq(x, 1), 1, self.where(self.eq(x, -1), unit, 0))
        return self.where(self.lt(y, 0), less, result)

    def neg(self, x: Term) -> Tensor:
        return self.node("Sub", 0, x) if self.w.dtype(x) in UNSIGNED else self.node("Neg", x)

    def abs(self, x: Term) -> Tensor:
        return self.node("Abs", x)

    def sign(self, x: Term) -> Tensor:
        return self.node("Sign", x)

    def minimum(self, x: Term, y: Term) -> Tensor:
        return self.node("Min", x, y)

    def maximum(self, x: Term, y: Term) -> Tensor:
        return self.node("Max", x, y)

    # ── functions of floats ──

    def sqrt(self, x: Term) -> Tensor:
        return self.node("Sqrt", x)

    def exp(self, x: Term) -> Tensor:
        return self.node("Exp", x)

    def log(self, x: Term) -> Tensor:
        return self.node("Log", x)

    def sin(self, x: Term) -> Tensor:
        return self.node("Sin", x)

    def cos(self, x: Term) -> Tensor:
        return self.node("Cos", x)

    def tan(self, x: Term) -> Tensor:
        return self.node("Tan", x)

    def asin(self, x: Term) -> Tensor:
        return self.node("Asin", x)

    def acos(self, x: Term) -> Tensor:
        return self.node("Acos", x)

    def atan(self, x: Term) -> Tensor:
        return self.node("Atan", x)

    def sinh(self, x: Term) -> Tensor:
        return self.node("Sinh", x)

    def cosh(self, x: Term) -> Tensor:
        return self.node("Cosh", x)

    def tanh(self, x: Term) -> Tensor:
        return self.node("Tanh", x)

    def asinh(self, x: Term) -> Tensor:
        return self.node("Asinh", x)

    def acosh(self, x: Term) -> Tensor:
        return self.node("Acosh", x)

    def atanh(self, x: Term) -> Tensor:
        return self.node("Atanh", x)

    def erf(self, x: Term) -> Tensor:
        return self.node("Erf", x)

    def floor(self, x: Term) -> Tensor:
        return self.node("Floor", x)

    def ceil(self, x: Term) -> Tensor:
        return self.node("Ceil", x)

    def round(self, x: Term) -> Tensor:
        return self.node("Round", x)

    def isnan(self, x: Term) -> Tensor:
        return self.node("IsNaN", x)

    def isinf(self, x: Term) -> Tensor:
        return self.node("IsInf", x)

    # ── bits ──

    def bit_and(self, x: Term, y: Term) -> Tensor:
        return self._logical("And", "BitwiseAnd", x, y)

    def bit_or(self, x: Term, y: Term) -> Tensor:
        return self._logical("Or", "BitwiseOr", x, y)

    def bit_xor(self, x: Term, y: Term) -> Tensor:
        return self._logical("Xor", "BitwiseXor", x, y)

    def bit_not(self, x: Term) -> Tensor:
        return self._logical("Not", "BitwiseNot", x)

    def _logical(self, of_bool: str, of_bits: str, *terms: Term) -> Tensor:
        x, *rest = self.alike(*terms)
        return self.w(of_bool if self.w.dtype(x) == "bool" else of_bits, x, *rest)

    def shift_left(self, x: Term, y: Term) -> Tensor:
        x, y = self.alike(x, y)
        dtype = self.w.dtype(x)
        moved = self._shifted("LEFT", x, y)
        return moved if fits(y, dtype) else self.where(self._beyond(y, dtype), 0, moved)

    def shift_right(self, x: Term, y: Term) -> Tensor:
        """Shift the bits of negative numbers inverted, so that what comes in is their sign."""
        x, y = self.alike(x, y)
        dtype = self.w.dtype(x)
        if dtype not in SIGNED:
            moved = self._shifted("RIGHT", x, y)
            return moved if fits(y, dtype) else self.where(self._beyond(y, dtype), 0, moved)
        negative = self.lt(x, 0)
        plain = self.where(negative, self.bit_not(x), x)
        moved = self._shifted("RIGHT", plain, y)
        if not fits(y, dtype):
            moved = self.where(self._beyond(y, dtype), 0, moved)
        return self.where(negative, self.bit_not(moved), moved)

    def _shifted(self, direction: str, x: Term, y: Term) -> Tensor:
        """Return x moved by y places, any y below the width; ONNX shifts unsigned integers."""
        dtype = self.w.dtype(x)
        unsigned = dtype.replace("i", "u")
        if not fits(y, dtype):
            y = self.where(self._beyond(y, dtype), 0, y)
        moved = self.w("BitShift", self.cast(x, unsigned), self.cast(y, unsigned),
                       direction=direction)  # fmt: skip
        return self.w.cast(moved, dtype)

    def _beyond(self, y: Term, dtype: str) -> Tensor:
        """Return True where y is too large to shift by, as an unsigned number."""
        far = self.ge(y, width(dtype))
        return self.bit_or(far, self.lt(y, 0)) if dtype in SIGNED else far

    # ── comparison, choice and conversion ──

    def eq(self, x: Term, y: Term) -> Tensor:
        return self.node("Equal", x, y)

    def ne(self, x: Term, y: Term) -> Tensor:
        return self.w("Not", self.node("Equal", x, y))

    def lt(self, x: Term, y: Term) -> Tensor:
        return self.node("Less", x, y)

    def le(self, x: Term, y: Term) -> Tensor:
        return self.node("LessOrEqual", x, y)

    def gt(self, x: Term, y: Term) -> Tensor:
        return self.node("Greater", x, y)

    def ge(self, x: Term, y: Term) -> Tensor:
        return self.node("GreaterOrEqual", x, y)

    def where(self, condition: Term, x: Term, y: Term) -> Tensor:
        return self.w("Where", condition, *self.alike(x, y))

    def cast(self, x: Term, dtype: str) -> Term:
        if is_number(x):
            return number(x, dtype)
        if isinstance(x, np.ndarray) or self.w.dtype(x) == dtype:
            return NUMPY.cast(x, dtype) if isinstance(x, np.ndarray) else x
        # Formulas limit their values before they cast.
        whole: dict[str, Any] = {"saturate": 0} if dtype in EIGHT_BITS else {}
        return self.w("Cast", x, makes=dtype, to=CODES[dtype], **whole)

    def bits(self, x: Term, dtype: str) -> Tensor:
        return self.w("BitCast", x, makes=dtype, to=CODES[dtype])


def is_number(term: Term) -> bool:
    """Return True for Python's numbers, which have the type of the other operand."""
    return isinstance(term, bool | int | float)


def number(value: float, dtype: str) -> Array:
    """Return a number as a constant of a type."""
    whole = dtype in INTS
    return np.asarray(int(value) if whole else value).astype(DTYPES[dtype])


def divides(y: Term) -> bool:
    """Return True if integers can be divided by y as it stands: it is constant, no 0 and no -1."""
    return isinstance(y, np.ndarray) and not bool(np.any((y == 0) | (y.astype(np.float64) == -1)))


def fits(y: Term, dtype: str) -> bool:
    """Return True if y is constant, and a number of places less than the width of a type."""
    return isinstance(y, np.ndarray) and bool(np.all((y >= 0) & (y < width(dtype))))
