"""Provisioning: a model compiled once for each target, and a replica for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from alpenglow.base.errors import OptionError
from alpenglow.driver.compile import Model, compile
from alpenglow.host.network import Network, Step
from alpenglow.host.worker import Worker
from alpenglow.ir.target import Target
from alpenglow.program import Program
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.installed import install


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
    """Raise OptionError if a worker has not the memory that all that it runs takes."""
    artifacts = (a for exe in dict.fromkeys(executables) for a in exe.artifacts)
    needed = sum(memory_of(a.program) for a in artifacts)
    if worker.memory is not None and needed > worker.memory:
        raise OptionError(
            f"worker '{worker.name}' has {worker.memory:,} bytes, and with this network needs "
            f"{needed:,} for weights, arenas, inputs and outputs",
            hint="remove another network before",
        )


def memory_of(program: Program) -> int:
    """Return the bytes that a planned program takes of a worker: weights, arena, what it reads and
    what it leaves.

    Extents that are open count as nothing: they are not known before calls.
    """
    held = [b.nbytes for b in program.buffers.values() if b.space in ("const", "input", "output")]
    return sum(n for n in (program.arena, *held) if isinstance(n, int))
