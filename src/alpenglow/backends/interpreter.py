"""The interpreter as a backend: every instruction is evaluated in NumPy.  The reference."""

from __future__ import annotations

from alpenglow.backends.api import Artifact, Entry, Progress
from alpenglow.base.store import Store
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.program import Program


class InterpreterBackend:
    """Emits artifacts without code."""

    def accepts(self, target: Target) -> bool:
        return target.name == "interpreter"

    def algorithms(self, g: Graph, target: Target) -> Graph:
        return g

    def layout(self, g: Graph, target: Target) -> Graph:
        return g

    def takes_epilogue(self, op: Op) -> bool:
        return False

    def compiles(self, op: Op) -> bool:
        return False

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        return Artifact(target, program, {}, tuple(Entry("", 1) for _ in program.instrs()))
