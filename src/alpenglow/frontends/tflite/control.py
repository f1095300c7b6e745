"""How operators of TFLite run their subgraphs."""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.control import Branch, Call, Control, While
from alpenglow.frontends.steps import Step
from alpenglow.frontends.tflite.file.model import Model
from alpenglow.frontends.tflite.steps import BODIES, Applied, Called


def control(model: Model, step: Step[Applied]) -> Control[Applied] | None:
    """Return how a step runs subgraphs; None if it runs none."""
    operator = step.payload.operator
    if operator.custom or step.kind not in BODIES:
        return None
    layout, fields = BODIES[step.kind]
    options = operator.options(layout)
    regions = tuple(Called(model, options[field]) for field in fields)
    match step.kind:
        case "IF":
            if not step.inputs:
                raise ModelError("IF has 0 operands, expected at least 1, the condition")
            return Branch(step.inputs[0], regions, step.inputs[1:])
        case "WHILE":
            return While(*regions)
    return Call(regions[0], step.inputs)
