"""How C writes element types, constants and names.

f16 and bf16 are the 16 bits that stand for them; what computes goes through f32.  A bool is a
`_Bool` as a scalar, a byte in memory and, in GNU vectors, an i32 of 0 or -1 as comparisons give it.
Narrow elements are bytes, complex ones two halves that nothing looks into.
"""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np

from alpenglow.ir.types import DTYPES, NARROW, OPAQUE
from alpenglow.kernel.expr import Const, signed

SHORT = ("f16", "bf16")
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
INDEX = "ptrdiff_t"

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip

KEYWORDS = frozenset(
    {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
        "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
        "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
        "union", "unsigned", "void", "volatile", "while", "asm", "typeof", "main", "begin", "end",
        "lane", "half",
    }
)  # fmt: skip


def memory(dtype: str) -> str:
    """Return the type of an element in memory."""
    return {"bool": "uint8_t", "c64": "c64"}.get(dtype, TYPES[dtype])


def vector(dtype: str, lanes: int) -> str:
    """Return the name of a type, also as the names of functions end."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def unsigned(dtype: str) -> str:
    """Return the unsigned type of the width of `dtype`."""
    return f"u{DTYPES[dtype].itemsize * 8}"


def identifier(name: str) -> str:
    """Return a name that C accepts."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in KEYWORDS or plain in TYPES or plain[:1].isdigit() else plain


def literal(c: Const) -> str:
    """Return a scalar constant of the type of `c`, exactly."""
    if c.dtype == "bool":
        return "1" if c.value else "0"
    if c.dtype == "f16":
        return f"0x{np.float16(c.value).view(np.uint16):04x}"
    if c.dtype == "bf16":
        return f"0x{np.asarray(c.value, ml_dtypes.bfloat16).view(np.uint16):04x}"
    if c.dtype == "f32":
        return _float(float(np.float32(c.value)), str(np.float32(c.value)), "f")
    if c.dtype == "f64":
        return _float(float(c.value), repr(float(c.value)), "")
    if c.dtype in OPAQUE:
        code = int.from_bytes(np.asarray(c.value, DTYPES[c.dtype]).tobytes(), "little")
        return str(code) if c.dtype != "c128" else _halves(code)
    return integer(int(c.value), c.dtype)


def integer(value: int, dtype: str) -> str:
    """Return an integer, wrapped to the width of `dtype`."""
    bits = DTYPES[dtype].itemsize * 8
    low = value & ((1 << bits) - 1)
    if not signed(dtype):
        return str(low) + {32: "u", 64: "ull"}.get(bits, "")
    value = low - (1 << bits) if low >> (bits - 1) else low
    if value == -(1 << (bits - 1)) and bits >= 32:
        # C has no negative literals, and the positive one would not fit.
        return f"INT{bits}_MIN"
    return str(value) if -(1 << 31) < value < 1 << 31 else f"{value}ll"


def negative(text: str) -> str:
    """Put a literal that begins with a sign in parentheses."""
    return f"({text})" if text.startswith("-") else text


def _float(value: float, digits: str, suffix: str) -> str:
    """Return a float literal; "" asks the caller for the bits of what C has no literal for."""
    if math.isnan(value) or math.isinf(value):
        return ""
    plain = digits if re.search(r"[.e]", digits) else f"{digits}.0"
    return plain + suffix


def _halves(code: int) -> str:
    low, high = code & ((1 << 64) - 1), code >> 64
    return f"(c128){{{{{low}ull, {high}ull}}}}"
