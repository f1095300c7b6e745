"""Running a program in NumPy, instruction by instruction, in its own memory.

Before memory is planned every buffer has memory of its own; afterwards the arena is one block, so
a plan that lets live buffers overlap shows as a wrong result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from alpenglow.base.memory import bytes_of
from alpenglow.evaluate import Enter, apply
from alpenglow.ir.op import Control
from alpenglow.ir.types import Array
from alpenglow.ops.control.jump import Jump
from alpenglow.program.instr import Cell, Instr, Program, Region, first_part

UNWRITTEN = 0xA5
"""Every byte of what nobody wrote: it is not zero, so that reading it shows."""


class Memory:
    """The buffers of a program as flat arrays of bytes."""

    def __init__(self, program: Program, arena: Array | None = None) -> None:
        self.program = program
        if arena is None:
            arena = np.full(program.arena, UNWRITTEN, np.uint8)
        self.bytes: dict[str, Array] = {}
        for name, b in program.buffers.items():
            if b.array is not None:
                self.bytes[name] = bytes_of(np.ascontiguousarray(b.array))
            elif b.space == "arena" and b.offset is not None:
                self.bytes[name] = arena[b.offset : b.offset + b.nbytes]
            elif b.space == "arena":
                self.bytes[name] = np.full(b.nbytes, UNWRITTEN, np.uint8)

    def view(self, r: Region) -> Array:
        """Return the elements of a region, as a view of its buffer."""
        flat = self.bytes[r.buffer]
        if 0 in r.shape:
            return np.empty(r.shape, r.type.numpy)
        size = r.type.numpy.itemsize
        begin, end = r.span()
        assert begin >= 0 and end <= flat.nbytes, f"{r} leaves its buffer of {flat.nbytes} bytes"
        strides = tuple(s * size for s in r.strides)
        return np.ndarray(r.shape, r.type.numpy, flat, r.offset * size, strides)


def interpret(
    program: Program, feeds: Mapping[str, Array], enter: Enter | None = None
) -> dict[str, Array]:
    """Return the outputs of `program` by name, for one array an input.

    Variables that are not given have their initial values; what is assigned to one is under its
    name.  `enter` is called before each run of a part, and at each jump back.
    """
    memory = Memory(program)
    outputs: dict[str, Array] = {}
    for name, cell in program.variables.items():
        if cell.axis is not None:
            outputs |= _grown(memory, name, cell, feeds)
            continue
        entry = np.array(feeds.get(name, cell.initial.array), order="C")
        memory.bytes[name] = bytes_of(entry)
        if cell.exit == name:
            outputs[name] = entry
        elif cell.exit:
            outputs[name] = np.empty_like(entry)
            memory.bytes[cell.exit] = bytes_of(outputs[name])
            memory.bytes[cell.exit].fill(UNWRITTEN)
    for name in program.inputs:
        memory.bytes[name] = bytes_of(np.ascontiguousarray(feeds[name]))
    for name in program.outputs:
        t = program.buffers[name].type
        assert t is not None
        array = outputs[program.names.get(name, name)] = np.empty(t.extents, t.numpy)
        memory.bytes[name] = bytes_of(array)
        memory.bytes[name].fill(UNWRITTEN)
    instrs, at = list(program.instrs()), 0
    while at < len(instrs):
        by = step(memory, instrs[at], enter)
        if by < 0 and enter is not None:
            enter()
        at += by
    return outputs


def _grown(memory: Memory, name: str, cell: Cell, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Give a variable that grows its memory, and return where it is at exit."""
    room = memory.program.buffers[name]
    memory.bytes[name] = np.full(room.nbytes, UNWRITTEN, np.uint8)
    if name in feeds:
        memory.view(first_part(room, cell.initial.type))[...] = feeds[name]
    return {} if cell.grown is None else {name: memory.view(first_part(room, cell.grown))}


def step(memory: Memory, instr: Instr, enter: Enter | None = None) -> int:
    """Run one instruction; return how many further on the next one is."""
    # Operands are copied, because a result may lie on top of one.
    arrays = [None if r is None else memory.view(r).copy() for r in instr.ins]
    if isinstance(instr.op, Jump):
        flags = [bool(a) for a in arrays if a is not None]
        return instr.op.by if flags in ([], [instr.op.when]) else 1
    if isinstance(instr.op, Control):
        results = tuple(instr.op.run(instr.parts, partial(_run, enter=enter), *arrays))
    else:
        results = apply(instr.op, arrays, instr.regions, [r.type for r in instr.outs])
    for r, array in zip(instr.outs, results, strict=True):
        memory.view(r)[...] = array
    return 1


def _run(part: Program, arrays: Sequence[Array], enter: Enter | None = None) -> list[Array]:
    """Run a part on carried and captured values; return its outputs, then the carried values."""
    if enter is not None:
        enter()
    feeds = dict(zip((*part.variables, *part.inputs), arrays, strict=True))
    outputs = interpret(part, feeds, enter)
    names = (*(part.names.get(n, n) for n in part.outputs), *part.variables)
    return [outputs[n] for n in names]
