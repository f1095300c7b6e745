"""Floats: what rounds once, what propagates NaN, and what leads to integers."""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import FLOATS, HALVES
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Binary, Const, Convert, Expr, Fma, Reduce
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import halved
from alpenglow.kernel.rewrite import rewrite
from alpenglow.kernel.stmt import Kernel


def without_fma(kernel: Kernel, lacks: Lacks) -> Kernel:
    """fma(x, y, z) of f32  =>  f32(odd(f64(x) * f64(y) + f64(z))), of integers x * y + z.

    The product is exact in f64.  The sum is rounded to odd there: cut off, with its last bit set if
    anything was lost, so that rounding it once more is the same as rounding the exact sum.
    """

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not isinstance(e, Fma) or e.dtype not in lacks.fma:
            return None
        x, y, z = parts
        if e.dtype not in FLOATS:
            return m.add(m.mul(x, y), z)
        if e.dtype != "f32":
            raise UnsupportedError(
                f"fma of {e.dtype} is not supported on this target; supported: f32 "
                f"(kernel {kernel.name})"
            )
        return m.cast(wide_fma(m, *(m.cast(v, "f64") for v in parts)), "f32")

    return rewrite(kernel, law) if lacks.fma else kernel


def wide_fma(m: Arithmetic, x: Expr, y: Expr, z: Expr) -> Expr:
    """Return x * y + z of f64, rounded to odd; the product has to be exact."""
    product = m.mul(x, y)
    total = m.add(product, z)
    part = m.sub(total, product)
    lost = m.add(m.sub(product, m.sub(total, part)), m.sub(z, part))
    return to_odd(m, total, lost)


def to_odd(m: Arithmetic, x: Expr, lost: Expr) -> Expr:
    """Return x cut off towards zero with its last bit set, if `lost`, an f64, is not 0."""
    kind = "i64" if x.dtype == "f64" else "i32"
    plain = m.bits(x, kind)
    less = m.lt(lost, 0.0)
    beyond = m.bit_xor(m.lt(plain, 0), less)
    odd = m.bit_or(m.sub(plain, m.cast(beyond, kind)), 1)
    inexact = m.bit_or(less, m.gt(lost, 0.0))
    return m.bits(m.where(inexact, odd, plain), x.dtype)


def without_extremes(kernel: Kernel, lacks: Lacks) -> Kernel:
    """min(x, y)  =>  select(x < y or x != x, x, y): where y is NaN, x < y is false."""

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        match e:
            case Binary("min" | "max" as op) if e.dtype in lacks.extremes:
                return _extreme(m, op, *parts)
            case Reduce("min" | "max" as op) if e.dtype in lacks.extremes:
                return halved(m, parts[0], lambda x, y: _extreme(m, op, x, y))
        return None

    return rewrite(kernel, law) if lacks.extremes else kernel


def _extreme(m: Arithmetic, op: str, x: Expr, y: Expr) -> Expr:
    x, y = m.b.let(x), m.b.let(y)
    beyond = m.compare("lt" if op == "min" else "gt", x, y)
    return m.where(m.bit_or(beyond, m.isnan(x)), x, y)


def without_wrapping(kernel: Kernel, lacks: Lacks) -> Kernel:
    """u64(x)  =>  x < 2^63: u64(i64(x)), else u64(i64(x - 2^63)) xor 2^63; the difference is exact.

    What does not fit into i64 becomes its least number, as `Convert` demands.
    """

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not (isinstance(e, Convert) and e.dtype == "u64" and e.x.dtype in FLOATS):
            return None
        x = m.cast(parts[0], "f32") if parts[0].dtype in HALVES else m.b.let(parts[0])
        high = m.ge(x, 2.0**63)
        whole = m.bits(m.cast(m.where(high, m.sub(x, 2.0**63), x), "i64"), "u64")
        return m.bit_xor(whole, m.where(high, Const(1 << 63, "u64", x.lanes), 0))

    return rewrite(kernel, law) if lacks.wrapping else kernel
