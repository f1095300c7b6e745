"""The scalar vocabulary on kernel expressions: what formulas of operators are called with.

f32 has functions of its own (`kernel.transcendental`), f64 those of the platform's library where
it has them, integers are exact and wrap.  The short floats never come here: kernels load them as
f32.
"""

from __future__ import annotations

from typing import Any

from alpenglow.ir.types import FLOATS, NARROW
from alpenglow.kernel import narrow, transcendental
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
        return self._function(x, "exp", transcendental.exp)

    def log(self, x: Any) -> Expr:
        return self._function(x, "log", transcendental.log)

    def sin(self, x: Any) -> Expr:
        return self._function(x, "sin", transcendental.sin)

    def cos(self, x: Any) -> Expr:
        return self._function(x, "cos", transcendental.cos)

    def tan(self, x: Any) -> Expr:
        return self._function(x, "tan", transcendental.tan)

    def asin(self, x: Any) -> Expr:
        return self._function(x, "asin", transcendental.asin)

    def acos(self, x: Any) -> Expr:
        return self._function(x, "acos", transcendental.acos)

    def atan(self, x: Any) -> Expr:
        return self._function(x, "atan", transcendental.atan)

    def sinh(self, x: Any) -> Expr:
        return self._function(x, "sinh", transcendental.sinh)

    def cosh(self, x: Any) -> Expr:
        return self._function(x, "cosh", transcendental.cosh)

    def tanh(self, x: Any) -> Expr:
        return self._function(x, "tanh", transcendental.tanh)

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
        return transcendental.pow(self, x, y) if _short(x) else self.binary("pow", x, y)

    def _function(self, x: Expr, op: str, function: Function) -> Expr:
        return function(self, x) if _short(x) else self.unary(op, x)


def _short(x: Expr) -> bool:
    """Whether x is f32 and not f64, the two element types that have transcendental functions."""
    assert x.dtype in ("f32", "f64"), f"of {x.dtype}"
    return x.dtype == "f32"
