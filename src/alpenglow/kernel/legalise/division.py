"""Division in vectors, by dividing floats: exact, where a processor divides one by one.

A remainder of f32 would be a call of C's fmod for each element.
"""

from __future__ import annotations

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Binary, Const, Expr, Reduce
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.rewrite import expressions, rewrite
from alpenglow.kernel.stmt import Kernel

EXACT = 2.0**29
"""Below it a quotient in f64 has the integer part of the exact one, and its product is exact."""

CUT = (1 << 24) - 1
"""The bits of an f64 that 29 leading ones leave."""


WIDE = {"i8": "f32", "u8": "f32", "i16": "f32", "u16": "f32", "i32": "f64", "u32": "f64"}
"""Floats that hold twice the digits of integers, but for a few."""


def without_divisions(kernel: Kernel, lacks: Lacks) -> Kernel:
    """Divide vectors by dividing floats; a kernel that divides none is not walked twice."""

    def lacking(e: Expr) -> bool:
        return (lacks.quotients and _is_quotient(e)) or (lacks.remainders and _is_remainder(e))

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not lacking(e):
            return None
        assert isinstance(e, Binary), "only divisions are lacking"
        x, y = map(m.b.let, parts)
        return remainder(m, x, y) if e.dtype == "f32" else _integers(m, e, x, y)

    return rewrite(kernel, law) if any(map(lacking, expressions(kernel))) else kernel


def _is_quotient(e: Expr) -> bool:
    """Return True for x / y and x % y of vectors of integers; by constants LLVM multiplies."""
    if not (isinstance(e, Binary) and e.op in ("div", "rem") and e.dtype in WIDE):
        return False
    return e.lanes > 1 and not isinstance(e.y, Const)


def _is_remainder(e: Expr) -> bool:
    """Return True for x % y of vectors of f32."""
    return isinstance(e, Binary) and e.op == "rem" and e.dtype == "f32" and e.lanes > 1


def _integers(m: Arithmetic, e: Binary, x: Expr, y: Expr) -> Expr:
    """x / y  =>  trunc(x / y) of floats; x % y  =>  x - x / y * y.

    With |x| <= 2^n, the quotient is closer to no integer away from 0 than 1 / |y|.  It is at most
    2^n / |y|, so half a unit in its last place is at most 2^(n - 53) / |y| in f64, 2^(n - 24) / |y|
    in f32: less.  So it is not rounded to that integer.
    """
    quotient = m.cast(m.div(m.cast(x, WIDE[e.dtype]), m.cast(y, WIDE[e.dtype])), e.dtype)
    return m.sub(x, m.mul(quotient, y)) if e.op == "rem" else quotient


def remainder(m: Arithmetic, x: Expr, y: Expr) -> Expr:
    """x % y  =>  x - trunc(x / y) * y in f64, with the sign of x.  Every step is exact.

    With a = |x| and b = |y|, let n * 2^f = a, n < 2^25, and m * 2^e = b, m < 2^24.

    If a / b < 2^29, it is closer to no integer above it than 1 / m, or 2^(f - e) / m if f < e.
    Half a unit in its last place is less, so it is not rounded up to that integer.  The integer
    part has 29 bits, so its product with b has 53 and is exact.  The difference is a multiple of
    2^min(e, f), below b and not above a: it has 25 bits.

    A larger quotient is cut to 29 bits, c * 2^k, beginning at its lower neighbour, which is not
    above the exact quotient.  Again the product is exact.  The difference is less than b * 2^k and
    a little, and a multiple of 2^min(f, k + e): if f is less, it is not above a, and has 25 bits;
    else it is less than 2^25 * 2^(k + e).  So it is an a as before, 2^27 times as small at least.
    """
    b = m.b
    size, divisor = (m.cast(m.abs(v), "f64") for v in (x, y))
    # By infinity nothing is divided: 0 * infinity is NaN, and any finite x is smaller than this.
    divisor = m.minimum(divisor, 2.0**200)
    left = b.var(size)
    quotient = b.var(m.div(left, divisor))
    large = b.var(_large(m, quotient))
    goes_on = b.var(Reduce("or", large))
    with b.repeat_while(goes_on):
        below = m.sub(m.bits(quotient, "i64"), 1)
        cut = m.bits(m.bit_and(below, ~CUT), "f64")
        b.set(left, m.sub(left, m.mul(m.where(large, cut, 0.0), divisor)))
        b.set(quotient, m.div(left, divisor))
        b.set(large, _large(m, quotient))
        b.set(goes_on, Reduce("or", large))
    rest = m.sub(left, m.mul(m.unary("trunc", quotient), divisor))
    return m.copysign(m.cast(rest, "f32"), x)


def _large(m: Arithmetic, quotient: Expr) -> Expr:
    """Return where a quotient is to be cut: of 0 or of infinity the remainder is NaN at once."""
    return m.bit_and(m.ge(quotient, EXACT), m.lt(quotient, float("inf")))
