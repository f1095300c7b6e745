"""The kernels of a bundle: one for each instruction but jumps, for there is no interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target
from alpenglow.machines.choice import ChosenKernel
from alpenglow.machines.grid import select as grid
from alpenglow.machines.proof import admitted
from alpenglow.machines.registry import machine_for
from alpenglow.machines.vector import select as vector
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program


def chosen(program: Program, target: Target, strict: bool) -> tuple[ChosenKernel, ...]:
    """Return the kernels of the instructions of a program that `refuse_interpreted` let pass.

    Jumps have none.  Raises UnsupportedError for a kernel that may leave its operands.
    """
    return tuple(_chosen(instr, target, strict) for instr in computing(program))


def computing(program: Program) -> Iterator[Instr]:
    """Return the instructions of a program that are no jumps."""
    return (instr for instr in program.instrs() if not isinstance(instr.op, Jump))


def _chosen(instr: Instr, target: Target, strict: bool) -> ChosenKernel:
    choose = grid.choose if machine_for(target).family == "grid" else vector.choose
    choice = choose(instr, target, strict)
    assert choice is not None, f"{instr.op.name} has no kernel"
    if not admitted(choice.kernel, instr):
        raise UnsupportedError(
            f"{instr.op.name}: a kernel that is not proved safe is not supported"
        )
    return choice


def refuse_interpreted(programs: Mapping[Target, Iterable[Program]]) -> None:
    """Raise UnsupportedError if any instruction would need the interpreter."""
    missing: Counter[str] = Counter()
    for target, every in programs.items():
        machine = machine_for(target)
        for instr in (i for program in every for i in computing(program)):
            missing.update({op.name for op in instr.operators() if machine.lacks(op)})
    if missing:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        raise UnsupportedError(
            f"a bundle has no interpreter, which these operators would need: {named}",
            hint="cut the model before them, for example with onnx.utils.extract_model, and do "
            "their work in the program that calls the bundle; `alpenglow check` lists all "
            "operators",
        )
