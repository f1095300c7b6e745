"""Loop form of cutting a signal into frames."""

from __future__ import annotations

from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.sequence.signal import Frames


@pull(Frames)
def frames(k: Loops, op: Frames, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    axis = op.axis % len(x.shape)
    return x([*at[:axis], at[axis] * op.step + at[axis + 1], *at[axis + 2 :]])
