"""How LLVM IR spells element types, constants, and the operations of each family of types."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np

from alpenglow.ir.types import COMPLEX, DTYPES, FLOATS, NARROW, OPAQUE
from alpenglow.kernel.expr import Buffer, Const, Expr, signed

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
INTRINSICS = {
    "vpdpbusd": ("i8", 8),
    "usdot": ("i8", 8),
    "sdot": ("i8", 8),
    "vpmaddwd": ("i16", 16),
    "vdpbf16ps": ("bfloat", 16),
    "vpermps": ("i32", 32),
}
"""The element of a machine operation's later operands, with its bits."""

NARROWING = {
    "vcvtps2dq": ("float", "i32"),
    "vpackssdw": ("i32", "i16"),
    "vpackuswb": ("i16", "i8"),
}
"""From what element to what a machine operation on whole registers of i32 leads."""


def machine_name(name: str, bits: int) -> str:
    """Return what LLVM calls a machine operation on vectors of so many bits."""
    match name:
        case "vpdpbusd":
            return f"llvm.x86.avx512.vpdpbusd.{bits}"
        case "usdot" | "sdot":
            return f"llvm.aarch64.neon.{name}.v{bits // 32}i32.v{bits // 8}i8"
        case "vdpbf16ps":
            return f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
        case "vpermps":
            return "llvm.x86.avx512.permvar.sf.512" if bits == 512 else "llvm.x86.avx2.permps"
    pairs = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}
    return f"llvm.x86.{pairs[bits]}"


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
    text = _number(e.value, e.dtype)
    return text if e.lanes == 1 else f"splat ({SCALAR[e.dtype]} {text})"


def _number(value: float, dtype: str) -> str:
    """Spell a number exactly: integers wrapped to their width, floats by their bits."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "f16":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if dtype == "bf16":
        return f"0xR{np.asarray(value, ml_dtypes.bfloat16).view(np.uint16):04X}"
    if dtype in FLOATS:
        rounded = float(np.float32(value)) if dtype == "f32" else float(value)
        return f"0x{struct.unpack('>Q', struct.pack('>d', rounded))[0]:016X}"
    if dtype in OPAQUE:
        return str(int.from_bytes(np.asarray(value, DTYPES[dtype]).tobytes(), "little"))
    half = 1 << (DTYPES[dtype].itemsize * 8 - 1)
    return str((int(value) + half) % (2 * half) - half)
