"""Timing the instructions of an Executable one by one, in the order of a run.

Between two instructions the caches hold what they hold in a run, so weights that are read once are
cold, as they are there.  What it costs to call a single instruction is measured and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.program import Program
from alpenglow.program.bind import bind
from alpenglow.program.interpret import step
from alpenglow.runtime.cpus import default_threads
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.feeds import random_key
from alpenglow.runtime.layout import Bound, Context, Layout
from alpenglow.runtime.team import Team

ROW = 24
"""Bytes of one row of a table."""


@dataclass(frozen=True)
class Timing:
    """What ran, with all extents known, and the seconds of each instruction in each round.

    `compiled` tells of each instruction whether it has a kernel; `runs` holds the seconds of runs
    of the whole.
    """

    program: Program
    compiled: tuple[bool, ...]
    rounds: tuple[tuple[float, ...], ...]
    runs: tuple[float, ...]


def time_instructions(exe: Executable, feeds: Mapping[str, Any], rounds: int) -> Timing:
    """Run `exe` on `feeds` as a whole and in single instructions, by turns."""
    exe.run(feeds)
    given = exe._feeds(feeds)
    values = {} if exe._reader is None else exe._reader.values(given)[0]
    layout, bound = exe._ready or exe._bound(values)
    for name in exe._hidden:
        given[name] = random_key()
    results, direct = exe._results(layout, bound, {}, given)
    context = layout.take(bound)
    found, runs = [], []
    try:
        for _ in range(rounds):
            begin = time.perf_counter()
            exe._walk(layout, bound, context, given, direct)
            runs.append(time.perf_counter() - begin)
            for name, array in (*given.items(), *results.items()):
                if context.memory is not None:
                    flat = array.reshape(-1)
                    context.memory.bytes[name] = flat.view(np.uint8) if flat.size else flat
            found.append(_round(layout, bound, context, exe.threads or default_threads()))
    finally:
        layout.give_back(bound, context)
    artifact = layout.artifact
    program = bind(artifact.program, values) if values else artifact.program
    compiled = tuple(bool(entry.kernel) for entry in artifact.table)
    return Timing(program, compiled, tuple(found), tuple(runs))


def _round(layout: Layout, bound: Bound, context: Context, threads: int) -> tuple[float, ...]:
    """Return the seconds of every instruction in one pass over the table."""
    team = Team.shared()
    nothing = min(_seconds(team, context.base, 0, threads) for _ in range(5))
    times = []
    for span in layout.spans:
        if span.number >= 0:
            assert context.memory is not None, "what is interpreted has memory"
            begin = time.perf_counter()
            step(context.memory, bound.interpreted[span.number])
            times.append(time.perf_counter() - begin)
            continue
        for row in range(span.begin, span.end):
            took = _seconds(team, context.base + ROW * row, 1, threads)
            times.append(max(took - nothing, 0.0))
    return tuple(times)


def _seconds(team: Team, address: int, count: int, threads: int) -> float:
    begin = time.perf_counter()
    team.run(address, count, threads)
    return time.perf_counter() - begin
