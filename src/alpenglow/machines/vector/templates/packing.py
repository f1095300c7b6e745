"""Weights into panels and back: squares of lanes × lanes elements are turned over in registers.

Along an output the weights lie in a row, all of its inputs with their taps, or those of one input
alone, where outputs and inputs have changed places; panels have those of many outputs side by side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from alpenglow.ir.dims import ceil_div
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Expr, Load
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.transpose import transposed
from alpenglow.ops.tensor.packing import PackConv
from alpenglow.program.instr import Anchor, Instr, Region, row_major

AHEAD = 2
"""So many blocks of inputs ahead what lies there is asked for: memory is far, rows are many."""


SPARSE = 2
"""Of what is turned over, at least one in so many is a tap."""


@dataclass(frozen=True)
class _Panels:
    """Packed weights: blocks of `width` outputs by `inner` inputs, each with so many taps."""

    width: int
    inner: int
    taps: int

    def place(self, input_: Coord, tap: Coord) -> Expr:
        """Return where in a block the outputs of an input and tap begin."""
        return ((tap * self.inner + input_) * self.width).expr()


def _pack_fits(op: PackConv, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether whole vectors of outputs are made of weights that lie together."""
    w, packed = anchor.left(), instr.outs[0]
    alone = instr.body is None and op.dots == 1 and op.width % target.facts.lanes == 0
    if not alone or not _are_words(w, packed, target):
        return False
    return _are_rows(w) or (_are_near(w, target) and w.shape[1] % op.lanes == 0)


def _are_words(w: Region, packed: Region, target: Target) -> bool:
    """Whether plain and packed weights are dense words of which numbers tell the places."""
    static = all(isinstance(d, int) for r in (w, packed) for d in (*r.shape, *r.strides))
    words = packed.type.dtype == w.type.dtype and w.type.dtype in ("f32", "i32")
    some = target.facts.lanes > 1 and 0 not in w.shape
    return some and static and words and packed.strides == row_major(packed.shape)


def _are_rows(w: Region) -> bool:
    """Whether all weights of an output lie in a row."""
    return w.strides[1:] == row_major(w.shape)[1:]


def _places(w: Region) -> list[int]:
    """Return how far the taps of an output and input lie from the first one, maybe before it."""
    taps, strides = w.shape[2:], w.strides[2:]
    places = itertools.product(*map(range, taps))
    return [sum(i * s for i, s in zip(at, strides, strict=True)) for at in places]


def _are_near(w: Region, target: Target) -> bool:
    """Whether there are several taps, and they lie together.

    Of one, outputs are better read side by side.
    """
    places = _places(w)
    span = max(places) - min(places) + 1
    return len(places) > 1 and span <= max(target.facts.lanes, SPARSE * len(places))


@templates.on(PackConv, "lanes width dots", _pack_fits)
def pack_weights(k: Frame, op: PackConv, target: Target) -> None:
    """Build the loops: parallel over blocks of outputs and of inputs and vectors of outputs."""
    x, b, lanes = k.inputs[0], k.b, target.facts.lanes
    outputs, inputs, *extents = x.region.shape
    taps = math.prod(extents)
    panels = _Panels(op.width, op.lanes, taps)
    blocks = ceil_div(inputs, op.lanes)
    apart, each = x.region.strides[:2]
    line = target.facts.line

    def square(place: Expr, first: Coord, start: Expr, end: int | Expr) -> list[Expr]:
        """Return weights of `lanes` outputs from one on, those up to an end turned over."""
        ramp = Coord(start, 1, lanes)
        within = b.let(ramp.compare("lt", end))
        rows: list[Expr] = []
        for r in range(lanes):
            at = place + r * apart
            register = b.var(_zero(x.buffer.dtype, lanes))
            with _if(b, (first + r).compare("lt", outputs), outputs % op.width != 0):
                b.set(register, Load(x.buffer, at, lanes, within))
            rows.append(register)
            if line:
                b.prefetch(x.buffer, at + AHEAD * op.lanes * each, later=True)
        return transposed(b, rows)

    shape = (ceil_div(outputs, op.width), blocks, op.width // lanes)
    with k.loops.parallel(shape) as (panel, number, part):
        first = panel * op.width + part * lanes
        block = b.let(
            ((panel * blocks + number) * (op.lanes * taps * op.width) + part * lanes).expr()
        )
        origin = b.let((first * apart + number * (op.lanes * each)).expr())
        if _are_rows(x.region):
            count = op.lanes * taps
            partly = inputs % op.lanes != 0
            left = b.let((coord(inputs * taps) - number * count).expr()) if partly else count
            with b.loop(ceil_div(count, lanes)) as turn:
                start = b.let(turn * lanes)
                for r, value in enumerate(square(b.let(origin + start), first, start, left)):
                    c = coord(start) + r
                    at = block + panels.place(c // taps, c % taps)
                    with _if(b, c.compare("lt", count), r >= count % lanes > 0):
                        b.store(k.out.buffer, at, value)
            return
        places = _places(x.region)
        lowest, highest = min(places), max(places)
        with b.loop(op.lanes) as i:
            place = b.let(origin + i * each)
            for begin in range(lowest, highest + 1, lanes):
                count = min(lanes, highest + 1 - begin)
                turned = square(b.let(place + begin), first, Const(0), count)
                for t, far in enumerate(places):
                    if begin <= far < begin + count:
                        to = block + panels.place(coord(i), coord(t))
                        b.store(k.out.buffer, to, turned[far - begin])


@contextmanager
def _if(b: Builder, condition: Expr, matters: bool) -> Iterator[None]:
    """Open a block that runs if a condition holds; always where that does not matter."""
    with b.when(condition) if matters else nullcontext():
        yield


def _zero(dtype: str, lanes: int) -> Const:
    return Const(0.0 if dtype == "f32" else 0, dtype, lanes)
