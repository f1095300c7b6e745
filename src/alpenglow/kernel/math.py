"""The scalar vocabulary on kernel expressions: what formulas of operators are called with.

Floats have functions of our own (`kernel.transcendental` of f32, `kernel.transcendental_f64`),
which no library has to bring; integers are exact and wrap.  The short floats never come here:
kernels load them as f32.
"""

from __future__ import annotations

from typing import Any

from alpenglow.ir.types import FLOATS, NARROW
from alpenglow.kernel import narrow, transcendental, transcendental_f64
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Const, Expr
from alpenglow.kernel.transcendental import Function


class KernelMath(Arithmetic):
    """Implements `ir.vocabulary.Math` by statements of a builder."""

    def cast(self, x: Any, dtype: str) -> Expr:
        if isinstance(x, Expr) and x.dtype != dtype:
            if x.dtype in NARROW:
                return self.cast(narrow.widened(self, x), dtype)
            if dtype in NARROW:
                return narrow.narrowed(self, x, dtype)
        return super().cast(x, dtype)

    def exp(self, x: Any) -> Expr:
        return _for(x, transcendental.exp, transcendental_f64.exp)(self, x)

    def exp_below(self, x: Any) -> Expr:
        """e^x of x <= 0, to which subnormal numbers are 0."""
        return _for(x, transcendental.exp_below, transcendental_f64.exp)(self, x)

    def log(self, x: Any) -> Expr:
        return _for(x, transcendental.log, transcendental_f64.log)(self, x)

    def sin(self, x: Any) -> Expr:
        return _for(x, transcendental.sin, transcendental_f64.sin)(self, x)

    def cos(self, x: Any) -> Expr:
        return _for(x, transcendental.cos, transcendental_f64.cos)(self, x)

    def tan(self, x: Any) -> Expr:
        return _for(x, transcendental.tan, transcendental_f64.tan)(self, x)

    def asin(self, x: Any) -> Expr:
        return _for(x, transcendental.asin, transcendental_f64.asin)(self, x)

    def acos(self, x: Any) -> Expr:
        return _for(x, transcendental.acos, transcendental_f64.acos)(self, x)

    def atan(self, x: Any) -> Expr:
        return _for(x, transcendental.atan, transcendental_f64.atan)(self, x)

    def sinh(self, x: Any) -> Expr:
        return _for(x, transcendental.sinh, transcendental_f64.sinh)(self, x)

    def cosh(self, x: Any) -> Expr:
        return _for(x, transcendental.cosh, transcendental_f64.cosh)(self, x)

    def tanh(self, x: Any) -> Expr:
        return _for(x, transcendental.tanh, transcendental_f64.tanh)(self, x)

    def asinh(self, x: Any) -> Expr:
        return transcendental.widely(self, x, transcendental.asinh)

    def acosh(self, x: Any) -> Expr:
        return transcendental.widely(self, x, transcendental.acosh)

    def atanh(self, x: Any) -> Expr:
        return transcendental.widely(self, x, transcendental.atanh)

    def erf(self, x: Any) -> Expr:
        return transcendental.erf(self, x) if _short(x) else transcendental.erf_wide(self, x)

    def pow(self, x: Any, y: Any) -> Expr:
        base = x if isinstance(x, Expr) else self.cast(x, y.dtype)
        if base.dtype not in FLOATS:
            # Exponents of another type may be larger than the base's type can say.
            alien = isinstance(y, Expr) and y.dtype != base.dtype
            exponent = self.cast(y, "i64" if alien else base.dtype)
            base, exponent = self.widened(base, exponent)
            return self.integer_power(base, exponent)
        if isinstance(y, Const) or not isinstance(y, Expr):
            value = y.value if isinstance(y, Const) else y
            if value in (1, 2, 3):
                square = self.mul(base, base) if value > 1 else base
                return self.mul(square, base) if value > 2 else square
        x, y = self.alike(base, self.cast(y, base.dtype))
        power = transcendental.pow if _short(x) else transcendental_f64.pow
        return power(self, x, y)


def _for(x: Expr, short: Function, wide: Function) -> Function:
    """Return what computes a function of x, by its element type."""
    return short if _short(x) else wide


def _short(x: Expr) -> bool:
    """Whether x is f32 and not f64, the two element types that have transcendental functions."""
    assert x.dtype in ("f32", "f64"), f"of {x.dtype}"
    return x.dtype == "f32"
