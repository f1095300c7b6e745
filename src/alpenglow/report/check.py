"""What becomes of a model: which of its operators are compiled, and which are interpreted.

What has no operator at all is found when the model is read, all of it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from alpenglow.base.errors import DeviceError
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.machines.api import Entry
from alpenglow.machines.choice import signature
from alpenglow.machines.registry import device_for, machine_for
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program
from alpenglow.runtime.device.itinerary import Copies, copies, itinerary

How = Literal["compiled", "interpreted"]


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """An operator, how often it stands there, and how it runs.

    `reason` says why it is interpreted: what it lacks, what is fused with it, or why a kernel of it
    is refused.
    """

    operator: str
    count: int
    how: How
    reason: str = ""


def check(ir: Graph | Program, target: Target, resume: str = "") -> tuple[OperatorCount, ...]:
    """Return how each operator that is left for run time would run on `target`.

    Operators are those of the lowered and fused program; what was folded, or became addressing,
    does not run at all and is not listed.  `resume` names the last pass that `ir` has been through.
    """
    return rows(planned(ir, target, resume), target)


def planned(
    ir: Graph | Program, target: Target, resume: str = "", options: Options | None = None
) -> Program:
    """Return the program that the pipeline makes for a target."""
    model: Graph | Program = ir.copy() if isinstance(ir, Graph) else ir
    for _, stage in run_stages(model, target, options or Options(check=False), resume):
        model = stage
    assert isinstance(model, Program), "the pipeline ends with a program"
    return model


def rows(program: Program, target: Target) -> tuple[OperatorCount, ...]:
    """Return how each operator of a program runs, interpreted ones first, then by count."""
    counts: Counter[tuple[str, How, str]] = Counter()
    for instr, reasons in judged(program, target):
        if isinstance(instr.op, Jump):
            continue
        # An instruction is one kernel: it is compiled as a whole or not at all.
        how: How = "interpreted" if reasons else "compiled"
        fused = f"it is fused with {', '.join(reasons)}" if reasons else ""
        counts.update((op.name, how, reasons.get(op.name, fused)) for op in instr.operators())
    listed = [OperatorCount(name, count, how, why) for (name, how, why), count in counts.items()]
    return tuple(sorted(listed, key=lambda r: (r.how == "compiled", -r.count, r.operator)))


def copied(program: Program, target: Target) -> tuple[Copies, ...]:
    """Return what a call copies to the device of a target and back; () where it has none here."""
    try:
        device = device_for(target)
    except DeviceError:
        return ()
    if device is None:
        return ()
    # Of a table only this counts: which entries have kernels.
    table = [
        Entry("" if why or isinstance(instr.op, Jump) else instr.op.name, 1)
        for instr, why in judged(program, target)
    ]
    return copies(program, itinerary(program, table))


def judged(program: Program, target: Target) -> Iterator[tuple[Instr, dict[str, str]]]:
    """Yield each instruction, and why operators of it keep it from being compiled."""
    machine = machine_for(target)
    known: dict[str, str] = {}
    for instr in program.instrs():
        # Jumps need no kernel.
        operators = [op for op in instr.operators() if not isinstance(op, Jump)]
        reasons = {op.name: why for op in operators if (why := machine.lacks(op))}
        if not reasons:
            like = signature(instr)
            if like not in known:
                known[like] = machine.refuses(instr, target) if operators else ""
            reasons = {op.name: known[like] for op in operators if known[like]}
        yield instr, reasons
