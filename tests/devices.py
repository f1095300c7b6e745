"""A device for tests: memory that nobody else sees, and work that is put off until it is needed.

What was begun is done when an event is waited for, or something else that comes after it, and no
sooner: a caller that forgets to wait reads what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.evaluate import apply
from alpenglow.machines.api import Artifact, Entry
from alpenglow.program import Instr, Region
from alpenglow.runtime.executables.installed import Installed


class Event:
    """Work that is done once it is needed, after what comes before it."""

    def __init__(self, work: Callable[[], None], before: tuple[Any, ...]) -> None:
        self.work: Callable[[], None] | None = work
        self.before = before

    def happen(self) -> None:
        """Do what is left to do, the oldest first, not on Python's stack."""
        path = [self]
        while path:
            event = path[-1]
            waits = [e for e in event.before if e is not None and e.work is not None]
            if waits:
                path.append(waits[0])
                continue
            path.pop()
            if event.work is not None:
                event.work()
                event.work = None


class Chip:
    """A device that runs instructions in NumPy, and counts what is copied and held."""

    dlpack = 12, 0

    def __init__(self) -> None:
        self.copied: list[tuple[str, int]] = []
        self.held = 0
        """Bytes that are allocated."""
        self._newest: dict[str, Event | None] = {"up": None, "down": None, "run": None}

    def allocate(self, nbytes: int) -> Any:
        self.held += nbytes
        return np.full(nbytes, 0xA5, np.uint8)

    def free(self, memory: Any) -> None:
        self.held -= memory.size

    def handle(self, memory: Any) -> int:
        return int(memory.ctypes.data)

    def upload(self, memory: Any, offset: int, data: Any, after: Any = ()) -> Event:
        self.copied.append(("up", data.size))

        def work() -> None:
            memory[offset : offset + data.size] = data

        return self._begin("up", work, after)

    def download(self, memory: Any, offset: int, data: Any, after: Any = ()) -> Event:
        self.copied.append(("down", data.size))

        def work() -> None:
            data[:] = memory[offset : offset + data.size]

        return self._begin("down", work, after)

    def copy(self, to: Any, source: Any, nbytes: int, after: Any = ()) -> Event:
        def work() -> None:
            to[0][to[1] : to[1] + nbytes] = source[0][source[1] : source[1] + nbytes]

        return self._begin("run", work, after)

    def install(self, artifact: Artifact) -> Any:
        return {e.kernel: i for e, i in zip(artifact.table, artifact.program.instrs(), strict=True)}

    def record(self, code: Any, launches: Any) -> Any:
        return code, launches

    def replay(self, recording: Any, after: Any = ()) -> Event:
        code, launches = recording

        def work() -> None:
            for launch in launches:
                _run(code[launch.kernel], launch.arguments)

        return self._begin("run", work, after)

    def wait(self, event: Any) -> None:
        if event is not None:
            event.happen()

    def seconds(self, code: Any, launch: Any) -> float:
        self.wait(self.replay(self.record(code, [launch])))
        return 1e-6

    def _begin(self, stream: str, work: Callable[[], None], after: Any) -> Event:
        event = Event(work, (self._newest[stream], *after))
        self._newest[stream] = event
        return event


def _run(instr: Instr, arguments: Any) -> None:
    """Run an instruction on operands in memory of a device."""
    regions = (*instr.outs, *instr.reads())
    views = [
        _view(memory, offset, r) for (memory, offset), r in zip(arguments, regions, strict=True)
    ]
    arrays = [v.copy() for v in views[len(instr.outs) :]]
    results = apply(instr.op, arrays, instr.regions, [r.type for r in instr.outs])
    for view, array in zip(views, results, strict=False):
        view[...] = array


def _view(memory: Any, offset: int, r: Region) -> Any:
    size = r.type.numpy.itemsize
    strides = tuple(int(s) * size for s in r.strides)
    return np.ndarray(r.type.extents, r.type.numpy, memory, offset, strides)


def for_chip(g: ag.Graph, *ops: type) -> Artifact:
    """Return an artifact of a graph of which a chip runs some operators."""
    artifact = ag.compile(g, target="interpreter", options=ag.Options(check=False)).artifact
    table = tuple(
        Entry(f"{i.op.name}_{n}" if all(isinstance(op, ops) for op in i.operators()) else "", 1)
        for n, i in enumerate(artifact.program.instrs())
    )
    return Artifact(artifact.target, artifact.program, {}, table)


def on_chip(g: ag.Graph, chip: Chip, *ops: type) -> Installed:
    """Return a graph on a chip that runs some operators."""
    return Installed(for_chip(g, *ops), device=chip)
