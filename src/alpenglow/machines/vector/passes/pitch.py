"""Row pitches that spread over the cache: a little room behind each row of some buffers.

A matrix product walks down a dozen rows of its operand side by side.  Where rows lie a multiple of
a page apart, all of them fall into one set of a first-level cache, which holds eight: every load
misses.  A line's room behind each row puts neighbours into neighbouring sets.  An operand that is
multiplied turned is walked along dozens of rows, a few elements of each, and those beside them come
next: half a page is too little there (a fifth of the time of gradients of weights).  Winograd's
transforms do the same with the planes of their patches: 64 of them at once, a line of each, which
take all sets only if they lie an odd number of lines apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from alpenglow.ir.dims import is_open
from alpenglow.ir.target import Target
from alpenglow.program.instr import Buffer, Instr, Program, Region


def spread_rows(program: Program, target: Target) -> Program:
    """Return the program with room behind the rows of operands that would collide in the cache."""
    line, way = target.facts.line, target.facts.way
    if not line or not way:
        return program
    instrs = list(program.instrs())
    regions: dict[str, list[Region]] = {}
    for i in instrs:
        for r in (*i.outs, *i.reads()):
            regions.setdefault(r.buffer, []).append(r)
    taken = {r.buffer for i in instrs if i.parts for r in (*i.outs, *i.reads())}
    pitches: dict[str, int] = {}
    buffers = dict(program.buffers)
    for r, pitch in _walked(instrs, line, way):
        buffer = buffers[r.buffer]
        if pitch is None or buffer.space != "arena" or r.buffer in pitches or r.buffer in taken:
            continue
        wider = _widened(buffer, regions[r.buffer], pitch, line)
        if wider is not None:
            buffers[r.buffer], pitches[r.buffer] = wider, pitch
    if not pitches:
        return program

    def moved(r: Region) -> Region:
        return r if r.buffer not in pitches else _moved(r, pitches[r.buffer], line)

    body = tuple(
        replace(
            i,
            outs=tuple(map(moved, i.outs)),
            ins=tuple(None if r is None else moved(r) for r in i.ins),
        )
        for i in instrs
    )
    return replace(program, buffers=buffers, body=body)


def _walked(instrs: list[Instr], line: int, way: int) -> Iterator[tuple[Region, int | None]]:
    """Yield what is walked at many places side by side; how far apart, if that should be more."""
    for i in instrs:
        ops = [i.op] if i.body is None else [n.op for n in i.body.nodes]
        if any(op.walks == "rows" for op in ops):
            yield from ((r, _colliding(r, way // 2 if _turned(r) else way)) for r in i.reads())
        if any(op.walks == "planes" for op in ops):
            yield from ((r, _even(r, line)) for r in (*i.outs, *i.reads()))


def _turned(r: Region) -> bool:
    """Whether the elements of a column lie side by side."""
    return len(r.strides) > 1 and r.strides[-2] == 1


def _colliding(r: Region, way: int) -> int | None:
    """Return the distance of rows, in elements, if it is a multiple of a way; None if it is not."""
    size = r.type.numpy.itemsize
    steps = (s for d, s in zip(r.shape, r.strides, strict=True) if is_open(d) or d > 1)
    fixed = [s for s in steps if not is_open(s)]
    return min((s for s in fixed if s > 0 and s * size % way == 0), default=None)


def _even(r: Region, line: int) -> int | None:
    """Return the distance of planes, in elements, if it is an even number of lines."""
    apart = r.strides[0]
    return None if is_open(apart) or apart * r.type.numpy.itemsize % (2 * line) else apart


def _room(r: Region, line: int) -> int:
    """Return how many elements fill a cache line."""
    return line // r.type.numpy.itemsize


def _widened(buffer: Buffer, regions: list[Region], pitch: int, line: int) -> Buffer | None:
    """Return the buffer with room behind each row; None if a region does not respect rows."""
    size = regions[0].type.numpy.itemsize
    rows = _quotient(buffer.nbytes, pitch * size)
    if rows is None or any(r.type.numpy.itemsize != size for r in regions):
        return None
    if not all(_respects(r, pitch) for r in regions):
        return None
    return replace(buffer, nbytes=rows * (pitch + _room(regions[0], line)) * size)


def _respects(r: Region, pitch: int) -> bool:
    """Whether the strides of a region lead either from row to row or along one row."""
    if is_open(r.offset):
        return False
    reach = r.offset % pitch
    for d, s in zip(r.shape, r.strides, strict=True):
        if _quotient(s, pitch) is not None:
            continue
        if is_open(s) or s < 0 or is_open(d):
            return False
        reach += (d - 1) * s
    return reach < pitch


def _moved(r: Region, pitch: int, line: int) -> Region:
    """Return the region of the same elements, with room behind each row."""
    room = _room(r, line)

    def wider(stride: int) -> int:
        rows = _quotient(stride, pitch)
        return stride if rows is None else rows * (pitch + room)

    strides = tuple(map(wider, r.strides))
    return replace(r, offset=r.offset + r.offset // pitch * room, strides=strides)


def _quotient(a: int, b: int) -> int | None:
    """Return a / b; None unless that is an integer whatever the symbols in `a` stand for."""
    quotient = a // b
    remainder = a - quotient * b
    return None if is_open(remainder) or remainder else quotient
