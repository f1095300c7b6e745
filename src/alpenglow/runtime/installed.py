"""Artifacts in this process: Executables of which everything is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.api import Artifact, Device
from alpenglow.runtime import calls
from alpenglow.runtime.device_layout import layout_of
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.feeds import Inputs
from alpenglow.runtime.in_process import InProcess
from alpenglow.runtime.layout import Layout, Place

Types = dict[str, TensorType]


def install(artifact: Artifact, threads: int | None = None) -> Executable:
    """Return what runs an artifact: in this process, or on the device of its target."""
    return Installed(artifact, threads)


class Installed(InProcess):
    """An artifact without open extents.  If it does not run here, it can be saved all the same."""

    restore = staticmethod(install)

    def __init__(
        self, artifact: Artifact, threads: int | None = None, device: Device | None = None
    ) -> None:
        inputs, outputs = outer_types(artifact)
        name = artifact.program.name
        super().__init__(name, artifact.metadata, artifact.target, threads, inputs, outputs)
        if device is not None:
            self._arrays = Inputs(inputs, device)
        self._artifact = artifact
        self._initial = initial_values(artifact)
        # Where nothing is compiled, all is interpreted, anywhere.
        self._runs_here = self._runs_here or not artifact.objects
        self._place: Place | None = None
        if self._runs_here:
            layout = layout_of(artifact, device)
            self._artifact = layout.artifact
            self._place = layout, layout.bound({})
            if layout.is_plain:
                self._plain = self._place

    @property
    def artifacts(self) -> list[Artifact]:
        return [self._artifact]

    def archived(self, treated: str = "saved") -> Artifact:
        return self._artifact

    def place(self, values: Mapping[str, int]) -> Place:
        assert self._place is not None, "it runs here"
        return self._place

    def layout(self, values: Mapping[str, int]) -> Layout | None:
        return None if self._place is None else self._place[0]

    def serving(self, arrays: Mapping[str, Array]) -> Place:
        return self.place({})

    def cancel(self) -> None:
        super().cancel()
        # Calls of few steps are not noted one by one.
        if self._plain is not None:
            self._plain[1].stop(calls.CANCELLED)


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
