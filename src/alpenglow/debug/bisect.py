"""Finding the pass after which a model computes something else.

The model as it was read is evaluated once; so is what every pass made, and in the end compiled
code, on the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpenglow.base.store import Store
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import emit, run_stages
from alpenglow.debug.compare import error
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.program import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.text import print_ir
from alpenglow.runtime.executables.installed import install

EMIT = "emit"
"""The name of what follows all passes: making machine code."""


@dataclass(frozen=True, slots=True)
class PassDrift:
    """How far the outputs are from those of the model as it was read, after a pass.

    `before` is how far they were before it; `output` is the one that is farthest.
    """

    after: str
    output: str
    error: float
    before: float


def bisect(
    ir: Graph | Program, target: Target, options: Options, feeds: Mapping[str, Array],
    tolerance: float, resume: str = "",
) -> PassDrift | None:  # fmt: skip
    """Return the step that takes an output farther than `tolerance`; None if none does.

    `resume` names the last pass that `ir` has been through already.
    """
    model: Graph | Program = ir.copy() if isinstance(ir, Graph) else ir
    expected = _outputs(model, feeds)
    text, last = print_ir(model), 0.0
    for p, stage in run_stages(model, target, options, resume):
        model = stage
        if (now := print_ir(model)) == text:
            continue
        text = now
        step = _step(p.name, expected, _outputs(model, feeds), last)
        if not step.error <= tolerance:
            return step
        last = step.error
    assert isinstance(model, Program), "the pipeline ends with a program"
    # Stored kernels would hide what emitting does now.
    exe = install(emit(model, target, options, Store(None)))
    step = _step(EMIT, expected, exe.run(feeds), last)
    return None if step.error <= tolerance else step


def _step(
    name: str, expected: Mapping[str, Array], actual: Mapping[str, Array], before: float
) -> PassDrift:
    errors = {output: error(expected[output], y) for output, y in actual.items()}
    worst = max(errors, key=lambda output: errors[output])
    return PassDrift(name, worst, errors[worst], before)


def _outputs(ir: Graph | Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return evaluate(ir, feeds) if isinstance(ir, Graph) else interpret(ir, feeds)
