"""Operators that run subgraphs: in their place stand the steps of a body.

What a condition decides must be known: of two branches the one that is taken is imported, nothing
of the other.  A loop is the runtime's (`ir.staged`): it begins with its condition, computed once,
and each turn is the body with the condition behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stepped import LOOP, SAME
from alpenglow.frontends.tflite.model import Model, Operator, Tensor
from alpenglow.frontends.tflite.steps import BODIES, Body, Step, placed


@dataclass(frozen=True, slots=True)
class Splice:
    """Steps that stand for one, and the tensors that they read and make."""

    steps: Sequence[Step]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a loop does in a turn: from the names of what it carries to those of what it makes.

    `inputs` are tensors of what subgraphs begin with, by these names.
    """

    steps: Sequence[Step]
    tensors: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    condition: str


def expanded(
    model: Model, step: Step, truth: Callable[[str], bool], prefix: Callable[[str], str]
) -> Splice | None:
    """Return what stands for a step; None if it stands for itself.

    `truth` tells the element of a condition, `prefix` one for names that are not taken.
    """
    if step.operator.custom or step.kind not in BODIES:
        return None
    layout, fields = BODIES[step.kind]
    numbers = [step.operator.options(layout)[f] for f in fields]
    if step.kind == "CALL_ONCE":  # what it does has been done
        return Splice((), {})
    inside = prefix(step.outputs[0] if step.outputs else "")
    if step.kind == "IF":
        if not step.inputs:
            raise ModelError("IF has no condition")
        taken = truth(step.inputs[0])
        return _called(model, step, numbers[0 if taken else 1], step.inputs[1:], inside)
    if step.kind == "WHILE":
        return _loop(model, step, numbers[0], inside)
    return _called(model, step, numbers[0], step.inputs, inside)


def turn_of(model: Model, step: Step, carried: Sequence[str]) -> Turn:
    """Return a turn of a loop that carries values by these names."""
    layout, fields = BODIES["WHILE"]
    condition, inner = (step.operator.options(layout)[f] for f in fields)
    body = placed(model.subgraph(inner), "b/", carried)
    ends = [f"o{i}" for i in range(len(body.outputs))]
    after = _condition(model, condition, "c/", ends)
    return Turn(
        [*body.steps, *_copies(step, body, ends), *after.steps],
        {**body.tensors, **after.tensors},
        {**body.inputs, **after.inputs},
        ends,
        after.outputs[0],
    )


def _called(model: Model, step: Step, number: int, operands: Sequence[str], prefix: str) -> Splice:
    """Return the steps of a subgraph on operands, its outputs called as the results are."""
    body = placed(model.subgraph(number), prefix, operands)
    if len(body.outputs) != len(step.outputs):
        raise ModelError(
            f"{step.kind} has {len(step.outputs)} results, and subgraph {number} "
            f"{len(body.outputs)} outputs"
        )
    return Splice([*body.steps, *_copies(step, body, step.outputs)], body.tensors)


def _copies(step: Step, body: Body, names: Sequence[str]) -> list[Step]:
    """Return steps that call the outputs of a body by names."""
    same = Operator(SAME, 1, True, (), (), step.operator.table)
    return [Step(same, (o,), (n,)) for o, n in zip(body.outputs, names, strict=True)]


def _condition(model: Model, number: int, prefix: str, operands: Sequence[str]) -> Body:
    condition = placed(model.subgraph(number), prefix, operands)
    if len(condition.outputs) != 1:
        raise ModelError(f"WHILE: its condition has {len(condition.outputs)} outputs, expected one")
    return condition


def _loop(model: Model, step: Step, number: int, prefix: str) -> Splice:
    """Return the steps of the first condition, and the loop."""
    first = _condition(model, number, prefix, step.inputs)
    loop = Operator(LOOP, 1, True, (), (), step.operator.table)
    turning = Step(loop, (*step.inputs, first.outputs[0]), step.outputs)
    return Splice([*first.steps, turning], first.tensors)
