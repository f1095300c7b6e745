"""The loop form of products by weights of few bits: they are widened one by one."""

from __future__ import annotations

from alpenglow.backends.loops.coord import Coord
from alpenglow.backends.loops.form import Loops, Source, pull
from alpenglow.kernel.expr import Convert, Expr
from alpenglow.ops.few_bits import NIBBLES, MatMulFewBits


@pull(MatMulFewBits)
def mat_mul_few_bits(
    k: Loops, op: MatMulFewBits, ins: list[Source | None], at: list[Coord]
) -> Expr:
    x, q, grid = ins
    assert x is not None and q is not None and grid is not None
    *batch, row, column = at
    width = q.shape[-1]
    panel, lane = column // width, column % width
    total = k.accumulator(0, "f32")
    with k.loop(x.shape[-1]) as i:
        group = i // op.size
        steps = k.m.sub(k.m.cast(_number(k, q, panel, i, lane), "f32"), float(op.middle))
        if grid.shape[2] == 2:
            steps = k.m.sub(steps, grid([panel, group, 1, lane]))
        w = k.m.mul(steps, grid([panel, group, 0, lane]))
        k.set(total, k.m.add(total, k.m.mul(x([*batch, row, i]), w)))
    return total


def _number(k: Loops, q: Source, panel: Coord, i: Coord, lane: Coord) -> Expr:
    """Return one of the whole numbers."""
    if q.type.dtype == "i8":
        return q([panel, i, lane])
    shift = Convert((i % NIBBLES * 4).expr(), "u32")
    return k.m.bit_and(k.m.shift_right(q([panel, i // NIBBLES, lane]), shift), 15)
