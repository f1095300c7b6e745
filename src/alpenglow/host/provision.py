"""Provisioning: a model compiled once for each target, and a replica for each worker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alpenglow.base.errors import MemoryLimitError, OptionError
from alpenglow.base.words import shown
from alpenglow.driver.compile import Model, compile
from alpenglow.host.network import Network, Step
from alpenglow.host.worker import Worker
from alpenglow.ir.target import Target
from alpenglow.program import Program
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.installed import install
from alpenglow.runtime.executables.open_extents import OpenExecutable


def provisioned(
    name: str, version: int, model: Model, workers: Sequence[Worker], options: dict[str, Any]
) -> Network:
    """Return a network of one step: a model, compiled, with an Executable for each worker."""
    compiled: dict[Target, Executable] = {}
    replicas: dict[str, Executable] = {}
    for worker in workers:
        exe = compiled.get(worker.target)
        if exe is None:
            exe = compile(model, worker.target, worker.threads, **options)
            compiled[worker.target] = exe
        elif not exe.is_open:
            exe = install(exe.artifact, worker.threads)
        # What is compiled as it is called serves all: workers use the threads that they have.
        replicas[worker.name] = exe
    return Network(name, version, (Step(replicas),))


def check_memory(worker: Worker, executables: Iterable[Executable]) -> None:
    """Raise OptionError if a worker has not the memory that all that it runs takes.

    Of a model with open extents these are its weights: what a call takes is known then, and
    `check_call` is asked.  The parts of a model that depends on data are not known before.
    """
    if worker.memory is None:
        return
    mine = list(dict.fromkeys(executables))
    if staged := [exe for exe in mine if exe.is_open and not isinstance(exe, OpenExecutable)]:
        raise OptionError(
            f"worker '{worker.name}' has {worker.memory:,} bytes, but what {shown(staged[0].name)} "
            "needs depends on its data",
            hint="leave memory out of the worker, or let another one run this network",
        )
    needed = sum(map(_lasting, mine))
    if needed > worker.memory:
        raise OptionError(
            f"worker '{worker.name}' has {worker.memory:,} bytes, and with this network needs "
            f"{needed:,} for weights, arenas, inputs and outputs",
            hint="remove another network before",
        )


def check_call(
    worker: Worker, executables: Iterable[Executable], exe: Executable, arrays: Mapping[str, Any]
) -> None:
    """Raise MemoryLimitError if a call of one of the executables takes more than there is left."""
    if worker.memory is None or not isinstance(exe, OpenExecutable):
        return
    place = exe.place_of(arrays)
    if place is None:
        raise MemoryLimitError(
            f"worker '{worker.name}' has {worker.memory:,} bytes, and for these "
            f"dimensions {shown(exe.name)} runs in parts, whose memory is unknown",
            hint="leave memory out of the worker",
        )
    layout, bound = place
    program = layout.artifact.program
    outer = [bound.forms[n] for n in (*program.inputs, *program.outputs)]
    sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in outer]
    weights = _weights(program) - _lasting(exe)  # packed, they are larger
    others = sum(map(_lasting, dict.fromkeys(executables)))
    needed = others + max(0, weights) + bound.arena_nbytes + sum(sizes)
    if needed > worker.memory:
        raise MemoryLimitError(
            f"worker '{worker.name}' has {worker.memory:,} bytes, and with this call of "
            f"{shown(exe.name)} needs {needed:,} for weights, arenas, inputs and outputs",
            hint="a smaller batch, or a worker with more memory",
        )


def _lasting(exe: Executable) -> int:
    """Return the bytes that an executable takes of a worker, whether it is called or not."""
    if isinstance(exe, OpenExecutable):
        return sum(v.type.nbytes for v in exe.graph.constants())
    return sum(memory_of(a.program) for a in exe.artifacts)


def memory_of(program: Program) -> int:
    """Return the bytes that a planned program takes of a worker: weights, arena, what it reads and
    what it leaves.

    Extents that are open count as nothing: they are not known before calls.
    """
    held = [b.nbytes for b in program.buffers.values() if b.space in ("const", "input", "output")]
    return sum(n for n in (program.arena, *held) if isinstance(n, int))


def _weights(program: Program) -> int:
    return sum(int(b.nbytes) for b in program.buffers.values() if b.space == "const")
