"""Fragments as arrays: each thread of a subgroup holds as many elements of each."""

from __future__ import annotations

from alpenglow.kernel.expr import (
    Buffer,
    Const,
    Convert,
    Expr,
    Fma,
    Load,
    Register,
    children,
    parts,
    rebuilt,
)
from alpenglow.kernel.fragments import Mma, Tile
from alpenglow.kernel.legalise.groups import Scratch
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.rewrite import Rewriter, expressions
from alpenglow.kernel.stmt import Kernel, Set, StoreTile


def without_tiles(kernel: Kernel, lacks: Lacks) -> Kernel:
    """r = mma(r, x, y)  =>  of the elements of r that a thread holds, x's row by y's column.

    Element e of a fragment is that of thread e % N of a subgroup of N, which has it in a local
    array.  What is multiplied all threads put into an array that they share.
    """
    if not lacks.tiles or all(e.shape is None for e in expressions(kernel)):
        return kernel
    return _Tiles(kernel).rewritten()


class _Tiles(Rewriter):
    """Rebuilds a kernel; `ready` is where tiles begin and what their strides are, by their ids."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.threads = kernel.subgroup
        self.scratch = Scratch(kernel)
        self.ready: dict[int, tuple[Expr, Expr]] = {}

    def rewritten(self) -> Kernel:
        return self.scratch.added(super().rewritten())

    def set(self, s: Set) -> None:
        if s.register.shape is None:
            super().set(s)
        elif isinstance(s.value, Mma):
            self.multiply(s.value, self.held(s.register))
        else:
            self.prepare(s.value)
            self.put(self.held(s.register), s.value)

    def store_tile(self, s: StoreTile) -> None:
        at, stride = (self.b.let(self.expr(e)) for e in (s.at, s.stride))
        value = s.value
        self.prepare(value)
        if any(isinstance(e, Tile) and e.buffer == s.buffer for e in parts(value)):
            # All is read before anything is written.
            register = self.b.register(value)
            self.put(self.held(register), value)
            value = register
        with self.b.loop(value.lanes // self.threads) as i:
            place = self.place(value, at, stride, i)
            self.b.store(s.buffer, place, self.element(value, i))

    # ── fragments ──

    def held(self, e: Expr) -> Buffer:
        """Return the array that has a thread's elements of a register, or of a product."""
        key = e.name if isinstance(e, Register) else id(e)
        size = e.lanes // self.threads
        return self.scratch.array(key, Buffer("tile", e.dtype, True, "local", 64, size))

    def put(self, array: Buffer, e: Expr, first: Expr | None = None) -> None:
        """Put a thread's elements into its array, or where they are in one of all threads."""
        with self.b.loop(e.lanes // self.threads) as i:
            place = i if first is None else first + self.number(i)
            self.b.store(array, place, self.element(e, i))

    def prepare(self, e: Expr) -> None:
        """Compute what the elements of a fragment are made of."""
        match e:
            case Tile():
                self.ready[id(e)] = self.b.let(self.expr(e.at)), self.b.let(self.expr(e.stride))
            case Mma():
                self.multiply(e, self.held(e))
            case _:
                for x in children(e):
                    self.prepare(x)

    def element(self, e: Expr, i: Expr) -> Expr:
        """Return one of a thread's elements of a fragment."""
        match e:
            case Register():
                return Load(self.held(e), i)
            case Const(value, dtype):
                return Const(value, dtype)
            case Tile(buffer):
                at, stride = self.ready[id(e)]
                return Load(buffer, self.place(e, at, stride, i))
            case Mma():
                return Load(self.held(e), i)
        return rebuilt(e, tuple(self.element(x, i) for x in children(e)))

    def place(self, e: Expr, at: Expr, stride: Expr, i: Expr) -> Expr:
        """Return where an element of a fragment is in memory."""
        assert e.shape is not None, "a fragment has rows"
        number = self.b.let(self.number(i))
        return at + number // e.shape[1] * stride + number % e.shape[1]

    def number(self, i: Expr) -> Expr:
        """Return which element of a fragment one of a thread's is."""
        return i * self.threads + self.kernel.launch.number % self.threads

    # ── products ──

    def multiply(self, e: Mma, into: Buffer) -> None:
        # What they are made of is computed first: that may be products, by way of the same arrays.
        for operand in children(e):
            self.prepare(operand)
        (x, row), (y, column) = self.factor(e.x, "left"), self.factor(e.y, "right")
        self.meet()
        assert e.y.shape is not None, "a fragment has columns"
        columns = e.y.shape[1]
        with self.b.loop(e.lanes // self.threads) as i:
            number = self.b.let(self.number(i))
            first = self.b.let(row + number // columns * e.depth)
            second = self.b.let(column + number % columns)
            total = self.b.var(self.element(e.acc, i))
            with self.b.loop(e.depth) as p:
                factors = (Load(x, first + p), Load(y, second + p * columns))
                left, right = (_as(e.dtype, v) for v in factors)
                self.b.set(total, Fma(left, right, total))
            self.b.store(into, i, total)
        self.meet()

    def factor(self, e: Expr, name: str) -> tuple[Buffer, Expr]:
        """Put a fragment where all threads of the subgroup see it; return where it begins."""
        launch, alone = self.kernel.launch, self.threads == 1
        count = 1 if alone else launch.count
        assert count is not None, "groups are made of whole subgroups"
        size = count // self.threads * e.lanes
        array = Buffer(name, e.dtype, True, "local" if alone else "shared", 64, size)
        array = self.scratch.array((name, e.dtype, size), array)
        first = Const(0) if alone else self.b.let(launch.number // self.threads * e.lanes)
        self.put(array, e, first)
        return array, first

    def meet(self) -> None:
        if self.threads > 1:
            self.b.barrier("subgroup")


def _as(dtype: str, x: Expr) -> Expr:
    return x if x.dtype == dtype else Convert(x, dtype)
