"""Loop forms of pooling, on plain and blocked tensors alike."""

from __future__ import annotations

from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.loops.rows import Totals, in_turn
from alpenglow.loops.window.contraction import within
from alpenglow.ops.reduction.reduction import lowest
from alpenglow.ops.window.pooling import AveragePool, MaxPool, MaxPoolIndex, Pool


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
    count = k.accumulator(0, dtype)
    total = Totals(k, "add", 0, dtype, k.current, apart=True)

    def add_up(taps: list[Coord], slot: int) -> None:
        place = _place(op, at, taps)
        middle = place[2 : 2 + spatial]
        inside = within(k, middle, extents, _guards(op, x, at))
        total.add(slot, x(place) if inside is None else k.when(inside, lambda: x(place), zero))
        counted = inside
        if op.count_pads and inside is not None:
            # Padding counts, what hangs over its end does not.
            shifted = [c + a for c, a in zip(middle, op.pads[:spatial], strict=True)]
            edges = zip(extents, op.pads[:spatial], op.pads[spatial:], strict=True)
            grown = tuple(d + a + b for d, a, b in edges)
            counted = within(k, shifted, grown, [op.ceil] * spatial)
        k.set(count, k.m.add(count, one if counted is None else k.select(counted, one, zero)))

    in_turn(k, op.kernel, add_up, 1, [total])
    return k.m.div(total.whole(), count)


@pull(MaxPoolIndex)
def max_pool_index(k: Loops, op: MaxPoolIndex, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    n, c, *spatial = x.shape
    least = k.constant(lowest(x.type.numpy), dtype)
    best, index = k.accumulator(least.value, dtype), k.accumulator(-1, "i64")
    with k.loops(op.kernel) as taps:
        place = _place(op, at, taps)

        def tap(place: list[Coord] = place) -> Expr:
            return x(place)

        inside = within(k, place[2:], tuple(spatial), _guards(op, x, at))
        value = tap() if inside is None else k.when(inside, tap, least)
        better = k.m.bit_or(k.m.gt(value, best), k.m.lt(index, 0))
        if dtype in ("f32", "f64"):
            first_nan = k.m.bit_and(k.m.isnan(value), k.m.eq(best, best))
            better = k.m.bit_or(better, first_nan)
        if inside is not None:
            better = k.m.bit_and(better, inside)
        better = k.b.let(better)
        k.set(best, k.select(better, value, best))
        extents = (n, c, *(reversed(spatial) if op.column_major else spatial))
        order = [*place[:2], *(reversed(place[2:]) if op.column_major else place[2:])]
        k.set(index, k.select(better, _linear(order, extents), index))
    return index


def _linear(at: list[Coord], extents: tuple[int, ...]) -> Expr:
    """Return the row-major index of `at` in a tensor of these extents."""
    total = at[0]
    for c, extent in zip(at[1:], extents[1:], strict=True):
        total = total * extent + c
    return total.expr()


def _place(op: Pool, at: list[Coord], taps: list[Coord]) -> list[Coord]:
    spatial = len(op.kernel)
    axes = zip(at[2 : 2 + spatial], op.strides, taps, op.dilations, op.pads, strict=False)
    middle = [p * s + t * d - a for p, s, t, d, a in axes]
    return [*at[:2], *middle, *at[2 + spatial :]]


def _guards(op: Pool, x: Source, at: list[Coord]) -> list[bool]:
    spatial = len(op.kernel)
    return [bool(op.pads[i] or op.pads[spatial + i] or op.ceil) for i in range(spatial)]
