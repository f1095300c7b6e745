"""What becomes of a model: which of its operators are compiled, and which are interpreted.

What has no operator at all is found when the model is read, all of it at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.machines.registry import machine_for
from alpenglow.program import Program

How = Literal["compiled", "interpreted"]


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """An operator, how often it stands there, and how it runs.

    `reason` says why it is interpreted: what it lacks, or what is fused with it.
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
    model: Graph | Program = ir.copy() if isinstance(ir, Graph) else ir
    for _, stage in run_stages(model, target, Options(check=False), resume):
        model = stage
    assert isinstance(model, Program), "the pipeline ends with a program"
    return rows(model, target)


def rows(program: Program, target: Target) -> tuple[OperatorCount, ...]:
    """Return how each operator of a program runs, interpreted ones first, then by count."""
    machine = machine_for(target)
    counts: Counter[tuple[str, How, str]] = Counter()
    for instr in program.instrs():
        operators = instr.operators()
        lacking = {op.name: why for op in operators if (why := machine.lacks(op))}
        # An instruction is one kernel: it is compiled as a whole or not at all.
        how: How = "interpreted" if lacking else "compiled"
        fused = f"it is fused with {', '.join(lacking)}" if lacking else ""
        counts.update((op.name, how, lacking.get(op.name, fused)) for op in operators)
    listed = [OperatorCount(name, count, how, why) for (name, how, why), count in counts.items()]
    return tuple(sorted(listed, key=lambda r: (r.how == "compiled", -r.count, r.operator)))
