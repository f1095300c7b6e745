"""Loop forms of packing weights that are computed: of constants it is done once, in NumPy."""

from __future__ import annotations

from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.loops.window.contraction import within
from alpenglow.ops.tensor.packing import PackConv


@pull(PackConv)
def pack_conv(k: Loops, op: PackConv, ins: list[Source | None], at: list[Coord]) -> Expr:
    (w,) = ins
    assert w is not None
    panel, block, *taps, lane, column = at if op.dots == 1 else at[:-1]
    if op.dots > 1:
        lane = lane * op.dots + at[-1]
    outputs, inputs = w.shape[:2]
    output, channel = panel * op.width + column, block * op.lanes + lane
    place = [output, channel, *taps]
    partly = [outputs % op.width != 0, inputs % op.lanes != 0]
    inside = within(k, place[:2], (outputs, inputs), partly)
    if inside is None:
        return w(place)
    return k.when(inside, lambda: w(place), k.constant(0, w.type.dtype))
