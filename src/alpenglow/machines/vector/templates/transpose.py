"""Pack and unpack: blocks of lanes × lanes elements are turned over in registers."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, FLOATS, HALVES
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Bitcast, Blend, Const, Convert, Expr, Load, Shuffle, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.templates import templates
from alpenglow.program.instr import Anchor, Instr, Region

NARROW = ("u8", "i8", "f16", "bf16")

Group = Callable[[Coord, Coord, list[Coord], Expr], None]
"""Moves the pixels of image, block of channels and row from a first one on."""


def _pack_fits(op: Pack, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether blocks of whole vectors are made of dense rows."""
    whole = op.lanes == target.facts.lanes and _moves_alone(instr)
    return whole and _transposes(instr, instr.outs[0], anchor.left(), target)


def _unpack_fits(op: Unpack, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether dense rows are made of blocks of whole vectors."""
    return _moves_alone(instr) and _transposes(instr, anchor.left(), instr.outs[0], target)


def _fours_fit(op: Pack, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether words of four neighbouring channels are made, and nothing is computed."""
    fours = op.lanes != target.facts.lanes and instr.body is None
    return fours and _interleaves(instr.outs[0], anchor.left(), target)


def _moves_alone(instr: Instr) -> bool:
    """Return whether halves are only moved: to what computes with them, they are f32."""
    return instr.body is None or instr.outs[0].type.dtype not in HALVES


def _transposes(instr: Instr, blocked: Region, plain: Region, target: Target) -> bool:
    """Return whether blocks of lanes × lanes elements can be turned over in registers."""
    *_, lanes = blocked.shape
    dtype = blocked.type.dtype
    fits = dtype in ("f32", "i32") or dtype in NARROW
    if _has_no_masks(plain, target):
        # The last group moves some elements again, which must not depend on the result.
        pixels = plain.shape[-1]
        fits = fits and instr.body is None and not is_open(pixels) and pixels >= lanes
    return (
        fits
        and dtype == plain.type.dtype
        and lanes == target.facts.lanes > 1
        and blocked.strides[-1] == 1
        and plain.strides[-1] == 1
        and len(plain.shape) > 2
        and not any(is_open(s) for s in (*blocked.strides, *plain.strides))
        and 0 not in plain.shape
    )


def _has_no_masks(plain: Region, target: Target) -> bool:
    """Return True if parts of vectors of bytes and halves are neither loaded nor stored."""
    return plain.type.dtype in NARROW and not target.has("avx512bw")


@templates.on(Unpack, "channels", _unpack_fits)
def unpack(k: Frame, op: Unpack, target: Target) -> None:
    """Build the loops: parallel over images, blocks of channels, rows and groups of pixels."""
    x, lanes = k.inputs[0], target.facts.lanes
    channels = k.out.region.shape[1]
    pixels = k.out.region.shape[-1]
    b, whole = k.b, _has_no_masks(k.out.region, target)

    def group(n: Coord, block: Coord, rows: list[Coord], first: Expr) -> None:
        if whole:
            first = b.let(Binary("min", first, Const(pixels - lanes)))
        origin = b.let(x.address([n, block, *rows, coord(first), coord(0)]).base)
        step = x.region.strides[-2]
        # Past the end the last pixel is read again; it is not stored.
        last = b.let(lift(pixels - 1) - first)
        columns = []
        for i in range(lanes):
            at = Binary("min", Const(i), last) if i and not whole else Const(i)
            columns.append(b.let(Load(x.buffer, origin + at * step, lanes)))
        turned = transposed(b, columns)
        ramp = Coord(first, 1, lanes)
        with k.loops.vector(lanes, None if whole else ramp.compare("lt", pixels)):
            for i in range(lanes):
                channel = block * lanes + i
                if i and channels % lanes and i >= channels % lanes:
                    with b.when(channel.compare("lt", channels)):
                        k.sink.store([n, channel, *rows, ramp], turned[i])
                else:
                    k.sink.store([n, channel, *rows, ramp], turned[i])

    shape = k.out.region.shape
    _each(k, (shape[0], ceil_div(channels, lanes), *shape[2:]), lanes, group)


@templates.on(Pack, "lanes", _pack_fits)
def pack(k: Frame, op: Pack, target: Target) -> None:
    """Build the loops as for `unpack`, the other way."""
    x, lanes = k.inputs[0], target.facts.lanes
    channels, pixels = x.region.shape[1], x.region.shape[-1]
    b, whole = k.b, _has_no_masks(x.region, target)

    def group(n: Coord, block: Coord, rows: list[Coord], first: Expr) -> None:
        if whole:
            first = b.let(Binary("min", first, Const(pixels - lanes)))
        ramp = Coord(first, 1, lanes)
        within = None if whole else b.let(ramp.compare("lt", pixels))
        loaded: list[Expr] = []
        for i in range(lanes):
            channel = block * lanes + i
            value: Expr = _zero(x, lanes)
            if channels % lanes and i >= channels % lanes:
                register = b.var(value)
                with b.when(channel.compare("lt", channels)):
                    b.set(register, _row(x, [n, channel, *rows, ramp], lanes, within))
                value = register
            else:
                value = b.let(_row(x, [n, channel, *rows, ramp], lanes, within))
            loaded.append(value)
        inner = Coord(Const(0), 1, lanes)
        with k.loops.vector(lanes):
            for i, value in enumerate(transposed(b, loaded)):
                at = [n, block, *rows, coord(first) + i, inner]
                if i and not whole:
                    with b.when((coord(first) + i).compare("lt", pixels)):
                        k.sink.store(at, value)
                else:
                    k.sink.store(at, value)

    shape = k.out.region.shape
    _each(k, shape[:-1], lanes, group)


def _zero(x: Window, lanes: int) -> Const:
    dtype = x.buffer.dtype
    return Const(0.0 if dtype in FLOATS else 0, dtype, lanes)


def _row(x: Window, at: list[Coord], lanes: int, mask: Expr | None) -> Expr:
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


# ── few channels, by fours ──


def _interleaves(blocked: Region, plain: Region, target: Target) -> bool:
    """Return whether `pack_fours` implements a move from the plain to the blocked layout."""
    return (
        blocked.type.dtype == plain.type.dtype
        and blocked.type.dtype in NARROW
        and blocked.shape[-1] == 4
        and len(plain.shape) > 2
        and blocked.strides[-2:] == (4, 1)
        and (plain.strides[-1] == 1 or _together(plain))
        and not any(is_open(s) for s in (*plain.shape, *blocked.strides, *plain.strides))
        and plain.shape[-1] >= target.facts.lanes > 1
        and 0 not in plain.shape
    )


def _together(plain: Region) -> bool:
    """Whether the bytes of a pixel, four at most, and of its neighbours lie side by side."""
    channels = plain.shape[1]
    beside = plain.strides[1] == 1 and plain.strides[-1] == channels
    return beside and 1 < channels <= 4 and plain.type.dtype in ("u8", "i8")


@templates.on(Pack, "lanes", _fours_fit)
def pack_fours(k: Frame, op: Pack, target: Target) -> None:
    """Build the loops: parallel over images, blocks of four channels, rows and groups of pixels."""
    x, lanes = k.inputs[0], target.facts.lanes
    channels, pixels = x.region.shape[1], x.region.shape[-1]
    b, word = k.b, "i32" if DTYPES[x.buffer.dtype].itemsize == 1 else "i64"

    def group(n: Coord, block: Coord, rows: list[Coord], first: Expr) -> None:
        # The last group begins where it still fits, whatever of it was moved before.
        start = b.let(Binary("min", first, Const(pixels - lanes)))
        at = k.out.address([n, block, *rows, coord(start), coord(0)]).base
        if _together(x.region):
            origin = x.address([n, coord(0), *rows, coord(start)]).base
            # What is past the channels of a pixel is unspecified: one of them once more.
            order = [p * channels + min(i, channels - 1) for p in range(lanes) for i in range(4)]
            loaded = b.let(Load(x.buffer, origin, lanes * channels))
            b.store(k.out.buffer, at, Shuffle(loaded, tuple(order)))
            return
        total: Expr = Const(0, word, lanes)
        for i in range(min(4, channels)):
            channel = block * 4 + i
            if channels % 4 and i >= channels % 4:
                register = b.var(total)
                with b.when(channel.compare("lt", channels)):
                    b.set(register, _joined(x, [n, channel, *rows, coord(start)], i, register))
                total = register
            else:
                total = b.let(_joined(x, [n, channel, *rows, coord(start)], i, total))
        b.store(k.out.buffer, at, Bitcast(total, x.buffer.dtype))

    _each(k, k.out.region.shape[:-1], lanes, group)


def _joined(x: Window, at: list[Coord], i: int, total: Expr) -> Expr:
    """Return words of four with the elements at `at` as the number i of each."""
    bits = 8 * DTYPES[x.buffer.dtype].itemsize
    loaded = Bitcast(Load(x.buffer, x.address(at).base, total.lanes), f"u{bits}")
    shift = Const(bits * i, total.dtype, total.lanes)
    return Binary("or", total, Binary("shl", Convert(loaded, total.dtype), shift))
