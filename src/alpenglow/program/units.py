"""The instructions of a program as what may be repeated, in any order that has all they need.

An order of instructions with repetitions says it all: each reads the latest of what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from alpenglow.base.memory import rounded_up
from alpenglow.ir.text import unique
from alpenglow.program.instr import Instr, Program, Region
from alpenglow.program.order import MemoryGraph
from alpenglow.program.share import in_place_operands
from alpenglow.program.views import at_home, eliminate_copies, is_view, view

PER_BYTE = 4
"""How many multiply-adds take as long as moving a byte."""

Order = tuple[int, ...]
"""Numbers of units, in the order in which they run; some are there more than once."""


@dataclass(frozen=True)
class Unit:
    """An instruction with the views of its results, which cost nothing.

    It reads and makes values in the arena, by buffer; where one that it `shares` is read the last
    time, the result may take over its memory.
    """

    instrs: tuple[Instr, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    shares: tuple[str, ...]
    cost: float
    """The bytes that it moves, and what it computes as if it moved them too."""
    repeatable: bool
    elsewhere: tuple[str, ...]
    """What it reads in memory that changes but is not the arena: variables and outputs."""
    fills: tuple[str, ...]
    """The buffers of variables and outputs that it makes."""
    assigns: tuple[str, ...]
    """The variables whose next value it makes: what reads the one before comes first."""


class Units:
    """The instructions of a program, as what may be repeated."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.early: list[Instr] = []
        """Views of what is not computed."""
        homes: dict[str, Region] = {}
        own: dict[str, list[Instr]] = {}
        makers: list[list[Instr]] = []
        for instr in program.instrs():
            (out, *_) = instr.outs
            seen = None
            if is_view(instr.op) and program.buffers[out.buffer].space == "arena":
                (source,) = instr.reads()
                seen = view(instr.op, at_home(source, homes))
            if seen is None:
                makers.append([instr])
                own.update((r.buffer, makers[-1]) for r in instr.outs)
            else:
                homes[out.buffer] = seen
                own.get(seen.buffer, self.early).append(instr)
        self._spaces = {name: b.space for name, b in program.buffers.items()}
        self._exits = {cell.exit: name for name, cell in program.variables.items()}
        self.all = [self._unit(instrs, homes) for instrs in makers]
        self.makers = {name: k for k, unit in enumerate(self.all) for name in unit.makes}

    def _unit(self, instrs: Sequence[Instr], homes: Mapping[str, Region]) -> Unit:
        first, space = instrs[0], self._spaces
        roots = [None if r is None else at_home(r, homes).buffer for r in first.ins]
        arena = [name for name in roots if name is not None and space[name] == "arena"]
        elsewhere = [n for n in roots if n is not None and space[n] in ("variable", "output")]
        makes = tuple(r.buffer for r in first.outs if space[r.buffer] == "arena")
        shared = [roots[i] for i in in_place_operands(first)]
        moved = sum(r.type.nbytes for r in (*first.reads(), *first.outs))
        fills = tuple(r.buffer for r in first.outs if r.buffer not in makes)
        return Unit(
            instrs=tuple(instrs),
            reads=tuple(dict.fromkeys(arena)),
            makes=makes,
            shares=tuple(name for name in shared if name in arena and len(makes) == 1
                         and self._size(name) == self._size(makes[0])),
            cost=moved + first.work() / PER_BYTE,
            # How long a loop runs is not known, so nothing says that it is cheap.
            repeatable=not fills and not first.parts,
            elsewhere=tuple(dict.fromkeys(elsewhere)),
            fills=fills,
            assigns=tuple(self._exits[name] for name in fills if name in self._exits),
        )  # fmt: skip

    def _size(self, name: str) -> int:
        return rounded_up(self.program.buffers[name].nbytes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes that each value takes: of the buffer in which it will be made, with its border,
        where a pad or the like is no copy then."""
        made = [replace(instr, names=(str(k),)) for k, instr in enumerate(self.program.instrs())]
        laid_out = eliminate_copies(replace(self.program, body=tuple(made)))
        inside: dict[str, list[str]] = {}
        for instr in laid_out.instrs():
            source = made[int(instr.names[0])]
            if instr.op is not source.op:
                continue  # it moves or fills what became of a copy
            for r, now in zip(source.outs, instr.outs, strict=True):
                if r.buffer != now.buffer and r.buffer in self.makers:
                    inside.setdefault(now.buffer, []).append(r.buffer)
        sizes = {name: self._size(name) for name in self.makers}
        for home, names in inside.items():
            border = rounded_up(laid_out.buffers[home].nbytes) - sum(sizes[n] for n in names)
            for name in names if border > 0 else ():
                sizes[name] += border // len(names)
        return sizes

    def graph_of(self, order: Order) -> MemoryGraph:
        """Return what runs in an order as nodes, in that order, each of which makes its own values.

        What lies outside of the arena counts as values of no size.  So does that a variable has
        been read: what assigns it waits for that.
        """
        inputs, outputs, shares, sizes = [], [], [], list[int]()
        now: dict[str, int] = {}
        has_read: dict[str, list[int]] = {}
        for k in order:
            unit = self.all[k]
            made = (now[name] for name in unit.elsewhere if name in now)
            waits = (v for name in unit.assigns for v in has_read.pop(name, ()))
            inputs.append((*(now[name] for name in unit.reads), *made, *waits))
            shares.append(tuple(now[name] for name in unit.shares))
            begin = len(sizes)
            for name in unit.elsewhere:
                has_read.setdefault(name, []).append(len(sizes))
                sizes.append(0)
            for name in (*unit.makes, *unit.fills):
                now[name] = len(sizes)
                sizes.append(self.sizes.get(name, 0))
            outputs.append(tuple(range(begin, len(sizes))))
        return MemoryGraph(tuple(inputs), tuple(outputs), tuple(sizes), shares=tuple(shares))

    def program_of(self, order: Order) -> Program:
        """Return the program that runs units in an order."""
        buffers = dict(self.program.buffers)
        taken = dict.fromkeys(buffers, 2)
        now: dict[str, str] = {}
        body = list(self.early)
        ran: set[int] = set()
        for k in order:
            for instr in self.all[k].instrs:
                ins = tuple(r if r is None else _renamed(r, now) for r in instr.ins)
                for r in instr.outs if k in ran else ():
                    label = unique(r.buffer, taken)
                    buffers[label] = replace(buffers[r.buffer], name=label)
                    now[r.buffer] = label
                outs = tuple(_renamed(r, now) for r in instr.outs)
                body.append(replace(instr, ins=ins, outs=outs))
            ran.add(k)
        return replace(self.program, buffers=buffers, body=tuple(body))


def _renamed(r: Region, now: Mapping[str, str]) -> Region:
    return replace(r, buffer=now[r.buffer]) if r.buffer in now else r
