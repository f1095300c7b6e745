"""Steps: how runs of a staged model went on, so that a run like an earlier one decides nothing.

Which stage comes next, and what every symbol stands for, follows from the shapes of what was fed
and of what actions made, and from the elements that were measured.  Where those are as in an
earlier run, its steps are taken again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime.call.short import Prepared
from alpenglow.runtime.staged.stages import Env, Stage, State

MOST_STEPS = 1024
"""How many steps are remembered of a model."""

MOST_NBYTES = 512
"""Steps are remembered by the elements of arrays of at most so many bytes."""

Key = tuple[Hashable, ...]


@dataclass(slots=True)
class Step:
    """A stage of a run with what is known there but the arrays: see `State`.

    `declared` are the types of inputs that hold, of those that the model declares, in a first step.
    `following` are the steps after this one, by their keys; `code` runs the part.
    """

    stage: Stage
    values: dict[str, int]
    types: dict[str, TensorType]
    elements: dict[str, Array]
    declared: Mapping[str, TensorType] = field(default_factory=dict)
    code: Prepared | None = None
    following: dict[Key, Step] = field(default_factory=dict)

    @staticmethod
    def into(stage: Stage, state: State, declared: Mapping[str, TensorType] | None = None) -> Step:
        """Return the step from a state into a stage that accepts it."""
        types = {**state.types, **stage.outline.outputs}
        return Step(stage, dict(state.values), types, dict(state.elements), declared or {})

    def state(self, env: Env) -> State:
        """Return the state behind this step, with these values."""
        state = State(env)
        state.values |= self.values
        state.types |= self.types
        state.elements |= self.elements
        return state

    def key(self, env: Env) -> Key | None:
        """Return what decides, of the values made here, how the run goes on; None: it is long."""
        facts = forms(map(env.get, self.stage.acted))
        for name in self.stage.needs:
            array = env[name]
            if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
                return None
            if array.nbytes > MOST_NBYTES:
                return None
            facts.append(array.tobytes())  # its type and shape follow from earlier facts
        return tuple(facts)


def signature(inputs: Mapping[str, Any]) -> Key:
    """Return all that decides how a run on these inputs begins."""
    return tuple(forms(inputs.values()))


def forms(values: Iterable[Any]) -> list[Hashable]:
    """Return element types and shapes; a part is told no more of a value that is no array."""
    return [(v.dtype, v.shape) if isinstance(v, np.ndarray) else None for v in values]
