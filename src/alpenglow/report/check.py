"""What becomes of a model: which of its operators are compiled, and which are interpreted.

What has no operator at all is found when the model is read, all of it at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from alpenglow.backends.registry import backend_for
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.target import Target
from alpenglow.program import Instr, Program

How = Literal["compiled", "interpreted"]


@dataclass(frozen=True, slots=True)
class Row:
    """An operator, how often it stands there, and how it runs."""

    operator: str
    count: int
    how: How


def check(ir: Graph | Program, target: Target, resume: str = "") -> tuple[Row, ...]:
    """Return how each operator that is left for run time would run on `target`.

    Operators are those of the lowered and fused program; what was folded, or became addressing,
    does not run at all and is not listed.  `resume` names the last pass that `ir` has been through.
    """
    made: Graph | Program = ir.copy() if isinstance(ir, Graph) else ir
    for _, stage in run_stages(made, target, Options(check=False), resume):
        made = stage
    assert isinstance(made, Program), "the pipeline ends with a program"
    return rows(made, target)


def rows(program: Program, target: Target) -> tuple[Row, ...]:
    """Return how each operator of a program runs, interpreted ones first, then by count."""
    backend = backend_for(target)
    found: Counter[tuple[str, How]] = Counter()
    for instr in program.instrs():
        parts = operators(instr)
        # An instruction is one kernel: it is compiled as a whole or not at all.
        how: How = "compiled" if all(map(backend.compiles, parts)) else "interpreted"
        found.update((op.name, how) for op in parts)
    listed = [Row(name, count, how) for (name, how), count in found.items()]
    return tuple(sorted(listed, key=lambda r: (r.how == "compiled", -r.count, r.operator)))


def operators(instr: Instr) -> list[Op]:
    """Return the operators that an instruction applies, those of a fused one each."""
    if instr.body is None:
        return [instr.op]
    # Broadcasts in a body are of single constants and cost nothing.
    ops = [n.op for n in instr.body.nodes]
    return [op for op in ops if isinstance(op, Elementwise) or op.name != "broadcast"]
