"""Slots: what each number in the argument table of an artifact is, known before any call.

Compiled code reads its arguments from a table of numbers: addresses of constants, of positions in
the arena, of the caller's arrays, and run-time extents.  `Slots` lists the entries of an artifact
in *spans*, and for each slot of the table the number that is known, or the terms that a call adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, Sym
from alpenglow.machines.api import JUMPS, Artifact, Entry
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.program import Buffer, Instr, Region
from alpenglow.runtime.call.faults import check_in


@dataclass(frozen=True, slots=True)
class Span:
    """Entries [begin, end) of the table: compiled, or one interpreted instruction, or a jump."""

    begin: int
    end: int
    number: int = -1
    """Which of the interpreted instructions it is."""
    jump: Jump | None = None
    to: int = -1
    """After a jump: at which span to go on."""
    slot: int = -1
    """Where the address of the flag of a jump stands among the arguments; -1: it has none."""


class Slots:
    """The spans and entries of an artifact, and the slots of its argument table.

    `table` has the kernel and the first argument of each entry, `extents` its parallel extent, and
    `args` the known part of each argument.  A computed extent has a *number*, its position in
    `numbers`; -1 stands for 0.  Lists of pairs say what is added to slots:

        computed  slot, number of the extent that is the argument
        shifted   slot, number of the offset in a constant
        arena     slot, buffer, known offset, number of the computed offset
        callers   by input, output or variable: slot, offset

    `stops` are the slots of the address of the stop word, and `faults` the slots of the addresses
    of words for data out of range, which `checks` may write.
    """

    def __init__(self, artifact: Artifact, address: Callable[[str], int]) -> None:
        self.buffers = artifact.program.buffers
        self.numbers: dict[Sym, int] = {}
        self.args: list[int] = []
        self.computed: list[tuple[int, int]] = []
        self.shifted: list[tuple[int, int]] = []
        self.arena: list[tuple[int, str, int, int]] = []
        self.callers: dict[str, list[tuple[int, Dim]]] = {
            b.name: [] for b in self.buffers.values() if b.space in ("input", "output", "variable")
        }
        self.stops: list[int] = []
        self.faults: list[int] = []
        self.checks: list[InRange] = []
        self.table: list[tuple[int, int, int]] = []
        self.extents: list[Dim] = []
        self.spans: list[Span] = []
        self.interpreted = 0
        pairs = list(zip(artifact.table, artifact.program.instrs(), strict=True))
        jumps = {n: n + i.op.by for n, (_, i) in enumerate(pairs) if isinstance(i.op, Jump)}
        self.has_jumps = bool(jumps)
        # Jumps are in the table, unless something between them is interpreted.
        apart = any(not e.kernel and n not in jumps for n, (e, _) in enumerate(pairs))
        landings = set(jumps.values()) if apart else set()
        of_instr: list[int] = []
        for number, (entry, instr) in enumerate(pairs):
            continues = self.continues(instr) and number not in landings
            if isinstance(instr.op, Jump) and apart:
                slot = len(self.args) if instr.ins else -1
                here = len(self.table)
                self.spans.append(Span(here, here, -1, instr.op, jumps[number], slot))
                self.lay_out(instr, entry)
            elif not entry.kernel and not isinstance(instr.op, Jump):
                self.spans.append(Span(len(self.table), len(self.table), self.interpreted))
                self.interpreted += 1
            else:
                begin = self.spans.pop().begin if continues else len(self.table)
                first, extent = _entry(instr, entry, address)
                self.table.append((first, 8 * len(self.args), 0))
                self.extents.append(extent)
                self.spans.append(Span(begin, len(self.table)))
                self.lay_out(instr, entry)
            of_instr.append(len(self.spans) - 1)
        of_instr.append(len(self.spans))
        self.spans = [replace(s, to=of_instr[s.to]) if s.jump else s for s in self.spans]

    def number(self, dim: Sym) -> int:
        return self.numbers.setdefault(dim, len(self.numbers))

    def offsets(self) -> Iterator[Dim]:
        """Yield the offset of each slot of `callers`, in order."""
        return (offset for uses in self.callers.values() for _, offset in uses)

    def continues(self, instr: Instr) -> bool:
        """Return True if an instruction runs in one go with what is compiled before it."""
        last = self.spans[-1] if self.spans else None
        return last is not None and last.number < 0 and last.jump is None

    def lay_out(self, instr: Instr, entry: Entry) -> None:
        """Add the arguments of one instruction."""
        for r in (*instr.outs, *instr.reads()):
            self.args.append(self._address(r, len(self.args)))
        if entry.stops:
            self.stops.append(len(self.args))
            self.args.append(0)
        if entry.faults:
            self.checks.append(check_in(instr))
            self.faults.append(len(self.args))
            self.args.append(0)
        for dim in entry.extents:
            self.computed.append((len(self.args), self.number(dim)))
            self.args.append(0)

    def _address(self, r: Region, slot: int) -> int:
        """Return the known part of the address of a region; a call adds the rest."""
        b = self.buffers[r.buffer]
        offset: Dim = r.offset * r.type.numpy.itemsize
        if b.space == "const":
            base = self.constant(b)
            if not isinstance(offset, Sym):
                return base + offset
            self.shifted.append((slot, self.number(offset)))
            return base
        if b.space == "arena":
            is_computed = isinstance(offset, Sym)
            number = self.number(offset) if isinstance(offset, Sym) else -1
            self.arena.append((slot, r.buffer, 0 if is_computed else int(offset), number))
        else:
            self.callers[r.buffer].append((slot, offset))
        return 0

    def constant(self, b: Buffer) -> int:
        """Return the address at which an instruction reads a constant."""
        assert b.array is not None, f"{b.name} is a constant without contents"
        return int(b.array.ctypes.data)


def _entry(instr: Instr, entry: Entry, address: Callable[[str], int]) -> tuple[int, Dim]:
    """Return the first word of an entry (a kernel's address, a jump's distance), and its extent."""
    if isinstance(instr.op, Jump):
        return instr.op.by % (1 << 64), JUMPS[instr.op.when if instr.ins else None]
    return address(entry.kernel), entry.extent
