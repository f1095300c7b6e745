"""Kernels whose vectors are values of C, by the extensions of gcc and clang."""

from __future__ import annotations

from alpenglow.backends.c.scalars import Scalars
from alpenglow.backends.c.spelling import identifier
from alpenglow.backends.c.statements import Statements
from alpenglow.backends.c.vectors import Vectors, bare
from alpenglow.kernel.expr import Blend, Expr, Lanes, Load, Reduce, Register, Shuffle, Splat
from alpenglow.kernel.stmt import Store


class Wide(Statements):
    """Statements on vectors look as those on scalars do."""

    def vectors(self, lanes: int) -> Vectors:
        return Vectors(self.scalars, lanes)

    def operations(self, e: Expr) -> Scalars:
        return self.scalars if e.lanes == 1 else self.vectors(e.lanes)

    def kind(self, register: Register) -> str:
        if register.lanes == 1:
            return super().kind(register)
        return self.library.type(register.dtype, register.lanes)

    def declare(self, register: Register) -> None:
        if register.lanes == 1:
            super().declare(register)
        else:
            self.emit(f"{self.kind(register)} {self.name(register)} = {{0}};")

    def store(self, s: Store) -> None:
        lanes, dtype = s.value.lanes, s.value.dtype
        if lanes == 1:
            super().store(s)
            return
        mask = "" if s.mask is None else self.value(s.mask)
        value, name = self.value(s.value), identifier(s.buffer.name)
        ops = self.vectors(lanes)
        if s.at.lanes > 1:
            self.emit(f"{ops.store(name, value, dtype, self.value(s.at), mask)};")
        else:
            self.emit(f"{ops.store(self.place(name, s.at), value, dtype, '', mask)};")

    def load(self, e: Load) -> str:
        if e.lanes == 1:
            return super().load(e)
        mask = "" if e.mask is None else self.value(e.mask)
        ops, name = self.vectors(e.lanes), identifier(e.buffer.name)
        if e.at.lanes > 1:
            return ops.gather(name, self.value(e.at), e.dtype, mask)
        return ops.load(self.place(name, e.at), e.dtype, mask)

    def place(self, name: str, at: Expr) -> str:
        offset = self.address(at)
        return name if offset == "0" else f"{name} + {offset}"

    def wide(self, e: Expr) -> str:
        match e:
            case Lanes(lanes):
                return self.vectors(lanes).iota()
            case Splat(x, lanes):
                return self.vectors(lanes).splat(self.value(x), e.dtype)
            case Reduce(op, x):
                return self.vectors(x.lanes).reduce(op, self.value(x), x.dtype)
            case Shuffle(x, order) if x.lanes == 1:
                return self.vectors(len(order)).splat(self.value(x), x.dtype)
            case Shuffle(x, order):
                return self.vectors(x.lanes).shuffle(self.vector(x), x.dtype, order)
            case Blend(x, y, order):
                return self.vectors(x.lanes).blend(self.vector(x), self.vector(y), x.dtype, order)
        return super().wide(e)

    def regrouped(self, x: Expr, e: Expr) -> str:
        kinds = [self.library.type(v.dtype, v.lanes) for v in (x, e)]
        name = f"{kinds[1]}_of_bits_{kinds[0]}"
        lines = [
            f"INLINE {kinds[1]} {name}({kinds[0]} x) {{",
            f"  {kinds[1]} y;",
            "  __builtin_memcpy(&y, &x, sizeof y);",
            "  return y;",
            "}",
        ]
        self.library.define(name, "\n".join(lines) + "\n")
        return f"{name}({bare(self.value(x))})"

    def vector(self, e: Expr) -> str:
        """Return a name for the value of a vector."""
        if isinstance(e, Register):
            return self.name(e)
        name = self.fresh()
        kind = self.library.type(e.dtype, e.lanes)
        self.emit(f"const {kind} {name} = {bare(self.value(e))};")
        return name
