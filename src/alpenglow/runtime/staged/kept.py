"""Staged models as an archive keeps them: the stages that calls have led to, and no model file.

A run knows its stages by the same outlines (`runtime.staged.stages`), so what was opened runs as
what was saved did, until data lead to a stage that is not there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Guards
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.staged import Action, Apply, Kind, Known, Loop, Scan, StagedModel
from alpenglow.ir.staged_text import Continuation
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.api import Artifact


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """A stage but for its code: what its part makes of what, what follows, and when that is right.

    It is right where the inputs have their types, the guards hold, `elements` are what was measured
    (symbols stand for any number), and of what the actions read, those are no tensors of numbers
    that are true in `others`.  `values` are those of the symbols when it was imported.  Outputs
    that are other names of values stand with these in `handed_on`.
    """

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    handed_on: Mapping[str, str]
    then: Continuation
    guards: Guards
    values: Mapping[str, int]
    others: Mapping[str, bool]
    elements: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class KeptStage:
    """A stage with what was compiled of its part, and of which `graph` more is, if extents are
    open; `next` are the stages behind it."""

    outline: Outline
    graph: Graph | None
    artifacts: tuple[Artifact, ...]
    next: list[KeptStage] = field(default_factory=list)


class Unmet(UnsupportedError):
    """Data lead to a stage that the archive does not hold."""


class KeptModel(StagedModel):
    """A staged model of which nothing is left to import: there are `stages`, and no more.

    It holds the constants that something between the parts reads.  `untold` has the inputs of
    bodies that could not be imported where no turn was run, by `runtime.staged.steps.forms`.
    """

    def __init__(
        self,
        name: str,
        file: str,
        inputs: Mapping[str, TensorType | None],
        kinds: Mapping[str, Kind],
        outputs: Mapping[str, TensorType | None],
        constants: Mapping[str, Any],
        metadata: Metadata = NONE,
    ) -> None:
        self.name, self.file, self.metadata = name, file, metadata
        self.inputs, self.kinds, self.outputs = inputs, kinds, outputs
        self.constants = constants
        self.stages: list[KeptStage] = []
        self.untold: set[tuple[Hashable, ...]] = set()

    def begin(self) -> None:
        """Return no rest: there is no model."""

    def part(self, rest: Any, known: Known) -> NoReturn:
        raise Unmet(
            "these data lead to a part of the model that is not in the archive, which holds those "
            "that calls had led to when it was saved",
            hint="call the model with such data before saving it, or compile it where it is to run",
        )

    def every_stage(self) -> Iterator[tuple[KeptStage, int]]:
        """Yield all stages, each with the number of the one that it follows, -1 for none."""
        waiting = [(stage, -1) for stage in reversed(self.stages)]
        number = 0
        while waiting:
            stage, before = waiting.pop()
            yield stage, before
            waiting += [(s, number) for s in reversed(stage.next)]
            number += 1

    def every_model(self) -> list[KeptModel]:
        """Return this model and the bodies of its loops, each behind the one whose loop it is."""
        models: dict[KeptModel, None] = {self: None}
        waiting = [self]
        while waiting:
            for stage, _ in waiting.pop().every_stage():
                for body in bodies(stage.outline.then.actions):
                    assert isinstance(body, KeptModel), "what is kept has no other bodies"
                    if body not in models:
                        models[body] = None
                        waiting.append(body)
        return list(models)


@dataclass(frozen=True, slots=True, eq=False)
class StagedArchive:
    """A staged model with what was compiled of it, and how its parts are compiled."""

    model: KeptModel
    target: Target
    settings: Mapping[str, Any]


def bodies(actions: Sequence[Action]) -> list[StagedModel]:
    """Return the bodies of the loops among actions, in order."""
    return [a.body for a in actions if isinstance(a, Loop | Scan)]


def touched(actions: Sequence[Action], outputs: Mapping[str, TensorType]) -> list[str]:
    """Return the names that actions read and neither a part nor an action before them makes."""
    names: dict[str, None] = {}
    made = {"", *outputs}
    for action in actions:
        names |= dict.fromkeys(n for n in operands(action) if n not in made)
        made.update(action.outputs)
    return list(names)


def operands(action: Action) -> tuple[str, ...]:
    """Return the names that an action reads; "" is an absent one."""
    match action:
        case Apply():
            return action.inputs
        case Loop():
            lists = [n for n, _ in (*action.appended, *action.picked)]
            values = (*action.carried, *action.captured, *lists)
            return (action.trips, action.condition, *values)
        case Scan():
            return (action.lengths, *action.states, *action.scanned, *action.captured)
