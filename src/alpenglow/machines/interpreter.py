"""The interpreter as a machine: every instruction is evaluated in NumPy.  The reference."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import OptionError
from alpenglow.base.store import Store
from alpenglow.ir.graph import Node
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.api import Artifact, Entry, Progress
from alpenglow.passes.table import Choices, Pass, Reason
from alpenglow.program import Instr, Program


class Interpreter:
    """Emits artifacts without code."""

    name = family = "interpreter"
    reasons: Sequence[Reason] = ()
    targets = ("interpreter",)
    version = ""

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        if name != self.name:
            return None
        if features:
            raise OptionError(
                f"target '{'+'.join([name, *features])}': '{name}' takes no features",
                hint=f"'{name}' alone",
            )
        return Target(name, self.name)

    def runs_here(self, target: Target) -> bool:
        return True

    def passes(self, choices: Choices) -> Sequence[Pass]:
        return ()

    def stays_in_f32(self, node: Node, dtype: str, target: Target) -> bool:
        return False

    def takes_epilogue(self, op: Op) -> bool:
        return False

    def takes_prologue(self, op: Op) -> bool:
        return False

    def takes_attention(
        self, scores: Node, product: Node, target: Target, dtype: str | None = None
    ) -> bool:
        return False

    def lacks(self, op: Op) -> str:
        return "the interpreter compiles nothing"

    def refuses(self, instr: Instr, target: Target) -> str:
        return ""

    def kernel(self, instr: Instr, target: Target) -> Kernel | None:
        return None

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        return Artifact(target, program, {}, tuple(Entry("", 1) for _ in program.instrs()))

    def device(self, target: Target) -> None:
        return None
