"""A machine: the interpreter once more, saying what it runs."""

from __future__ import annotations

from alpenglow.base.errors import OptionError
from alpenglow.base.store import Store
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact, Progress
from alpenglow.machines.interpreter import Interpreter
from alpenglow.program import Program


class Echo(Interpreter):
    """Emits artifacts without code, and a line for each instruction."""

    name = family = "echo"
    targets = ("echo",)

    def target(self, name: str, features: tuple[str, ...]) -> Target | None:
        if name != "echo":
            return None
        if set(features) - {"loud"}:
            raise OptionError(f"target 'echo' has the feature 'loud', not {', '.join(features)}")
        return Target("+".join([name, *features]), "echo", features=features)

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        for instr in program.instrs():
            print(instr.op.name.upper() if "loud" in target.features else instr.op.name)
        return super().emit(program, target, strict, store, progress)
