"""In-place sharing: a result takes over the buffer of an operand that dies with the instruction.

That is allowed where every element of the result is computed from the operand's element at the
same place and from nothing else of it: elementwise operators, and operands that a fused
instruction meets only after its heavy part.  An operator may say so of a result itself
(`Op.carried`).

A variable is computed in place where that is allowed, or where all who read what it has at entry
come before all who write what it has at exit.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.program.instr import Cell, Instr, Program, Region, whole


def share(program: Program) -> Program:
    """Return the program with results computed in place where that is possible."""
    for name, cell in program.variables.items():
        if cell.exit not in ("", name) and _stays(program, name, cell):
            program = _in_one_buffer(program, name, cell)
    instrs = list(program.instrs())
    last = {r.buffer: k for k, i in enumerate(instrs) for r in (*i.outs, *i.reads())}
    writers: dict[str, int] = {}
    for i in instrs:
        for r in i.outs:
            writers[r.buffer] = writers.get(r.buffer, 0) + 1
    taken: dict[str, str] = {}

    def now(r: Region) -> Region:
        return replace(r, buffer=taken[r.buffer]) if r.buffer in taken else r

    body: list[Instr] = []
    for k, instr in enumerate(instrs):
        ins = tuple(None if r is None else now(r) for r in instr.ins)
        for out in instr.outs:
            # Only a buffer that this instruction alone writes, and writes whole, can move.
            if (out != whole(out.buffer, out.type) or writers[out.buffer] > 1
                    or program.buffers[out.buffer].space != "arena"):  # fmt: skip
                continue
            for position in sorted(in_place_operands(instr)):
                operand = ins[position]
                if operand is None or last[operand.buffer] != k:
                    continue
                once = sum(x is not None and x.buffer == operand.buffer for x in ins) == 1
                if once and _fits(program, operand, out):
                    taken[out.buffer] = operand.buffer
                    last[operand.buffer] = last[out.buffer]
                    break
            break
        body.append(replace(instr, ins=ins, outs=tuple(now(r) for r in instr.outs)))
    kept = {name: b for name, b in program.buffers.items() if name not in taken}
    return replace(program, body=tuple(body), buffers=kept)


def _stays(program: Program, name: str, cell: Cell) -> bool:
    """Whether a variable may be computed in place."""
    instrs = list(program.instrs())
    readers = [k for k, i in enumerate(instrs) if any(r.buffer == name for r in i.reads())]
    writers = [k for k, i in enumerate(instrs) if any(r.buffer == cell.exit for r in i.outs)]
    assert writers, f"nothing writes what variable {name} has at exit"
    last, first = max(readers, default=-1), min(writers)
    if last != first:
        return last < first
    instr = instrs[first]
    reads = [i for i, r in enumerate(instr.ins) if r is not None and r.buffer == name]
    results = [i for i, r in enumerate(instr.outs) if r.buffer == cell.exit]
    if len(reads) != 1 or len(results) != 1:
        return False
    read, result = instr.ins[reads[0]], instr.outs[results[0]]
    return (
        reads[0] in in_place_operands(instr, results[0])
        and read == whole(name, result.type)
        and result == whole(cell.exit, result.type)
    )


def _in_one_buffer(program: Program, name: str, cell: Cell) -> Program:
    """Return the program with what a variable has at exit in the buffer of what it has at entry."""

    def moved(r: Region) -> Region:
        return replace(r, buffer=name) if r.buffer == cell.exit else r

    body = tuple(
        replace(
            i,
            outs=tuple(map(moved, i.outs)),
            ins=tuple(None if r is None else moved(r) for r in i.ins),
        )
        for i in program.instrs()
    )
    buffers = {label: b for label, b in program.buffers.items() if label != cell.exit}
    variables = {**program.variables, name: replace(cell, exit=name)}
    return replace(program, body=body, buffers=buffers, variables=variables)


def in_place_operands(instr: Instr, result: int = 0) -> set[int]:
    """Return the positions of operands that a result may overwrite."""
    if result in instr.op.carried:
        return {instr.op.carried[result]}
    if len(instr.outs) != 1:
        return set()
    if isinstance(instr.op, Elementwise):
        return set(range(len(instr.ins)))
    if instr.body is None:
        return set()
    moved = _moved(instr.body)
    return {i for i, v in enumerate(instr.body.inputs.values()) if v not in moved}


def _moved(body: Graph) -> set[Value]:
    """Return the values from which some path to a result goes through other than elementwise
    operators."""
    moved: set[Value] = set()
    for node in reversed(body.nodes):
        if not isinstance(node.op, Elementwise) or not moved.isdisjoint(node.results):
            moved.update(v for v in node.inputs if v is not None)
    return moved


def _fits(program: Program, r: Region, out: Region) -> bool:
    dense = whole(r.buffer, r.type)
    return (
        program.buffers[r.buffer].space == "arena"
        and program.buffers[r.buffer].nbytes == program.buffers[out.buffer].nbytes
        and (r.offset, r.strides) == (dense.offset, dense.strides)
        and r.shape == out.shape
        and r.type.numpy.itemsize == out.type.numpy.itemsize
    )
