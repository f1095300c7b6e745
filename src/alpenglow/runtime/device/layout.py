"""Layouts of artifacts whose code runs on a device with memory of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from alpenglow.ir.types import Array
from alpenglow.machines.api import Artifact, Device
from alpenglow.machines.registry import device_for
from alpenglow.runtime.call import calls
from alpenglow.runtime.call.calls import Call, StopWord
from alpenglow.runtime.device.array import DeviceArray
from alpenglow.runtime.device.remote import Constants, Remote
from alpenglow.runtime.memory.layout import Bound, Layout

MOST_BOUND = 4
"""For how many choices of extents a layout keeps memory on the device."""


@dataclass(slots=True, eq=False)
class DeviceBound(Bound):
    """What runs for given extents: `remote` has the memory and the lists of launches for them."""

    remote: Remote | None = None


class DeviceLayout(Layout):
    """An artifact on a device: its code, its constants, and memory for the extents of calls."""

    def __init__(self, artifact: Artifact, device: Device) -> None:
        self._device = device
        super().__init__(artifact)
        self.is_table = False
        self._kept = MOST_BOUND
        self._constants = Constants(self.artifact, device)

    def _installed(self, artifact: Artifact) -> Callable[[str], int]:
        self._on_device: Any = self._device.install(artifact)
        return lambda kernel: 0

    def _bind(self, values: dict[str, int]) -> Bound:
        bound = super()._bind(values)
        places, arena = self._planned(tuple(values.values()))
        program = self.exact(values, places, arena)
        remote = Remote(program, self.artifact.table, self._device, self._on_device,
                        self._constants, values)  # fmt: skip
        same = {f.name: getattr(bound, f.name) for f in fields(Bound)}
        return DeviceBound(**{**same, "is_long": False}, remote=remote)

    def run(
        self,
        bound: Bound,
        inputs: Mapping[str, Array],
        results: Mapping[str, Array],
        running: set[StopWord | Call],
        call: Call | None,
    ) -> None:
        """Run on arrays, as a part of `call`; raise an error if that is stopped."""
        assert isinstance(bound, DeviceBound) and bound.remote is not None, (
            "extents were bound here"
        )
        self.check_files()
        stop = StopWord(None)
        running.add(stop)
        try:
            with calls.part(stop, call):
                bound.remote.run(inputs, results, stop)
            self.check_files()
        finally:
            running.discard(stop)

    def begin(
        self,
        bound: Bound,
        inputs: Mapping[str, Array],
        exits: Mapping[str, Array],
        wanted: Sequence[str],
        running: set[StopWord | Call],
        call: Call | None,
    ) -> dict[str, DeviceArray]:
        """Begin to run on arrays, and return the outputs that are wanted on the device.

        Those that are computed on the host are copied there.
        """
        assert isinstance(bound, DeviceBound) and bound.remote is not None, "it was bound here"
        names = self.artifact.program.names
        buffers = {names.get(n, n): n for n in self.artifact.program.outputs}
        results: dict[str, Any] = {}
        for name in wanted:
            dtype, shape = bound.forms[buffers[name]]
            nbytes = math.prod(shape) * dtype.itemsize
            where = str(self.artifact.target)
            results[buffers[name]] = DeviceArray(self._device, nbytes, shape, dtype, where)
        self.run(bound, inputs, {**results, **exits}, running, call)
        return {name: results[buffers[name]] for name in wanted}


def layout_of(artifact: Artifact, device: Device | None = None) -> Layout:
    """Return the layout of an artifact, on this device or on that of its target, if it has one."""
    device = device or device_for(artifact.target)
    return Layout(artifact) if device is None else DeviceLayout(artifact, device)
