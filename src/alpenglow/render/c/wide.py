"""Kernels whose vectors are values of C, by the extensions of gcc and clang."""

from __future__ import annotations

from alpenglow.kernel.expr import Expr, Load
from alpenglow.kernel.stmt import Store
from alpenglow.render.c.statements import Plain
from alpenglow.render.c.vectors import GnuVectors
from alpenglow.render.clike.operations import Operations
from alpenglow.render.clike.spelling import bare


class Wide(Plain):
    """Statements on vectors look as those on scalars do."""

    def operations(self, e: Expr) -> Operations:
        return self.scalars if e.lanes == 1 else GnuVectors(self.scalars, e.lanes)

    def store_vector(self, s: Store) -> None:
        mask = "" if s.mask is None else self.value(s.mask)
        value, ops = self.value(s.value), GnuVectors(self.scalars, s.value.lanes)
        if s.at.lanes > 1:
            place, at = self.identifier(s.buffer.name), self.value(s.at)
        else:
            place, at = self.place(s.buffer, s.at), ""
        self.emit(f"{ops.store(place, value, s.buffer.dtype, at, mask)};")

    def load_vector(self, e: Load) -> str:
        mask = "" if e.mask is None else self.value(e.mask)
        ops = GnuVectors(self.scalars, e.lanes)
        if e.at.lanes > 1:
            return ops.load(self.identifier(e.buffer.name), e.dtype, self.value(e.at), mask)
        return ops.load(self.place(e.buffer, e.at), e.dtype, "", mask)

    def blend(self, x: Expr, y: Expr, order: tuple[int, ...]) -> str:
        ops = GnuVectors(self.scalars, x.lanes)
        return ops.blend(self.named(x), self.named(y), x.dtype, order)

    def regrouped(self, x: Expr, e: Expr) -> str:
        kinds = [self.library.type(v.dtype, v.lanes) for v in (x, e)]
        copy = "__builtin_memcpy(&y, &x, sizeof y);"
        name = self.library.define(
            kinds[1], f"{kinds[1]}_of_bits_{kinds[0]}", f"{kinds[0]} x",
            f"{kinds[1]} y;", copy, "return y;",
        )  # fmt: skip
        return f"{name}({bare(self.value(x))})"
