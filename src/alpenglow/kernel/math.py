"""The scalar vocabulary on kernel expressions: what formulas of operators are called with.

Floats have functions of our own (`kernel.transcendental`), which no library has to bring; integers
are exact and wrap.  The short floats never come here: kernels load them as f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpenglow.ir.types import FLOATS, NARROW
from alpenglow.kernel import narrow, transcendental
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Const, Expr
from alpenglow.kernel.transcendental import Function, Precision
from alpenglow.kernel.transcendental_f32 import F32, log_wide
from alpenglow.kernel.transcendental_f64 import F64

PRECISIONS = {"f32": F32, "f64": F64}


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
        return _of(x).exp(self, x, False)

    def exp_below(self, x: Any) -> Expr:
        """e^x of x <= 0, to which subnormal numbers are 0."""
        return _of(x).exp_below(self, x)

    def log(self, x: Any) -> Expr:
        return _of(x).log(self, x)

    def sin(self, x: Any) -> Expr:
        return transcendental.sin(self, _of(x), x)

    def cos(self, x: Any) -> Expr:
        return transcendental.cos(self, _of(x), x)

    def tan(self, x: Any) -> Expr:
        return transcendental.tan(self, _of(x), x)

    def asin(self, x: Any) -> Expr:
        return transcendental.asin(self, _of(x), x)

    def acos(self, x: Any) -> Expr:
        return transcendental.acos(self, _of(x), x)

    def atan(self, x: Any) -> Expr:
        return transcendental.atan(self, _of(x), x)

    def sinh(self, x: Any) -> Expr:
        return transcendental.sinh(self, _of(x), x)

    def cosh(self, x: Any) -> Expr:
        return transcendental.cosh(self, _of(x), x)

    def tanh(self, x: Any) -> Expr:
        return transcendental.tanh(self, _of(x), x)

    def asinh(self, x: Any) -> Expr:
        return _widely(self, x, transcendental.asinh)

    def acosh(self, x: Any) -> Expr:
        return _widely(self, x, transcendental.acosh)

    def atanh(self, x: Any) -> Expr:
        return _widely(self, x, transcendental.atanh)

    def erf(self, x: Any) -> Expr:
        return _of(x).erf(self, x)

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
        return transcendental.pow(self, _of(x), x, y)


def _of(x: Expr) -> Precision:
    """Return the precision of x: two element types have transcendental functions."""
    assert x.dtype in PRECISIONS, f"of {x.dtype}"
    return PRECISIONS[x.dtype]


def _widely(m: Arithmetic, x: Expr, function: Callable[[Arithmetic, Expr, Function], Expr]) -> Expr:
    """Call a function of f64 that takes a logarithm, for an f32 with one of as many digits."""
    if x.dtype == "f32":
        return m.cast(function(m, m.cast(x, "f64"), log_wide), "f32")
    return function(m, x, F64.log)
