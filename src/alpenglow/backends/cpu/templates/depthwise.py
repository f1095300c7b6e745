"""Depthwise convolution in blocked layout: each lane is a channel, a tile is a run of pixels."""

from __future__ import annotations

from itertools import product

from alpenglow.backends.cpu.templates.tile import (
    dispatch,
    multiply_add,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Expr, Load
from alpenglow.ops.blocked import DepthwiseBlocked

MOST_ROWS = 12
"""Pixels of one tile: enough to hide the latency of the multiply-adds."""


def depthwise_blocked(k: Frame, op: DepthwiseBlocked, target: Target) -> None:
    """Build the loops: parallel over images, channel blocks, rows and tiles of a row."""
    batch, blocks, *place, _ = k.out.region.shape
    tiles = split_rows(place[-1], 1, target, MOST_ROWS)
    with k.loops.parallel([batch, blocks, *place[:-1], tiles_in_parallel(tiles)]) as (
        n,
        block,
        *outer,
        t,
    ):

        def tile(height: int, start: Expr) -> None:
            _tile(k, op, target, height, n, block, outer, start)

        dispatch(k.b, tiles, t, tile)


def _tile(
    k: Frame, op: DepthwiseBlocked, target: Target, height: int, n: Coord, block: Coord,
    outer: list[Coord], start: Expr,
) -> None:  # fmt: skip
    x, w = k.inputs[:2]
    b, lanes = k.b, k.out.region.shape[-1]
    ramp = Coord(Const(0), 1, lanes)
    zero = Const(0.0, "f32", lanes)
    acc = [b.var(zero) for _ in range(height)]
    places = [*outer, coord(start)]
    for taps in product(*map(range, w.region.shape[1:-1])):
        weight = b.let(Load(w.buffer, w.address([block, *map(coord, taps), coord(0)]).base, lanes))
        where = [c * s + t * d for c, s, t, d in
                 zip(places, op.strides, taps, op.dilations, strict=True)]  # fmt: skip
        origin = b.let(x.address([n, block, *where, coord(0)]).base)
        pitch = op.strides[-1] * x.region.strides[-2]
        for r in range(height):
            element = Load(x.buffer, origin + r * pitch, lanes)
            b.set(acc[r], multiply_add(element, weight, acc[r], target))
    k.loops.current = lanes
    for r in range(height):
        k.sink.store([n, block, *outer, coord(start) + r, ramp], acc[r])
    k.loops.current = 1
