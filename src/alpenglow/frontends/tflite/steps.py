"""Operators in a space of names: what an import goes through.

Each subgraph numbers its tensors anew.  If a subgraph is a branch or a body of another, its
tensors get a prefix, its inputs are the operands, and its outputs go by names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError
from alpenglow.base.words import shown
from alpenglow.frontends.steps import LONGEST, Body, Step, reached
from alpenglow.frontends.tflite.file.model import Model, Operator, Subgraph, Tensor

BODIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "IF": ("IfOptions", ("then_subgraph_index", "else_subgraph_index")),
    "WHILE": ("WhileOptions", ("cond_subgraph_index", "body_subgraph_index")),
    "CALL": ("CallOptions", ("subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("init_subgraph_index",)),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("decomposition_subgraph_index",)),
}
"""Operators that run subgraphs, their options, and which of these name them."""

VARIABLES = frozenset({"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"})
"""Operators that read or change what lasts from call to call."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An operator of the file, and its place there; `intermediates` are what the file says of
    values on the way."""

    operator: Operator
    place: str
    intermediates: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed(Body[Applied]):
    """A subgraph where it stands: also its tensors by name.

    `inputs` are the tensors that go by the names of the operands.
    """

    tensors: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Called:
    """A subgraph that an operator runs."""

    model: Model
    number: int

    @property
    def length(self) -> int | None:
        """The number of operators; None if there are loops, variables or too many."""
        count, waiting = 0, [self.number]
        while waiting and count <= LONGEST:
            subgraph = self.model.subgraph(waiting.pop())
            if any(t.is_variable for t in subgraph.tensors):
                return None
            for o in subgraph.operators:
                if o.custom or o.kind in (*VARIABLES, "CALL_ONCE", "WHILE"):
                    return None
                waiting += bodies(o)
            count += len(subgraph.operators)
        return count if count <= LONGEST else None

    def place(self, prefix: str, operands: Sequence[str]) -> Placed:
        return placed(self.model.subgraph(self.number), prefix, operands)


def placed(subgraph: Subgraph, prefix: str, operands: Sequence[str]) -> Placed:
    """Return a subgraph with names behind a prefix, its inputs called as the operands are."""
    if len(operands) != len(subgraph.inputs):
        raise ModelError(
            f"subgraph '{subgraph.name}' is run with {len(operands)} operands, "
            f"expected {len(subgraph.inputs)}, the number of its inputs"
        )
    names = [prefix + t.name for t in subgraph.tensors]
    for number, operand in zip(subgraph.inputs, operands, strict=True):
        names[number] = operand
    inner = set(range(len(names))) - set(subgraph.inputs)

    def name(number: int) -> str:
        return names[number] if number >= 0 else ""

    steps = []
    for i, o in enumerate(subgraph.operators):
        outputs = tuple(map(name, o.outputs))
        label = f"{o.kind} '{shown(next(iter(outputs), ''))}'"
        between = tuple(subgraph.tensors[k] for k in o.intermediates)
        applied = Applied(o, place_of(subgraph, i), between)
        steps.append(Step(o.kind, label, tuple(map(name, o.inputs)), outputs, applied))
    tensors = {names[i]: subgraph.tensors[i] for i in sorted(inner)}
    inputs = {names[i]: subgraph.tensors[i] for i in subgraph.inputs}
    return Placed(tuple(steps), tuple(names[o] for o in subgraph.outputs), tensors, inputs)


def place_of(subgraph: Subgraph, number: int) -> str:
    """Return the number and subgraph of an operator, as messages print them."""
    return f"operator {number} of subgraph '{subgraph.name}'"


def bodies(operator: Operator) -> list[int]:
    """Return the numbers of the subgraphs that an operator runs."""
    if operator.custom or operator.kind not in BODIES:
        return []
    layout, fields = BODIES[operator.kind]
    options = operator.options(layout)
    return [options[f] for f in fields]


def subgraphs(model: Model, start: int) -> list[Subgraph]:
    """Return a subgraph and those that it runs, each once, as `reached` does."""

    def calls(number: int) -> list[int]:
        return [i for o in model.subgraph(number).operators for i in bodies(o)]

    def length(number: int) -> int:
        return len(model.subgraph(number).operators)

    return [model.subgraph(n) for n in reached(start, calls, length, "subgraph")]
