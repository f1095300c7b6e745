"""How OpenCL C writes types and constants."""

from __future__ import annotations

from alpenglow.ir.types import DTYPES, FLOATS, NARROW, OPAQUE
from alpenglow.kernel.expr import Const, wrapped
from alpenglow.render.clike.spelling import KEYWORDS, decimal, unsigned

TYPES = {
    "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar",
    "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
    **dict.fromkeys(sorted(NARROW), "uchar"), "c64": "ulong", "c128": "ulong2",
}  # fmt: skip
RESERVED = (
    KEYWORDS
    | {f"{name}{lanes}" for name in TYPES.values() for lanes in ("", 2, 3, 4, 8, 16)}
    | {"kernel", "global", "local", "constant", "private", "half", "barrier", "abs", "fabs", "fma"}
    | {"fmax", "fmin", "fmod", "isless", "isnan", "max", "min", "pow", "rint", "select"}
)
"""Words of the language, and what kernels call."""


def typename(dtype: str, lanes: int = 1) -> str:
    """Return the type of a value."""
    if lanes == 1:
        return TYPES[dtype]
    return f"{'int' if dtype == 'bool' else TYPES[dtype]}{lanes}"


def mask(dtype: str) -> str:
    """Return the integer type that comparing vectors of `dtype` gives."""
    return f"i{8 * (4 if dtype == 'bool' else DTYPES[dtype].itemsize)}"


def literal(c: Const) -> str:
    """Return a scalar constant of the type of `c`."""
    if c.dtype == "bool":
        return "true" if c.value else "false"
    if c.dtype in FLOATS:
        return decimal(c) or _special(c)
    if c.dtype == "c128":
        low, high = c.bits & ((1 << 64) - 1), c.bits >> 64
        return f"(ulong2)({low}uL, {high}uL)"
    if c.dtype in OPAQUE:
        return integer(c.bits, unsigned(c.dtype))
    return integer(int(c.value), c.dtype)


def integer(value: int, dtype: str) -> str:
    value, bits = wrapped(value, dtype), 8 * DTYPES[dtype].itemsize
    if bits < 32:
        return f"({TYPES[dtype]}){value}"
    if value == -(1 << bits - 1):
        return {"i32": "INT_MIN", "i64": "LONG_MIN"}[dtype]
    return str(value) + {"i32": "", "i64": "L", "u32": "u", "u64": "uL"}[dtype]


def _special(c: Const) -> str:
    word = "NAN" if c.value != c.value else "INFINITY" if c.value > 0 else "-INFINITY"
    return word if c.dtype == "f32" else f"(double)({word})"
