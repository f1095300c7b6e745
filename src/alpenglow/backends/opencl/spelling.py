"""How OpenCL C writes types, constants and operations, and the helper functions it needs.

A bool is `bool` as a scalar and an `int` of 0 or -1 in vectors, as comparisons give it.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.ir.types import DTYPES, FLOATS, NARROW, UNSIGNED
from alpenglow.kernel.expr import Const, signed

TYPES = {
    "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar",
    "u16": "ushort", "u32": "uint", "u64": "ulong", "f16": "half", "f32": "float", "f64": "double",
    **dict.fromkeys(sorted(NARROW), "uchar"), "c64": "ulong",
}  # fmt: skip
LANES = (1, 2, 4, 8, 16)

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=",
}  # fmt: skip
WRAPPING = ("add", "sub", "mul", "shl")
"""Operations whose overflow C leaves open where operands are signed."""

FLOAT_CALLS = {"abs": "fabs", "round": "rint"}
EXTENSIONS = {
    "f16": "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
    "f64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
}


def typename(dtype: str, lanes: int = 1) -> str:
    """Return the type of a value."""
    if lanes == 1:
        return TYPES[dtype]
    return f"{'int' if dtype == 'bool' else TYPES[dtype]}{lanes}"


def stored(dtype: str, lanes: int = 1) -> str:
    """Return the type of a value in memory."""
    name = "uchar" if dtype == "bool" else TYPES[dtype]
    return name if lanes == 1 else f"{name}{lanes}"


def unsigned(dtype: str) -> str:
    return dtype if dtype in UNSIGNED else "u" + dtype[1:]


def mask(dtype: str, lanes: int) -> str:
    """Return the type of what comparing vectors of `dtype` gives."""
    name = {1: "char", 2: "short", 4: "int", 8: "long"}[DTYPES[dtype].itemsize]
    return f"{name}{lanes}"


def short(dtype: str, lanes: int) -> str:
    """Return the mark of a type in the name of a helper function."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def literal(c: Const) -> str:
    """Return a constant that has the type of `c` in C."""
    if c.lanes > 1:
        if c.dtype == "bool":
            return f"(int{c.lanes})({-1 if c.value else 0})"
        return f"({typename(c.dtype, c.lanes)})({literal(Const(c.value, c.dtype))})"
    if c.dtype == "bool":
        return "true" if c.value else "false"
    if c.dtype in FLOATS:
        return _float(float(c.value), c.dtype)
    if c.dtype in NARROW:
        return f"(uchar){np.asarray(c.value, DTYPES[c.dtype]).view(np.uint8)}"
    value = int(c.value)
    if value == -(1 << 8 * DTYPES[c.dtype].itemsize - 1) and signed(c.dtype):
        return {"i32": "INT_MIN", "i64": "LONG_MIN"}.get(c.dtype, f"({TYPES[c.dtype]}){value}")
    suffix = {"i32": "", "i64": "L", "u32": "u", "u64": "uL"}.get(c.dtype)
    return f"({TYPES[c.dtype]}){value}" if suffix is None else f"{value}{suffix}"


def _float(value: float, dtype: str) -> str:
    if math.isnan(value) or math.isinf(value):
        word = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        return word if dtype == "f32" else f"({TYPES[dtype]})({word})"
    digits = repr(value) if dtype == "f64" else str(DTYPES[dtype].type(value))
    if not np.isfinite(float(digits)):
        return _float(float(digits), dtype)
    digits = digits if "." in digits or "e" in digits else digits + ".0"
    return digits + {"f16": "h", "f32": "f", "f64": ""}[dtype]


def extremum(op: str, dtype: str, lanes: int) -> tuple[str, str]:
    """Return name and text of the function for a `min` or `max` that propagates NaN."""
    t, name = typename(dtype, lanes), f"{op}_{short(dtype, lanes)}"
    if lanes == 1:
        value = f"isnan(a) || isnan(b) ? a + b : f{op}(a, b)"
    else:
        value = f"select(f{op}(a, b), a + b, isnan(a) | isnan(b))"
    return name, f"static {t} {name}({t} a, {t} b) {{\n  return {value};\n}}"


def truncation(source: str, through: str, lanes: int) -> tuple[str, str]:
    """Return name and text of the function from floats to `through`; see `kernel.expr.Convert`."""
    name = f"{through}_of_{short(source, lanes)}"
    t, result = typename(source, lanes), typename(through, lanes)
    least = literal(Const(-(1 << 8 * DTYPES[through].itemsize - 1), through, lanes))
    limit = literal(Const(2.0 ** (8 * DTYPES[through].itemsize - 1), source))
    if lanes == 1:
        value = f"fabs(x) < {limit} ? ({result})x : {least}"
    else:
        fits = f"isless(fabs(x), ({t})({limit}))"
        value = f"select({least}, convert_{result}(x), convert_{mask(through, lanes)}({fits}))"
    return name, f"static {result} {name}({t} x) {{\n  return {value};\n}}"
