"""Loop forms of the operators of this machine, for what their templates do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable

from alpenglow.ir.dims import is_open
from alpenglow.kernel.expr import Bitcast, Const, Convert, Expr, Reduce, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, pull, push
from alpenglow.loops.rows import unless_masked
from alpenglow.loops.window.contraction import either, within
from alpenglow.machines.vector.operators.blocked import ConvPlanar, DepthwisePlanar
from alpenglow.machines.vector.operators.few_bits import NIBBLES, WORD, MatMulFewBits
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.operators.quantized import (
    BESIDE,
    MatMulGroups,
    QuantizeGroups,
    words_of,
)
from alpenglow.ops.quantized.groups import LEAST, STEPS

HELD = 16
"""The most vectors of a group that stay in registers until its scale is known."""

INFINITE = 0x7F800000
"""The bits of the infinite f32: those of finite ones, without their sign, are less."""


@pull(MatMulFewBits)
def mat_mul_few_bits(
    k: Loops, op: MatMulFewBits, ins: list[Source | None], at: list[Coord]
) -> Expr:
    x, q, grid = ins
    assert x is not None and q is not None and grid is not None
    *batch, row, column = at
    width = q.shape[-1]
    panel, lane = column // width, column % width
    total = k.accumulator(0, "f32")
    with k.loop(x.shape[-1]) as i:
        group = i // op.size
        steps = k.m.sub(k.m.cast(_number(k, q, panel, i, lane), "f32"), float(op.middle))
        if grid.shape[2] == 2:
            steps = k.m.sub(steps, grid([panel, group, 1, lane]))
        w = k.m.mul(steps, grid([panel, group, 0, lane]))
        k.set(total, k.m.add(total, k.m.mul(x([*batch, row, i]), w)))
    return total


def _number(k: Loops, q: Source, panel: Coord, i: Coord, lane: Coord) -> Expr:
    """Return one of the whole numbers."""
    if q.type.dtype == "u8":
        return q([panel, i // WORD, lane, i % WORD])
    if q.type.dtype == "i8":
        return q([panel, i, lane])
    shift = Convert((i % 4 * 8 + i % NIBBLES // 4 * 4).expr(), "u32")
    return k.m.bit_and(k.m.shift_right(q([panel, i // NIBBLES, lane]), shift), 15)


@push(QuantizeGroups)
def quantize_groups(
    k: Loops, op: QuantizeGroups, ins: list[Source | None], outs: list[Sink]
) -> None:
    (x,) = ins
    assert x is not None, "x is there"
    full, rest = divmod(x.shape[-1], op.size)
    with k.parallel(x.shape[:-1]) as row:
        if is_open(full) or full:
            with k.loop(full) as number:
                _Group(k, op.size, x, row, number.expr()).store(outs[0], op.middle)
        if is_open(rest) or rest:
            last = k.b.let(coord(full).expr())
            with k.b.when((coord(last) * op.size).compare("lt", x.shape[-1])):
                _Group(k, op.size, x, row, last, partly=True).store(outs[0], op.middle)


class _Group:
    """A group of a row, which is read once if it fits into registers."""

    def __init__(
        self, k: Loops, size: int, x: Source, row: list[Coord], number: Expr, partly: bool = False
    ) -> None:
        self.k, self.size, self.x, self.row, self.partly = k, size, x, row, partly
        self.lanes = math.gcd(size, max(k.lanes, WORD))
        self.count = size // self.lanes
        self.begin, self.number = k.b.let(number * size), number
        self.held = [self.vector(Const(i)) for i in range(self.count)] if self.count <= HELD else []

    def vector(self, i: Expr) -> Expr:
        """Return a vector of elements, zeros where there are none."""
        k = self.k
        ramp = Coord(k.b.let(self.begin + i * self.lanes), 1, self.lanes)
        with k.vector(self.lanes, ramp.compare("lt", self.x.shape[-1]) if self.partly else None):
            return k.b.let(unless_masked(k, self.x([*self.row, ramp]), 0))

    def each(self, body: Callable[[Expr, Expr], None]) -> None:
        """Hand the vectors to `body`, each with its number."""
        for held, value in enumerate(self.held):
            body(Const(held), value)
        if not self.held:
            with self.k.b.loop(self.count) as i:
                body(i, self.vector(i))

    def largest(self) -> Expr:
        """Return the bits of the largest element, whatever its sign, as i32.

        Without their sign the bits of floats are ordered as these are, and those of NaN above all.
        """
        b, m = self.k.b, self.k.m
        top = b.var(Const(0, "i32", self.lanes))

        def find(i: Expr, value: Expr) -> None:
            b.set(top, m.maximum(top, m.bit_and(Bitcast(value, "i32"), 0x7FFFFFFF)))

        self.each(find)
        return b.let(Reduce("max", top))

    def store(self, out: Sink, middle: int) -> None:
        b, m, lanes = self.k.b, self.k.m, self.lanes
        bits = self.largest()
        largest, whole = b.let(Bitcast(bits, "f32")), b.let(m.lt(bits, INFINITE))
        some = b.let(m.bit_and(whole, m.ge(largest, LEAST)))
        factor = b.let(Splat(m.where(some, m.div(float(STEPS), largest), 0.0), lanes))
        finite = b.let(Splat(whole, lanes))
        sums = b.var(Const(0, "i32", lanes))
        first = b.let(self.number * words_of(self.size))

        def numbers(i: Expr, value: Expr) -> None:
            steps = m.round(m.mul(m.where(finite, value, 0.0), factor))
            numbers = b.let(m.cast(steps, "i32"))
            b.set(sums, m.add(sums, numbers))
            words = Bitcast(m.cast(numbers, "i8"), "i32")
            at = first + i * (lanes // WORD)
            out.store([*self.row, Coord(b.let(at), 1, words.lanes)], words)

        self.each(numbers)
        scale = m.where(whole, m.div(largest, float(STEPS)), math.nan)
        total = m.mul(Reduce("add", sums), -middle)
        for i, word in enumerate((Bitcast(scale, "i32"), total)):
            out.store([*self.row, first + (self.size // WORD + i)], word)


@pull(MatMulGroups)
def mat_mul_groups(k: Loops, op: MatMulGroups, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, q, grid = ins
    assert x is not None and q is not None and grid is not None
    *batch, row, column = at
    width, words = q.shape[2], words_of(op.size)
    panel, lane = column // width, column % width
    total = k.accumulator(0, "f32")
    with k.loop(grid.shape[1]) as group:
        first = k.b.let((group * words).expr())

        def beside(i: int, first: Expr = first) -> Expr:
            return x([*batch, row, first + (words - BESIDE + i)])

        sums = k.accumulator(0, "i32")
        if grid.shape[2] == 1:
            k.set(sums, beside(1))
        with k.loop(op.size) as i:
            place = Convert((i % WORD * 8).expr(), "i32")
            word = k.m.shift_right(x([*batch, row, i // WORD + first]), place)
            step = k.m.shift_right(k.m.shift_left(word, 24), 24)
            weight = k.m.cast(_number(k, q, panel, group * op.size + i, lane), "i32")
            k.set(sums, k.m.add(sums, k.m.mul(step, weight)))
        whole = k.m.cast(sums, "f32")
        if grid.shape[2] == 2:  # a zero point need not be a whole number
            zero = grid([panel, group, 1, lane])
            whole = k.m.add(whole, k.m.mul(k.m.cast(beside(1), "f32"), zero))
        scaled = k.m.mul(whole, grid([panel, group, 0, lane]))
        scale = k.m.bits(beside(0), "f32")
        k.set(total, k.m.add(total, k.m.mul(scaled, scale)))
    return total


@pull(ConvPlanar)
def conv_planar(k: Loops, op: ConvPlanar, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, w = ins
    assert x is not None and w is not None
    n, o, *place = at
    total = k.accumulator(0, "i32")
    with k.loops(w.shape[1:]) as (c, *taps, lane):
        steps = zip(place, op.strides, taps, op.dilations, strict=True)
        where = [p * s + t * d for p, s, t, d in steps]
        value = k.m.cast(x([n, c, *where, lane]), "i32")
        weight = k.m.cast(w([o, c, *taps, lane]), "i32")
        k.set(total, k.m.add(total, k.m.mul(value, weight)))
    return total


@pull(DepthwisePlanar)
def depthwise_planar(
    k: Loops, op: DepthwisePlanar, ins: list[Source | None], at: list[Coord]
) -> Expr:
    x, w = ins
    assert x is not None and w is not None
    spatial = len(op.strides)
    lead, place = at[:-spatial], at[-spatial:]
    dtype = "f32" if x.type.dtype == "f32" else "i32"
    total = k.accumulator(0, dtype)
    with k.loops(w.shape[-spatial:]) as taps:
        where = [p * s + t * d - a for p, s, t, d, a in
                 zip(place, op.strides, taps, op.dilations, op.pads, strict=False)]  # fmt: skip

        def tap(where: list[Coord] = where) -> Expr:
            return x([*lead, *where])

        guarded = [bool(a) for a in either(op.pads)]
        inside = within(k, where, x.shape[-spatial:], guarded)
        value = tap() if inside is None else k.when(inside, tap, k.constant(0, x.type.dtype))
        factors = (k.m.cast(v, dtype) for v in (value, w([*lead[1:], *taps])))
        k.set(total, k.m.add(total, k.m.mul(*factors)))
    return total

@pull(Pack)
def pack(k: Loops, op: Pack, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    n, group, *rest, lane = at
    channel = group * op.lanes + lane
    if x.shape[1] % op.lanes == 0:
        return x([n, channel, *rest])
    inside = channel.compare("lt", x.shape[1])
    return k.when(inside, lambda: x([n, channel, *rest]), k.constant(0, x.type.dtype))


@pull(Unpack)
def unpack(k: Loops, op: Unpack, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    n, channel, *rest = at
    lanes = x.shape[-1]
    return x([n, channel // lanes, *rest, channel % lanes])
