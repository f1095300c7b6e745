"""Kernels whose vectors are arrays: plain C, in which a statement on a vector is a loop.

The loop's variable is `lane`, and the expression in it is that of one lane.  Scalars that stand in
all lanes, and vectors of which lanes move among each other, are computed before.
"""

from __future__ import annotations

from itertools import pairwise

from alpenglow.ir.types import DTYPES, INTS
from alpenglow.kernel.expr import (
    Bitcast,
    Blend,
    Buffer,
    Const,
    Expr,
    Index,
    Lanes,
    Load,
    Reduce,
    Register,
    Shuffle,
    Splat,
    parts,
)
from alpenglow.kernel.stmt import Kernel, Set, Stmt, Store, operands
from alpenglow.render.c.library import CLibrary
from alpenglow.render.c.spelling import TYPES
from alpenglow.render.c.statements import Plain
from alpenglow.render.clike.registers import Path, is_index
from alpenglow.render.clike.spelling import bare, unsigned


class Lanewise(Plain):
    """Statements on vectors are loops over their lanes.

    `local` holds the registers that one such loop alone knows.
    """

    def __init__(
        self, kernel: Kernel, library: CLibrary, fast: bool, aliased: frozenset[str]
    ) -> None:
        super().__init__(kernel, library, fast, aliased)
        self.local: set[str] = set()

    def each(self, lanes: int, line: str) -> None:
        self.emit(f"for (int lane = 0; lane < {lanes}; lane++) {line}")

    def block(self, body: tuple[Stmt, ...], path: Path) -> None:
        for register in self.registers.opening.get(path, []):
            self.declare(register)
        at = 0
        while at < len(body):
            end = self.together(body, at)
            if end > at + 1:
                self.run(body[at:end], [(*path, i) for i in range(at, end)])
            else:
                self.statement(body[at], (*path, at))
            at = max(end, at + 1)

    def together(self, body: tuple[Stmt, ...], at: int) -> int:
        """Return the end of the statements from `at` on that one loop over lanes can hold."""
        stored = loaded = False
        lanes, end = 0, at
        for s in body[at:]:
            if not isinstance(s, Set | Store) or not self.independent(s):
                return end
            reads = any(self.written(x) for e in operands(s) for x in parts(e))
            # What is stored for one lane must not be what another one reads.
            clash = reads if stored else loaded and isinstance(s, Store)
            if clash or (lanes and lanes != s.value.lanes):
                return end
            lanes, end = s.value.lanes, end + 1
            stored, loaded = stored or isinstance(s, Store), loaded or reads
        return end

    def independent(self, s: Set | Store) -> bool:
        """Whether each lane of a statement has to do with no other."""
        if s.value.lanes == 1:
            return False
        reads = [x for e in operands(s) for x in parts(e)]
        if isinstance(s, Store) and any(map(self.written, reads)):
            return False
        regroups = any(isinstance(x, Bitcast) and x.lanes != x.x.lanes for x in reads)
        return not regroups and not any(isinstance(x, Shuffle | Blend | Reduce) for x in reads)

    def run(self, body: tuple[Stmt, ...], paths: list[Path]) -> None:
        """Write statements on vectors as one loop; what only they use is a scalar in it."""
        inside = frozenset(paths)
        lines, lanes = [], 1
        for s, path in zip(body, paths, strict=True):
            assert isinstance(s, Set | Store), "only these go over lanes"
            lanes = s.value.lanes
            if isinstance(s, Store):
                lines.append(self.stored(s))
                continue
            name, kind = s.register.name, self.library.type(s.register.dtype)
            value, called = bare(self.assigned(s)), self.name(s.register)
            if path in self.registers.declaring and self.registers.uses[name] <= inside:
                self.local.add(name)
                const = "const " if name in self.registers.constant else ""
                lines.append(f"{const}{kind} {called} = {value};")
                continue
            if path in self.registers.declaring:
                self.emit(f"{kind} {called}[{lanes}];")
            lines.append(f"{self.register(s.register)} = {value};")
        self.emit(f"for (int lane = 0; lane < {lanes}; lane++) {{")
        for line in lines:
            self.emit(f"  {line}")
        self.emit("}")

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

    def store_vector(self, s: Store) -> None:
        # All lanes are read before one is written.
        reads = any(map(self.written, parts(s.value)))
        value = f"{self.array_of(s.value)}[lane]" if reads else ""
        self.each(s.value.lanes, self.stored(s, value))

    def written(self, e: Expr) -> bool:
        """Whether `e` reads memory that a store may change."""
        return isinstance(e, Load) and (e.buffer.mutable or e.buffer.name in self.aliased)

    def cell(self, buffer: Buffer, at: Expr, lanes: int = 1) -> str:
        name = self.identifier(buffer.name)
        if lanes == 1:
            return super().cell(buffer, at)
        if at.lanes > 1:
            return f"{name}[{bare(self.value(at))}]"
        if isinstance(at, Const) and at.value == 0:
            return f"{name}[lane]"
        return f"{name}[{self.steady(at)} + lane]"

    def steady(self, at: Expr) -> str:
        """Return a scalar address that is the same in all lanes."""
        if is_index(at, self.registers.indices):
            return self.address(at)
        return self.named(at)

    def load_vector(self, e: Load) -> str:
        return self.load(e)

    def register(self, e: Register) -> str:
        alone = e.lanes == 1 or e.name in self.local
        return self.name(e) if alone else f"{self.name(e)}[lane]"

    def wide(self, e: Expr) -> str:
        match e:
            case Lanes():
                return "lane"
            case Splat(x) | Shuffle(x) if x.lanes == 1:
                return self.value(x) if _cheap(x) else self.named(x)
            case Shuffle(x, (one,)):
                return f"{self.array_of(x)}[{one}]"
            case Shuffle(x, order):
                return f"{self.array_of(x)}[{self.lane_in(order)}]"
            case Reduce(op, x):
                return self.reduce(op, x)
        return super().wide(e)

    def regrouped(self, x: Expr, e: Expr) -> str:
        if not {x.dtype, e.dtype} <= INTS:
            raise self.library.lacks(f"bitcast of {x.dtype}x{x.lanes} to {e.dtype}x{e.lanes}")
        kind, bits = TYPES[e.dtype], 8 * DTYPES[x.dtype].itemsize
        one = self.value(x) if x.lanes == 1 else self.array_of(x)
        lane = "lane" if e.lanes > 1 else "0"
        if x.lanes < e.lanes:
            count = e.lanes // x.lanes
            source = one if x.lanes == 1 else f"{one}[{lane} / {count}]"
            wide = f"({TYPES[unsigned(x.dtype)]}){source}"
            return f"(({kind})({wide} >> {lane} % {count} * {bits // count}))"
        count = x.lanes // e.lanes
        first = f"{count} * {lane} + " if e.lanes > 1 else ""
        wide, narrow = TYPES[unsigned(e.dtype)], TYPES[unsigned(x.dtype)]
        parts = [f"({wide})({narrow}){one}[{first}{i}] << {i * bits}" for i in range(count)]
        return f"(({kind})({' | '.join(parts)}))"

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
    return isinstance(e, Const | Index | Register)
