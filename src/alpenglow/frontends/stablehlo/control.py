"""Operations that run functions or regions: in their place stand the steps of a body.

Of branches the one that is taken is imported, if it is known which.  Otherwise short ones are all
computed, and one result is chosen; longer ones, and those with loops, wait for what decides.  A
loop is the runtime's (`ir.staged`): it begins with its condition, computed once, and each turn is
the body with the condition behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.stablehlo.module import Block, Module, Operation, Tensor, Type, every
from alpenglow.frontends.stablehlo.steps import Body, Names, Step, placed
from alpenglow.frontends.stepped import LOOP, SAME

CHOOSE = "alpenglow.choose"
"""A step that chooses between the results of branches, by the number of one."""

SHORT = 64
"""Branches of no more operations than this are all computed."""

BRANCHES = ("stablehlo.if", "stablehlo.case")
CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
"""Operations that run a function, and the attribute that names it."""

TOKENS = ("stablehlo.after_all", "stablehlo.create_token")
"""Operations that make what holds nothing."""

CONTROL = frozenset(
    {*BRANCHES, *CALLS, *TOKENS, "stablehlo.while", "stablehlo.optimization_barrier",
     "stablehlo.tuple", "stablehlo.get_tuple_element"}
)  # fmt: skip
"""Operations that stand for others."""

Chosen = Callable[[str], int]
Prefix = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a loop does in a turn: from the names of what it carries to those of what it makes."""

    steps: Sequence[Step]
    outputs: Sequence[str]
    condition: str


def expanded(module: Module, step: Step, chosen: Chosen, tuples: dict[str, tuple[str, ...]],
             ) -> Sequence[Step] | None:  # fmt: skip
    """Return what stands for a step; None if it stands for itself.

    `chosen` tells the number of the branch that an element names, and `tuples` has the names of the
    parts of tuples by the name of each.
    """
    kind = step.kind
    if kind not in CONTROL:
        return None
    inside = f"{step.outputs[0]}/" if step.outputs else ""
    if kind in CALLS:
        name = str(step.operation.attributes.get(CALLS[kind], ""))
        body = placed(module.function(name).body, inside, step.inputs)
        return [*body.steps, *copies(step, body, step.outputs)] if step.outputs else []
    if kind in BRANCHES:
        return _branch(module, step, chosen, inside)
    if kind == "stablehlo.while":
        return _loop(step, inside)
    if kind == "stablehlo.tuple" or kind in TOKENS:
        tuples[step.outputs[0]] = () if kind in TOKENS else step.inputs
        return []
    if kind == "stablehlo.get_tuple_element":
        return _part(step, tuples)
    if len(step.inputs) != len(step.outputs):
        raise ModelError(f"{kind} has {len(step.inputs)} operands, {len(step.outputs)} results")
    return [_same(step, a, b) for a, b in zip(step.inputs, step.outputs, strict=True)]


def turn_of(step: Step, carried: Sequence[str], outer: Names) -> Turn:
    """Return a turn of a loop that carries values by these names."""
    condition, block = _regions(step)
    body = placed(block, "b/", carried, outer)
    if len(body.outputs) != len(carried):
        raise ModelError(
            f"{step.kind}: its body makes {len(body.outputs)} values of {len(carried)}"
        )
    ends = [f"o{i}" for i in range(len(body.outputs))]
    after = _condition(condition, "c/", ends, outer)
    return Turn([*body.steps, *copies(step, body, ends), *after.steps], ends, after.outputs[0])


def copies(step: Step, body: Body, names: Sequence[str]) -> list[Step]:
    """Return steps that call what a body returns by names."""
    if len(body.outputs) != len(names):
        raise ModelError(
            f"{step.kind} has {len(names)} results, and its body {len(body.outputs)}",
            node=step.label,
        )
    return [_same(step, o, n) for o, n in zip(body.outputs, names, strict=True)]


def _same(step: Step, name: str, result: str) -> Step:
    return Step(_made(step, SAME, ()), (name,), (result,), (), step.scope)


def _made(step: Step, kind: str, types: tuple[Type, ...]) -> Operation:
    return Operation(kind, (), (), types, {}, step.operation.regions if kind == LOOP else (),
                     step.operation.place)  # fmt: skip


def _part(step: Step, tuples: Mapping[str, tuple[str, ...]]) -> list[Step]:
    if step.inputs[0] not in tuples:
        raise ModelError("a part is taken of what is no tuple", node=step.label)
    parts, index = tuples[step.inputs[0]], step.operation.attributes.get("index")
    if not isinstance(index, int) or not 0 <= index < len(parts):
        raise ModelError(f"part {index} is taken of a tuple of {len(parts)}", node=step.label)
    return [_same(step, parts[index], step.outputs[0])]


# ── branches ──


def _branch(module: Module, step: Step, chosen: Chosen, prefix: str) -> Sequence[Step]:
    regions = step.operation.regions
    if not regions or len(step.inputs) != 1 or (step.kind == "stablehlo.if" and len(regions) != 2):
        raise ModelError(f"{step.kind} has {len(regions)} branches, {len(step.inputs)} operands")
    if not step.outputs:
        return []
    try:
        number = chosen(step.inputs[0])
    except Needed:
        if not _short(module, regions):
            raise
        return _every(step, prefix)
    if step.kind == "stablehlo.if":
        number = 0 if number else 1
    taken = regions[number if 0 <= number < len(regions) else -1]
    body = placed(taken, prefix, (), step.scope)
    return [*body.steps, *copies(step, body, step.outputs)]


def _every(step: Step, prefix: str) -> Sequence[Step]:
    """Return the steps of all branches, and the choice between their results."""
    steps: list[Step] = []
    results = []
    for i, region in enumerate(step.operation.regions):
        body = placed(region, f"{prefix}{i}/", (), step.scope)
        if len(body.outputs) != len(step.outputs):
            raise ModelError(f"{step.kind}: branch {i} makes {len(body.outputs)} values")
        steps += body.steps
        results.append(body.outputs)
    choose = _made(step, CHOOSE, step.operation.types)
    for i, output in enumerate(step.outputs):
        made = Operation(choose.name, (), (), step.operation.types[i : i + 1], {}, (), choose.place)
        inputs = (step.inputs[0], *(r[i] for r in results))
        steps.append(Step(made, inputs, (output,), (), step.scope))
    return steps


def _short(module: Module, regions: Sequence[Block]) -> bool:
    """Whether branches are short, and are over whatever their operands are."""
    count, waiting = 0, list(regions)
    while waiting:
        for o in every(waiting.pop()):
            count += o.name not in ("stablehlo.constant", "stablehlo.return")
            if o.name in ("stablehlo.while", "stablehlo.custom_call") or count > SHORT:
                return False
            if any(not isinstance(t, Tensor) for t in o.types):
                return False
            if o.name in CALLS:
                waiting.append(module.function(str(o.attributes.get(CALLS[o.name], ""))).body)
    return True


# ── loops ──


def _regions(step: Step) -> tuple[Block, Block]:
    if len(step.operation.regions) != 2:
        raise ModelError(f"{step.kind} has {len(step.operation.regions)} regions, expected two")
    return step.operation.regions[0], step.operation.regions[1]


def _condition(block: Block, prefix: str, operands: Sequence[str], outer: Names) -> Body:
    condition = placed(block, prefix, operands, outer)
    if len(condition.outputs) != 1:
        raise ModelError(f"a condition of a loop makes {len(condition.outputs)} values")
    return condition


def _loop(step: Step, prefix: str) -> Sequence[Step]:
    """Return the steps of the first condition, and the loop."""
    condition, _ = _regions(step)
    if not step.outputs:
        return []
    first = _condition(condition, prefix, step.inputs, step.scope)
    loop = _made(step, LOOP, step.operation.types)
    turning = Step(loop, (*step.inputs, first.outputs[0]), step.outputs, step.captured, step.scope)
    return [*first.steps, turning]
