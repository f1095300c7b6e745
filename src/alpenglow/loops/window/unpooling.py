"""Loop form of adding up windows: each element of the image sums the taps that fall on it."""

from __future__ import annotations

from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.window.unpooling import OverlapAdd


@pull(OverlapAdd)
def overlap_add(k: Loops, op: OverlapAdd, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    rank = len(op.extents)
    kernel, places = x.shape[2 : 2 + rank], x.shape[2 + rank :]
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    total = k.accumulator(0, dtype)
    with k.loops(kernel) as taps:
        window: list[Coord] = []
        inside: Expr | None = None
        for i, (c, tap) in enumerate(zip(at[2:], taps, strict=True)):
            distance = c + op.pads[i] - tap * op.dilations[i]
            place = distance // op.strides[i]
            hit = k.both(distance.compare("ge", 0), place.compare("lt", places[i]))
            if op.strides[i] > 1:
                hit = k.both(hit, (distance % op.strides[i]).compare("eq", 0))
            inside = hit if inside is None else k.both(inside, hit)
            window.append(place)

        def tap_here(where: tuple[Coord, ...] = (*at[:2], *taps, *window)) -> Expr:
            return x(list(where))

        zero = k.constant(0, dtype)
        value = tap_here() if inside is None else k.when(inside, tap_here, zero)
        k.set(total, k.m.add(total, value))
    return total
