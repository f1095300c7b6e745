"""A target and its backend: the interpreter once more, saying what it runs."""

from __future__ import annotations

from alpenglow.backends.api import Artifact, Progress
from alpenglow.backends.interpreter import InterpreterBackend
from alpenglow.base.errors import OptionError
from alpenglow.base.store import Store
from alpenglow.ir.target import Target
from alpenglow.program import Program


def echo(*features: str) -> Target:
    """Return the target that `features` written behind ``echo+`` name."""
    if set(features) - {"loud"}:
        raise OptionError(f"target 'echo' has the feature 'loud', not {', '.join(features)}")
    return Target("", "", features, "+".join(["echo", *features]))


class EchoBackend(InterpreterBackend):
    """Emits artifacts without code, and a line for each instruction."""

    def accepts(self, target: Target) -> bool:
        return target.name.split("+")[0] == "echo"

    def emit(
        self, program: Program, target: Target, strict: bool, store: Store, progress: Progress
    ) -> Artifact:
        for instr in program.instrs():
            print(instr.op.name.upper() if "loud" in target.features else instr.op.name)
        return super().emit(program, target, strict, store, progress)
