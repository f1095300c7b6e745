"""Control flow as jumps: programs of regions are laid out inside the program around them.

The carried values of a loop lie in the buffers of its results: first values are copied there
before the loop, and each iteration writes the next ones there.  So memory is planned for a whole
program at once, and later stages see instructions in order, and jumps among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from alpenglow.ir.text import unique
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.jump import FLAG, Jump
from alpenglow.ops.control.loop import While
from alpenglow.ops.tensor.copy import Copy
from alpenglow.program.instr import Buffer, Instr, Program, Region, whole


def unfold(program: Program) -> Program:
    """Return the program without programs in its instructions."""
    if not any(i.parts for i in program.instrs()):
        return program
    return _Unfolding(program).run()


LONGEST_PAIR = 64
"""Of more instructions two turns are not laid out in a row: what they carry is copied."""


class _Unfolding:
    """The buffers of a program, and how parts become instructions on them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = dict(program.buffers)
        self.taken = dict.fromkeys(self.buffers, 2)

    def run(self) -> Program:
        body: list[Instr] = []
        for instr in self.program.instrs():
            match instr.op:
                case While():
                    body += _called(self._loop(instr), instr.names)
                case If():
                    body += _called(self._branch(instr), instr.names)
                case _:
                    body.append(instr)
        return replace(self.program, buffers=self.buffers, body=tuple(body))

    def _loop(self, instr: Instr) -> list[Instr]:
        """Return the turns of a loop: whether there is one is asked before it.

        A value that an iteration cannot compute in place it writes to a second buffer, and the next
        iteration writes it to the first again.  So a short loop is laid out as two iterations, and
        copies only if it ends after an odd number.
        """
        part = unfold(instr.parts[0])
        going, *xs = instr.reads()
        first, captured = xs[: len(instr.outs)], xs[len(instr.outs) :]
        flag = whole(self._add(Buffer("going", 1, "arena", FLAG)), FLAG)
        homes = dict(zip(part.inputs, map(_buffer, captured), strict=True))
        homes[part.outputs[0]] = flag.buffer
        ends: list[Instr] = []
        for out, (name, cell) in zip(instr.outs, part.variables.items(), strict=True):
            homes[name] = _buffer(out)
            if cell.exit not in ("", name):
                homes[cell.exit] = self._add(replace(part.buffers[cell.exit], space="arena"))
                ends.append(_copy(whole(homes[cell.exit], out.type), out))
        outer = set(homes)
        turn = self._placed(part, homes)
        starts = [_copy(x, out) for x, out in zip(first, instr.outs, strict=True) if x != out]
        starts.append(_copy(going, flag))
        if not ends or len(turn) > LONGEST_PAIR:
            turn += ends
            return [*starts, _jump(len(turn) + 2, flag, when=False), *turn, _jump(-len(turn), flag)]
        there = {r.buffer: w.buffer for i in ends for r, w in zip(i.reads(), i.outs, strict=True)}
        there |= {w: r for r, w in there.items()}
        # What lives within a turn has other buffers in the other one, and so lives no longer.
        kept = {n for n, b in part.buffers.items() if b.space == "const"} | outer
        back = self._placed(part, {n: there.get(b, b) for n, b in homes.items() if n in kept})
        both = [*turn, _jump(len(back) + 3, flag, when=False), *back]
        return [
            *starts,
            _jump(len(both) + len(ends) + 3, flag, when=False),
            *both,
            _jump(-len(both), flag),
            _jump(len(ends) + 1),
            *ends,
        ]

    def _branch(self, instr: Instr) -> list[Instr]:
        """Return both branches, the second behind a jump over the first."""
        condition, *captured = instr.reads()
        ways = []
        for part in map(unfold, instr.parts):
            homes = dict(zip(part.inputs, map(_buffer, captured), strict=True))
            homes |= dict(zip(part.outputs, map(_buffer, instr.outs), strict=True))
            ways.append(self._placed(part, homes))
        then, other = ways
        past = [_jump(len(other) + 1)] if other else []
        return [_jump(len(then) + len(past) + 1, condition, when=False), *then, *past, *other]

    def _placed(self, part: Program, homes: dict[str, str]) -> list[Instr]:
        """Return the instructions of a part, unfolded; `homes` are the buffers here of what it has
        from outside, or gives there.  All that it has besides gets a home, too."""
        for name, b in part.buffers.items():
            if name not in homes:
                assert b.space in ("arena", "const"), f"{name} of a part has no home"
                homes[name] = self._add(b)
        return [_renamed(i, homes) for i in part.instrs()]

    def _add(self, b: Buffer) -> str:
        """Add a buffer, and return its name, which no other has."""
        name = unique(b.name, self.taken)
        self.buffers[name] = replace(b, name=name)
        return name


def _buffer(r: Region) -> str:
    """Return the buffer that a region fills."""
    assert r == whole(r.buffer, r.type), f"{r} is not all of its buffer, as a part takes it"
    return r.buffer


def _called(instrs: list[Instr], names: tuple[str, ...]) -> list[Instr]:
    """Return instructions that also go by the names of the loop or branch they are part of."""
    return [replace(i, names=tuple(dict.fromkeys((*i.names, *names)))) for i in instrs]


def _renamed(instr: Instr, names: Mapping[str, str]) -> Instr:
    """Return an instruction of a part, on the buffers that `names` gives for the part's buffers."""

    def renamed(r: Region) -> Region:
        return replace(r, buffer=names[r.buffer])

    ins = tuple(None if r is None else renamed(r) for r in instr.ins)
    return replace(instr, outs=tuple(map(renamed, instr.outs)), ins=ins)


def _copy(source: Region, target: Region) -> Instr:
    return Instr(Copy(), (target,), (source,))


def _jump(by: int, flag: Region | None = None, when: bool = True) -> Instr:
    return Instr(Jump(by, when), (), () if flag is None else (flag,))
