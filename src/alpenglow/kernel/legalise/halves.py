"""Short floats as integers of 16 bits, for targets without instructions that convert them.

f16 and bf16 are computed with in f32, and each result is rounded: once more than the formula says,
which changes nothing, as f32 has more than twice their digits.  Conversions are arithmetic on bits,
which vectors have, too.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Load,
    Reduce,
    Register,
    Unary,
)
from alpenglow.kernel.legalise.floats import to_odd, wide_fma
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import halved
from alpenglow.kernel.rewrite import Rewriter, expressions
from alpenglow.kernel.stmt import Kernel

SIGN = 1 << 15


def without_halves(kernel: Kernel, lacks: Lacks) -> Kernel:
    """x op y  =>  rounded(f32(x) op f32(y)), of operands, registers and results that are u16."""
    return _Halves(kernel, lacks.halves).rewritten() if _holds(kernel, lacks.halves) else kernel


def _holds(kernel: Kernel, dtypes: frozenset[str]) -> bool:
    """Whether a kernel has operands of some element types, or makes values of them."""
    if not dtypes or any(b.dtype in dtypes for b in (*kernel.buffers, *kernel.arrays)):
        return bool(dtypes)
    values = (e for e in expressions(kernel) if isinstance(e, Const | Convert | Bitcast))
    return any(e.dtype in dtypes for e in values)


class _Halves(Rewriter):
    """Rebuilds a kernel without the element types `dtypes`."""

    def __init__(self, kernel: Kernel, dtypes: frozenset[str]) -> None:
        super().__init__(kernel)
        self.dtypes = dtypes

    def buffer(self, b: Buffer) -> Buffer:
        return replace(b, dtype="u16") if b.dtype in self.dtypes else b

    def register(self, r: Register) -> Register:
        return Register(r.name, "u16", r.lanes) if r.dtype in self.dtypes else r

    def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        """Return the bits of a short float, or what becomes of some; None if `e` has none."""
        m = self.m
        match e:
            case Const(lanes=lanes) if e.dtype in self.dtypes:
                return Const(e.bits, "u16", lanes)
            case Register():
                return self.register(e)
            case Load(buffer, _, lanes) if buffer.dtype in self.dtypes:
                at, *masks = parts
                return Load(self.buffer(buffer), at, lanes, masks[0] if masks else None)
            case Unary("neg", x) if x.dtype in self.dtypes:
                return m.bit_xor(parts[0], SIGN)
            case Unary("abs", x) if x.dtype in self.dtypes:
                return m.bit_and(parts[0], SIGN - 1)
            case Unary(op, x) if x.dtype in self.dtypes:
                return narrowed(m, m.unary(op, widened(m, parts[0], x.dtype)), x.dtype)
            case Binary(op, x) if x.dtype in self.dtypes:
                return self.combined(op, x.dtype, *parts)
            case Compare(op, x) if x.dtype in self.dtypes:
                return m.compare(op, *(widened(m, p, x.dtype) for p in parts))
            case Fma(x) if x.dtype in self.dtypes:
                return fma(m, x.dtype, *parts)
            case Convert(x, dtype):
                return self.converted(x.dtype, dtype, parts[0])
            case Bitcast(x, dtype) if {x.dtype, dtype} & self.dtypes:
                kind = "u16" if dtype in self.dtypes else dtype
                return parts[0] if parts[0].dtype == kind else m.bits(parts[0], kind)
            case Reduce(op, x) if x.dtype in self.dtypes:
                return halved(m, parts[0], lambda a, b: self.combined(op, x.dtype, a, b))
        return None

    def combined(self, op: str, dtype: str, x: Expr, y: Expr) -> Expr:
        m = self.m
        return narrowed(m, m.binary(op, widened(m, x, dtype), widened(m, y, dtype)), dtype)

    def converted(self, source: str, target: str, x: Expr) -> Expr | None:
        if source == target or not {source, target} & self.dtypes:
            return x if source == target else None
        single = widened(self.m, x, source) if source in self.dtypes else self.m.cast(x, "f32")
        if target in self.dtypes:
            return narrowed(self.m, single, target)
        return self.m.cast(single, target)


def widened(m: Arithmetic, x: Expr, dtype: str) -> Expr:
    """Return the f32 of the bits of a short float, which every one has exactly."""
    bits = m.cast(x, "u32")
    if dtype == "bf16":
        return m.bits(m.shift_left(bits, 16), "f32")
    sign = m.shift_left(m.bit_and(bits, SIGN), 16)
    size = m.bit_and(bits, SIGN - 1)
    moved = m.shift_left(size, 13)
    # The exponents count from elsewhere; a product moves those of subnormal numbers as well.
    scaled = m.mul(m.bits(moved, "f32"), 2.0**112)
    special = m.bit_or(moved, 0x7F800000)
    number = m.where(m.ge(size, 0x7C00), special, m.bits(scaled, "u32"))
    return m.bits(m.bit_or(number, sign), "f32")


def narrowed(m: Arithmetic, x: Expr, dtype: str) -> Expr:
    """Return the bits of the short float next to an f32, the even one of two."""
    bits = m.bits(x, "u32")
    rounded = _to_bf16(m, bits) if dtype == "bf16" else _to_f16(m, bits)
    return m.cast(rounded, "u16")


def _to_bf16(m: Arithmetic, bits: Expr) -> Expr:
    """Round an f32 to its upper half."""
    even = m.bit_and(m.shift_right(bits, 16), 1)
    rounded = m.shift_right(m.add(m.add(bits, 0x7FFF), even), 16)
    quiet = m.bit_or(m.shift_right(bits, 16), 0x40)
    return m.where(m.ge(m.bit_and(bits, 0x7FFFFFFF), 0x7F800001), quiet, rounded)


def _to_f16(m: Arithmetic, bits: Expr) -> Expr:
    size = m.bit_and(bits, 0x7FFFFFFF)
    even = m.bit_and(m.shift_right(size, 13), 1)
    normal = m.shift_right(m.add(m.add(size, 0xFFF - (112 << 23)), even), 13)
    # Beside 0.5 the last bit is that of the least f16, so adding rounds to a multiple of it.
    small = m.sub(m.bits(m.add(m.bits(size, "f32"), 0.5), "u32"), 0x3F000000)
    number = m.where(m.ge(size, 0x38800000), normal, small)
    number = m.where(m.ge(size, 0x47800000), 0x7C00, number)
    quiet = m.bit_or(m.bit_and(m.shift_right(size, 13), 0x3FF), 0x7E00)
    number = m.where(m.ge(size, 0x7F800001), quiet, number)
    return m.bit_or(number, m.bit_and(m.shift_right(bits, 16), SIGN))


def fma(m: Arithmetic, dtype: str, *operands: Expr) -> Expr:
    """Return x * y + z, rounded once: to odd in f64 and in f32, which later rounding outlasts."""
    exact = wide_fma(m, *(m.cast(widened(m, x, dtype), "f64") for x in operands))
    near = m.cast(exact, "f32")
    return narrowed(m, to_odd(m, near, m.sub(exact, m.cast(near, "f64"))), dtype)
