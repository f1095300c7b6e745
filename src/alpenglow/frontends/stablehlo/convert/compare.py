"""Converters of comparisons, of conversions between types, and of bits."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.movement import sliced
from alpenglow.frontends.numbers import apply, of_parts, parts_of
from alpenglow.frontends.stablehlo.table import Made, Site, both, computed, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import (
    COMPLEX,
    FLOATS,
    INTS,
    NARROW,
    NARROW_FLOATS,
    NARROW_INTS,
    PARTS,
    width,
)
from alpenglow.ops.elementwise.comparison import (
    Equal,
    Greater,
    GreaterOrEqual,
    IsNaN,
    Less,
    LessOrEqual,
)
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, BitXor, ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import BitCast, Cast, Where
from alpenglow.ops.tensor.movement import Concat

DIRECTIONS: Mapping[str, type[Op]] = {
    "EQ": Equal, "NE": Equal, "LT": Less, "LE": LessOrEqual, "GT": Greater, "GE": GreaterOrEqual,
}  # fmt: skip


@on(*both("compare"), pointwise=True)
def compare(s: Site) -> Made:
    return compared(s, *s.pair())


def compared(s: Site, x: Value, y: Value) -> Value:
    """Return a bool per element: True if the comparison of the attributes holds."""
    direction = s.choice("comparison_direction", "EQ", *DIRECTIONS)
    kind = s.choice("compare_type", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
    if kind == "TOTALORDER" and x.type.dtype in FLOATS:
        x, y = ordinal(s, x), ordinal(s, y)
    made = apply(s.g, DIRECTIONS[direction](), x, y)
    return s.g(BitNot(), made) if direction == "NE" else made


def ordinal(s: Site, x: Value) -> Value:
    """Return integers in the order of all floats: -NaN, -inf, …, -0, 0, …, inf, NaN."""
    bits = width(x.type.dtype)
    whole = s.g(BitCast(f"i{bits}"), x)
    below = s.g(Less(), whole, s.filled(0, whole))
    turned = s.g(BitXor(), whole, s.filled((1 << bits - 1) - 1, whole))
    return s.g(Where(), below, turned, whole)


# ── conversions ──


@on("stablehlo.convert", pointwise=True)
def convert(s: Site) -> Made:
    return converted(s, s.required(1)[0], s.dtype())


def converted(s: Site, x: Value, dtype: str) -> Value:
    """Return x in another element type; the imaginary part of complex numbers is left out.

    A float beyond an integer type becomes its least or largest element, NaN becomes 0.
    """
    source = x.type.dtype
    if source == dtype:
        return x
    if dtype in COMPLEX:
        if source in COMPLEX:
            real, imaginary = parts_of(s.g, x)
            return of_parts(s.g, s.cast(real, PARTS[dtype]), s.cast(imaginary, PARTS[dtype]))
        real = converted(s, x, PARTS[dtype])
        return of_parts(s.g, real, s.filled(0, real))
    if source in COMPLEX:
        return converted(s, parts_of(s.g, x)[0], dtype)
    if source in NARROW:
        return converted(s, s.cast(x, computed(source)), dtype)
    if dtype in NARROW_FLOATS:
        return s.g(Cast(dtype, saturate=False), x)
    if source in FLOATS and dtype in INTS | NARROW_INTS:
        return _truncated(s, x, dtype)
    if dtype == "bool" and source in FLOATS | INTS:
        return s.g(BitNot(), s.g(Equal(), x, s.filled(0, x)))
    return s.g(Cast(dtype), x)


def _truncated(s: Site, x: Value, dtype: str) -> Value:
    """Return floats without their fractions as integers, limited to what these hold."""
    bits = width(dtype)
    signed = dtype.startswith("i")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    wide = x if x.type.dtype == "f64" else s.cast(x, "f32")
    # The bounds are powers of two, or one less: what reaches the next power is beyond.
    beyond = s.g(GreaterOrEqual(), wide, s.filled(float(high + 1), wide))
    below = s.g(Less(), wide, s.filled(float(low), wide))
    nothing = s.g(BitOr(), s.g(IsNaN(), wide), s.g(BitOr(), beyond, below))
    inside = s.g(Where(), nothing, s.filled(0, wide), wide)
    whole = s.g(Cast(dtype), inside)
    whole = s.g(Where(), beyond, s.full(high, dtype, x.type.shape), whole)
    return s.g(Where(), below, s.full(low, dtype, x.type.shape), whole)


@on("stablehlo.bitcast_convert", pointwise=True)
def bitcast_convert(s: Site) -> Made:
    """Between types of different widths a last axis comes or goes."""
    (x,), dtype = s.required(1), s.dtype()
    source = x.type.dtype
    if source == dtype:
        return x
    if source in COMPLEX or dtype in COMPLEX:
        return _bits_of_complex(s, x, dtype)
    if "bool" in (source, dtype):
        return _bits_of_bool(s, x, dtype)
    here, there = width(source), width(dtype)
    if here == there:
        return s.g(BitCast(dtype), x)
    if {source, dtype} & NARROW and min(here, there) < 8:
        raise _refused(s, x, dtype, "equal widths, or at least 8 bits each")
    if here > there:
        return _cut(s, x, dtype, here // there)
    return _glued(s, x, dtype, there // here)


def _refused(s: Site, x: Value, dtype: str, supported: str) -> UnsupportedError:
    return s.refuse(f"{x.type} to {dtype} is not supported; supported: {supported}")


def _bits_of_complex(s: Site, x: Value, dtype: str) -> Value:
    if x.type.dtype in COMPLEX and PARTS[x.type.dtype] == dtype:
        return s.g(ViewAsReal(), x)
    if dtype in COMPLEX and PARTS[dtype] == x.type.dtype:
        return s.g(ViewAsComplex(), x)
    if x.type.dtype in COMPLEX and dtype in COMPLEX:
        if x.type.dtype == "c64":
            return s.g(ViewAsComplex(), _glued(s, s.g(ViewAsReal(), x), "f64", 2))
        halves = _cut(s, s.g(ViewAsReal(), x), "f32", 2)
        return s.g(ViewAsComplex(), halves)
    raise _refused(s, x, dtype, "complex to complex, or to and from their parts")


def _bits_of_bool(s: Site, x: Value, dtype: str) -> Value:
    """Return truth values as the bits of integers, or these as truth values, the lowest first."""
    if dtype == "bool":
        bits = width(x.type.dtype)
        whole = s.g(BitCast(f"u{bits}"), x)
        pieces = []
        for i in range(bits):
            bit = s.g(BitAnd(), s.g(ShiftRight(), whole, s.filled(i, whole)), s.filled(1, whole))
            pieces.append(s.reshaped(s.g(Cast("bool"), bit), (*x.type.shape, 1)))
        return s.g(Concat(x.type.rank), *pieces)
    if width(dtype) != x.type.shape[-1]:
        raise _refused(s, x, dtype, f"a last axis of {width(dtype)} elements")
    return _glued(s, x, dtype, width(dtype))


def _cut(s: Site, x: Value, dtype: str, count: int) -> Value:
    """Return the bits of x as several elements each, the lowest first."""
    whole = s.g(BitCast(f"u{width(x.type.dtype)}"), x)
    bits = width(dtype)
    pieces = []
    for i in range(count):
        piece = s.g(ShiftRight(), whole, s.filled(i * bits, whole))
        narrow = s.g(BitCast(dtype), s.g(Cast(f"u{bits}"), piece))
        pieces.append(s.reshaped(narrow, (*x.type.shape, 1)))
    return s.g(Concat(x.type.rank), *pieces)


def _glued(s: Site, x: Value, dtype: str, count: int) -> Value:
    """Return elements along the last axis of x as the bits of one, the lowest first."""
    bits = width(dtype) // count
    total: Value | None = None
    for i in range(count):
        piece = s.reshaped(sliced(s.g, x, x.type.rank - 1, i, 1), x.type.shape[:-1])
        piece = piece if bits == 1 else s.g(BitCast(f"u{bits}"), piece)
        whole = s.g(Cast(f"u{width(dtype)}"), piece)
        whole = s.g(ShiftLeft(), whole, s.filled(i * bits, whole))
        total = whole if total is None else s.g(BitOr(), total, whole)
    assert total is not None, "there are several elements"
    return s.g(BitCast(dtype), total)
