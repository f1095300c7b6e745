"""Pack and unpack: blocks of lanes × lanes elements are turned over in registers."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import Window
from alpenglow.backends.loops.instruction import Frame
from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Blend, Const, Expr, Load, lift
from alpenglow.ops.movement import Pack, Unpack
from alpenglow.program.instr import Region

Group = Callable[[Coord, Coord, list[Coord], Expr], None]
"""Moves the pixels of image, block of channels and row from a first one on."""


def transposes(blocked: Region, plain: Region, target: Target) -> bool:
    """Whether `pack` and `unpack` implement a move between these layouts."""
    *_, lanes = blocked.shape
    return (
        blocked.type.dtype == plain.type.dtype == "f32"
        and lanes == target.lanes > 1
        and blocked.strides[-1] == 1
        and plain.strides[-1] == 1
        and len(plain.shape) > 2
        and not any(is_open(s) for s in (*blocked.strides, *plain.strides))
        and 0 not in plain.shape
    )


def unpack(k: Frame, op: Unpack, target: Target) -> None:
    """Build the loops: parallel over images, blocks of channels, rows and groups of pixels."""
    x, lanes = k.inputs[0], target.lanes
    channels = k.out.region.shape[1]
    pixels = k.out.region.shape[-1]
    b = k.b

    def group(n: Coord, block: Coord, rows: list[Coord], first: Expr) -> None:
        origin = b.let(x.address([n, block, *rows, coord(first), coord(0)]).base)
        step = x.region.strides[-2]
        # Past the end the last pixel is read again; it is not stored.
        last = b.let(lift(pixels - 1) - first)
        columns = []
        for i in range(lanes):
            at = Binary("min", Const(i), last) if i else Const(0)
            columns.append(b.let(Load(x.buffer, origin + at * step, lanes)))
        turned = transposed(b, columns)
        ramp = Coord(first, 1, lanes)
        k.loops.current = lanes
        k.loops.mask = b.let(ramp.compare("lt", pixels))
        for i in range(lanes):
            channel = block * lanes + i
            if i and channels % lanes and i >= channels % lanes:
                with b.when(channel.compare("lt", channels)):
                    k.sink.store([n, channel, *rows, ramp], turned[i])
            else:
                k.sink.store([n, channel, *rows, ramp], turned[i])
        k.loops.mask, k.loops.current = None, 1

    shape = k.out.region.shape
    _each(k, (shape[0], ceil_div(channels, lanes), *shape[2:]), lanes, group)


def pack(k: Frame, op: Pack, target: Target) -> None:
    """Build the loops as for `unpack`, the other way."""
    x, lanes = k.inputs[0], target.lanes
    channels, pixels = x.region.shape[1], x.region.shape[-1]
    b = k.b

    def group(n: Coord, block: Coord, rows: list[Coord], first: Expr) -> None:
        ramp = Coord(first, 1, lanes)
        within = b.let(ramp.compare("lt", pixels))
        loaded: list[Expr] = []
        for i in range(lanes):
            channel = block * lanes + i
            value: Expr = Const(0.0, "f32", lanes)
            if channels % lanes and i >= channels % lanes:
                register = b.var(value)
                with b.when(channel.compare("lt", channels)):
                    b.set(register, _row(x, [n, channel, *rows, ramp], lanes, within))
                value = register
            else:
                value = b.let(_row(x, [n, channel, *rows, ramp], lanes, within))
            loaded.append(value)
        inner = Coord(Const(0), 1, lanes)
        k.loops.current = lanes
        for i, value in enumerate(transposed(b, loaded)):
            at = [n, block, *rows, coord(first) + i, inner]
            if i:
                with b.when((coord(first) + i).compare("lt", pixels)):
                    k.sink.store(at, value)
            else:
                k.sink.store(at, value)
        k.loops.current = 1

    shape = k.out.region.shape
    _each(k, shape[:-1], lanes, group)


def _row(x: Window, at: list[Coord], lanes: int, mask: Expr) -> Expr:
    return Load(x.buffer, x.address(at).base, lanes, mask)


def _each(k: Frame, shape: tuple[int, ...], lanes: int, group: Group) -> None:
    """Run `group` for groups of pixels of a blocked shape without its lanes."""
    *outer, pixels = shape
    with k.loops.parallel([*outer, ceil_div(pixels, lanes)]) as (n, block, *rows, number):
        group(n, block, rows, k.b.let(number.base * lanes))


def transposed(b: Builder, rows: list[Expr]) -> list[Expr]:
    """Return the columns of a square of lanes: halves change places, then halves of halves, …."""
    size = len(rows)
    distance = size // 2
    while distance:
        after = list(rows)
        for i in range(size):
            if i & distance:
                continue
            x, y = rows[i], rows[i + distance]
            low = tuple(j + size - distance if j & distance else j for j in range(size))
            high = tuple(j + size if j & distance else j + distance for j in range(size))
            after[i], after[i + distance] = b.let(Blend(x, y, low)), b.let(Blend(x, y, high))
        rows = after
        distance //= 2
    return rows
