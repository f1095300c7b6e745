"""Kernels whose vectors are arrays: plain C, in which a statement on a vector is a loop.

The loop's variable is `lane`, and the expression in it is that of one lane.  Scalars that stand in
all lanes, and vectors of which lanes move among each other, are computed before.
"""

from __future__ import annotations

from itertools import pairwise

from alpenglow.backends.c.registers import is_index, parts
from alpenglow.backends.c.spelling import identifier
from alpenglow.backends.c.statements import Statements
from alpenglow.backends.c.vectors import bare
from alpenglow.kernel.expr import (
    Binary,
    Blend,
    Const,
    Expr,
    Index,
    Lanes,
    Load,
    Reduce,
    Register,
    Set,
    Shuffle,
    Splat,
    Store,
)


class Lanewise(Statements):
    """Statements on vectors are loops over their lanes."""

    def each(self, lanes: int, line: str) -> None:
        self.emit(f"for (int lane = 0; lane < {lanes}; lane++) {line}")

    def declare(self, register: Register) -> None:
        if register.lanes == 1:
            super().declare(register)
        else:
            kind = self.library.type(register.dtype)
            self.emit(f"{kind} {self.name(register)}[{register.lanes}] = {{0}};")

    def set(self, s: Set, declares: bool) -> None:
        lanes = s.register.lanes
        if lanes == 1:
            super().set(s, declares)
            return
        value, name = bare(self.assigned(s)), self.name(s.register)
        if declares:
            self.emit(f"{self.library.type(s.register.dtype)} {name}[{lanes}];")
        self.each(lanes, f"{name}[lane] = {value};")

    def store(self, s: Store) -> None:
        lanes = s.value.lanes
        if lanes == 1:
            super().store(s)
            return
        # All lanes are read before one is written.
        reads = any(isinstance(x, Load) and self.written(x) for x in parts(s.value))
        value = f"{self.array_of(s.value)}[lane]" if reads else self.value(s.value)
        mask = None if s.mask is None else bare(self.value(s.mask))
        guard = "" if mask is None else f"if ({mask}) "
        self.each(lanes, guard + self.put(s.buffer.dtype, self.lane_of(s.buffer.name, s.at), value))

    def written(self, e: Load) -> bool:
        """Whether a store may change what `e` reads."""
        return e.buffer.mutable or e.buffer.name in self.aliased

    def lane_of(self, buffer: str, at: Expr) -> str:
        """Return the place in memory of a lane."""
        if at.lanes > 1:
            return f"{identifier(buffer)}[{bare(self.value(at))}]"
        if isinstance(at, Const) and at.value == 0:
            return f"{identifier(buffer)}[lane]"
        return f"{identifier(buffer)}[{self.steady(at)} + lane]"

    def steady(self, at: Expr) -> str:
        """Return a scalar address that is the same in all lanes."""
        if is_index(at, self.registers.indices):
            return self.address(at)
        return self.named(at)

    def load(self, e: Load) -> str:
        if e.lanes == 1:
            return super().load(e)
        element = self.element(e.dtype, self.lane_of(e.buffer.name, e.at))
        if e.mask is None:
            return element
        zero = self.scalars.constant(Const(0, e.dtype))
        return self.scalars.select(e.dtype, self.value(e.mask), element, zero)

    def constant(self, e: Const) -> str:
        return self.scalars.constant(e)

    def register(self, e: Register) -> str:
        return self.name(e) if e.lanes == 1 else f"{self.name(e)}[lane]"

    def wide(self, e: Expr) -> str:
        match e:
            case Lanes():
                return "lane"
            case Splat(x):
                return self.value(x) if _cheap(x) else self.named(x)
            case Shuffle(x, order) if x.lanes == 1:
                return self.value(x) if _cheap(x) else self.named(x)
            case Shuffle(x, (one,)):
                return f"{self.array_of(x)}[{one}]"
            case Shuffle(x, order):
                return f"{self.array_of(x)}[{self.lane_in(order)}]"
            case Blend(x, y, order):
                return self.blend(x, y, order)
            case Reduce(op, x):
                return self.reduce(op, x)
        return super().wide(e)

    def array_of(self, e: Expr) -> str:
        """Return an array with the lanes of `e`."""
        if isinstance(e, Register) and e.lanes > 1:
            # What is assigned may be this very register.
            value = f"{self.name(e)}[lane]"
        else:
            value = bare(self.value(e))
        name = self.fresh()
        self.emit(f"{self.library.type(e.dtype)} {name}[{e.lanes}];")
        self.each(e.lanes, f"{name}[lane] = {value};")
        return name

    def blend(self, x: Expr, y: Expr, order: tuple[int, ...]) -> str:
        name = self.fresh()
        self.emit(f"{self.library.type(x.dtype)} {name}[{2 * x.lanes}];")
        for e, first in ((x, ""), (y, f"{x.lanes} + ")):
            value = bare(self.value(e))
            self.each(e.lanes, f"{name}[{first}lane] = {value};")
        if len(order) == 1:
            return f"{name}[{order[0]}]"
        return f"{name}[{self.lane_in(order)}]"

    def lane_in(self, order: tuple[int, ...]) -> str:
        """Return where lanes come from, as a formula if there is one."""
        step = order[1] - order[0]
        if all(b - a == step for a, b in pairwise(order)):
            moved = "lane" if step == 1 else f"{step} * lane"
            return moved if order[0] == 0 else f"{order[0]} + {moved}"
        name = self.fresh()
        numbers = ", ".join(map(str, order))
        self.emit(f"static const unsigned char {name}[{len(order)}] = {{{numbers}}};")
        return f"{name}[lane]"

    def reduce(self, op: str, x: Expr) -> str:
        """Combine the halves until one lane is left."""
        name = self.array_of(x)
        low, high = f"{name}[lane]", f"{name}[lane + half]"
        combined = bare(self.scalars.binary(op, x.dtype, low, high))
        self.emit(f"for (int half = {x.lanes // 2}; half > 0; half /= 2) {{")
        self.emit(f"  for (int lane = 0; lane < half; lane++) {low} = {combined};")
        self.emit("}")
        return f"{name}[0]"


def _cheap(e: Expr) -> bool:
    """Whether it is as well to write `e` into a loop as before it."""
    return isinstance(e, Const | Index | Register) and not isinstance(e, Binary)
