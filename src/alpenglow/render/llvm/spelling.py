"""How LLVM IR spells element types, constants, and the operations of each family of types."""

from __future__ import annotations

from alpenglow.ir.types import COMPLEX, DTYPES, FLOATS, HALVES, NARROW, OPAQUE
from alpenglow.kernel.expr import Buffer, Const, Expr, signed, wrapped

SCALAR = {
    "bool": "i1",
    **{f"{sign}{bits}": f"i{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
    **dict.fromkeys(sorted(NARROW), "i8"),
    "c64": "i64",
    "c128": "i128",
}
EXTREMES = {
    "float": {"min": "llvm.minimum", "max": "llvm.maximum", "pow": "llvm.pow"},
    "signed": {"min": "llvm.smin", "max": "llvm.smax"},
    "unsigned": {"min": "llvm.umin", "max": "llvm.umax"},
}
_BITS = {op: op for op in ("add", "sub", "mul", "and", "or", "xor", "shl")}
BINARY = {
    "float": {op: f"f{op}" for op in ("add", "sub", "mul", "div", "rem")},
    "signed": _BITS | {"div": "sdiv", "rem": "srem", "shr": "ashr"},
    "unsigned": _BITS | {"div": "udiv", "rem": "urem", "shr": "lshr"},
}
_EQUAL = {"eq": "icmp eq", "ne": "icmp ne"}
_ORDER = ("lt", "le", "gt", "ge")
COMPARE = {
    "float": {op: f"fcmp o{op}" for op in ("eq", *_ORDER)} | {"ne": "fcmp une"},
    "signed": _EQUAL | {op: f"icmp s{op}" for op in _ORDER},
    "unsigned": _EQUAL | {op: f"icmp u{op}" for op in _ORDER},
}


WORD = 32
"""The bits of a lane of a machine operation, whatever is in it."""

_ELEMENTS = {"float": 32, "i32": 32, "bfloat": 16, "i16": 16, "i8": 8}


def holding(element: str, bits: int) -> str:
    """Return the type of a vector of so many bits."""
    return f"<{bits // _ELEMENTS[element]} x {element}>"


def family(dtype: str) -> str:
    return "float" if dtype in FLOATS else "signed" if signed(dtype) else "unsigned"


def alignment(b: Buffer) -> int:
    return b.align or natural(b.dtype)


def natural(dtype: str) -> int:
    """Return the bytes that the address of an element is a multiple of."""
    size = DTYPES[dtype].itemsize
    return size // 2 if dtype in COMPLEX else size


def memory(dtype: str) -> str:
    return "i8" if dtype == "bool" else SCALAR[dtype]


def vector(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def typed(e: Expr) -> str:
    return vector(SCALAR[e.dtype], e.lanes)


def overload(dtype: str, lanes: int) -> str:
    """Return how names of overloaded intrinsics spell a type."""
    name = dtype if dtype in FLOATS else SCALAR[dtype]
    return name if lanes == 1 else f"v{lanes}{name}"


def suffix(e: Expr) -> str:
    """Return how memory intrinsics spell the type of `e`; a bool is a byte there."""
    return overload("u8" if e.dtype == "bool" else e.dtype, e.lanes)


def places(near: str, far: str, at: Expr) -> tuple[str, tuple[str, str]]:
    """Return which masked intrinsic an address needs, and how to spell its pointers."""
    if at.lanes == 1:
        return near, ("p0", "ptr")
    return far, (f"v{at.lanes}p0", f"<{at.lanes} x ptr>")


def constant(e: Const) -> str:
    text = _number(e)
    return text if e.lanes == 1 else f"splat ({SCALAR[e.dtype]} {text})"


def _number(c: Const) -> str:
    """Spell a number exactly: integers wrapped to their width, floats by their bits."""
    if c.dtype == "bool":
        return "true" if c.value else "false"
    if c.dtype in HALVES:
        return f"0x{'H' if c.dtype == 'f16' else 'R'}{c.bits:04X}"
    if c.dtype in FLOATS:
        rounded = float(DTYPES[c.dtype].type(c.value))
        return f"0x{Const(rounded, 'f64').bits:016X}"
    if c.dtype in OPAQUE:
        return str(c.bits)
    return str(wrapped(int(c.value), f"i{DTYPES[c.dtype].itemsize * 8}"))
