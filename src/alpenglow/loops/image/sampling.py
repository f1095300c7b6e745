"""Loop forms of reading between elements, several places at a time, and of its derivatives.

Indices and weights of a vector of places are computed once, and serve all channels.  What is added
up at places is, one place after the other; threads share the channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.kernel.expr import Buffer, Const, Expr, Load, Splat, lift
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.image.resize import narrowed
from alpenglow.loops.rows import along, block, columns, width
from alpenglow.ops.image.sampling import OFFSETS, Sample, SampleSlope, Sampling, Spread, weight


@dataclass(frozen=True)
class Tap:
    """One of the elements that a place reads on an axis: index, and whether it exists.

    Of its weight there are the derivatives that were asked for.
    """

    at: Coord
    inside: Expr | None
    weights: tuple[Expr, ...]


@push(Sample)
def sample(k: Loops, op: Sample, ins: list[Source | None], outs: list[Sink]) -> None:
    x, at = ins
    assert x is not None and at is not None
    n, c, *spatial = x.shape
    if any(known(d) and d == 0 for d in (*outs[0].shape, *spatial)):
        return
    wide = "f64" if "f64" in (x.type.dtype, at.type.dtype) else "f32"

    def body(outer: list[Coord], place: Coord) -> None:
        axes = _axes(k, op, at, [*outer, place], spatial, wide)
        with k.loop(c) as channel:
            front = [*outer, channel]
            if op.mode == "nearest":
                value = _element(k, x, front, [taps[0] for taps in axes])
            else:
                value = narrowed(k, _summed(k, x, front, axes, wide), x.type.dtype)
            outs[0].store([*front, place], value)

    columns(k, [n], outs[0].shape[-1], body)


@push(SampleSlope)
def sample_slope(k: Loops, op: SampleSlope, ins: list[Source | None], outs: list[Sink]) -> None:
    y, x, at = ins
    assert y is not None and x is not None and at is not None
    n, c, *spatial = x.shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return
    dtype = x.type.dtype

    def body(outer: list[Coord], place: Coord) -> None:
        axes = _axes(k, op, at, [*outer, place], spatial, dtype, 2)
        totals = [k.accumulator(0, dtype) for _ in spatial]
        with k.loop(c) as channel:
            front = [*outer, channel]
            _, *slopes = _changes(k, x, front, axes)
            change = y([*front, place])
            for total, slope in zip(totals, slopes, strict=True):
                k.set(total, k.m.add(total, k.m.mul(change, slope)))
        for axis, total in enumerate(totals):
            outs[0].store([*outer, place, coord(op.coordinate(axis, len(spatial)))], total)

    columns(k, [n], outs[0].shape[1], body)


CHANNELS = 16
"""How many channels share what is computed of a place, where they are added up in parallel."""


@push(Spread)
def spread(k: Loops, op: Spread, ins: list[Source | None], outs: list[Sink]) -> None:
    """Clear some channels of an image and add to them place by place.

    What places read is computed in vectors, and put down for each to be taken up by itself.
    """
    y, at = ins
    assert y is not None and at is not None
    n, c, *spatial = outs[0].shape
    if any(known(d) and d == 0 for d in outs[0].shape):
        return
    each = min(CHANNELS, c) if known(c) else 1
    dtype, places, lanes = y.type.dtype, y.shape[2], width(k, y.shape[2])
    zero = k.constant(0, dtype)
    notes = [[Note.of(k, dtype, lanes) for _ in OFFSETS[op.mode]] for _ in spatial]
    with k.parallel([n, ceil_div(c, each)]) as (image, group):
        first = group * each
        count = k.b.let(k.m.minimum((coord(lift(c)) - first).expr(), each))
        with k.b.loop(count) as i:
            front = [image, first + i]
            along(k, spatial, width(k, spatial[-1]),
                  lambda place, slot: outs[0].store([*front, *place], zero))  # fmt: skip

        def put_down(place: Coord) -> None:
            for line, taps in zip(
                notes, _axes(k, op, at, [image, place], spatial, dtype), strict=True
            ):
                for note, tap in zip(line, taps, strict=True):
                    note.put(k, tap)

        with k.loop(ceil_div(places, lanes)) as block_number:
            start = k.b.let((block_number * lanes).expr())
            block(k, start, lanes, None if is_number(places % lanes, 0) else places, put_down)
            left = k.b.let(k.m.minimum(lift(places) - start, lanes))
            with k.b.loop(left) as lane:
                read = [[note.take(k, lane, d, op) for note in line]
                        for line, d in zip(notes, spatial, strict=True)]  # fmt: skip
                taps = [_joined(k, chosen, dtype) for chosen in itertools.product(*read)]
                with k.b.loop(count) as i:
                    front = [image, first + i]
                    change = y([*front, start + lane])
                    for tap, inside, weight in taps:
                        part = k.m.mul(change, weight)
                        part = part if inside is None else k.m.where(inside, part, zero)
                        where = [*front, *tap]
                        outs[0].store(where, k.m.add(outs[0].load(where), part))


@dataclass(frozen=True)
class Note:
    """Where taps of neighbouring places are put down: indices, -1 outside, and weights."""

    at: Buffer
    weight: Buffer

    @classmethod
    def of(cls, k: Loops, dtype: str, lanes: int) -> Note:
        return cls(k.b.array("i64", lanes), k.b.array(dtype, lanes))

    def put(self, k: Loops, tap: Tap) -> None:
        index = tap.at.expr()
        if tap.inside is not None:
            index = k.m.where(tap.inside, index, -1)
        for buffer, value in ((self.at, index), (self.weight, tap.weights[0])):
            k.b.store(buffer, 0, value if value.lanes == k.current else Splat(value, k.current))

    def take(self, k: Loops, lane: Expr, extent: Dim, op: Spread) -> Tap:
        index = k.b.let(Load(self.at, lane))
        inside = k.b.let(k.m.ge(index, 0)) if op.padding == "zeros" else None
        return Tap(k.limited(index, extent), inside, (k.b.let(Load(self.weight, lane)),))


def _axes(
    k: Loops, op: Sampling, at: Source, place: list[Coord], spatial: list[int], wide: str,
    derivatives: int = 1,
) -> list[list[Tap]]:  # fmt: skip
    """Return what a place reads on each axis, with so many derivatives of the weights."""
    rank = len(spatial)
    numbers = [k.m.cast(at([*place, coord(op.coordinate(i, rank))]), wide) for i in range(rank)]
    return [
        _taps(k, op, p, d, range(op.order(i), op.order(i) + derivatives))
        for i, (p, d) in enumerate(zip(numbers, spatial, strict=True))
    ]


def _joined(k: Loops, taps: Sequence[Tap], dtype: str) -> tuple[list[Coord], Expr | None, Expr]:
    """Return where taps of all axes meet, whether there is an element, and its weight."""
    factor: Expr = k.constant(1, dtype)
    for t in taps:
        factor = k.m.mul(factor, t.weights[0])
    inside = [t.inside for t in taps if t.inside is not None]
    valid = reduce(k.m.bit_and, inside) if inside else None
    return [t.at for t in taps], None if valid is None else k.b.let(valid), k.b.let(factor)


def _changes(
    k: Loops, x: Source, front: list[Coord], axes: Sequence[list[Tap]], chosen: tuple[Tap, ...] = ()
) -> list[Expr]:
    """Return the weighted sum over the taps of the axes that are not chosen yet, and what it
    changes by with the place on each of them."""
    if not axes:
        return [_element(k, x, front, chosen)]
    totals: list[Expr] = []
    for tap in axes[0]:
        value, *slopes = _changes(k, x, front, axes[1:], (*chosen, tap))
        weight, slope = tap.weights
        parts = [k.m.mul(value, weight), k.m.mul(value, slope)]
        parts += [k.m.mul(s, weight) for s in slopes]
        totals = [k.m.add(t, p) for t, p in zip(totals, parts, strict=True)] if totals else parts
    return totals


def _summed(
    k: Loops, x: Source, front: list[Coord], axes: Sequence[list[Tap]], wide: str,
    chosen: tuple[Tap, ...] = (),
) -> Expr:  # fmt: skip
    """Return the weighted sum over the taps of the axes that are not chosen yet."""
    if not axes:
        return k.m.cast(_element(k, x, front, chosen), wide)
    parts = [
        k.m.mul(_summed(k, x, front, axes[1:], wide, (*chosen, tap)), tap.weights[0])
        for tap in axes[0]
    ]
    total = parts[0]
    for part in parts[1:]:
        total = k.m.add(total, part)
    return total


def _element(k: Loops, x: Source, front: list[Coord], taps: Sequence[Tap]) -> Expr:
    """Return the element that one tap an axis names, or zero outside."""
    value = x([*front, *(t.at for t in taps)])
    inside = [t.inside for t in taps if t.inside is not None]
    if not inside:
        return value
    valid = inside[0]
    for other in inside[1:]:
        valid = k.m.bit_and(valid, other)
    return k.select(valid, value, k.constant(0, x.type.dtype))


def _taps(k: Loops, op: Sampling, p: Expr, extent: Dim, orders: range) -> list[Tap]:
    """Return what a place on an axis reads; every index is inside of the axis."""
    last = k.m.sub(k.extent(extent, p.dtype), 1.0)
    low, high = (0.0, last) if op.aligned else (-0.5, k.m.add(last, 0.5))
    slope: Expr = k.constant(1, p.dtype)
    if op.normalized:
        reach = last if op.aligned else k.m.add(last, 1.0)
        full = k.m.mul(k.m.add(p, 1.0), reach)
        p = k.m.mul(full if op.aligned else k.m.sub(full, 1.0), 0.5)
        slope = k.m.mul(reach, 0.5)
    if op.mode == "nearest":
        p = k.m.round(p)
    if op.padding == "border" and op.mode != "cubic":
        p = k.m.where(_outside(k, p, low, high), k.m.minimum(k.m.maximum(p, 0.0), last), p)
    elif op.padding == "reflection":
        outside = _outside(k, p, low, high)
        mirrored, turned = _reflected(k, p, low, high)
        slope, p = k.m.mul(slope, k.m.where(outside, turned, 1.0)), k.m.where(outside, mirrored, p)
    if op.mode == "linear" and op.padding != "zeros":
        between = k.m.bit_and(k.m.gt(p, 0.0), k.m.lt(p, last))
        slope = k.m.where(between, slope, 0.0)
    first = p if op.mode == "nearest" else k.m.floor(p)
    share = k.m.sub(p, first)
    taps = []
    for offset in OFFSETS[op.mode]:
        at = k.m.add(first, float(offset)) if offset else first
        inside = None
        if op.padding == "zeros":
            inside = k.m.bit_and(k.m.ge(at, 0.0), k.m.le(at, last))
        elif op.padding == "reflection":
            mirrored, _ = _reflected(k, at, low, high)
            at = k.m.where(_outside(k, at, low, high), mirrored, at)
        weights = [_weight(k, op, share, offset, order, slope) for order in orders]
        taps.append(Tap(_index(k, at, last, extent), inside, tuple(weights)))
    return taps


def _index(k: Loops, at: Expr, last: Expr, extent: Dim) -> Coord:
    """Return a place as an index; NaN is 0."""
    kind = "i32" if known(extent) and extent < 1 << 31 else "i64"
    whole = k.m.maximum(k.m.cast(k.m.minimum(at, last), kind), 0)
    return coord(k.m.cast(k.m.minimum(whole, extent - 1), "i64"))


def _weight(k: Loops, op: Sampling, share: Expr, offset: int, order: int, slope: Expr) -> Expr:
    if op.mode == "nearest":
        return Const(1.0, share.dtype)
    factor: Expr = weight(k.m, op.mode, share, offset, order)
    for _ in range(order):
        factor = k.m.mul(factor, slope)
    return k.b.let(factor)


def _outside(k: Loops, p: Expr, low: float, high: Expr) -> Expr:
    return k.m.bit_or(k.m.lt(p, low), k.m.gt(p, high))


def _reflected(k: Loops, p: Expr, low: float, high: Expr) -> tuple[Expr, Expr]:
    """Return a place mirrored at both ends until it lies between them, and which way it goes."""
    reach = k.m.sub(high, low)
    below = k.m.lt(p, low)
    distance = k.m.where(below, k.m.sub(low, p), k.m.sub(p, high))
    times = _truncated(k, k.m.div(distance, reach))
    rest = k.m.sub(distance, k.m.mul(times, reach))
    half = k.m.mul(times, 0.5)
    even = k.m.eq(_truncated(k, half), half)
    at_low = k.m.bit_or(k.m.bit_and(below, even),
                        k.m.bit_not(k.m.bit_or(below, even)))  # fmt: skip
    mirrored = k.m.where(at_low, k.m.add(rest, low), k.m.sub(high, rest))
    wide = k.m.gt(reach, 0.0)
    turned = k.m.where(even, k.constant(-1, p.dtype), k.constant(1, p.dtype))
    turned = k.m.where(wide, turned, 0.0)
    return k.m.where(wide, mirrored, low), turned


def _truncated(k: Loops, x: Expr) -> Expr:
    """Return a number that is not negative, rounded down."""
    return k.m.floor(x)
