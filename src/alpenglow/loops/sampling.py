"""Loop form of reading between elements, several places at a time.

Indices and weights of a vector of places are computed once, and serve all channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpenglow.ir.dims import Dim, known
from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.resize import narrowed
from alpenglow.loops.rows import columns
from alpenglow.ops.sampling import SHARPNESS, Sample


@dataclass(frozen=True)
class Tap:
    """One of the elements that a place reads on an axis: index, weight, and whether it exists."""

    at: Coord
    weight: Expr
    inside: Expr | None


@push(Sample)
def sample(k: Loops, op: Sample, ins: list[Source | None], outs: list[Sink]) -> None:
    x, at = ins
    assert x is not None and at is not None
    n, c, *spatial = x.shape
    if any(known(d) and d == 0 for d in (*outs[0].shape, *spatial)):
        return
    wide = "f64" if "f64" in (x.type.dtype, at.type.dtype) else "f32"

    def body(outer: list[Coord], place: Coord) -> None:
        order = range(len(spatial))
        numbers = reversed(order) if op.normalized else order
        places = [k.m.cast(at([*outer, place, coord(i)]), wide) for i in numbers]
        axes = [_taps(k, op, p, d) for p, d in zip(places, spatial, strict=True)]
        with k.loop(c) as channel:
            front = [*outer, channel]
            if op.mode == "nearest":
                value = _element(k, x, front, [taps[0] for taps in axes])
            else:
                value = narrowed(k, _summed(k, x, front, axes, wide), x.type.dtype)
            outs[0].store([*front, place], value)

    columns(k, [n], outs[0].shape[-1], body)


def _summed(
    k: Loops, x: Source, front: list[Coord], axes: Sequence[list[Tap]], wide: str,
    chosen: tuple[Tap, ...] = (),
) -> Expr:  # fmt: skip
    """Return the weighted sum over the taps of the axes that are not chosen yet."""
    if not axes:
        return k.m.cast(_element(k, x, front, chosen), wide)
    parts = [
        k.m.mul(_summed(k, x, front, axes[1:], wide, (*chosen, tap)), tap.weight) for tap in axes[0]
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


def _taps(k: Loops, op: Sample, p: Expr, extent: Dim) -> list[Tap]:
    """Return what a place on an axis reads; every index is inside of the axis."""
    last = k.m.sub(k.extent(extent, p.dtype), 1.0)
    low, high = (0.0, last) if op.aligned else (-0.5, k.m.add(last, 0.5))
    if op.normalized:
        full = k.m.mul(k.m.add(p, 1.0), last if op.aligned else k.m.add(last, 1.0))
        p = k.m.mul(full if op.aligned else k.m.sub(full, 1.0), 0.5)
    if op.mode == "nearest":
        p = k.m.round(p)
    if op.padding == "border" and op.mode != "cubic":
        p = k.m.where(_outside(k, p, low, high), k.m.minimum(k.m.maximum(p, 0.0), last), p)
    elif op.padding == "reflection":
        p = k.m.where(_outside(k, p, low, high), _reflected(k, p, low, high), p)
    first = p if op.mode == "nearest" else k.m.floor(p)
    share = k.m.sub(p, first)
    taps = []
    for offset in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[op.mode]:
        at = k.m.add(first, float(offset)) if offset else first
        inside = None
        if op.padding == "zeros":
            inside = k.m.bit_and(k.m.ge(at, 0.0), k.m.le(at, last))
        elif op.padding == "reflection":
            at = k.m.where(_outside(k, at, low, high), _reflected(k, at, low, high), at)
        weight = _weight(k, op, share, offset)
        taps.append(Tap(_index(k, at, last, extent), weight, inside))
    return taps


def _index(k: Loops, at: Expr, last: Expr, extent: Dim) -> Coord:
    """Return a place as an index; NaN is 0."""
    kind = "i32" if known(extent) and extent < 1 << 31 else "i64"
    whole = k.m.maximum(k.m.cast(k.m.minimum(at, last), kind), 0)
    return coord(k.m.cast(k.m.minimum(whole, extent - 1), "i64"))


def _weight(k: Loops, op: Sample, share: Expr, offset: int) -> Expr:
    if op.mode == "nearest":
        return Const(1.0, share.dtype)
    distance = k.m.abs(k.m.sub(share, float(offset)))
    if op.mode == "linear":
        return k.m.sub(1.0, distance)
    a = SHARPNESS
    if offset in (0, 1):
        near = k.m.sub(k.m.mul(distance, a + 2), a + 3)
        return k.m.add(k.m.mul(k.m.mul(near, distance), distance), 1.0)
    far = k.m.add(k.m.mul(k.m.sub(k.m.mul(distance, a), 5 * a), distance), 8 * a)
    return k.m.sub(k.m.mul(far, distance), 4 * a)


def _outside(k: Loops, p: Expr, low: float, high: Expr) -> Expr:
    return k.m.bit_or(k.m.lt(p, low), k.m.gt(p, high))


def _reflected(k: Loops, p: Expr, low: float, high: Expr) -> Expr:
    """Return a place mirrored at both ends until it lies between them."""
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
    return k.m.where(k.m.gt(reach, 0.0), mirrored, low)


def _truncated(k: Loops, x: Expr) -> Expr:
    """Return a number that is not negative, rounded down."""
    return k.m.floor(x)
