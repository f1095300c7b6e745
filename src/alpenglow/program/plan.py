"""Static memory planning: lifetimes, and a place in one arena for every buffer."""

from __future__ import annotations

from dataclasses import replace

from alpenglow.base.memory import ALIGNMENT
from alpenglow.ops.control.jump import Jump
from alpenglow.program.instr import Alloc, Free, Instr, Program, Step
from alpenglow.program.offsets import Block, assign_offsets


def mark_lifetimes(program: Program) -> Program:
    """Put an alloc before the first use of every arena buffer and a free after its last."""
    instrs = list(program.instrs())
    lives = lifetimes(program)
    allocs: list[list[Step]] = [[] for _ in instrs]
    frees: list[list[Step]] = [[] for _ in instrs]
    for name, (first, last) in lives.items():
        allocs[first].append(Alloc(name))
        frees[last].append(Free(name))
    body = [step for k, instr in enumerate(instrs) for step in (*allocs[k], instr, *frees[k])]
    return replace(program, body=tuple(body))


def plan(program: Program, enough: int = 0) -> Program:
    """Choose an offset for every buffer, so that live buffers never overlap.

    No arena smaller than what is `enough` is looked for.
    """
    lives = lifetimes(program)
    blocks = [Block(program.buffers[n].nbytes, a, b + 1) for n, (a, b) in lives.items()]
    placement = assign_offsets(blocks, ALIGNMENT, enough)
    buffers = dict(program.buffers)
    for name, offset in zip(lives, placement.offsets, strict=True):
        buffers[name] = replace(buffers[name], offset=offset)
    return replace(
        program, buffers=buffers, arena=placement.peak, lower_bound=placement.lower_bound
    )


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Return, for each arena buffer, the numbers of the instructions that use it first and last."""
    lives: dict[str, tuple[int, int]] = {}
    for k, instr in enumerate(program.instrs()):
        assert isinstance(instr, Instr)
        for r in (*instr.reads(), *instr.outs):
            if program.buffers[r.buffer].space == "arena":
                lives[r.buffer] = (lives.get(r.buffer, (k, k))[0], k)
    for begin, end in loops(program):
        # What a turn reads of what was there before the loop, the next one reads, too.
        for name, (first, last) in lives.items():
            if first < begin <= last < end:
                lives[name] = first, end
    return lives


def loops(program: Program) -> list[tuple[int, int]]:
    """Return the numbers of the first and the last instruction of each loop, inner ones first."""
    jumps = ((k, i.op.by) for k, i in enumerate(program.instrs()) if isinstance(i.op, Jump))
    return [(k + by, k) for k, by in jumps if by < 0]
