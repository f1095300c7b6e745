"""Windows: how many rows of each value of a chain are computed, and kept, at each step.

A chain of instructions is computed a few rows at a time, from the rows of its last result
backwards: before each band what it takes of the results before.  Of a value inside the chain no
more rows are kept than its readers still take.  No row is computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.memory import rounded_up
from alpenglow.ir.rows import SAME, Rows
from alpenglow.ir.types import TensorType
from alpenglow.ops.tensor.movement import Concat, Pad
from alpenglow.program.banded import Form, form_of, has_rows, height, of_height, repeats_rows
from alpenglow.program.instr import Instr, Program, Region
from alpenglow.program.share import in_place_operands
from alpenglow.program.views import is_view

Counts = NDArray[np.int64]
"""A number of rows for each step."""


@dataclass(frozen=True, eq=False)
class Source:
    """The instructions of a program in which each buffer holds one value, and who reads what."""

    program: Program

    @cached_property
    def instrs(self) -> tuple[Instr, ...]:
        return tuple(self.program.instrs())

    @cached_property
    def forms(self) -> tuple[Form | None, ...]:
        """How the rows of each result are made; None too where all of them are the same."""
        return tuple(None if repeats_rows(i) else form_of(i) for i in self.instrs)

    @cached_property
    def stretched(self) -> dict[str, Instr]:
        """What makes each buffer whose rows are all the same."""
        repeating = (i for i in self.instrs if repeats_rows(i) and has_rows(i.outs[0].type))
        return {i.outs[0].buffer: i for i in repeating}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The numbers of the instructions that read each buffer, once for each operand."""
        readers: dict[str, list[int]] = {}
        for k, instr in enumerate(self.instrs):
            for r in instr.reads():
                readers.setdefault(r.buffer, []).append(k)
        return readers

    @cached_property
    def makers(self) -> dict[str, int]:
        """The number of the instruction that makes each buffer which one makes."""
        return {r.buffer: k for k, i in enumerate(self.instrs) for r in i.outs}

    def skips(self, k: int) -> bool:
        """Whether a chain goes past an instruction: it only stretches an operand."""
        return self.instrs[k].outs[0].buffer in self.stretched

    def inner(self, k: int, end: int) -> bool:
        """Whether the result of instruction k is read before instruction `end` alone, by rows."""
        name = self.instrs[k].outs[0].buffer
        readers = self.readers.get(name)
        if self.program.buffers[name].space != "arena" or readers is None or readers[-1] >= end:
            return False
        return all(self._reads_rows(reader, name) for reader in readers)

    def _reads_rows(self, k: int, name: str) -> bool:
        form = self.forms[k]
        if form is None:
            return False
        reads = zip(form.operands, self.instrs[k].reads(), strict=True)
        return all(rows is not None for rows, r in reads if r.buffer == name)


@dataclass(eq=False)
class Windows:
    """How many rows of each value of a chain are computed, and kept, at each step.

    A chain ends with instruction `end` - 1, of whose result `step` rows are computed at a time, and
    grows towards the front.
    """

    source: Source
    end: int
    step: int
    ends: dict[str, Counts] = field(default_factory=dict)
    """One past the last row that is computed of each value, by the end of each step."""
    lows: dict[str, Counts] = field(default_factory=dict)
    """The first row that a step reads of each value that is read so far."""
    rows: dict[str, int] = field(default_factory=dict)
    """How many rows there is room for, of each value inside that has a window of its own."""
    parents: dict[str, str] = field(default_factory=dict)
    """Values inside that are computed inside another."""
    nbytes: int = 0
    """What all windows take."""

    def __post_init__(self) -> None:
        (last,) = self.source.instrs[self.end - 1].outs
        tall = height(last.type)
        steps = np.arange(1, -(-tall // self.step) + 1, dtype=np.int64)
        self.ends[last.buffer] = np.minimum(steps * self.step, tall)

    def add(self, k: int) -> bool:
        """Put instruction k before the chain, if its rows can be computed as they are needed."""
        form, instr = self.source.forms[k], self.source.instrs[k]
        if form is None or (k < self.end - 1 and not self.source.inner(k, self.end)):
            return False
        (out,) = instr.outs
        if k < self.end - 1:
            self._keep(k, out)
        for rows, r in zip(form.operands, instr.reads(), strict=True):
            if rows is not None and r.buffer not in self.source.stretched:
                self._read(rows, r.buffer, r.type, self.ends[out.buffer], height(out.type))
        return True

    def before(self, name: str) -> Counts:
        """Return how many rows of a value are computed as each step begins."""
        ends = self.ends[name]
        return np.concatenate([np.zeros(1, np.int64), ends[:-1]])

    def low(self, name: str) -> Counts:
        """Return the first row of a value that is kept as each step begins."""
        return np.minimum(self.lows[name], self.before(name))

    def _read(self, rows: Rows, name: str, t: TensorType, ends: Counts, tall: int) -> None:
        """Note what an instruction reads of an operand, of whose result so much is computed."""
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        high = np.where(ends > 0, np.clip(rows.end(ends), 0, height(t)), 0)
        low = np.where(begins < tall, np.clip(rows.first(begins), 0, height(t)), height(t))
        self.ends[name] = np.maximum(self.ends.get(name, 0), high)
        self.lows[name] = np.minimum(self.lows.get(name, height(t)), low)

    def _keep(self, k: int, out: Region) -> None:
        """Give the result of instruction k a window, or its place inside what is made of it."""
        name, readers = out.buffer, self.source.readers[out.buffer]
        (reader,) = self.source.instrs[readers[0]].outs
        if len(readers) == 1 and isinstance(self.source.instrs[readers[0]].op, Pad | Concat):
            self.parents[name] = reader.buffer
            return
        self.rows[name] = int(np.max(self.ends[name] - self.low(name)))
        self.nbytes += rounded_up(of_height(out.type, self.rows[name]).nbytes)


def taken_over(windows: Windows, begin: int) -> str | None:
    """Return the operand from before a chain in whose memory its result may be computed.

    That is one that dies with the chain, of which the last instruction may overwrite each row it
    has read, since nobody reads that row in a later step.
    """
    source, last = windows.source, windows.end - 1
    instr, form = source.instrs[last], source.forms[last]
    assert form is not None, "a chain ends with an instruction of rows"
    (out,) = instr.outs
    if source.program.buffers[out.buffer].space != "arena":
        return None
    for position in sorted(in_place_operands(instr)):
        r = instr.ins[position]
        if r is None or form.operands[position] != SAME or r.buffer in source.stretched:
            continue
        maker = source.makers.get(r.buffer, begin)
        fits = r.shape == out.shape and r.type.numpy.itemsize == out.type.numpy.itemsize
        if (
            fits
            and maker < begin
            and not is_view(source.instrs[maker].op)
            and source.inner(maker, windows.end)
            and _read_ahead(windows, r.buffer)
        ):
            return r.buffer
    return None


def _read_ahead(windows: Windows, name: str) -> bool:
    """Whether all but the last instruction of a chain read rows of a value before they are written
    over by the last, which reads it once."""
    source, last = windows.source, windows.end - 1
    (out,) = source.instrs[last].outs
    written = windows.before(out.buffer)
    readers = source.readers[name]
    for k in readers:
        form = source.forms[k]
        assert form is not None, "who reads rows has a form"
        for rows, r in zip(form.operands, source.instrs[k].reads(), strict=True):
            if r.buffer != name or k == last:
                continue
            (result,) = source.instrs[k].outs
            if result.buffer not in windows.ends:
                return False  # it is before the chain
            assert rows is not None, "rows are read"
            begins = windows.before(result.buffer)
            ahead = (rows.first(begins) >= written) | (begins >= height(result.type))
            if not ahead.all():
                return False
    return readers.count(last) == 1


def windows_of(source: Source, begin: int, end: int, step: int) -> Windows:
    """Return the windows of the chain of instructions from `begin` to `end`."""
    windows = Windows(source, end, step)
    for k in reversed(range(begin, end)):
        assert source.skips(k) or windows.add(k), f"instruction {k} is of no chain"
    return windows
