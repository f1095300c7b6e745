"""Products with few rows or columns: a vector times a matrix is read once, and never waits.

A tile would be mostly empty.  Threads that share a line of the larger operand have every so
many-th step of it, for all lines of the other, and their sums are added up in shared memory.
"""

from __future__ import annotations

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Compare, Const, Expr
from alpenglow.loops.coord import coord
from alpenglow.loops.instruction import Frame
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import groups, is_plain, multiply_add
from alpenglow.machines.grid.templates.matmul import FEW, TAKEN, is_along, matrix, summed
from alpenglow.machines.grid.templates.team import Team, split_for
from alpenglow.machines.grid.templates.tile import Elements, Side
from alpenglow.ops.product.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr

LEAST = 32
"""Steps of which threads have enough each; where there are fewer, a loop is as good."""

UNROLL = 4
"""Steps of a thread whose loads do not wait for each other."""


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether one side has few lines, and many steps."""
    if not is_plain(anchor, instr):
        return False
    x, y = (r.type for r in anchor.operands())
    rows, inner, columns = *x.extents[-2:], y.extents[-1]
    return x.dtype in TAKEN and min(rows, columns) <= FEW and inner >= LEAST


@templates.on(MatMul, "wide", _fits)
def mat_mul_skinny(k: Frame, op: MatMul, target: Target) -> None:
    """Build x times y: a group for each few lines of the operand that has many."""
    x, y = k.inputs[:2]
    *batch, rows, columns = k.out.region.shape
    inner, dtype, turned = x.region.shape[-1], summed(x.buffer.dtype), columns >= rows
    count = columns if turned else rows
    split = split_for(count, inner, is_along(y if turned else x, turned), target.facts.group)
    with groups(k, [*batch, ceil_div(count, split.lines)], split.threads) as ((*lead, g), thread):
        team = Team(k, split, thread)
        sides = [matrix(k, x, lead, dtype, turned=False), matrix(k, y, lead, dtype, turned=True)]
        few, many = sides if turned else sides[::-1]
        line, inside = team.number(g.base, count)
        sums = _sums(k, team, inner, few, many.line(line)[0], dtype, target)

        def join(x: list[Expr], y: list[Expr]) -> list[Expr]:
            return [k.loops.m.add(a, b) for a, b in zip(x, y, strict=True)]

        for i, total in enumerate(team.combined(sums, join)):
            with k.b.when(team.storing(inside, i)):
                place = [coord(i), coord(line)] if turned else [coord(line), coord(i)]
                k.sink.store([*lead, *place], total)


def _sums(
    k: Frame, team: Team, inner: int, few: Side, many: Elements, dtype: str, target: Target
) -> list[Expr]:
    """Return what a thread adds up of a line, for each line of the other operand."""
    b, slices = k.b, team.split.slices
    sums = [b.var(k.loops.constant(0, dtype)) for _ in range(few.extent)]
    others = [few.line(Const(i))[0] for i in range(few.extent)]

    def steps(first: Expr, count: int) -> None:
        places = [b.let(team.slice + (first + i) * slices) for i in range(count)]
        elements = [many(at) for at in places]
        for at, element in zip(places, elements, strict=True):
            for total, other in zip(sums, others, strict=True):
                b.set(total, multiply_add(target, element, other(at), total))

    turns, rest = divmod(inner, slices)
    full, left = divmod(turns, UNROLL)
    if full:
        with b.loop(full) as i:
            steps(b.let(i * UNROLL), UNROLL)
    if left:
        steps(Const(full * UNROLL), left)
    if rest:
        with b.when(Compare("lt", team.slice + turns * slices, Const(inner))):
            steps(Const(turns), 1)
    return list(sums)
