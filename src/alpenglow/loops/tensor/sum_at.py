"""Loop form of adding up at places: strips of neighbours in parallel, each in order."""

from __future__ import annotations

from alpenglow.ir.dims import known
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import Neighbours, strips
from alpenglow.loops.tensor.gather import clamped
from alpenglow.ops.tensor.sum_at import SumAt


@push(SumAt)
def sum_at(k: Loops, op: SumAt, ins: list[Source | None], outs: list[Sink]) -> None:
    x, indices, *factors = ins
    weights = factors[0] if factors else None
    assert x is not None and indices is not None
    axis = op.axis % len(x.shape)
    extent = outs[0].shape[axis]
    if any(known(d) and d == 0 for d in outs[0].shape):
        return

    def strip(front: list[Coord], neighbours: Neighbours) -> None:
        with k.loop(extent) as place:
            zero = k.constant(0, x.type.dtype)
            neighbours(lambda back: outs[0].store([*front, place, *back], zero))
        with k.loops(indices.shape[::-1]) as (i, tap):
            at = clamped(k, indices([tap, i]), extent)
            weight = None if weights is None else k.m.cast(weights([tap, i]), x.type.dtype)

            def add(back: list[Coord]) -> None:
                part = x([*front, i, *back])
                part = part if weight is None else k.m.mul(part, weight)
                where = [*front, at, *back]
                outs[0].store(where, k.m.add(outs[0].load(where), part))

            neighbours(add)

    strips(k, x.shape[:axis], x.shape[axis + 1 :], strip)
