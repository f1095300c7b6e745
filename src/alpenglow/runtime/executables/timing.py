"""Timing the instructions of an Executable one by one, in the order of a run.

Between two instructions the caches hold what they hold in a run, so weights that are read once are
cold, as they are there.  What it costs to call a single instruction is measured and taken off.

A device with memory of its own tells what its kernels take; copies to it and from it are timed
beside them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from alpenglow.base.cpus import default_threads
from alpenglow.base.words import counted, shown
from alpenglow.ir.types import Array
from alpenglow.machines.api import ENTRY_NBYTES, HostDevice
from alpenglow.machines.registry import this_process
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.program.bind import bind
from alpenglow.program.interpret import step
from alpenglow.runtime.call.feeds import results as fresh_results
from alpenglow.runtime.device.itinerary import Copies, Side, copies
from alpenglow.runtime.device.layout import DeviceBound, DeviceLayout
from alpenglow.runtime.device.remote import Lap
from alpenglow.runtime.memory.layout import Bound, Context, Layout, Place
from alpenglow.runtime.memory.walk import walk
from alpenglow.runtime.session.held import Held

MOST_SHOWN = 20
"""How many instructions the text of timings has, the slowest ones."""


@dataclass(frozen=True, slots=True)
class InstructionTiming:
    """The median seconds of one instruction, the `number`-th of a run.

    `kind` names its operators, `results` the values of the model that it computes, as far as names
    are remembered; it is interpreted unless `compiled`.
    """

    number: int
    kind: str
    results: tuple[str, ...]
    compiled: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class CopyTiming:
    """The copies of a run `to` one side: how many, their bytes, and their median seconds."""

    to: Side
    count: int
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{counted(self.count, 'buffer')} copied to the {self.to}, {self.nbytes:,} bytes"


@dataclass(frozen=True, slots=True)
class Timings:
    """The instructions of a run in order, and the median seconds of runs as a whole (`run`).

    What runs on a device with memory of its own has `copies` to it and back besides.
    """

    parts: tuple[InstructionTiming, ...]
    run: float
    copies: tuple[CopyTiming, ...] = ()

    @property
    def seconds(self) -> float:
        """What the instructions take together, each by itself."""
        return sum(p.seconds for p in self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[InstructionTiming]:
        return iter(self.parts)

    def __getitem__(self, number: int) -> InstructionTiming:
        return self.parts[number]

    def __repr__(self) -> str:
        slowest = sorted(self.parts, key=lambda p: -p.seconds)[:MOST_SHOWN]
        lines = [
            f"{p.seconds * 1e6:12.2f} us {p.seconds / (self.seconds or 1):6.1%}  {_said(p)}"
            for p in slowest
        ]
        if more := len(self.parts) - len(slowest):
            lines.append(f"and {more} more")
        lines += [f"{c.seconds * 1e6:12.2f} us         {c}" for c in self.copies]
        took = f"{self.seconds * 1e6:.2f} us by themselves, a run {self.run * 1e6:.2f} us"
        return "\n".join([f"{len(self.parts)} instructions: {took}", *lines])


def _said(p: InstructionTiming) -> str:
    kind = p.kind if p.compiled else f"{p.kind} (interpreted)"
    return f"{kind}: {shown(', '.join(p.results))}" if p.results else kind


def timings(timing: Timing) -> Timings:
    """Return the medians of what was timed in rounds."""
    columns = zip(timing.program.instrs(), timing.compiled, zip(*timing.rounds, strict=True),
                  strict=True)  # fmt: skip
    parts = tuple(
        InstructionTiming(
            number=k,
            kind=kind(instr),
            results=instr.names or tuple(dict.fromkeys(r.buffer for r in instr.outs)),
            compiled=compiled,
            seconds=median(seconds),
        )
        for k, (instr, compiled, seconds) in enumerate(columns)
    )
    return Timings(parts, median(timing.runs), timing.copies)


def kind(instr: Instr) -> str:
    """Return the names of the operators that an instruction applies, each once."""
    if instr.body is None:
        return instr.op.name
    names = dict.fromkeys(n.op.name for n in instr.body.nodes)
    return "+".join(n for n in names if n != "broadcast" or len(names) == 1)


@dataclass(frozen=True)
class Timing:
    """What ran, with all extents known, and the seconds of each instruction in each round.

    `compiled` tells of each instruction whether it has a kernel; `runs` holds the seconds of runs
    of the whole.  `copies` are those of a device with memory of its own.
    """

    program: Program
    compiled: tuple[bool, ...]
    rounds: tuple[tuple[float, ...], ...]
    runs: tuple[float, ...]
    copies: tuple[CopyTiming, ...] = ()


def time_instructions(
    place: Place, inputs: Mapping[str, Array], held: Held, threads: int | None, rounds: int
) -> Timing:
    """Run what serves some inputs as a whole and in single instructions, by turns.

    Variables go on from round to round.
    """
    layout, bound = place
    program = layout.artifact.program
    _, direct = fresh_results(program, bound.forms, {}, inputs)
    entries, exits = held.memory(program)
    arrays, direct = {**inputs, **entries}, {**direct, **exits}
    if isinstance(layout, DeviceLayout):
        return _on_device(layout, bound, arrays, direct, rounds)
    context = layout.take(bound)
    laps, runs = [], []
    try:
        for _ in range(rounds):
            begin = time.perf_counter()
            walk(layout, bound, context, arrays, direct, threads)
            runs.append(time.perf_counter() - begin)
            for name, array in (*arrays.items(), *direct.items()):
                if context.memory is not None:
                    flat = array.reshape(-1)
                    context.memory.bytes[name] = flat.view(np.uint8) if flat.size else flat
            laps.append(_round(layout, bound, context, threads or default_threads()))
    finally:
        layout.give_back(bound, context)
    program = bind(program, bound.values) if bound.values else program
    return Timing(program, _compiled(layout), tuple(laps), tuple(runs))


def _on_device(
    layout: DeviceLayout, bound: Bound, arrays: Mapping[str, Array], results: Mapping[str, Array],
    rounds: int,
) -> Timing:  # fmt: skip
    """Run on a device as a whole and one thing after the other, by turns."""
    assert isinstance(bound, DeviceBound) and bound.remote is not None, "extents were bound here"
    remote = bound.remote
    laps: list[Lap] = []
    runs: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        layout.run(bound, arrays, results, set(), None)
        runs.append(time.perf_counter() - begin)
        laps.append(remote.timed(arrays, results))
    return Timing(
        remote.program, _compiled(layout), tuple(lap.instrs for lap in laps), tuple(runs),
        tuple(_copy_timing(c, laps) for c in copies(remote.program, remote.itinerary)),
    )  # fmt: skip


def _copy_timing(c: Copies, laps: list[Lap]) -> CopyTiming:
    seconds = median(lap.copies[c.to] for lap in laps) if c.count else 0.0
    return CopyTiming(c.to, c.count, c.nbytes, seconds)


def _compiled(layout: Layout) -> tuple[bool, ...]:
    artifact = layout.artifact
    pairs = zip(artifact.table, artifact.program.instrs(), strict=True)
    return tuple(bool(entry.kernel) or isinstance(i.op, Jump) for entry, i in pairs)


def _round(layout: Layout, bound: Bound, context: Context, threads: int) -> tuple[float, ...]:
    """Return the seconds of every instruction in one pass over the table."""
    process = this_process()
    nothing = min(_seconds(process, context.base, 0, threads) for _ in range(5))
    times = []
    for span in layout.spans:
        if span.jump is not None:
            times.append(0.0)
            continue
        if span.number >= 0:
            assert context.memory is not None, "what is interpreted has memory"
            begin = time.perf_counter()
            step(context.memory, bound.interpreted[span.number])
            times.append(time.perf_counter() - begin)
            continue
        for row in range(span.begin, span.end):
            if bound.extents[row] < 0:  # a jump
                times.append(0.0)
                continue
            took = _seconds(process, context.base + ENTRY_NBYTES * row, 1, threads)
            times.append(max(took - nothing, 0.0))
    return tuple(times)


def _seconds(process: HostDevice, address: int, count: int, threads: int) -> float:
    begin = time.perf_counter()
    process.run(address, count, threads)
    return time.perf_counter() - begin
