"""Copy elimination: operators that only move elements become windows on memory.

Forwards, the result of a reshape, transpose, slice or broadcast becomes a view of its operand, and
so do complex numbers read as pairs, and pairs as complex numbers.  Backwards, the operands of a
concat or of a pad with a constant are computed in place, inside the result; a pad then only fills
its border.  A result that is an output in another shape, or as complex numbers, is computed there.
A view that no strides can express stays a copy, and so does one that a kernel reads over and over
against the grain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import cast

from alpenglow.ir.dims import is_open
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.tensor.copy import Copy, Fill
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.program.instr import (
    Buffer,
    Instr,
    Program,
    Region,
    anchor_node,
    carried_operand,
    row_major,
    whole,
)

Homes = dict[str, Region]

MOSTLY = 4
"""A pad whose result is more than so many times as large as its operand is mostly border."""


def eliminate_copies(program: Program) -> Program:
    """Return the program without the moves that addressing can do."""
    makers = {r.buffer: i for i in program.instrs() for r in i.outs}
    homes: Homes = {}
    for instr in reversed(list(program.instrs())):
        if isinstance(instr.op, Concat | Pad):
            _inside_out(program, instr, makers, homes)
        _into_carried(program, instr, makers, homes)
        if isinstance(instr.op, Reshape | ViewAsComplex):
            _into_output(program, instr, makers, homes)
    body: list[Instr] = []
    buffers = dict(program.buffers)
    for instr in program.instrs():
        for moved in _forward(program, instr, homes):
            body += _with_dense_rows(moved, buffers)
    used = {r.buffer for i in body for r in (*i.reads(), *i.outs)}
    outer = ("input", "output", "variable")
    kept = {k: b for k, b in buffers.items() if b.space in outer or k in used}
    return replace(program, buffers=kept, body=tuple(body))


def view(op: Op, x: Region) -> Region | None:
    """Return the result of `op` as a window on the memory of its operand; None if there is none."""
    match op:
        case Reshape(shape):
            t = x.type.with_shape(shape)
            strides = reshaped(x.shape, x.strides, t.extents)
            return None if strides is None else Region(x.buffer, t, x.offset, strides)
        case Transpose(perm):
            t = x.type.with_shape(x.shape[p] for p in perm)
            return Region(x.buffer, t, x.offset, tuple(x.strides[p] for p in perm))
        case Broadcast(shape, layout):
            t = TensorType(x.type.dtype, shape, layout)
            lead = len(shape) - len(x.shape)
            own = zip(x.strides, x.shape, t.extents[lead:], strict=True)
            strides = (0,) * lead + tuple(0 if n > d else s for s, d, n in own)
            return Region(x.buffer, t, x.offset, strides)
        case Slice(starts, _, steps):
            t = op.infer(x.type)
            if 0 in t.shape:
                return Region(x.buffer, t, x.offset, row_major(t.extents))
            first = cast("tuple[int, ...]", starts)  # numbers, or what passes for them
            offset = x.offset + sum(a * s for a, s in zip(first, x.strides, strict=True))
            strides = tuple(a * b for a, b in zip(x.strides, steps, strict=True))
            return Region(x.buffer, t, offset, strides)
        case ViewAsReal():
            return as_real(x)
        case ViewAsComplex():
            return as_complex(x)
    return None


def as_real(x: Region) -> Region:
    """Return complex numbers as pairs."""
    t = ViewAsReal().infer(x.type)
    return Region(x.buffer, t, x.offset * 2, (*(s * 2 for s in x.strides), 1))


def as_complex(x: Region) -> Region | None:
    """Return pairs as complex numbers; None if their parts are not side by side, or if a pair does
    not begin at a multiple of its size."""
    t = ViewAsComplex().infer(x.type)
    if 0 in t.shape:
        return Region(x.buffer, t, 0, row_major(t.extents))
    *outer, last = x.strides
    places = [x.offset, *(s for s, d in zip(outer, t.shape, strict=True) if d != 1)]
    if last != 1 or any(place % 2 != 0 for place in places):
        return None
    return Region(x.buffer, t, x.offset // 2, tuple(s // 2 for s in outer))


def reshaped(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return strides that read a strided tensor in another shape; None if there are none.

    Axes are matched in groups of equal extent; within a group the old axes must be dense.
    """
    if 0 in shape:
        return row_major(new)
    old = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    out: list[int] = []
    at = 0
    pending: list[int] = []  # extents of new axes not yet matched
    need = 1
    for extent in new:
        pending.append(extent)
        need *= extent
        if need == 1:
            continue
        have, first = 1, at
        while have < need and at < len(old):
            have *= old[at][0]
            at += 1
        if have != need:
            at = first
            continue
        group = old[first:at]
        if any(a[1] != b[0] * b[1] for a, b in pairwise(group)):
            return None
        inner = group[-1][1]
        out += [s * inner for s in row_major(tuple(pending))]
        pending, need = [], 1
    if need != 1 or at != len(old):
        return None
    return tuple(out + [1] * len(pending))


def parts(op: Concat | Pad, result: Region, operands: tuple[TensorType, ...]) -> list[Region]:
    """Return where inside `result` each operand of a concat or pad lies."""
    if isinstance(op, Pad):
        return [_window(result, operands[0], op.before)]
    out, at = [], 0
    axis = op.axis % len(result.shape)
    for t in operands:
        start = tuple(at if i == axis else 0 for i in range(len(result.shape)))
        out.append(_window(result, t, start))
        at += t.extents[axis]
    return out


def border(op: Pad, result: Region) -> list[Region]:
    """Return the slabs of `result` that a pad fills; together they are all but its middle."""
    slabs = []
    low = [0] * len(result.shape)
    size = list(result.shape)
    for axis, (a, b) in enumerate(zip(op.before, op.after, strict=True)):
        for start, n in ((0, a), (size[axis] - b, b)):
            # An open width may be 0: nothing is filled then.
            if (is_open(n) or n) and 0 not in size:
                extent = (*size[:axis], n, *size[axis + 1 :])
                corner = (*low[:axis], low[axis] + start, *low[axis + 1 :])
                slabs.append(_window(result, result.type.with_shape(extent), corner))
        low[axis] += a
        size[axis] -= a + b
    return slabs


def _window(result: Region, t: TensorType, start: tuple[int, ...]) -> Region:
    offset = result.offset + sum(a * s for a, s in zip(start, result.strides, strict=True))
    return Region(result.buffer, t, offset, result.strides)


def _in_place(op: Op) -> bool:
    """Whether operands of `op` can be computed inside its result."""
    if isinstance(op, Pad):
        return op.mode == "constant" and min((*op.before, *op.after), default=0) >= 0
    return isinstance(op, Concat)


def _is_mostly_border(instr: Instr) -> bool:
    """Whether a pad adds so much that it is filled whole, in one go, before its operand is copied.

    Slabs around a few elements here and there are many short rows; of open extents that is unknown.
    """
    if not isinstance(instr.op, Pad):
        return False
    sizes = [(r.shape, r.type.size) for r in (*instr.reads(), *instr.outs)]
    if any(is_open(d) for shape, _ in sizes for d in shape):
        return False
    (_, inner), (_, whole) = sizes
    return whole > MOSTLY * inner


def _inside_out(program: Program, instr: Instr, makers: Mapping[str, Instr], homes: Homes) -> None:
    """Choose homes inside the result for operands that nothing else ties down."""
    (out,) = instr.outs
    if not _in_place(instr.op) or _is_mostly_border(instr):
        return
    assert isinstance(instr.op, Concat | Pad)
    result = homes.get(out.buffer, out)
    operands = list(instr.reads())
    for r, part in zip(
        operands, parts(instr.op, result, tuple(r.type for r in operands)), strict=True
    ):
        if _movable(program, r, makers, homes):
            homes[r.buffer] = part


def _into_output(program: Program, instr: Instr, makers: Mapping[str, Instr], homes: Homes) -> None:
    """Compute an operand in the output, or in what a variable has at exit, that holds it in another
    shape, or as complex numbers."""
    (out,), (x,) = instr.outs, instr.reads()
    outside = program.buffers[out.buffer].space in ("output", "variable")
    written = outside and out == whole(out.buffer, out.type)
    dense = isinstance(instr.op, Reshape)
    if not written or not _movable(program, x, makers, homes, dense):
        return
    if isinstance(instr.op, ViewAsComplex):
        homes[x.buffer] = as_real(out)
    else:
        homes[x.buffer] = Region(out.buffer, x.type, 0, row_major(x.shape))


def _into_carried(
    program: Program, instr: Instr, makers: Mapping[str, Instr], homes: Homes
) -> None:
    """Compute an operand where an output, or a variable that grows, is made of it in place."""
    for result, out in enumerate(instr.outs):
        position = carried_operand(instr, result)
        r = None if position is None else instr.ins[position]
        if r is None or r.type != out.type or not _movable(program, r, makers, homes):
            continue
        target = homes.get(out.buffer, out)
        cell = program.variables.get(target.buffer)
        grows = cell is not None and cell.axis is not None
        readers = sum(x.buffer == r.buffer for i in program.instrs() for x in i.reads())
        if readers == 1 and (grows or program.buffers[target.buffer].space == "output"):
            homes[r.buffer] = target


def _movable(
    program: Program, r: Region, makers: Mapping[str, Instr], homes: Homes, dense: bool = False
) -> bool:
    """Whether a region is a whole value that is computed, and nothing ties it down.

    Control flow makes only what is as dense in its new home.
    """
    maker = makers.get(r.buffer)
    free = program.buffers[r.buffer].space == "arena" and r.buffer not in homes
    computes = maker is not None and (dense or not maker.parts) and not is_view(maker.op)
    return free and computes and r == whole(r.buffer, r.type)


def is_view(op: Op) -> bool:
    return isinstance(op, Reshape | Transpose | Broadcast | Slice | ViewAsReal | ViewAsComplex)


def at_home(r: Region, homes: Mapping[str, Region]) -> Region:
    """Return where a region is once the value that fills its buffer has another home."""
    home = homes.get(r.buffer)
    if home is None:
        return r
    if r.shape == home.shape:
        return home
    assert r.strides == row_major(home.shape), "a part is a window on the value"
    start = 0
    rest = r.offset
    for own, there in zip(r.strides, home.strides, strict=True):
        start += rest // own * there
        rest %= own
    return Region(home.buffer, r.type, home.offset + start, home.strides)


def _forward(program: Program, instr: Instr, homes: Homes) -> list[Instr]:
    """Return what remains of one instruction, on the homes of its operands."""
    ins = tuple(r if r is None else at_home(r, homes) for r in instr.ins)
    outs = tuple(at_home(r, homes) for r in instr.outs)
    if is_view(instr.op):
        (source,) = (r for r in ins if r is not None)
        seen = view(instr.op, source)
        if seen == outs[0]:
            return []  # it was computed there
        if seen is not None and program.buffers[instr.outs[0].buffer].space == "arena":
            homes[instr.outs[0].buffer] = seen
            return []
        if seen is not None:
            return [Instr(Copy(), outs, (seen,), names=instr.names)]
        # No strides read it like this: copy the operand as it is, densely, into the new shape.
        target = Region(
            outs[0].buffer, source.type.with_shape(source.shape), 0, row_major(source.shape)
        )
        return [Instr(Copy(), (target,), (source,), names=instr.names)]
    if _in_place(instr.op):
        assert isinstance(instr.op, Concat | Pad)
        operands = [r for r in ins if r is not None]
        places = parts(instr.op, outs[0], tuple(r.type for r in operands))
        moves = [
            Instr(Copy(), (part,), (r,), names=instr.names)
            for part, r in zip(places, operands, strict=True)
            if part != r
        ]
        if isinstance(instr.op, Concat):
            return moves
        slabs = border(instr.op, outs[0])
        if _is_mostly_border(instr):
            plain = outs[0].type.with_shape(outs[0].shape)
            slabs = [_window(outs[0], plain, (0,) * len(outs[0].shape))]
        fill = [Fill(s.type.dtype, s.shape, instr.op.value) for s in slabs]
        fills = (Instr(f, (s,), (), names=instr.names) for f, s in zip(fill, slabs, strict=True))
        return [*fills, *moves]
    return [replace(instr, ins=ins, outs=outs)]


def _dense_operands(instr: Instr) -> Iterable[int]:
    """Return which operands have to be dense: those that a loop captures, which it reads along rows
    again and again, or as a buffer of its region."""
    loop = None if instr.body is None else anchor_node(instr.body)
    if loop is not None and isinstance(loop.op, Scan):
        return range(loop.op.captures_from, len(instr.ins))
    if not instr.parts:
        return ()
    carried = len(instr.outs) if isinstance(instr.op, While) else 0
    return range(1 + carried, len(instr.ins))


def _is_dense(instr: Instr, r: Region) -> bool:
    """Whether an operand is as dense as its instruction wants it."""
    if instr.parts:
        return r == whole(r.buffer, r.type)
    return is_open(r.strides[-1]) or r.strides[-1] == 1 or r.type.extents[-1] == 1


def _with_dense_rows(instr: Instr, buffers: dict[str, Buffer]) -> list[Instr]:
    """Return an instruction after copies of operands that are not as dense as it wants them."""
    copies: list[Instr] = []
    ins = list(instr.ins)
    for i in _dense_operands(instr):
        r = ins[i]
        if r is None or _is_dense(instr, r):
            continue
        names = instr.op.operands
        name = f"{instr.outs[0].buffer}.{names[i] if i < len(names) else i}"
        assert name not in buffers, f"two buffers are called {name}"
        buffers[name] = Buffer(name, r.type.nbytes, "arena", r.type)
        ins[i] = whole(name, r.type)
        copies.append(Instr(Copy(), (whole(name, r.type),), (r,), names=instr.names))
    return [*copies, replace(instr, ins=tuple(ins)) if copies else instr]
