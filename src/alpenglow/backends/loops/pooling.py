"""Loop forms of pooling, on plain and blocked tensors alike."""

from __future__ import annotations

from alpenglow.backends.loops.contraction import within
from alpenglow.backends.loops.coord import Coord
from alpenglow.backends.loops.form import HALVES, Loops, Source, pull
from alpenglow.kernel.expr import Expr
from alpenglow.ops.pooling import AveragePool, MaxPool, Pool


@pull(MaxPool)
def max_pool(k: Loops, op: MaxPool, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    lowest = {"i8": -128, "u8": 0}.get(x.type.dtype, float("-inf"))
    best = k.accumulator(lowest, x.type.dtype)
    with k.loops(op.kernel) as taps:
        place = _place(op, at, taps)

        def tap(place: list[Coord] = place) -> Expr:
            return k.m.maximum(best, x(place))

        inside = within(k, place[2 : 2 + len(taps)], x.shape[2 : 2 + len(taps)], _guards(op, x, at))
        k.set(best, tap() if inside is None else k.when(inside, tap, best))
    return best


@pull(AveragePool)
def average_pool(k: Loops, op: AveragePool, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    zero, one = k.constant(0, dtype), k.constant(1, dtype)
    spatial = len(op.kernel)
    extents = x.shape[2 : 2 + spatial]
    total, count = k.accumulator(0, dtype), k.accumulator(0, dtype)
    with k.loops(op.kernel) as taps:
        place = _place(op, at, taps)
        middle = place[2 : 2 + spatial]

        def tap(place: list[Coord] = place) -> Expr:
            return x(place)

        inside = within(k, middle, extents, _guards(op, x, at))
        k.set(total, k.m.add(total, tap() if inside is None else k.when(inside, tap, zero)))
        counted = inside
        if op.count_pads and inside is not None:
            # Padding counts, what hangs over its end does not.
            shifted = [c + a for c, a in zip(middle, op.pads[:spatial], strict=True)]
            grown = tuple(d + a + b for d, a, b in
                          zip(extents, op.pads[:spatial], op.pads[spatial:], strict=True))  # fmt: skip
            counted = within(k, shifted, grown, [op.ceil] * spatial)
        k.set(count, k.m.add(count, one if counted is None else k.select(counted, one, zero)))
    return k.m.div(total, count)


def _place(op: Pool, at: list[Coord], taps: list[Coord]) -> list[Coord]:
    spatial = len(op.kernel)
    middle = [p * s + t * d - a for p, s, t, d, a in
              zip(at[2 : 2 + spatial], op.strides, taps, op.dilations, op.pads, strict=False)]  # fmt: skip
    return [*at[:2], *middle, *at[2 + spatial :]]


def _guards(op: Pool, x: Source, at: list[Coord]) -> list[bool]:
    spatial = len(op.kernel)
    return [bool(op.pads[i] or op.pads[spatial + i] or op.ceil) for i in range(spatial)]
