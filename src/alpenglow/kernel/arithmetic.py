"""The plain part of the scalar vocabulary on kernel expressions: arithmetic, comparison, bits.

What NumPy computes in whole arrays is here a value in a register, scalar or vector.  Python
numbers take the element type of the other operand, scalars its lanes.  No operation traps: where
the machine would, on integers divided by zero for one, its operand is replaced and the result
selected.
"""

from __future__ import annotations

from typing import Any

from alpenglow.ir.dims import Sym
from alpenglow.ir.types import DTYPES, FLOATS, NARROW_FLOATS, SIGNED
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Reduce,
    Select,
    Splat,
    Unary,
    lift,
)


class Arithmetic:
    """Emits the statements of formulas into a builder; each result has a name."""

    def __init__(self, b: Builder, lookup: bool = False) -> None:
        """With `lookup` there is an instruction by which vectors of 16 f32 look up a table."""
        self.b = b
        self.lookup = lookup

    # ── operands ──

    def alike(self, *operands: Any) -> tuple[Expr, ...]:
        """Return operands as expressions of one element type and number of lanes."""
        exprs = [x for x in operands if isinstance(x, Expr)]
        assert exprs, f"of numbers only: {operands}"
        return self.widened(
            *(x if isinstance(x, Expr) else number(x, exprs[0].dtype) for x in operands)
        )

    def widened(self, *operands: Expr) -> tuple[Expr, ...]:
        """Return operands with the same number of lanes."""
        lanes = max(x.lanes for x in operands)
        return tuple(_widened(x, lanes) for x in operands)

    def binary(self, op: str, x: Any, y: Any) -> Expr:
        return self.b.let(Binary(op, *self.alike(x, y)))

    def compare(self, op: str, x: Any, y: Any) -> Expr:
        return self.b.let(Compare(op, *self.alike(x, y)))

    def unary(self, op: str, x: Expr) -> Expr:
        return self.b.let(Unary(op, x))

    def fma(self, x: Any, y: Any, z: Any) -> Expr:
        """x * y + z, rounded once, and never rearranged."""
        return self.b.let(Fma(*self.alike(x, y, z)))

    def plus(self, x: Any, y: Any) -> Expr:
        """x + y as written, where rearranging would cost the digits that matter."""
        return self.fma(x, 1.0, y)

    def times(self, x: Any, y: Any) -> Expr:
        """x * y as written, where rearranging would overflow."""
        return self.fma(x, y, -0.0)

    def polynomial(self, x: Expr, coefficients: tuple[float, ...]) -> Expr:
        """The sum of coefficients[i] * x^i."""
        *rest, last = coefficients
        total: Expr = Const(last, x.dtype, x.lanes)
        for c in reversed(rest):
            total = self.fma(total, x, c)
        return total

    def bits(self, x: Expr, dtype: str) -> Expr:
        return self.b.let(Bitcast(x, dtype))

    def copysign(self, size: Expr, sign: Expr) -> Expr:
        """The absolute value of `size` with the sign of `sign`."""
        kind = "i64" if size.dtype == "f64" else "i32"
        top = -(1 << (DTYPES[kind].itemsize * 8 - 1))
        magnitude = self.bit_and(self.bits(size, kind), ~top)
        return self.bits(
            self.bit_or(magnitude, self.bit_and(self.bits(sign, kind), top)), size.dtype
        )

    # ── arithmetic ──

    def add(self, x: Any, y: Any) -> Expr:
        return self.binary("add", x, y)

    def sub(self, x: Any, y: Any) -> Expr:
        return self.binary("sub", x, y)

    def mul(self, x: Any, y: Any) -> Expr:
        return self.binary("mul", x, y)

    def minimum(self, x: Any, y: Any) -> Expr:
        return self.binary("min", x, y)

    def maximum(self, x: Any, y: Any) -> Expr:
        return self.binary("max", x, y)

    def div(self, x: Any, y: Any) -> Expr:
        x, y = self.alike(x, y)
        if x.dtype in FLOATS or _harmless(y):
            return self.binary("div", x, y)
        zero, safe = self._divisor(y)
        quotient = self.binary("div", x, safe)
        if x.dtype in SIGNED:
            quotient = self.where(self.eq(y, -1), self.neg(x), quotient)
        return self.where(zero, 0, quotient)

    def fmod(self, x: Any, y: Any) -> Expr:
        x, y = self.alike(x, y)
        if x.dtype in FLOATS or _harmless(y):
            return self.binary("rem", x, y)
        zero, safe = self._divisor(y)
        return self.where(zero, 0, self.binary("rem", x, safe))

    def mod(self, x: Any, y: Any) -> Expr:
        x, y = self.alike(x, y)
        rest = self.fmod(x, y)
        if x.dtype not in FLOATS | SIGNED:
            return rest
        differ = self.bit_xor(self.lt(rest, 0), self.lt(y, 0))
        moved = self.where(self.bit_and(differ, self.ne(rest, 0)), self.add(rest, y), rest)
        if x.dtype in SIGNED:
            return moved
        return self.where(self.eq(rest, 0), self.copysign(rest, y), moved)

    def _divisor(self, y: Expr) -> tuple[Expr, Expr]:
        """Return where `y` is zero, and `y` with 1 in the place of what traps."""
        zero = self.eq(y, 0)
        traps = self.bit_or(zero, self.eq(y, -1)) if y.dtype in SIGNED else zero
        return zero, self.where(traps, 1, y)

    def integer_power(self, x: Expr, y: Expr) -> Expr:
        """Raise integers by squaring, wrapping; a negative exponent truncates."""
        b, one = self.b, Const(1, x.dtype, x.lanes)
        negative = self.lt(y, 0)
        result, base = b.var(one), b.var(x)
        rest = b.var(self.where(negative, 0, y))
        left = rest if rest.lanes == 1 else Reduce("max", rest)
        with b.repeat_while(Compare("ne", left, Const(0, rest.dtype))):
            odd = self.ne(self.bit_and(rest, 1), 0)
            b.set(result, Select(odd, Binary("mul", result, base), result))
            b.set(base, Binary("mul", base, base))
            b.set(rest, Binary("shr", rest, Const(1, rest.dtype, rest.lanes)))
        if y.dtype not in SIGNED:
            return result
        unit = self.where(self.eq(x, 1), one, 0)
        if x.dtype in SIGNED:
            alternating = self.where(self.ne(self.bit_and(y, 1), 0), x, one)
            unit = self.where(self.eq(x, -1), alternating, unit)
        return self.where(negative, unit, result)

    def neg(self, x: Any) -> Expr:
        return self.unary("neg", x)

    def abs(self, x: Any) -> Expr:
        return self.unary("abs", x)

    def sign(self, x: Any) -> Expr:
        below = self.where(self.lt(x, 0), -1, x) if x.dtype in FLOATS | SIGNED else x
        above = self.where(self.gt(x, 0), 1, below)
        return self.where(self.eq(x, 0), 0, above) if x.dtype in FLOATS else above

    def sqrt(self, x: Any) -> Expr:
        return self.unary("sqrt", x)

    def floor(self, x: Any) -> Expr:
        return self.unary("floor", x) if x.dtype in FLOATS else x

    def ceil(self, x: Any) -> Expr:
        return self.unary("ceil", x) if x.dtype in FLOATS else x

    def round(self, x: Any) -> Expr:
        return self.unary("round", x) if x.dtype in FLOATS else x

    # ── comparison ──

    def isnan(self, x: Any) -> Expr:
        return self.ne(x, x)

    def isinf(self, x: Any) -> Expr:
        return self.eq(self.abs(x), float("inf"))

    def eq(self, x: Any, y: Any) -> Expr:
        return self.compare("eq", x, y)

    def ne(self, x: Any, y: Any) -> Expr:
        return self.compare("ne", x, y)

    def lt(self, x: Any, y: Any) -> Expr:
        return self.compare("lt", x, y)

    def le(self, x: Any, y: Any) -> Expr:
        return self.compare("le", x, y)

    def gt(self, x: Any, y: Any) -> Expr:
        return self.compare("gt", x, y)

    def ge(self, x: Any, y: Any) -> Expr:
        return self.compare("ge", x, y)

    def where(self, condition: Any, x: Any, y: Any) -> Expr:
        return self.b.let(Select(*self.widened(condition, *self.alike(x, y))))

    # ── bits ──

    def bit_and(self, x: Any, y: Any) -> Expr:
        return self.binary("and", x, y)

    def bit_or(self, x: Any, y: Any) -> Expr:
        return self.binary("or", x, y)

    def bit_xor(self, x: Any, y: Any) -> Expr:
        return self.binary("xor", x, y)

    def bit_not(self, x: Any) -> Expr:
        return self.unary("not", x)

    def shift_left(self, x: Any, y: Any) -> Expr:
        x, y = self.alike(x, y)
        if _within(y):
            return self.binary("shl", x, y)
        far = self._far(y)
        return self.where(far, 0, self.binary("shl", x, self.where(far, 0, y)))

    def shift_right(self, x: Any, y: Any) -> Expr:
        x, y = self.alike(x, y)
        if _within(y):
            return self.binary("shr", x, y)
        far = self._far(y)
        if x.dtype in SIGNED:
            # The last bit that is left is the sign.
            return self.binary("shr", x, self.where(far, DTYPES[x.dtype].itemsize * 8 - 1, y))
        return self.where(far, 0, self.binary("shr", x, self.where(far, 0, y)))

    def _far(self, y: Expr) -> Expr:
        """Return where a shift by `y` leaves nothing: by the width or more, or by less than 0."""
        unsigned = Bitcast(y, y.dtype.replace("i", "u"))
        return self.ge(unsigned, DTYPES[y.dtype].itemsize * 8)

    def cast(self, x: Any, dtype: str) -> Expr:
        if not isinstance(x, Expr):
            return number(x, dtype)
        return x if x.dtype == dtype else self.b.let(Convert(x, dtype))


def number(value: float | Sym, dtype: str) -> Expr:
    """Return a Python number, or an open extent, as a scalar of an element type."""
    if isinstance(value, Sym):
        extent = lift(value)
        return extent if dtype == "i64" else Convert(extent, dtype)
    if dtype in FLOATS | NARROW_FLOATS:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype == "bool" else int(value), dtype)


def _widened(x: Expr, lanes: int) -> Expr:
    if x.lanes == lanes:
        return x
    if isinstance(x, Const):
        return Const(x.value, x.dtype, lanes)
    assert x.lanes == 1, f"{x.lanes} lanes with {lanes}"
    return Splat(x, lanes)


def _harmless(y: Expr) -> bool:
    """Whether nothing traps when divided by `y`."""
    return isinstance(y, Const) and y.value not in (0, -1)


def _within(y: Expr) -> bool:
    """Whether `y` is a distance that the machine shifts by."""
    return isinstance(y, Const) and 0 <= y.value < DTYPES[y.dtype].itemsize * 8
