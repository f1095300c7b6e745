"""Putting numbers in place of the open extents of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from alpenglow.ir import dims
from alpenglow.ir.bind_op import bind_op
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.program.instr import Buffer, Cell, Instr, Program, Region


def bind(program: Program, values: Mapping[str, int]) -> Program:
    """Return the program with `values` in place of the symbols they name."""

    def closed(dim: Dim) -> int:
        extent = dims.bind(dim, values)
        assert isinstance(extent, int), f"{extent} is still open"
        return extent

    def region(r: Region) -> Region:
        strides = tuple(closed(s) for s in r.strides)
        return Region(r.buffer, r.type.bind(values), closed(r.offset), strides)

    def buffer(b: Buffer) -> Buffer:
        t = None if b.type is None else b.type.bind(values)
        return replace(b, nbytes=closed(b.nbytes), type=t)

    def instr(i: Instr) -> Instr:
        return Instr(
            bind_op(i.op, values),
            tuple(region(r) for r in i.outs),
            tuple(None if r is None else region(r) for r in i.ins),
            None if i.body is None else i.body.bind(values),
            i.names,
            tuple(bind(part, values) for part in i.parts),
        )

    def cell(c: Cell) -> Cell:
        if c.initial.array is not None:
            return c
        initial = Value(c.initial.type.bind(values), c.initial.name)
        grown = None if c.grown is None else c.grown.bind(values)
        return replace(c, initial=initial, grown=grown)

    return replace(
        program,
        variables={name: cell(c) for name, c in program.variables.items()},
        buffers={name: buffer(b) for name, b in program.buffers.items()},
        body=tuple(instr(s) if isinstance(s, Instr) else s for s in program.body),
    )
