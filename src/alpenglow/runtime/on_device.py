"""Executables whose code runs on a device with memory of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpenglow.ir.graph import HIDDEN, Value
from alpenglow.ir.types import TensorType
from alpenglow.machines.api import Artifact, Device
from alpenglow.runtime import calls, feeds
from alpenglow.runtime.calls import Call, StopWord
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.feeds import Inputs
from alpenglow.runtime.held import Held, lent
from alpenglow.runtime.layout import dense
from alpenglow.runtime.remote import Remote

Types = dict[str, TensorType]


class OnDevice(Executable):
    """An artifact without open extents on a device."""

    def __init__(self, artifact: Artifact, device: Device, threads: int | None = None) -> None:
        inputs, outputs = outer_types(artifact)
        shown = {n: t for n, t in inputs.items() if not n.startswith(HIDDEN)}
        name = artifact.program.name
        super().__init__(name, artifact.metadata, artifact.target, threads, shown, outputs)
        self._artifact = artifact
        self._initial = initial_values(artifact)
        self._arrays = Inputs(inputs)
        self._remote = Remote(artifact, device)

    @property
    def artifacts(self) -> list[Artifact]:
        return [self._artifact]

    def archived(self, treated: str = "saved") -> Artifact:
        return self._artifact

    def _run(
        self,
        arrays: Mapping[str, Any],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        program = self._artifact.program
        inputs = self._arrays.fit(arrays) | self._arrays.drawn()
        forms = {name: (t.numpy, t.extents) for name in program.outputs
                 if (t := program.buffers[name].type) is not None}  # fmt: skip
        results, direct = feeds.results(program, forms, out, inputs)
        stop = StopWord(None)
        self._running.add(stop)
        try:
            with lent(program, held) as (entries, exits), calls.part(stop, call):
                sources = {name: dense(a) for name, a in inputs.items()}
                self._remote.run({**sources, **entries}, {**direct, **exits}, stop)
        finally:
            self._running.discard(stop)
        return feeds.handed_back(program, results, direct)


def initial_values(artifact: Artifact) -> dict[str, Value]:
    """Return what variables hold before the first call."""
    return {name: cell.initial for name, cell in artifact.program.variables.items()}


def outer_types(artifact: Artifact) -> tuple[Types, Types]:
    """Return the types of inputs, hidden ones too, and of outputs as the caller calls them."""
    program = artifact.program
    inputs, outputs = (
        {name: t for name in names if (t := program.buffers[name].type) is not None}
        for names in (program.inputs, program.outputs)
    )
    return inputs, {program.names.get(name, name): t for name, t in outputs.items()}
