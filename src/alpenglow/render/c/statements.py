"""Statements of a kernel as lines of C11.

What vectors are is left to the classes that build on this one: `wide` has types for them, `lanes`
loops.
"""

from __future__ import annotations

from alpenglow.kernel.expr import Buffer, Fma, Register
from alpenglow.kernel.stmt import Atomic, For, Kernel, Scope, Set
from alpenglow.render.c.library import CLibrary
from alpenglow.render.c.scalars import Scalars
from alpenglow.render.c.spelling import RESERVED, memory
from alpenglow.render.clike.registers import Path
from alpenglow.render.clike.spelling import bare, identifier
from alpenglow.render.clike.statements import Statements


class Plain(Statements):
    """Statements on scalars.  With `fast`, sums of products may be rounded twice."""

    index = "ptrdiff_t"
    library: CLibrary

    def __init__(
        self, kernel: Kernel, library: CLibrary, fast: bool, aliased: frozenset[str]
    ) -> None:
        super().__init__(kernel, library, Scalars(library), aliased)
        self.fast = fast

    def parameters(self) -> list[str]:
        part = [] if self.kernel.parallel is None else ["begin", "end"]
        return super().parameters() + [f"{self.index} {name}" for name in part]

    def identifier(self, name: str) -> str:
        return identifier(name, RESERVED)

    def memory(self, dtype: str) -> str:
        self.library.type(dtype)
        return memory(dtype)

    def array(self, a: Buffer) -> str:
        if a.space != "local":
            raise self.lacks(f"a {a.space} array")
        align = f"_Alignas({a.align}) " if a.align else ""
        return f"{align}{self.memory(a.dtype)} {self.identifier(a.name)}[{max(a.size, 1)}]"

    def declare(self, register: Register) -> None:
        zero = "{0}" if register.lanes > 1 or register.dtype == "c128" else "0"
        self.emit(f"{self.kind(register)} {self.name(register)} = {zero};")

    def assigned(self, s: Set) -> str:
        match s.value:
            case Fma(x, y, Register(name)) if name == s.register.name and self.fast:
                # A sum of products: nothing depends on how one of them is rounded.
                a, b, c = (self.value(e) for e in (x, y, s.value.z))
                return self.operations(s.value).fma(s.value.dtype, a, b, c, loose=True)
        return super().assigned(s)

    def loop(self, s: For, path: Path) -> None:
        if s.kind in ("group", "thread"):
            raise self.lacks(f"a {s.kind} loop")
        if s.strips > 1:
            self.strips(s, path)
        elif s is self.kernel.parallel:
            self.count(s, path, "begin", "end")
        else:
            super().loop(s, path)

    def strips(self, s: For, path: Path) -> None:
        """Run the part of a parallel loop in strips."""
        strip, n = self.fresh(), s.strips
        self.emit(f"for ({self.index} {strip} = 0; {strip} < {n}; {strip}++) {{")
        self.count(s, path, f"(begin + {n - 1} - {strip}) / {n} * {n} + {strip}", "end", f" += {n}")
        self.emit("}")

    def atomic(self, s: Atomic) -> None:
        if s.value.lanes > 1 or s.buffer.dtype == "bool":
            raise self.lacks(f"atomic {s.op} of {s.value.lanes} {s.buffer.dtype}")
        if self.kernel.parallel is not None:
            raise self.lacks("an atomic operation in a parallel loop")
        cell = self.cell(s.buffer, s.at)
        changed = self.scalars.binary(s.op, s.buffer.dtype, cell, self.value(s.value))
        self.emit(f"{cell} = {bare(changed)};")

    def barrier(self, scope: Scope) -> None:
        raise self.lacks("barrier")

    def put(self, dtype: str, cell: str, value: str) -> str:
        if dtype == "c64":
            return f"{self.library.call('store_c64', f'&{cell}', bare(value))};"
        return super().put(dtype, cell, value)

    def element(self, dtype: str, cell: str) -> str:
        if dtype == "c64":
            return self.library.call("load_c64", f"&{cell}")
        return super().element(dtype, cell)
