"""Loop forms of pooling over regions: regions, channels and rows of bins in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Const, Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import along, columns
from alpenglow.loops.rows import width as width_of
from alpenglow.ops.image.regions import (
    MOST_SAMPLES,
    Aligned,
    MaxRoiPool,
    MaxRoiPoolIndex,
    RoiAlign,
    RoiAlignIndex,
    RoiAlignSlope,
    RoiAlignSpread,
)
from alpenglow.ops.reduction.reduction import lowest


@dataclass(frozen=True)
class Side:
    """A region along one axis: where it begins, the size of its bins, and their samples.

    There are so many `bins`, and with the end of the region they `move`.
    """

    start: Expr
    size: Expr
    count: Expr
    bins: Expr
    moves: Expr


@dataclass(frozen=True)
class Neighbour:
    """What a sample reads on one axis, as an `End` on both."""

    at: Coord
    weight: Expr
    rate: Expr
    part: Expr


@push(RoiAlign)
def roi_align(k: Loops, op: RoiAlign, ins: list[Source | None], outs: list[Sink]) -> None:
    x, rois, batch = ins
    assert x is not None and rois is not None and batch is not None
    if any(known(d) and d == 0 for d in outs[0].shape):
        return

    def body(outer: list[Coord], column: Coord) -> None:
        region, channel, row = outer
        lanes, mask = k.current, k.mask
        here = _region(k, op, rois, batch, region, x.shape[0], (op.height, op.width))
        total = k.accumulator(float("-inf") if op.mode == "max" else 0.0, here.dtype)

        def sample(ends: list[End], inside: Expr) -> None:
            combine = k.m.maximum if op.mode == "max" else k.m.add
            for end in ends:
                value = k.m.mul(x([here.image, channel, *end.at]), end.weight)
                # Outside is 0 even if what is read instead is no number.
                k.set(total, combine(total, k.m.where(inside, value, 0)))

        _samples(k, here, (row, column), x.shape[2:], sample)
        assert (k.current, k.mask) == (lanes, mask), "a loop leaves the vector as it was"
        samples = k.m.mul(here.down.count, here.across.count)
        if op.mode == "max":
            value = k.m.where(k.m.gt(samples, 0), total, 0.0)
        else:
            value = k.m.div(total, k.m.cast(k.m.maximum(samples, 1), here.dtype))
        outs[0].store([*outer, column], value)

    columns(k, outs[0].shape[:3], op.width, body)


@push(RoiAlignIndex)
def roi_align_index(
    k: Loops, op: RoiAlignIndex, ins: list[Source | None], outs: list[Sink]
) -> None:
    x, rois, batch = ins
    assert x is not None and rois is not None and batch is not None
    _, _, height, width = x.shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return

    def body(outer: list[Coord], column: Coord) -> None:
        region, channel, row = outer
        here = _region(k, op, rois, batch, region, x.shape[0], (op.height, op.width))
        best, weight = (k.accumulator(n, here.dtype) for n in (float("-inf"), 0))
        where, none = k.accumulator(-1, "i64"), k.accumulator(1, "i64")

        def sample(ends: list[End], inside: Expr) -> None:
            for end in ends:
                value = k.m.mul(x([here.image, channel, *end.at]), end.weight)
                value = k.m.where(inside, value, 0.0)
                better = k.m.bit_or(k.m.gt(value, best), k.m.gt(none, 0))
                first_nan = k.m.bit_and(k.m.isnan(value), k.m.eq(best, best))
                better = k.b.let(k.m.bit_or(better, first_nan))
                place = (here.image * height + end.at[0]) * width + end.at[1]
                index = k.m.where(inside, place.expr(), -1)
                k.set(best, k.m.where(better, value, best))
                k.set(where, k.m.where(better, index, where))
                k.set(weight, k.m.where(better, k.m.where(inside, end.weight, 0.0), weight))
                k.set(none, k.m.mul(none, 0))

        _samples(k, here, (row, column), x.shape[2:], sample)
        outs[0].store([*outer, column], where)
        outs[1].store([*outer, column], weight)

    columns(k, outs[0].shape[:3], op.width, body)


CHANNELS = 16
"""How many channels share what is computed of a sample, where they are added up in parallel."""


@push(RoiAlignSpread)
def roi_align_spread(
    k: Loops, op: RoiAlignSpread, ins: list[Source | None], outs: list[Sink]
) -> None:
    """Clear some channels of all images and add to them one sample after the other."""
    y, rois, batch = ins
    assert y is not None and rois is not None and batch is not None
    n, c, height, width = outs[0].shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return
    each = min(CHANNELS, c) if known(c) else 1
    zero = k.constant(0, y.type.dtype)
    with k.parallel([ceil_div(c, each)]) as (group,):
        first = group * each
        count = k.b.let(k.m.minimum((coord(lift(c)) - first).expr(), each))
        with k.loop(n) as image, k.b.loop(count) as i:
            front = [image, first + i]
            along(k, [height, width], width_of(k, width),
                  lambda at, slot: outs[0].store([*front, *at], zero))  # fmt: skip
        with k.loops([y.shape[0], *y.shape[2:]]) as (region, row, column):
            here = _region(k, op, rois, batch, region, n, y.shape[2:])
            samples = k.m.maximum(k.m.mul(here.down.count, here.across.count), 1)
            part = k.b.let(k.m.div(1.0, k.m.cast(samples, here.dtype)))

            def sample(ends: list[End], inside: Expr) -> None:
                shares = [(end.at, k.b.let(k.m.mul(end.weight, part))) for end in ends]
                with k.b.when(inside), k.b.loop(count) as i:
                    change = y([region, first + i, row, column])
                    for at, share in shares:
                        where = [here.image, first + i, *at]
                        total = k.m.add(outs[0].load(where), k.m.mul(change, share))
                        outs[0].store(where, total)

            _samples(k, here, (row, column), (height, width), sample)


@push(RoiAlignSlope)
def roi_align_slope(
    k: Loops, op: RoiAlignSlope, ins: list[Source | None], outs: list[Sink]
) -> None:
    """Add up, for one region after the other, what each sample changes by with the four ends."""
    y, x, rois, batch = ins
    assert y is not None and x is not None and rois is not None and batch is not None
    n, c, *extents = x.shape
    if any(known(d) and d == 0 for d in rois.shape):
        return
    bins = y.shape[2:]
    with k.parallel(y.shape[:1]) as (region,):
        here = _region(k, op, rois, batch, region, n, bins)
        samples = k.m.maximum(k.m.mul(here.down.count, here.across.count), 1)
        part = k.b.let(k.m.div(op.scale, k.m.cast(samples, here.dtype)))
        totals = [k.accumulator(0, here.dtype) for _ in range(4)]
        with k.loops(bins) as (row, column):

            def sample(ends: list[End], inside: Expr) -> None:
                slopes = [k.accumulator(0, here.dtype) for _ in range(2)]
                with k.b.when(inside):
                    with k.loop(c) as channel:
                        change = k.b.let(y([region, channel, row, column]))
                        for end in ends:
                            value = k.m.mul(x([here.image, channel, *end.at]), change)
                            for slope, rate in zip(slopes, end.rates, strict=True):
                                k.set(slope, k.m.add(slope, k.m.mul(value, rate)))
                    for axis, slope in enumerate(slopes):
                        scaled = k.m.mul(slope, part)
                        far = ends[0].parts[axis]
                        near = k.m.sub(1.0, far)
                        for total, share in ((totals[1 - axis], near), (totals[3 - axis], far)):
                            k.set(total, k.m.add(total, k.m.mul(scaled, share)))

            _samples(k, here, (row, column), extents, sample)
        for i, total in enumerate(totals):
            outs[0].store([region, coord(i)], total)


@dataclass(frozen=True)
class Region:
    """A region, along both axes, and the image it is of."""

    image: Coord
    down: Side
    across: Side

    @property
    def dtype(self) -> str:
        return self.down.start.dtype


@dataclass(frozen=True)
class End:
    """An element that a sample reads: its weight, what this changes by with the sample's place on
    each axis, and how far the sample lies between the ends of its region."""

    at: list[Coord]
    weight: Expr
    rates: tuple[Expr, Expr]
    parts: tuple[Expr, Expr]


def _region(
    k: Loops, op: Aligned, rois: Source, batch: Source, region: Coord, images: Dim,
    bins: Sequence[Dim],
) -> Region:  # fmt: skip
    last = lift(images - 1)
    number = k.m.minimum(k.m.maximum(k.m.cast(batch([region]), "i64"), 0), last)
    x1, y1, x2, y2 = (rois([region, coord(i)]) for i in range(4))
    height, width = bins
    return Region(coord(number), _side(k, op, y1, y2, height), _side(k, op, x1, x2, width))


def _samples(
    k: Loops, here: Region, bin_: tuple[Coord, Coord], extents: Sequence[Dim],
    body: Callable[[list[End], Expr], None],
) -> None:  # fmt: skip
    """Run `body` for the samples of a bin, with what each reads, and whether it is of the image."""
    row, column = bin_
    with k.b.loop(here.down.count) as i:
        in_rows, rows = _neighbours(k, here.down, row, i, extents[0])
        with k.b.loop(here.across.count) as j:
            in_columns, beside = _neighbours(k, here.across, column, j, extents[1])
            ends = [
                End([a.at, b.at], k.m.mul(a.weight, b.weight),
                    (k.m.mul(a.rate, b.weight), k.m.mul(a.weight, b.rate)), (a.part, b.part))
                for a in rows for b in beside
            ]  # fmt: skip
            body(ends, k.b.let(k.m.bit_and(in_rows, in_columns)))


def _side(k: Loops, op: Aligned, start: Expr, end: Expr, bins: Dim) -> Side:
    offset = 0.5 if op.half_pixel else 0.0
    first = k.m.sub(k.m.mul(start, op.scale), offset)
    length = k.m.sub(k.m.sub(k.m.mul(end, op.scale), offset), first)
    moves: Expr = Const(True, "bool")
    if not op.half_pixel:
        moves = k.m.gt(length, 1.0)
        length = k.m.maximum(length, 1.0)
    number = k.extent(bins, start.dtype)
    size = k.m.div(length, number)
    if op.samples:
        return Side(first, size, Const(op.samples), number, moves)
    wanted = k.m.minimum(k.m.ceil(size), float(MOST_SAMPLES))
    count = k.m.cast(k.m.where(k.m.gt(wanted, 0.0), wanted, 0.0), "i64")
    return Side(first, size, count, number, moves)


def _neighbours(
    k: Loops, side: Side, number: Coord, sample: Expr, extent: Dim
) -> tuple[Expr, list[Neighbour]]:
    """Return whether a sample of a bin lies on an axis, and what it reads there: two elements,
    each with its weight."""
    dtype = side.start.dtype
    middle = k.m.add(k.m.cast(sample, dtype), 0.5)
    step = k.m.div(k.m.mul(middle, side.size), k.m.cast(side.count, dtype))
    index = k.m.cast(number.expr(), dtype)
    begin = k.m.add(side.start, k.m.mul(index, side.size))
    p = k.m.add(begin, step)
    limit = k.extent(extent, dtype)
    inside = k.m.bit_and(k.m.ge(p, -1.0), k.m.le(p, limit))
    safe = k.m.maximum(k.m.where(inside, p, 0.0), 0.0)
    low, last = _index(k, safe, extent), extent - 1
    before = k.m.lt(low, last)
    share = k.m.where(before, k.m.sub(safe, k.m.cast(low, dtype)), 0.0)
    high = k.m.minimum(k.m.add(low, 1), last)
    part = k.m.div(k.m.add(index, k.m.div(middle, k.m.cast(side.count, dtype))), side.bins)
    part = k.m.where(side.moves, part, 0.0)
    one, none = k.constant(1, dtype), k.constant(0, dtype)
    rate = k.m.where(k.m.bit_and(before, k.m.gt(p, 0.0)), one, none)
    ends = ((low, k.m.sub(1.0, share), k.m.neg(rate)), (high, share, rate))
    return inside, [Neighbour(coord(k.m.cast(c, "i64")), w, r, part) for c, w, r in ends]


def _index(k: Loops, p: Expr, extent: Dim) -> Expr:
    """Return the index that a number, which is neither NaN nor negative, stands for on an axis."""
    if known(extent) and extent < 1 << 31:
        # No number is negative as u32, which a proof of addresses sees.
        return k.m.cast(k.m.minimum(k.m.cast(k.m.cast(p, "i32"), "u32"), extent - 1), "i32")
    return k.m.minimum(k.m.maximum(k.m.cast(p, "i64"), 0), extent - 1)


@push(MaxRoiPool, MaxRoiPoolIndex)
def max_roi_pool(
    k: Loops, op: MaxRoiPool | MaxRoiPoolIndex, ins: list[Source | None], outs: list[Sink]
) -> None:
    x, rois = ins
    assert x is not None and rois is not None
    n, _, height, width = x.shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    with k.parallel(outs[0].shape) as (region, channel, row, column):
        number = coord(_whole(k, rois([region, coord(0)]), n - 1))
        x1, y1, x2, y2 = (rois([region, coord(i)]) for i in range(1, 5))
        top, rows = _bin(k, op, (y1, y2), row, op.height, height)
        left, across = _bin(k, op, (x1, x2), column, op.width, width)
        best, where = k.accumulator(lowest(x.type.numpy), dtype), k.accumulator(-1, "i64")
        with k.b.loop(rows) as i, k.b.loop(across) as j:
            place = [coord(k.m.add(top, i)), coord(k.m.add(left, j))]
            value = x([number, channel, *place])
            if isinstance(op, MaxRoiPoolIndex):
                better = k.m.bit_or(k.m.gt(value, best), k.m.lt(where, 0))
                first_nan = k.m.bit_and(k.m.isnan(value), k.m.eq(best, best))
                better = k.b.let(k.m.bit_or(better, first_nan))
                index = ((number * height + place[0]) * width + place[1]).expr()
                k.set(where, k.m.where(better, index, where))
                k.set(best, k.m.where(better, value, best))
            else:
                k.set(best, k.m.maximum(best, value))
        at = [region, channel, row, column]
        if isinstance(op, MaxRoiPoolIndex):
            outs[0].store(at, where)
        else:
            outs[0].store(at, k.m.where(k.m.gt(k.m.mul(rows, across), 0), best, 0.0))


def _bin(
    k: Loops, op: MaxRoiPool | MaxRoiPoolIndex, ends: tuple[Expr, Expr], number: Coord, bins: int,
    extent: Dim,
) -> tuple[Expr, Expr]:  # fmt: skip
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
