"""The CPU as a machine: its targets, and object code for its kernels."""

from __future__ import annotations

from importlib import import_module

import llvmlite.binding as llvm

from alpenglow.base.store import Store
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact, Progress
from alpenglow.machines.cpu import targets
from alpenglow.machines.cpu.process import ThisProcess
from alpenglow.machines.vector.machine import VectorMachine
from alpenglow.program import Instr, Program


class Cpu(VectorMachine):
    """Makes object code through LLVM, for this process or for others."""

    name = targets.MACHINE
    targets = ("cpu", *targets.LEVELS)
    version = f"llvm{'.'.join(map(str, llvm.llvm_version_info))}"

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        return targets.target(name, features)

    def runs_here(self, target: Target) -> bool:
        return targets.runs_here(target)

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        # What makes code is imported with the first that is made.
        making = import_module("alpenglow.machines.cpu.emit")
        artifact: Artifact = making.emit(program, target, strict, store, progress)
        return artifact

    @property
    def languages(self) -> tuple[str, ...]:
        languages: tuple[str, ...] = import_module("alpenglow.machines.cpu.emit").LANGUAGES
        return languages

    def code(self, instr: Instr, target: Target, strict: bool, language: str) -> str:
        making = import_module("alpenglow.machines.cpu.emit")
        text: str = making.code(instr, target, strict, language)
        return text

    def device(self, target: Target) -> ThisProcess:
        return ThisProcess()
