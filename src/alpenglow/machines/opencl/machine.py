"""OpenCL as two machines: one for devices that are processors, one for those of many threads.

A processor wants vectors in registers and long loops, as the CPU does; a GPU wants a thread for
each element.  What both share is the language, its compiler, and how a device is driven.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from alpenglow.base.errors import DeviceError
from alpenglow.base.store import Store
from alpenglow.ir.graph import Node
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.api import Artifact, Device, Progress
from alpenglow.machines.opencl import targets
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import DeviceFacts, devices, find
from alpenglow.machines.vector.machine import VectorMachine
from alpenglow.passes.table import Choices, Pass, Reason
from alpenglow.program import Instr, Program

VERSION = "1"
"""Of what is written of a kernel: what was compiled with another is not used again."""


class OpenCl:
    """What machines share that write OpenCL C: its devices, and how their code is made.

    `kind` is that of the devices, "cpu" or "gpu"; kernels are chosen by the machine's `family`.
    """

    kind: str
    family: str
    version = VERSION

    @property
    def _selecting(self) -> Any:
        """What chooses kernels, which is imported with the first that is made."""
        return import_module(f"alpenglow.machines.{self.family}.select")

    @property
    def _emitting(self) -> Any:
        return import_module("alpenglow.machines.opencl.emit")

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        return targets.named(self.kind, name, features)

    def runs_here(self, target: Target) -> bool:
        try:
            return bool(self._here(target))
        except DeviceError:
            return False

    def refuses(self, instr: Instr, target: Target) -> str:
        why: str = self._emitting.refusal(instr, target, self._selecting.choose)
        return why

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        choose = self._selecting.choose
        artifact: Artifact = self._emitting.emit(program, target, strict, progress, choose)
        return artifact

    languages = ("opencl",)

    def code(self, instr: Instr, target: Target, strict: bool, language: str) -> str:
        made = self._emitting.written(instr, target, strict, self._selecting.choose)
        assert made is not None, "only instructions with a kernel are asked for"
        text: str = made.text
        return text

    def device(self, target: Target) -> Device | None:
        return device_of(self._here(target))

    def _here(self, target: Target) -> DeviceFacts:
        """Return the device here that runs code for a target: the one that it names, or the first,
        one of this kind if there is any.  Raises DeviceError if there is none."""
        _, _, named = target.name.partition(":")
        if named or target.name == "opencl":
            return find(named)
        every = devices()
        alike = [d for d in every if (d.kind == "cpu") == (self.kind == "cpu")]
        return [*alike, *every][0]


class OpenClCpu(OpenCl, VectorMachine):
    """Writes OpenCL C for devices that are processors."""

    kind = "cpu"
    name = targets.machine(kind)
    family = "vector"
    targets = (name, "opencl")


class OpenClGpu(OpenCl):
    """Writes OpenCL C for devices of many threads."""

    kind = "gpu"
    name = targets.machine(kind)
    family = "grid"
    targets = (name,)
    reasons: Sequence[Reason] = ()

    def passes(self, choices: Choices) -> Sequence[Pass]:
        return ()

    def stays_in_f32(self, node: Node, dtype: str, target: Target) -> bool:
        return False

    def takes_epilogue(self, op: Op) -> bool:
        return bool(self._selecting.takes_epilogue(op))

    def takes_prologue(self, op: Op) -> bool:
        return False  # threads of a group share what a reduction reads of memory

    def takes_attention(
        self, scores: Node, product: Node, target: Target, dtype: str | None = None
    ) -> bool:
        return bool(self._selecting.takes_attention(scores, product, target, dtype))

    def lacks(self, op: Op) -> str:
        why: str = self._selecting.lacks(op)
        return why

    def kernel(self, instr: Instr, target: Target) -> Kernel | None:
        chosen = self._selecting.choose(instr, target, False)
        kernel: Kernel | None = None if chosen is None else chosen.kernel
        return kernel
