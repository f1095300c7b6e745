"""Loop forms of pooling over regions: regions, channels and rows of bins in parallel."""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.ir.dims import Dim, known
from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Const, Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import columns
from alpenglow.ops.reduction import lowest
from alpenglow.ops.regions import MOST_SAMPLES, MaxRoiPool, RoiAlign


@dataclass(frozen=True)
class Side:
    """A region along one axis: where it begins, the size of its bins, and their samples."""

    start: Expr
    size: Expr
    count: Expr


@push(RoiAlign)
def roi_align(k: Loops, op: RoiAlign, ins: list[Source | None], outs: list[Sink]) -> None:
    x, rois, batch = ins
    assert x is not None and rois is not None and batch is not None
    n, _, height, width = x.shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return

    def body(outer: list[Coord], column: Coord) -> None:
        region, channel, row = outer
        lanes, mask = k.current, k.mask
        number = k.m.minimum(k.m.maximum(k.m.cast(batch([region]), "i64"), 0), lift(n - 1))
        x1, y1, x2, y2 = (rois([region, coord(i)]) for i in range(4))
        across, down = _side(k, op, x1, x2, op.width), _side(k, op, y1, y2, op.height)
        dtype = x1.dtype
        total = k.accumulator(float("-inf") if op.mode == "max" else 0.0, dtype)
        with k.b.loop(down.count) as i:
            in_rows, rows = _neighbours(k, down, row, i, height)
            with k.b.loop(across.count) as j:
                in_columns, beside = _neighbours(k, across, column, j, width)
                inside = k.m.bit_and(in_rows, in_columns)
                parts = [
                    # Outside is 0 even if what is read instead is no number.
                    k.m.where(inside, k.m.mul(x([coord(number), channel, a, b]), k.m.mul(u, v)), 0)
                    for a, u in rows
                    for b, v in beside
                ]
                for part in parts:
                    combine = k.m.maximum if op.mode == "max" else k.m.add
                    k.set(total, combine(total, part))
        assert (k.current, k.mask) == (lanes, mask), "a loop leaves the vector as it was"
        samples = k.m.mul(down.count, across.count)
        if op.mode == "max":
            value = k.m.where(k.m.gt(samples, 0), total, 0.0)
        else:
            value = k.m.div(total, k.m.cast(k.m.maximum(samples, 1), dtype))
        outs[0].store([*outer, column], value)

    columns(k, outs[0].shape[:3], op.width, body)


def _side(k: Loops, op: RoiAlign, start: Expr, end: Expr, bins: int) -> Side:
    offset = 0.5 if op.half_pixel else 0.0
    first = k.m.sub(k.m.mul(start, op.scale), offset)
    length = k.m.sub(k.m.sub(k.m.mul(end, op.scale), offset), first)
    if not op.half_pixel:
        length = k.m.maximum(length, 1.0)
    size = k.m.div(length, float(bins))
    if op.samples:
        return Side(first, size, Const(op.samples))
    wanted = k.m.minimum(k.m.ceil(size), float(MOST_SAMPLES))
    return Side(first, size, k.m.cast(k.m.where(k.m.gt(wanted, 0.0), wanted, 0.0), "i64"))


def _neighbours(
    k: Loops, side: Side, number: Coord, sample: Expr, extent: Dim
) -> tuple[Expr, list[tuple[Coord, Expr]]]:
    """Return whether a sample of a bin lies on an axis, and what it reads there: two elements,
    each with its weight."""
    dtype = side.start.dtype
    step = k.m.div(k.m.mul(k.m.add(k.m.cast(sample, dtype), 0.5), side.size),
                   k.m.cast(side.count, dtype))  # fmt: skip
    begin = k.m.add(side.start, k.m.mul(k.m.cast(number.expr(), dtype), side.size))
    p = k.m.add(begin, step)
    limit = k.extent(extent, dtype)
    inside = k.m.bit_and(k.m.ge(p, -1.0), k.m.le(p, limit))
    safe = k.m.maximum(k.m.where(inside, p, 0.0), 0.0)
    low, last = _index(k, safe, extent), extent - 1
    share = k.m.where(k.m.lt(low, last), k.m.sub(safe, k.m.cast(low, dtype)), 0.0)
    high = k.m.minimum(k.m.add(low, 1), last)
    ends = ((low, k.m.sub(1.0, share)), (high, share))
    return inside, [(coord(k.m.cast(c, "i64")), w) for c, w in ends]


def _index(k: Loops, p: Expr, extent: Dim) -> Expr:
    """Return the index that a number, which is neither NaN nor negative, stands for on an axis."""
    if known(extent) and extent < 1 << 31:
        # No number is negative as u32, which a proof of addresses sees.
        return k.m.cast(k.m.minimum(k.m.cast(k.m.cast(p, "i32"), "u32"), extent - 1), "i32")
    return k.m.minimum(k.m.maximum(k.m.cast(p, "i64"), 0), extent - 1)


@push(MaxRoiPool)
def max_roi_pool(k: Loops, op: MaxRoiPool, ins: list[Source | None], outs: list[Sink]) -> None:
    x, rois = ins
    assert x is not None and rois is not None
    n, _, height, width = x.shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    with k.parallel(outs[0].shape) as (region, channel, row, column):
        number = _whole(k, rois([region, coord(0)]), n - 1)
        x1, y1, x2, y2 = (rois([region, coord(i)]) for i in range(1, 5))
        top, rows = _bin(k, op, (y1, y2), row, op.height, height)
        left, across = _bin(k, op, (x1, x2), column, op.width, width)
        best = k.accumulator(lowest(x.type.numpy), dtype)
        with k.b.loop(rows) as i, k.b.loop(across) as j:
            at = [coord(number), channel, coord(k.m.add(top, i)), coord(k.m.add(left, j))]
            k.set(best, k.m.maximum(best, x(at)))
        some = k.m.gt(k.m.mul(rows, across), 0)
        outs[0].store([region, channel, row, column], k.m.where(some, best, 0.0))


def _bin(
    k: Loops, op: MaxRoiPool, ends: tuple[Expr, Expr], number: Coord, bins: int, extent: Dim
) -> tuple[Expr, Expr]:
    """Return where a bin begins along an axis and how many elements it has."""
    first, last = (_half_away(k, k.m.mul(p, op.scale)) for p in ends)
    dtype = first.dtype
    size = k.m.div(k.m.maximum(k.m.add(k.m.sub(last, first), 1.0), 1.0), float(bins))
    index = k.m.cast(number.expr(), dtype)
    before, after = k.m.floor(k.m.mul(index, size)), k.m.ceil(k.m.mul(k.m.add(index, 1.0), size))
    begin, stop = (_whole(k, k.m.add(edge, first), extent) for edge in (before, after))
    return begin, k.m.sub(k.m.maximum(stop, begin), begin)


def _whole(k: Loops, p: Expr, most: Dim) -> Expr:
    """Return a whole number limited to 0 to `most`; NaN is 0."""
    inside = k.m.minimum(k.m.where(k.m.gt(p, 0.0), p, 0.0), k.extent(most, p.dtype))
    return k.m.cast(_index(k, inside, most + 1), "i64")


def _half_away(k: Loops, p: Expr) -> Expr:
    """Return a number rounded to a whole one, halves away from zero."""
    size = k.m.floor(k.m.add(k.m.abs(p), 0.5))
    return k.m.where(k.m.lt(p, 0.0), k.m.neg(size), size)
