"""The kernels of a bundle: one for each instruction, for there is no interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target
from alpenglow.machines.choice import ChosenKernel
from alpenglow.machines.proof import admitted
from alpenglow.machines.vector.select import choose, compiles
from alpenglow.program import Instr, Program


def chosen(program: Program, target: Target, strict: bool) -> tuple[ChosenKernel, ...]:
    """Return the kernels of the instructions of a program that `refuse_interpreted` let pass.

    Raises UnsupportedError for one that may leave its operands.
    """
    return tuple(_chosen(instr, target, strict) for instr in program.instrs())


def _chosen(instr: Instr, target: Target, strict: bool) -> ChosenKernel:
    choice = choose(instr, target, strict)
    assert choice is not None, f"{instr.op.name} has no kernel"
    if not admitted(choice.kernel, instr):
        raise UnsupportedError(f"{instr.op.name} has no kernel that is proved to be safe")
    return choice


def refuse_interpreted(programs: Iterable[Program]) -> None:
    """Raise UnsupportedError if any instruction would need the interpreter."""
    missing: Counter[str] = Counter()
    for program in programs:
        for instr in program.instrs():
            missing.update({op.name for op in instr.operators() if not compiles(op)})
    if missing:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        raise UnsupportedError(
            f"a bundle has no interpreter, which these operators would need: {named}",
            hint="cut the model before them, for example with onnx.utils.extract_model, and do "
            "their work in the program that calls the bundle; `alpenglow check` lists all "
            "operators",
        )
