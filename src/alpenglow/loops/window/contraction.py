"""Loop forms of matrix product and convolution: for the types and shapes that no template takes."""

from __future__ import annotations

from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.product.contraction import Conv, MatMul, summed
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.ops.window.conv_transpose import Dilate


@pull(MatMul)
def mat_mul(k: Loops, op: MatMul, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, y = ins
    assert x is not None and y is not None
    *batch, row, column = at
    dtype = summed(op, x.type, y.type)
    total = k.accumulator(0, dtype)
    with k.loop(x.shape[-1]) as i:
        a, c = _operand(k, x([*batch, row, i]), dtype), _operand(k, y([*batch, i, column]), dtype)
        k.set(total, k.m.add(total, k.m.mul(a, c)))
    return total


@pull(Conv)
def conv(k: Loops, op: Conv, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, w = ins[:2]
    assert x is not None and w is not None
    spatial = len(at) - 2
    pads, strides, dilations = op.window(spatial)
    n, o, *place = at
    per_in, per_out = w.shape[1], w.shape[0] // op.group
    first = (o // per_out) * per_in if op.group > 1 else None
    dtype = summed(op, x.type, w.type)
    total = k.accumulator(0, dtype)
    with k.loops([per_in, *w.shape[2:]]) as (c, *taps):
        where = [p * s + t * d - a for p, s, t, d, a in
                 zip(place, strides, taps, dilations, pads, strict=False)]  # fmt: skip
        channel = c if first is None else c + first

        def tap(where: list[Coord] = where, channel: Coord = channel) -> Expr:
            return x([n, channel, *where])

        inside = within(k, where, x.shape[2:], [bool(a) for a in either(pads)])
        value = tap() if inside is None else k.when(inside, tap, k.constant(0, x.type.dtype))
        weight = _operand(k, w([o, c, *taps]), dtype)
        k.set(total, k.m.add(total, k.m.mul(_operand(k, value, dtype), weight)))
    if len(ins) > 2 and ins[2] is not None:
        return k.m.add(total, ins[2]([o]))
    return total


@pull(ConvFilter)
def conv_filter(k: Loops, op: ConvFilter, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, dy = ins
    assert x is not None and dy is not None
    o, c, *taps = at
    per_in, per_out = x.shape[1] // op.group, dy.shape[1] // op.group
    channel = c + (o // per_out) * per_in if op.group > 1 else c
    total = k.accumulator(0, x.type.dtype)
    with k.loops([x.shape[0], *dy.shape[2:]]) as (n, *place):
        where = [p * s + t * d - a for p, s, t, d, a in
                 zip(place, op.strides, taps, op.dilations, op.pads, strict=False)]  # fmt: skip

        def tap(n: Coord = n, where: list[Coord] = where) -> Expr:
            return x([n, channel, *where])

        inside = within(k, where, x.shape[2:], [bool(a) for a in either(op.pads)])
        value = tap() if inside is None else k.when(inside, tap, k.constant(0, x.type.dtype))
        k.set(total, k.m.add(total, k.m.mul(value, dy([n, o, *place]))))
    return total


def _operand(k: Loops, x: Expr, dtype: str) -> Expr:
    """Return a factor in the type that products are summed in; halves are f32 already."""
    return k.m.cast(x, "i32") if dtype == "i32" else x


@pull(Dilate)
def dilate(k: Loops, op: Dilate, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    place = [c // s for c, s in zip(at, op.steps, strict=True)]
    condition: Expr | None = None
    for c, s in zip(at, op.steps, strict=True):
        if s > 1:
            hit = (c % s).compare("eq", 0)
            condition = hit if condition is None else k.both(condition, hit)
    if condition is None:
        return x(place)
    return k.when(condition, lambda: x(place), k.constant(0, x.type.dtype))


def within(
    k: Loops, where: list[Coord], extents: tuple[int, ...], guarded: list[bool]
) -> Expr | None:
    """Return the condition that all coordinates lie inside; None if none can lie outside."""
    condition: Expr | None = None
    for c, extent, guard in zip(where, extents, guarded, strict=True):
        if not guard:
            continue
        both = k.both(c.compare("ge", 0), c.compare("lt", extent))
        condition = both if condition is None else k.both(condition, both)
    return condition


def either(pads: tuple[int, ...]) -> list[int]:
    """Return for each axis the padding before it, or that behind it where there is none."""
    half = len(pads) // 2
    return [a or b for a, b in zip(pads[:half], pads[half:], strict=True)]
