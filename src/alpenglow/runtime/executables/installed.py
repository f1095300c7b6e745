"""Artifacts in this process: Executables of which everything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.mapped import Mapped
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.api import Artifact, Device
from alpenglow.machines.registry import device_for
from alpenglow.runtime.call import calls
from alpenglow.runtime.call.feeds import Inputs
from alpenglow.runtime.device.layout import layout_of
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.executables.timing import Timing
from alpenglow.runtime.memory.layout import Layout, Place
from alpenglow.runtime.memory.streamed import StreamedLayout

Types = dict[str, TensorType]


def install(artifact: Artifact, threads: int | None = None) -> Executable:
    """Return what runs an artifact: in this process, or on the device of its target."""
    return Installed(artifact, threads)


def stream(artifact: Artifact, file: Mapped, nbytes: int, threads: int | None) -> Executable:
    """Return what runs an artifact in this process, with weights that take `nbytes` at most.

    Unless `threads` is said, a CPU is left to what reads them.
    Raises UnsupportedError for what runs on a device, MemoryLimitError if that is too little.
    """
    if device_for(artifact.target) is not None or not artifact.target.is_host_compatible():
        raise UnsupportedError(
            f"weights of code for '{artifact.target}' are not read while it runs",
            hint="leave weights out: a device holds all of them",
        )
    return Streamed(artifact, file, nbytes, threads or max(1, default_threads() - 1))


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
            self.device, self._arrays = device, Inputs(inputs, device)
        self._artifact = artifact
        self._initial = initial_values(artifact)
        # Where nothing is compiled, all is interpreted, anywhere.
        self._runs_here = self._runs_here or not artifact.objects
        self._place: Place | None = None
        if self._runs_here:
            layout = self._layout_of(artifact, device)
            self._artifact = layout.artifact
            self._place = layout, layout.bound({})
            if layout.is_table:
                self._table = self._place

    def _layout_of(self, artifact: Artifact, device: Device | None) -> Layout:
        return layout_of(artifact, device)

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
        if self._table is not None:
            self._table[1].stop(calls.CANCELLED)


class Streamed(Installed):
    """An artifact whose weights are read from its archive's file as a call goes on."""

    def __init__(
        self, artifact: Artifact, file: Mapped, nbytes: int, threads: int | None
    ) -> None:
        self._file, self._nbytes = file, nbytes
        super().__init__(artifact, threads)

    def _layout_of(self, artifact: Artifact, device: Device | None) -> Layout:
        return StreamedLayout(artifact, self._file, self._nbytes)

    def timed(self, feeds: Mapping[str, Any], rounds: int) -> Timing:
        raise UnsupportedError(
            "timing instructions with streamed weights is not supported",
            hint="open it without weights",
        )


def initial_values(artifact: Artifact) -> dict[str, Value]:
    """Return what variables hold before the first call."""
    return {name: cell.initial for name, cell in artifact.program.variables.items()}


def outer_types(artifact: Artifact) -> tuple[Types, Types]:
    """Return the types of the inputs that a caller fills, and of outputs as he calls them."""
    program = artifact.program
    visible = [name for name in program.inputs if name not in program.hidden]
    inputs, outputs = (
        {name: t for name in names if (t := program.buffers[name].type) is not None}
        for names in (visible, program.outputs)
    )
    return inputs, {program.names.get(name, name): t for name, t in outputs.items()}
