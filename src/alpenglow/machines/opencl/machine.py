"""OpenCL as two machines: one for devices that are processors, one for those of many threads.

A processor wants vectors in registers and long loops, as the CPU does; a GPU wants a thread for
each element.  What both share is the language, its compiler, and how a device is driven.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

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


class OpenClCpu(VectorMachine):
    """Writes OpenCL C for devices that are processors."""

    name = targets.machine("cpu")
    targets = (name, "opencl")
    version = VERSION

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        return targets.named("cpu", name, features)

    def runs_here(self, target: Target) -> bool:
        return _runs_here(target, "cpu")

    def refuses(self, instr: Instr, target: Target) -> str:
        return _refusal(instr, target, "vector")

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        choose = import_module("alpenglow.machines.vector.select").choose
        making = import_module("alpenglow.machines.opencl.emit")
        artifact: Artifact = making.emit(program, target, strict, progress, choose)
        return artifact

    def device(self, target: Target) -> Device | None:
        return device_of(_here(target, "cpu"))


class OpenClGpu:
    """Writes OpenCL C for devices of many threads."""

    name = targets.machine("gpu")
    family = "grid"
    targets = (name,)
    version = VERSION
    reasons: Sequence[Reason] = ()

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        return targets.named("gpu", name, features)

    def runs_here(self, target: Target) -> bool:
        return _runs_here(target, "gpu")

    def passes(self, choices: Choices) -> Sequence[Pass]:
        return ()

    def stays_in_f32(self, node: Node, dtype: str, target: Target) -> bool:
        return False

    def takes_epilogue(self, op: Op) -> bool:
        takes: bool = import_module("alpenglow.machines.grid.select").takes_epilogue(op)
        return takes

    def takes_attention(
        self, scores: Node, product: Node, target: Target, dtype: str | None = None
    ) -> bool:
        selecting = import_module("alpenglow.machines.grid.select")
        takes: bool = selecting.takes_attention(scores, product, target, dtype)
        return takes

    def lacks(self, op: Op) -> str:
        why: str = import_module("alpenglow.machines.grid.select").lacks(op)
        return why

    def refuses(self, instr: Instr, target: Target) -> str:
        return _refusal(instr, target, "grid")

    def kernel(self, instr: Instr, target: Target) -> Kernel | None:
        chosen = import_module("alpenglow.machines.grid.select").choose(instr, target, False)
        kernel: Kernel | None = None if chosen is None else chosen.kernel
        return kernel

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        choose = import_module("alpenglow.machines.grid.select").choose
        making = import_module("alpenglow.machines.opencl.emit")
        artifact: Artifact = making.emit(program, target, strict, progress, choose)
        return artifact

    def device(self, target: Target) -> Device | None:
        return device_of(_here(target, "gpu"))


def _refusal(instr: Instr, target: Target, family: str) -> str:
    choose = import_module(f"alpenglow.machines.{family}.select").choose
    why: str = import_module("alpenglow.machines.opencl.emit").refusal(instr, target, choose)
    return why


def _here(target: Target, kind: str) -> DeviceFacts:
    """Return the device here that runs code for a target: the one that it names, or the first, one
    of its kind if there is any.  Raises DeviceError if there is none."""
    _, _, named = target.name.partition(":")
    if named or target.name == "opencl":
        return find(named)
    every = devices()
    alike = [d for d in every if (d.kind == "cpu") == (kind == "cpu")]
    return [*alike, *every][0]


def _runs_here(target: Target, kind: str) -> bool:
    try:
        return bool(_here(target, kind))
    except DeviceError:
        return False
