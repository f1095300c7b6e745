"""The operations of the kernel language as C expressions on scalars."""

from __future__ import annotations

import zlib

from alpenglow.ir.types import DTYPES, FLOATS, INTS
from alpenglow.kernel.expr import Const
from alpenglow.render.c.library import CLibrary
from alpenglow.render.c.spelling import TYPES, literal
from alpenglow.render.clike.operations import Operations
from alpenglow.render.clike.spelling import negative, unsigned


class Scalars(Operations):
    """Calls functions that `library` holds the text of."""

    library: CLibrary

    def constant(self, c: Const) -> str:
        text = literal(c)
        if not text:
            return self.library.call(f"{c.dtype}_of_bits", f"{hex(c.bits)}u")
        self.library.type(c.dtype)
        return negative(text)

    def called(self, op: str, dtype: str, *operands: str) -> str:
        name, kind = f"{op}_{dtype}", TYPES[dtype]
        if dtype in FLOATS:
            return self.library.call(name, *operands)
        if op in ("min", "max"):
            sign = "<" if op == "min" else ">"
            parameters, value = f"{kind} a, {kind} b", f"a {sign} b ? a : b"
        elif op == "abs":
            minus = self.binary("sub", dtype, "0", "x")
            parameters, value = f"{kind} x", f"x < 0 ? {minus} : x"
        else:
            raise self.library.lacks(f"{op} of {dtype}")
        self.library.define(kind, name, parameters, f"return {value};")
        return f"{name}({', '.join(operands)})"

    def integral(self, op: str, dtype: str, a: str, b: str) -> str:
        if op == "shr" and DTYPES[dtype].itemsize == 8 and a.isdecimal():
            a = f"{a}ll"
        return super().integral(op, dtype, a, b)

    def truncated(self, x: str, source: str, target: str) -> str:
        return self.library.call(f"{target}_of_{source}", x)

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
        self.library.define(
            "float",
            name,
            "int32_t at",
            f"static const float table[{len(table)}] = {{{numbers}}};",
            f"return table[at & {len(table) - 1}];",
        )
        return f"{name}({at})"

    def intrinsic(self, name: str, *operands: str) -> str:
        return self.library.call(name, *operands)


def _plain(dtype: str) -> str:
    """Return the arithmetic type that C has for `dtype`."""
    if dtype == "bool" or dtype in INTS or dtype in ("f32", "f64"):
        return dtype
    return unsigned(dtype)
