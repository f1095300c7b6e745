"""What threads of a subgroup exchange: in pairs, or through memory that their group shares."""

from __future__ import annotations

from dataclasses import replace

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.kernel.across import COMBINES, TRUTH, Across
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Lanes,
    Load,
    Reduce,
    Select,
    Splat,
    Unary,
    fold,
)
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import joined
from alpenglow.kernel.rewrite import Rewriter, rewrite
from alpenglow.kernel.stmt import Barrier, Kernel, Stmt
from alpenglow.kernel.uniform import partings


def without_combined(kernel: Kernel, lacks: Lacks) -> Kernel:
    """across.add(x)  =>  x + across.xor(x, N/2), and of that the same with N/4, and so on."""

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not isinstance(e, Across) or e.op not in COMBINES:
            return None
        x, distance = m.b.let(parts[0]), kernel.subgroup // 2
        while distance:
            x = m.b.let(Binary(COMBINES[e.op], x, Across("xor", x, Const(distance))))
            distance //= 2
        return x

    return rewrite(kernel, law) if lacks.combined else kernel


def without_subgroups(kernel: Kernel, lacks: Lacks) -> Kernel:
    """across.op(x)  =>  a[t] = x, a barrier, what others put into a, and another barrier.

    a is shared, t the number of the thread.  A barrier of subgroups becomes one of the group.  All
    threads of the group have to come there.
    """
    if kernel.subgroup > 1:
        return _Shared(kernel).rewritten() if lacks.subgroups else kernel
    return _Alone(kernel).rewritten() if kernel.launch.threads or lacks.subgroups else kernel


class _Alone(Rewriter):
    """Rebuilds a kernel in which each thread is a subgroup: what it gets is its own."""

    def statement(self, s: Stmt) -> None:
        if s != Barrier("subgroup"):
            super().statement(s)

    def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        return parts[0] if isinstance(e, Across) else None


class Scratch:
    """Arrays that a law adds to a kernel, by what they are for."""

    def __init__(self, kernel: Kernel) -> None:
        self.taken = {b.name for b in (*kernel.buffers, *kernel.arrays)}
        self.arrays: dict[object, Buffer] = {}

    def array(self, key: object, template: Buffer) -> Buffer:
        """Return the array of `key`, which is like another one but for its name."""
        if key not in self.arrays:
            numbers = range(len(self.taken) + 1)
            name = next(n for i in numbers if (n := f"{template.name}{i}") not in self.taken)
            self.taken.add(name)
            self.arrays[key] = replace(template, name=name)
        return self.arrays[key]

    def added(self, kernel: Kernel) -> Kernel:
        return replace(kernel, arrays=(*kernel.arrays, *self.arrays.values()))


class _Shared(Rewriter):
    """Rebuilds a kernel for subgroups of one thread."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.scratch = Scratch(kernel)
        self.apart = partings(kernel)
        self.blame: str | None = None
        """What keeps some threads of the group from the statement that is rebuilt."""

    def rewritten(self) -> Kernel:
        return self.scratch.added(replace(super().rewritten(), subgroup=1))

    def statement(self, s: Stmt) -> None:
        self.blame = self.apart.get(id(s))
        if s == Barrier("subgroup"):
            self.meet("a barrier of the subgroup")
        else:
            super().statement(s)

    def meet(self, what: str) -> None:
        """Put a barrier of the group where threads of a subgroup were together."""
        if self.blame is not None:
            raise UnsupportedError(
                f"{what} in {self.blame} is not supported: the target has no subgroups, and not "
                f"all threads of the group reach it (kernel {shown(self.kernel.name)})"
            )
        self.b.barrier()

    def law(self, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not isinstance(e, Across):
            return None
        x, *at = parts
        count = self.kernel.launch.count
        assert count is not None, "groups are made of whole subgroups"
        size = count * x.lanes
        array = self.scratch.array(
            (x.dtype, size), Buffer("across", x.dtype, True, "shared", 64, size)
        )
        number = self.b.let(self.kernel.launch.number)
        # Lane i of all threads stands together.
        self.b.store(array, _lanes(number, count, x.lanes), x)
        self.meet(f"across.{e.op}")
        if e.op in COMBINES:
            value = self.combined(e.op, array, number, x.lanes)
        else:
            place = self.b.let(_source(e.op, number, at[0], self.kernel.subgroup))
            value = self.b.let(Load(array, _lanes(place, count, x.lanes), x.lanes))
        self.meet(f"across.{e.op}")
        return value

    def combined(self, op: str, array: Buffer, number: Expr, lanes: int) -> Expr:
        """Return the values of a subgroup, combined as the lanes of a vector are."""
        size = self.kernel.subgroup
        count = array.size // lanes
        first = self.b.let(number // size * size)
        each = []
        for i in range(lanes):
            values = self.b.let(Load(array, first + i * count, size))
            # Of bool lanes there is `or` alone.
            flips = op == "all"
            one = Reduce("or" if op in TRUTH else op, Unary("not", values) if flips else values)
            each.append(self.b.let(Unary("not", one) if flips else one))
        return joined(self.b, each)


def _lanes(number: Expr, count: int, lanes: int) -> Expr:
    """Return where a thread has its lanes: those of the same number are neighbours."""
    if lanes == 1:
        return number
    steps = fold("mul", Lanes(lanes), Const(count, "i64", lanes))
    return Binary("add", steps, Splat(number, lanes))


def _source(op: str, number: Expr, at: Expr, size: int) -> Expr:
    """Return the number of the thread from which a value comes."""
    if op == "xor":
        return Binary("xor", number, at)
    first = number // size * size
    if op == "from":
        return first + at
    source = number + at if op == "down" else number - at
    inside: Expr = Compare("eq", source // size * size, first)
    if op == "up":
        inside = Binary("and", inside, Compare("ge", source, Const(0)))
    return Select(inside, source, number)
