"""Loop forms of the operators of this machine, for what their templates do not fit."""

from __future__ import annotations

from alpenglow.kernel.expr import Convert, Expr
from alpenglow.loops.contraction import either, within
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.machines.cpu.operators.blocked import ConvPlanar, DepthwisePlanar
from alpenglow.machines.cpu.operators.few_bits import NIBBLES, MatMulFewBits


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


@pull(ConvPlanar)
def conv_planar(k: Loops, op: ConvPlanar, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, w = ins
    assert x is not None and w is not None
    n, o, *place = at
    total = k.accumulator(0, "i32")
    with k.loops(w.shape[1:]) as (c, *taps, lane):
        steps = zip(place, op.strides, taps, op.dilations, strict=True)
        where = [p * s + t * d for p, s, t, d in steps]
        value = k.m.cast(x([n, c, *where, lane]), "i32")
        weight = k.m.cast(w([o, c, *taps, lane]), "i32")
        k.set(total, k.m.add(total, k.m.mul(value, weight)))
    return total


@pull(DepthwisePlanar)
def depthwise_planar(
    k: Loops, op: DepthwisePlanar, ins: list[Source | None], at: list[Coord]
) -> Expr:
    x, w = ins
    assert x is not None and w is not None
    spatial = len(op.strides)
    lead, place = at[:-spatial], at[-spatial:]
    total = k.accumulator(0, "f32")
    with k.loops(w.shape[-spatial:]) as taps:
        where = [p * s + t * d - a for p, s, t, d, a in
                 zip(place, op.strides, taps, op.dilations, op.pads, strict=False)]  # fmt: skip

        def tap(where: list[Coord] = where) -> Expr:
            return x([*lead, *where])

        guarded = [bool(a) for a in either(op.pads)]
        inside = within(k, where, x.shape[-spatial:], guarded)
        value = tap() if inside is None else k.when(inside, tap, k.constant(0, "f32"))
        k.set(total, k.m.add(total, k.m.mul(value, w([*lead[1:], *taps]))))
    return total
