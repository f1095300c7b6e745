"""How operations of StableHLO run functions and regions, and what tuples hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpenglow.base.errors import ModelError
from alpenglow.frontends.control import Branch, Call, Control, While
from alpenglow.frontends.stablehlo.module import CALLS, Module
from alpenglow.frontends.stablehlo.steps import Applied, Inner, callee
from alpenglow.frontends.steps import Step, same

BRANCHES = ("stablehlo.if", "stablehlo.case")

TOKENS = ("stablehlo.after_all", "stablehlo.create_token")
"""Operations that make what holds nothing."""

GROUPS = ("stablehlo.optimization_barrier", "stablehlo.tuple", "stablehlo.get_tuple_element")
"""Operations that only hand values on."""

CONTROL = frozenset({*BRANCHES, *CALLS, *TOKENS, *GROUPS, "stablehlo.while"})
"""Operations that are expanded or that only name values."""


def control(module: Module, step: Step[Applied]) -> Control[Applied] | None:
    """Return how a step runs functions or regions; None if it does not, or its converter does."""
    operation, scope = step.payload.operation, step.payload.scope
    regions = tuple(Inner(module, block, scope) for block in operation.regions)
    if step.kind in CALLS:
        return Call(Inner(module, module.function(callee(operation)).body), step.inputs)
    if step.kind in BRANCHES:
        two = step.kind == "stablehlo.if"
        if not regions or len(step.inputs) != 1 or (two and len(regions) != 2):
            raise ModelError(
                f"{step.kind} has {len(regions)} branches and {len(step.inputs)} operands, "
                f"expected {'2 branches' if two else 'at least 1 branch'} and 1 operand"
            )
        return Branch(step.inputs[0], regions, by_number=not two)
    if step.kind != "stablehlo.while":
        return None
    if len(regions) != 2:
        raise ModelError(f"{step.kind} has {len(regions)} regions, expected 2")
    return While(*regions)


def handed_on(
    step: Step[Applied], tuples: dict[str, tuple[str, ...]]
) -> Sequence[Step[Applied]]:  # fmt: skip
    """Return the steps that replace one of `TOKENS` or `GROUPS`.

    `tuples` has the names of the parts of tuples by the name of each.
    """
    if step.kind == "stablehlo.tuple" or step.kind in TOKENS:
        tuples[step.outputs[0]] = () if step.kind in TOKENS else step.inputs
        return []
    if step.kind == "stablehlo.get_tuple_element":
        return [_part(step, tuples)]
    if len(step.inputs) != len(step.outputs):
        raise ModelError(
            f"{step.kind} has {len(step.inputs)} operands and {len(step.outputs)} results, "
            "expected the same number"
        )
    return [same(step, a, b) for a, b in zip(step.inputs, step.outputs, strict=True)]


def _part(step: Step[Applied], tuples: Mapping[str, tuple[str, ...]]) -> Step[Applied]:
    if step.inputs[0] not in tuples:
        raise ModelError(f"{step.kind}: the operand is a tensor, expected a tuple", node=step.label)
    parts = tuples[step.inputs[0]]
    index = step.payload.operation.attributes.get("index")
    if not isinstance(index, int) or not 0 <= index < len(parts):
        raise ModelError(
            f"{step.kind}: index is {index}, expected at least 0 and less than {len(parts)}",
            node=step.label,
        )
    return same(step, parts[index], step.outputs[0])
