"""Loop forms of softmax and norms of a layer: a row is read a few times while it is at hand."""

from __future__ import annotations

import math

from alpenglow.ir.dims import is_open
from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Buffer, Expr, Load, Splat
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import (
    Totals,
    accumulators,
    along,
    columns,
    combined,
    in_turn,
    placed,
    slots_for,
    unless_masked,
    width,
)
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.softmax import Softmax

SLOTS = 2

TOGETHER = 2
"""Rows that are computed at a time: the latency of one is the other's time."""

ROW = 4096
"""The exponentials of a row of at most so many elements are kept instead of computed twice."""


@push(Softmax)
def softmax(k: Loops, op: Softmax, ins: list[Source | None], outs: list[Sink]) -> None:
    (x,) = ins
    assert x is not None
    if 0 in x.shape:
        return
    rank = x.type.rank
    axis = op.axis % rank
    if axis == rank - 1:
        *outer, rows = (1, *x.shape[:-1])
        step = 1 if is_open(rows) or rows % TOGETHER else TOGETHER
        with k.parallel([*outer, rows // step]) as at:
            pair = [[*at[1:-1], at[-1] * step + i] for i in range(step)]
            _softmax_rows(k, op, x, outs[0], pair if rank > 1 else [[]])
        return
    kept = [d for a, d in enumerate(x.shape[:-1]) if a != axis]
    columns(k, kept, x.shape[-1],
            lambda outer, last: _softmax_columns(k, op, x, outs[0], [*outer, last]))  # fmt: skip


def _softmax_rows(k: Loops, op: Softmax, x: Source, out: Sink, rows: list[list[Coord]]) -> None:
    """Compute rows along the last axis, step by step together, for each step waits for the last."""
    extent = x.shape[-1]
    dtype = _wide(x)
    lanes = width(k, extent)
    slots = slots_for(extent, lanes, SLOTS)
    size = ROW if is_open(extent) else extent
    kept = [k.b.array(dtype, size) for _ in rows] if extent <= ROW else None
    tops = [accumulators(k, -math.inf, dtype, lanes, slots) for _ in rows]

    def find_top(inner: list[Coord], slot: int) -> None:
        for at, top in zip(rows, tops, strict=True):
            value = unless_masked(k, x([*at, *inner]), -math.inf)
            k.set(top[slot], k.m.maximum(top[slot], value))

    along(k, [extent], lanes, find_top, slots)
    top = [subtracted(k, op, combined(k, "max", t)) for t in tops]
    totals = [Totals(k, "add", 0, dtype, lanes, slots) for _ in rows]

    def exponential(row: int, inner: list[Coord]) -> Expr:
        return k.m.exp_below(k.m.sub(x([*rows[row], *inner]), top[row]))

    def add_up(inner: list[Coord], slot: int) -> None:
        for row, total in enumerate(totals):
            share = k.b.let(exponential(row, inner))
            if kept is not None:
                # A row that is stretched is one element for all lanes, but all of them are kept.
                wide = share if share.lanes == lanes else Splat(share, lanes)
                k.b.store(kept[row], inner[0].base, wide, k.mask_for(lanes))
            total.add(slot, unless_masked(k, share, 0))

    along(k, [extent], lanes, add_up, slots, totals)
    factors = [factor_of(k, op, t.whole()) for t in totals]

    def scale(inner: list[Coord], slot: int) -> None:
        for row, at in enumerate(rows):
            share = exponential(row, inner) if kept is None else _kept(k, kept[row], inner[0])
            out.store([*at, *inner], share_of(k, op, share, factors[row]))

    along(k, [extent], lanes, scale, slots)


def _kept(k: Loops, row: Buffer, c: Coord) -> Expr:
    return k.b.let(Load(row, c.base, c.lanes, k.mask_for(c.lanes)))


def subtracted(k: Loops, op: Softmax, top: Expr) -> Expr:
    """Return what is subtracted in a row whose largest element is `top`."""
    if not op.zeros:
        return top
    return k.b.let(k.m.where(k.m.eq(top, -math.inf), 0.0, top))


def factor_of(k: Loops, op: Softmax, total: Expr) -> Expr:
    """Return what the exponentials of a row are multiplied by, which add up to `total`."""
    if op.zeros:
        total = k.b.let(k.m.where(k.m.eq(total, 0.0), 1.0, total))
    return k.b.let(k.m.div(1.0, total))


def share_of(k: Loops, op: Softmax, share: Expr, factor: Expr) -> Expr:
    """Return an element of the result from its exponential."""
    y = k.m.mul(share, factor)
    return y if op.zeros != "undefined" else k.m.where(k.m.eq(factor, factor), y, 0.0)


def _softmax_columns(k: Loops, op: Softmax, x: Source, out: Sink, outer: list[Coord]) -> None:
    """Compute a vector of neighbouring columns along an axis before the last."""
    dtype, rank = _wide(x), x.type.rank
    axis = op.axis % rank
    extent = x.shape[axis]
    highest = k.accumulator(-math.inf, dtype)
    total = Totals(k, "add", 0, dtype, k.current, apart=True)
    with k.loop(extent) as i:
        k.set(highest, k.m.maximum(highest, x(placed(rank, [axis], [i], outer))))
    top = subtracted(k, op, highest)

    def add_up(inner: list[Coord], slot: int) -> None:
        share = k.m.exp_below(k.m.sub(x(placed(rank, [axis], inner, outer)), top))
        total.add(slot, share)

    in_turn(k, [extent], add_up, 1, [total])
    factor = factor_of(k, op, total.whole())
    with k.loop(extent) as i:
        at = placed(rank, [axis], [i], outer)
        out.store(at, share_of(k, op, k.m.exp_below(k.m.sub(x(at), top)), factor))


@push(LayerNorm)
def layer_norm(k: Loops, op: LayerNorm, ins: list[Source | None], outs: list[Sink]) -> None:
    x, scale, bias = (*ins, None, None)[:3]
    _normalised(k, op, x, scale, bias, outs[0])


@push(RMSNorm)
def rms_norm(k: Loops, op: RMSNorm, ins: list[Source | None], outs: list[Sink]) -> None:
    x, scale = (*ins, None)[:2]
    _normalised(k, op, x, scale, None, outs[0])


def _normalised(
    k: Loops, op: LayerNorm | RMSNorm, x: Source | None, scale: Source | None, bias: Source | None,
    out: Sink,
) -> None:  # fmt: skip
    """Divide by the root of a mean of squares: of the distances from the mean, or from 0."""
    assert x is not None
    if 0 in x.shape:
        return
    axis = op.axis % x.type.rank
    extents, dtype = x.shape[axis:], _wide(x)
    lanes = width(k, extents[-1])
    slots = slots_for(extents[-1], lanes, SLOTS)
    count = k.extent(math.prod(extents), dtype)
    with k.parallel(x.shape[:axis]) as at:
        mean: Expr | None = None
        if isinstance(op, LayerNorm):
            sums = Totals(k, "add", 0, dtype, lanes, slots)

            def add_up(inner: list[Coord], slot: int) -> None:
                sums.add(slot, unless_masked(k, x([*at, *inner]), 0))

            along(k, extents, lanes, add_up, slots, [sums])
            mean = k.b.let(k.m.div(sums.whole(), count))

        def centred(inner: list[Coord]) -> Expr:
            element = x([*at, *inner])
            return element if mean is None else k.b.let(k.m.sub(element, mean))

        squares = Totals(k, "add", 0, dtype, lanes, slots)

        def square(inner: list[Coord], slot: int) -> None:
            distance = unless_masked(k, centred(inner), 0)
            squares.add(slot, k.m.mul(distance, distance))

        along(k, extents, lanes, square, slots, [squares])
        variance = k.m.div(squares.whole(), count)
        root = k.m.sqrt(k.m.add(variance, k.constant(op.epsilon, dtype)))
        factor = k.b.let(k.m.div(1.0, root))

        def finish(inner: list[Coord], slot: int) -> None:
            y = k.m.mul(centred(inner), factor)
            y = y if scale is None else k.m.mul(y, scale(inner))
            y = y if bias is None else k.m.add(y, bias(inner))
            out.store([*at, *inner], y)

        along(k, extents, lanes, finish, slots)


def _wide(x: Source) -> str:
    return "f32" if x.type.dtype in HALVES else x.type.dtype
