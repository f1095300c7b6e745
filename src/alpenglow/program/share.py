"""In-place sharing: a result takes over the buffer of an operand that dies with the instruction.

That is allowed where every element of the result is computed from the operand's element at the
same place and from nothing else of it: elementwise operators, and operands that a fused
instruction meets only after its heavy part.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.program.instr import Instr, Program, Region, whole


def share(program: Program) -> Program:
    """Return the program with results computed in place where that is possible."""
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


def in_place_operands(instr: Instr) -> set[int]:
    """Return the positions of operands that the (single) result may overwrite."""
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
