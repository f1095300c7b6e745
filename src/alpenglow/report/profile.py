"""Profiles: where the time of a run goes, kernel by kernel, beside what the machine can do.

Each instruction has its time, the operations that it does, the bytes that it touches, and the
nodes of the model that it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from alpenglow.ir.graph import Graph
from alpenglow.program import Instr, Region
from alpenglow.report.flops import flops_of
from alpenglow.report.sources import sources
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.timing import time_instructions

ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Part:
    """One instruction: median seconds, operations done, bytes read and written.

    `kind` names its operators; `sources` the results of the model's nodes that it computes.
    """

    number: int
    kind: str
    sources: tuple[str, ...]
    compiled: bool
    seconds: float
    flop: int
    nbytes: int

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.flop / self.seconds if self.seconds else 0.0

    @property
    def traffic(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The parts of a run in order, and the median seconds of runs of the whole."""

    parts: tuple[Part, ...]
    run: float

    @property
    def seconds(self) -> float:
        """What the parts take together."""
        return sum(p.seconds for p in self.parts)


def profile(
    exe: Executable, feeds: Mapping[str, Any], graph: Graph | None = None, rounds: int = ROUNDS
) -> Profile:
    """Time every instruction of `exe` on `feeds`; `graph` is the model as it was imported."""
    timing = time_instructions(exe, feeds, rounds)
    instrs = list(timing.program.instrs())
    times = [median(found) for found in zip(*timing.rounds, strict=True)]
    origins = sources(instrs, graph)
    rows = zip(instrs, origins, timing.compiled, times, strict=True)
    parts = tuple(
        Part(k, kind(i), origin, compiled, seconds, flops_of(i), nbytes(i))
        for k, (i, origin, compiled, seconds) in enumerate(rows)
    )
    return Profile(parts, median(timing.runs))


def kind(instr: Instr) -> str:
    """Return the names of the operators that an instruction applies, each once."""
    if instr.body is None:
        return instr.op.name
    names = dict.fromkeys(n.op.name for n in instr.body.nodes)
    return "+".join(n for n in names if n != "broadcast" or len(names) == 1)


def nbytes(instr: Instr) -> int:
    """Return the bytes that an instruction reads and writes, each operand counted once."""
    return sum(_touched(r) for r in {*instr.reads(), *instr.outs})


def _touched(r: Region) -> int:
    """Return the bytes of the elements of a region; those that are repeated are one."""
    distinct = (d for d, s in zip(r.shape, r.strides, strict=True) if s or not d)
    return math.prod(distinct) * r.type.numpy.itemsize


def trace(found: Profile) -> dict[str, Any]:
    """Return a profile as Chrome's trace viewer and Perfetto read it: one run, end to end."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "alpenglow"}}
    ]
    at = 0.0
    for p in found.parts:
        took = p.seconds * 1e6
        about = {"number": p.number, "sources": list(p.sources), "flop": p.flop,
                 "bytes": p.nbytes, "compiled": p.compiled}  # fmt: skip
        events.append({"name": p.kind, "cat": "kernel", "ph": "X", "pid": 1, "tid": 1,
                       "ts": at, "dur": took, "args": about})  # fmt: skip
        for name, rate in (("GFLOP/s", p.rate), ("GB/s", p.traffic)):
            events.append({"name": name, "ph": "C", "pid": 1, "ts": at,
                           "args": {name: rate / 1e9}})  # fmt: skip
        at += took
    return {"traceEvents": events, "displayTimeUnit": "ms"}
