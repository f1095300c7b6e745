"""Profiles: where the time of a run goes, kernel by kernel, beside what the machine can do.

Each instruction has its time, the operations that it does, the bytes that it touches, the time that
it cannot take less than (see `measure.limit`), and the nodes of the model that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph
from alpenglow.measure.flops import flops_of
from alpenglow.measure.limit import limits, roofline, touched
from alpenglow.measure.sources import sources
from alpenglow.program import Instr, Program
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.executables.timing import CopyTiming, kind

ROUNDS = 20


@dataclass(frozen=True, slots=True)
class InstrTime:
    """One instruction: median seconds, operations done, bytes read and written.

    `kind` names its operators; `sources` the results of the model's nodes that it computes;
    `limit` is the seconds that it cannot take less than.  `before` and `after` name the operators
    of those that make its operands and read its results; the caller's are "an input" and "an
    output".
    """

    number: int
    kind: str
    sources: tuple[str, ...]
    compiled: bool
    seconds: float
    flop: int
    nbytes: int
    limit: float
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.flop / self.seconds if self.seconds else 0.0

    @property
    def traffic(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class RunProfile:
    """The parts of a run in order, and the median seconds of runs of the whole.

    There are `copies` to and from a device with memory of its own.
    """

    parts: tuple[InstrTime, ...]
    run: float
    copies: tuple[CopyTiming, ...] = ()

    @property
    def seconds(self) -> float:
        """What the parts take together."""
        return sum(p.seconds for p in self.parts)

    @property
    def limit(self) -> float:
        """The seconds that the parts cannot take less than together."""
        return sum(p.limit for p in self.parts)


def profile(
    exe: Executable, feeds: Mapping[str, Any], graph: Graph | None = None, rounds: int = ROUNDS
) -> RunProfile:
    """Time every instruction of `exe` on `feeds`; `graph` is the model as it was imported.

    Raises UnsupportedError for models that run in parts.
    """
    if not isinstance(exe, InProcess):
        raise UnsupportedError(
            f"profiling is not supported for target '{exe.target}' and models that run in parts"
        )
    timing = exe.timed(feeds, rounds)
    instrs = list(timing.program.instrs())
    times = [median(samples) for samples in zip(*timing.rounds, strict=True)]
    origins = sources(instrs, graph)
    on = roofline(instrs, exe.threads or default_threads(), exe.target)
    least = limits(timing.program, on)
    around = _neighbours(timing.program, instrs)
    rows = zip(instrs, origins, timing.compiled, times, least, around, strict=True)
    parts = tuple(
        InstrTime(k, kind(i), origin, compiled, seconds, flops_of(i), nbytes(i), limit, *beside)
        for k, (i, origin, compiled, seconds, limit, beside) in enumerate(rows)
    )
    return RunProfile(parts, median(timing.runs), timing.copies)


def _neighbours(
    program: Program, instrs: Sequence[Instr]
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return, for each instruction, the kinds of those before it and after it, each once."""
    before: list[dict[str, None]] = [{} for _ in instrs]
    after: list[dict[str, None]] = [{} for _ in instrs]
    writers: dict[str, list[int]] = {}
    for k, i in enumerate(instrs):
        read = dict.fromkeys(r.buffer for r in i.reads())
        for buffer in read:
            for w in writers.get(buffer, ()):
                before[k][kind(instrs[w])] = None
                after[w][kind(i)] = None
            if program.buffers[buffer].space == "input":
                before[k]["an input"] = None
        for r in i.outs:
            # A buffer may be written in parts; who reads it too writes it anew.
            others = [] if r.buffer in read else writers.get(r.buffer, [])
            writers[r.buffer] = [*others, k]
            if program.buffers[r.buffer].space == "output":
                after[k]["an output"] = None
    return [(tuple(b), tuple(a)) for b, a in zip(before, after, strict=True)]


def nbytes(instr: Instr) -> int:
    """Return the bytes that an instruction reads and writes, each operand counted once."""
    return sum(map(touched, {*instr.reads(), *instr.outs}))


def trace(times: RunProfile) -> dict[str, Any]:
    """Return a profile as Chrome's trace viewer and Perfetto read it: one run, end to end."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "alpenglow"}}
    ]
    at = 0.0
    for p in times.parts:
        took = p.seconds * 1e6
        about = {"number": p.number, "sources": list(p.sources), "flop": p.flop,
                 "bytes": p.nbytes, "limit_us": p.limit * 1e6, "compiled": p.compiled}  # fmt: skip
        events.append({"name": p.kind, "cat": "kernel", "ph": "X", "pid": 1, "tid": 1,
                       "ts": at, "dur": took, "args": about})  # fmt: skip
        for name, rate in (("GFLOP/s", p.rate), ("GB/s", p.traffic)):
            events.append({"name": name, "ph": "C", "pid": 1, "ts": at,
                           "args": {name: rate / 1e9}})  # fmt: skip
        at += took
    return {"traceEvents": events, "displayTimeUnit": "ms"}
