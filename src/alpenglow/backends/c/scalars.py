"""The operations of the kernel language as C expressions on scalars.

Operands are text and bind tightly: names, calls, literals, or what stands in parentheses.  So does
each result.  Signed integers wrap by way of unsigned ones.
"""

from __future__ import annotations

import zlib

from alpenglow.backends.c.library import Library
from alpenglow.backends.c.spelling import SHORT, SIGNS, TYPES, literal, negative, unsigned
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import DTYPES, FLOATS, INTS, UNSIGNED
from alpenglow.kernel.expr import Const, signed

_WRAPPING = ("add", "sub", "mul", "shl")
_LOOKUP = """\
INLINE float {name}(int32_t at) {{
  static const float table[{count}] = {{{numbers}}};
  return table[at & {last}];
}}
"""
_FIXED = ("abs", "floor", "ceil", "round", "trunc")
"""Unary operations that leave unsigned integers as they are, and all but the first the others."""


class Scalars:
    """Writes expressions, and notes in `library` what they call."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def lacks(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"C has no {what}", hint="a library of mathematics would be needed")

    def constant(self, c: Const) -> str:
        if c.dtype in ("f32", "f64") and not literal(c):
            return self.library.call(f"{c.dtype}_of_bits", _bits(c))
        self.library.type(c.dtype)
        return negative(literal(c))

    def binary(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype in SHORT:
            a, b = self.convert(a, dtype, "f32"), self.convert(b, dtype, "f32")
            return self.convert(self.binary(op, "f32", a, b), "f32", dtype)
        if dtype in FLOATS:
            if op in ("min", "max", "rem"):
                return self.library.call(f"{op}_{dtype}", a, b)
            if op not in SIGNS or op in ("and", "or", "xor", "shl", "shr"):
                raise self.lacks(f"{op} of {dtype}")
            return f"({a} {SIGNS[op]} {b})"
        if dtype == "bool":
            return self.logic(op, a, b)
        return self.integral(op, dtype, a, b)

    def logic(self, op: str, a: str, b: str) -> str:
        sign = {"and": "&", "min": "&", "mul": "&", "or": "|", "max": "|", "add": "|", "xor": "^"}
        if op not in sign:
            raise self.lacks(f"{op} of bool")
        return f"({a} {sign[op]} {b})"

    def integral(self, op: str, dtype: str, a: str, b: str) -> str:
        if op in ("min", "max"):
            return self.extremum(op, dtype, a, b)
        if dtype not in INTS or op not in SIGNS:
            raise self.lacks(f"{op} of {dtype}")
        size = DTYPES[dtype].itemsize
        wide = "uint32_t" if size < 4 else TYPES[unsigned(dtype)]
        if op in _WRAPPING and (signed(dtype) or size < 4):
            return f"(({TYPES[dtype]})(({wide}){a} {SIGNS[op]} ({wide}){b}))"
        if op == "shr" and size == 8 and a.isdecimal():
            a = f"{a}ll"
        text = f"({a} {SIGNS[op]} {b})"
        # Operands of fewer bits were widened to int.
        return f"(({TYPES[dtype]}){text})" if size < 4 else text

    def extremum(self, op: str, dtype: str, a: str, b: str) -> str:
        name, kind = f"{op}_{dtype}", TYPES[dtype]
        sign = "<" if op == "min" else ">"
        self.library.define(
            name, f"INLINE {kind} {name}({kind} a, {kind} b) {{\n  return a {sign} b ? a : b;\n}}\n"
        )
        return f"{name}({a}, {b})"

    def compare(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtype in SHORT:
            a, b = self.convert(a, dtype, "f32"), self.convert(b, dtype, "f32")
        if dtype in UNSIGNED and b in ("0", "0u", "0ull") and op in ("lt", "ge"):
            # Compilers wonder at what is always so.
            return "0" if op == "lt" else "1"
        return f"({a} {SIGNS[op]} {b})"

    def fma(self, dtype: str, a: str, b: str, c: str, loose: bool = False) -> str:
        """Return a * b + c, rounded once; if `loose`, twice where that is faster."""
        if dtype in SHORT:
            wide = (self.convert(x, dtype, "f32") for x in (a, b, c))
            return self.convert(self.library.call("odd_fma_f32", *wide), "f32", dtype)
        if dtype in FLOATS:
            return self.library.call(f"{'accumulate' if loose else 'fma'}_{dtype}", a, b, c)
        return self.binary("add", dtype, self.binary("mul", dtype, a, b), c)

    def unary(self, op: str, dtype: str, x: str) -> str:
        if dtype in SHORT:
            return self.convert(self.unary(op, "f32", self.convert(x, dtype, "f32")), "f32", dtype)
        if dtype in FLOATS:
            if op == "neg":
                return f"(-{x})"
            if op not in (*_FIXED, "sqrt"):
                raise self.lacks(f"{op} of {dtype}")
            return self.library.call(f"{op}_{dtype}", x)
        if op == "not":
            return f"(!{x})" if dtype == "bool" else self.cut(f"~{x}", dtype)
        if op == "neg":
            return self.binary("sub", dtype, "0", x)
        if op == "abs" and signed(dtype) and dtype != "bool":
            return self.magnitude(dtype, x)
        if op in _FIXED:
            return x
        raise self.lacks(f"{op} of {dtype}")

    def magnitude(self, dtype: str, x: str) -> str:
        name, kind = f"abs_{dtype}", TYPES[dtype]
        minus = self.binary("sub", dtype, "0", "x")
        self.library.define(
            name, f"INLINE {kind} {name}({kind} x) {{\n  return x < 0 ? {minus} : x;\n}}\n"
        )
        return f"{name}({x})"

    def cut(self, text: str, dtype: str) -> str:
        """Undo the widening of narrow operands to int."""
        return f"(({TYPES[dtype]})({text}))" if DTYPES[dtype].itemsize < 4 else f"({text})"

    def select(self, dtype: str, condition: str, x: str, y: str) -> str:
        text = f"{condition} ? {x} : {y}"
        return self.cut(text, dtype) if dtype in INTS else f"({text})"

    def convert(self, x: str, source: str, target: str) -> str:
        if source == target:
            return x
        if target == "bool":
            zero = self.constant(Const(0, source)) if source not in SHORT else "0"
            return f"({self.convert(x, source, 'f32') if source in SHORT else x} != {zero})"
        if "f32" not in (source, target) and (source in SHORT or target in SHORT):
            return self.convert(self.convert(x, source, "f32"), "f32", target)
        if source in SHORT or target in SHORT:
            return self.library.call(f"{target}_of_{source}", x)
        if source in FLOATS and target not in FLOATS:
            return self.truncate(x, source, target)
        return f"(({TYPES[target]}){x})"

    def truncate(self, x: str, source: str, target: str) -> str:
        if target in ("i32", "i64", "u64"):
            return self.library.call(f"{target}_of_{source}", x)
        through = "i64" if target == "u32" else "i32"
        return f"(({TYPES[target]}){self.library.call(f'{through}_of_{source}', x)})"

    def bitcast(self, x: str, source: str, target: str) -> str:
        kinds = [_plain(source), _plain(target)]
        if kinds[0] == kinds[1]:
            return x
        if "bool" in (source, target):
            return self.convert(x, _plain(source), _plain(target))
        if source in ("f32", "f64"):
            bits = self.library.call(f"bits_{source}", x)
            return bits if _plain(target) == unsigned(source) else f"(({TYPES[target]}){bits})"
        if target in ("f32", "f64"):
            bits = x if kinds[0] == unsigned(target) else f"({TYPES[unsigned(target)]}){x}"
            return self.library.call(f"{target}_of_bits", bits)
        return f"(({TYPES[target]}){x})"

    def lookup(self, table: tuple[float, ...], at: str) -> str:
        """Return a call of a function that holds the table."""
        numbers = ", ".join(f"{x!r}f" for x in table)
        name = f"lookup_{zlib.crc32(numbers.encode()):08x}"
        text = _LOOKUP.format(name=name, count=len(table), numbers=numbers, last=len(table) - 1)
        self.library.define(name, text)
        return f"{name}({at})"

    def intrinsic(self, name: str, *operands: str) -> str:
        if name not in ("vpdpbusd", "usdot", "sdot", "vpmaddwd", "vdpbf16ps"):
            raise self.lacks(name)
        return self.library.call(name, *operands)


def _plain(dtype: str) -> str:
    """Return the arithmetic type that C has for `dtype`."""
    if dtype == "bool" or dtype in INTS or dtype in ("f32", "f64"):
        return dtype
    return unsigned(dtype)


def _bits(c: Const) -> str:
    """Return the bits of a float as a literal."""
    array = DTYPES[c.dtype].type(c.value)
    return hex(int.from_bytes(array.tobytes(), "little")) + "u"
