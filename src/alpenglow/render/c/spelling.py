"""How C writes element types and constants.

f16 and bf16 are there in memory alone, as the 16 bits that stand for them.  A bool is a
`_Bool` as a scalar, and a byte in memory.  Narrow elements are bytes, complex ones two halves that
nothing looks into.
"""

from __future__ import annotations

from alpenglow.ir.types import DTYPES, FLOATS, NARROW, OPAQUE
from alpenglow.kernel.expr import Const, wrapped
from alpenglow.render.clike.spelling import KEYWORDS, decimal

TYPES = {
    "bool": "_Bool",
    **{f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    **dict.fromkeys(sorted(NARROW), "uint8_t"),
    "c64": "uint64_t",
    "c128": "c128",
}
RESERVED = KEYWORDS | TYPES.keys() | {"main", "begin", "end", "lane", "half"}


def memory(dtype: str) -> str:
    """Return the type of an element in memory."""
    return {"bool": "uint8_t", "c64": "c64"}.get(dtype, TYPES[dtype])


def literal(c: Const) -> str:
    """Return a scalar constant of the type of `c`, exactly; "" for floats that have none."""
    if c.dtype == "bool":
        return "1" if c.value else "0"
    if c.dtype in FLOATS:
        return decimal(c)
    if c.dtype == "c128":
        low, high = c.bits & ((1 << 64) - 1), c.bits >> 64
        return f"(c128){{{{{low}ull, {high}ull}}}}"
    return str(c.bits) if c.dtype in OPAQUE else integer(int(c.value), c.dtype)


def integer(value: int, dtype: str) -> str:
    """Return an integer, wrapped to the width of `dtype`."""
    value, bits = wrapped(value, dtype), DTYPES[dtype].itemsize * 8
    if suffix := {"u32": "u", "u64": "ull"}.get(dtype):
        return f"{value}{suffix}"
    if value == -(1 << (bits - 1)) and bits >= 32:
        # C has no negative literals, and the positive one would not fit.
        return f"INT{bits}_MIN"
    return str(value) if -(1 << 31) < value < 1 << 31 else f"{value}ll"
