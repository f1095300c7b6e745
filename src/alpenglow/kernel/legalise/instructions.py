"""Machine operations and tables, as ordinary arithmetic."""

from __future__ import annotations

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Const, Expr, Intrinsic, Lookup
from alpenglow.kernel.intrinsics import INTRINSICS, chosen
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.rewrite import rewrite
from alpenglow.kernel.stmt import Kernel


def without_instructions(kernel: Kernel, lacks: Lacks) -> Kernel:
    """@name(x, …)  =>  what `kernel.intrinsics` says of it, in integers and floats."""

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if isinstance(e, Intrinsic) and e.name in lacks.instructions:
            return INTRINSICS[e.name].formula(m, *map(m.b.let, parts))
        return None

    return rewrite(kernel, law) if lacks.instructions else kernel


def without_lookups(kernel: Kernel, lacks: Lacks) -> Kernel:
    """lookup(at, [a, b, c, d])  =>  select(bit 1 of at, select(bit 0, d, c), select(bit 0, b, a)).

    Each number of the table is reached by the bits of its place, so none is rounded.
    """

    def law(m: Arithmetic, e: Expr, parts: tuple[Expr, ...]) -> Expr | None:
        if not isinstance(e, Lookup):
            return None
        return chosen(m, m.b.let(parts[0]), [Const(x, "f32", e.lanes) for x in e.table])

    return rewrite(kernel, law) if lacks.lookups else kernel
