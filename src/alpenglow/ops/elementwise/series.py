"""Polynomials, rational functions and Chebyshev series, in the vocabulary of formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpenglow.ir.types import NAMES


def polynomial(m: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """Return a polynomial of x by its coefficients, the highest power first."""
    first, *rest = coefficients
    y: Any = first
    for c in rest:
        y = m.add(m.mul(x, y), c)
    return y


def rational(m: Any, x: Any, above: Sequence[float], below: Sequence[float]) -> Any:
    """Return the quotient of two polynomials of x."""
    return m.div(polynomial(m, x, above), polynomial(m, x, below))


def chebyshev(m: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """Return the sum of c T(x / 2) over Chebyshev polynomials, the highest degree first.

    The coefficient of degree 0 counts half.  By Clenshaw's recurrence, as Cephes has it.
    """
    first, *rest = coefficients
    b0: Any = first
    b1: Any = 0.0
    b2: Any = 0.0
    for c in rest:
        b2, b1 = b1, b0
        b0 = m.add(m.sub(m.mul(x, b1), b2), c)
    return m.mul(m.sub(b0, b2), 0.5)


def dtype_of(x: Any) -> str:
    """Return the element type of a formula: f32 for types of 16 bits."""
    dtype: str = NAMES.get(x.dtype, x.dtype)
    return dtype
