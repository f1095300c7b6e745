"""In-place sharing: a result takes over the buffer of an operand that dies with the instruction.

That is allowed where every element of the result is computed from the operand's element at the
same place and from nothing else of it: elementwise operators, all of whose results at a place are
computed before one is stored there, and operands that a fused instruction meets only after its
heavy part.  An operator may say so of a result itself (`Op.carried`).  Where such an operator
writes into an input for an output, the input is copied to the output first, and written there.

A variable is computed in place where that is allowed, or where all who read what it has at entry
come before all who write what it has at exit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.tensor.copy import Copy
from alpenglow.program.instr import Instr, Program, Region, anchor_node, carried_operand, whole


def share(program: Program) -> Program:
    """Return the program with results computed in place where that is possible."""
    program = _in_one_buffer(program, _staying(program))
    program = replace(program, body=tuple(s for i in program.instrs() for s in _split(program, i)))
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
        for number, out in enumerate(instr.outs if instr.parts else instr.outs[:1]):
            # Only a buffer that this instruction alone writes, and writes whole, can move.
            if (out != whole(out.buffer, out.type) or writers[out.buffer] > 1
                    or program.buffers[out.buffer].space != "arena"):  # fmt: skip
                continue
            for position in sorted(in_place_operands(instr, number)):
                operand = ins[position]
                if operand is None or last[operand.buffer] != k:
                    continue
                once = sum(x is not None and x.buffer == operand.buffer for x in ins) == 1
                if once and _fits(program, operand, out):
                    taken[out.buffer] = operand.buffer
                    last[operand.buffer] = last[out.buffer]
                    break
        body.append(replace(instr, ins=ins, outs=tuple(now(r) for r in instr.outs)))
    kept = {name: b for name, b in program.buffers.items() if name not in taken}
    return replace(program, body=tuple(body), buffers=kept)


def _split(program: Program, instr: Instr) -> Iterator[Instr]:
    """Yield an instruction that makes an output of an input as a copy and what is written there."""
    position = carried_operand(instr)
    r = None if position is None else instr.ins[position]
    if r is None or len(instr.outs) > 1 or program.buffers[r.buffer].space != "input":
        yield instr
        return
    (out,) = instr.outs
    once = sum(x is not None and x.buffer == r.buffer for x in instr.ins) == 1
    dense = r == whole(r.buffer, out.type) and out == whole(out.buffer, out.type)
    if not once or not dense or program.buffers[out.buffer].space != "output":
        yield instr
        return
    yield Instr(Copy(), (out,), (r,), names=instr.names)
    yield replace(instr, ins=tuple(out if x is r else x for x in instr.ins))


def _staying(program: Program) -> dict[str, str]:
    """Return the variables that may be computed in place, by the buffers of what they have at exit.

    Each of these buffers is another, so of each variable that is decided for itself.
    """
    instrs = list(program.instrs())
    readers: dict[str, list[int]] = {}
    writers: dict[str, list[int]] = {}
    for k, instr in enumerate(instrs):
        for r in instr.reads():
            readers.setdefault(r.buffer, []).append(k)
        for r in instr.outs:
            writers.setdefault(r.buffer, []).append(k)
    found = {}
    for name, cell in program.variables.items():
        if cell.exit in ("", name):
            continue
        assert cell.exit in writers, f"nothing writes what variable {name} has at exit"
        last, first = max(readers.get(name, [-1])), min(writers[cell.exit])
        if last < first or (last == first and _overwrites(instrs[first], name, cell.exit)):
            found[cell.exit] = name
    return found


def _overwrites(instr: Instr, name: str, exit_: str) -> bool:
    """Whether an instruction may write what a variable has at exit over what it reads of it."""
    reads = [i for i, r in enumerate(instr.ins) if r is not None and r.buffer == name]
    results = [i for i, r in enumerate(instr.outs) if r.buffer == exit_]
    if len(reads) != 1 or len(results) != 1:
        return False
    read, result = instr.ins[reads[0]], instr.outs[results[0]]
    return (
        reads[0] in in_place_operands(instr, results[0])
        and read == whole(name, result.type)
        and result == whole(exit_, result.type)
    )


def _in_one_buffer(program: Program, names: Mapping[str, str]) -> Program:
    """Return the program with buffers in others, as `names` says: what variables have at exit in
    those of what they have at entry."""
    if not names:
        return program

    def moved(r: Region) -> Region:
        return replace(r, buffer=names[r.buffer]) if r.buffer in names else r

    body = tuple(
        replace(
            i,
            outs=tuple(map(moved, i.outs)),
            ins=tuple(None if r is None else moved(r) for r in i.ins),
        )
        for i in program.instrs()
    )
    buffers = {label: b for label, b in program.buffers.items() if label not in names}
    cells = {name: replace(program.variables[name], exit=name) for name in names.values()}
    return replace(program, body=body, buffers=buffers, variables={**program.variables, **cells})


def in_place_operands(instr: Instr, result: int = 0) -> set[int]:
    """Return the positions of operands that a result may overwrite."""
    carried = carried_operand(instr, result)
    if carried is not None:
        return {carried}
    if isinstance(instr.op, Elementwise) and len(instr.outs) == 1:
        return set(range(len(instr.ins)))
    if instr.body is None or (len(instr.outs) > 1 and anchor_node(instr.body) is not None):
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
