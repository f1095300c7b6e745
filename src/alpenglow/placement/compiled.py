"""A placement compiled: an executable for each stage and worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.compiler import Options
from alpenglow.driver.compile import compile, loaded
from alpenglow.host.network import Network, Step
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import refuse_staged
from alpenglow.ir.types import Array, TensorType
from alpenglow.placement.cut import parts
from alpenglow.placement.schedule import Schedule
from alpenglow.placement.split import split
from alpenglow.placement.text import Placement
from alpenglow.runtime.call.feeds import named
from alpenglow.runtime.executables.executor import Executable


@dataclass(frozen=True, slots=True, eq=False)
class PlacedModel:
    """The stages of a placement in order: for each, what runs it, by worker.

    `inputs` and `outputs` are the model's.  What crosses from stage to stage has the name that it
    has in both.
    """

    placement: Placement
    stages: tuple[Mapping[str, Executable], ...]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Return the outputs by name, of one stage after the other: what all placements equal.

        Raises FeedError where feeds do not fit.
        """
        named(feeds, self.inputs)
        values, results = dict(feeds), dict[str, Array]()
        for stage in self.stages:
            exe = next(iter(stage.values()))
            made = exe.run({name: values[name] for name in exe.inputs})
            results |= {name: made[name] for name in made if name in self.outputs}
            values |= {name: made[name] for name in made if name not in self.inputs}
        return {name: results[name] for name in self.outputs}

    def network(self, version: int = 1) -> Network:
        """Return what a host runs: a step for each stage, on its worker and its replicas.

        Raises UnsupportedError where an output has the name of an input, but is another value.
        """
        passed = [name for name in self.outputs if name in self.inputs]
        if passed:
            raise UnsupportedError(
                f"{shown(self.placement.name)} has an input and an output '{shown(passed[0])}', "
                "which steps would take for one value",
                hint="give the output another name",
            )
        steps = tuple(map(Step, self.stages))
        return Network(self.placement.name, version, steps, tuple(self.outputs))


def placed(
    model: Any,
    placement: Placement,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> PlacedModel:
    """Compile the stages of a placement, each for its workers.

    Raises ModelError if the placement is not of this model.
    """
    graph = loaded(model, shapes)
    if not isinstance(graph, Graph):
        refuse_staged("placed")
    schedule = Schedule(split(graph, placement.splits))
    check_placed(schedule, placement)
    stages: list[Mapping[str, Executable]] = []
    for g, stage in zip(parts(schedule, placement.positions), placement.stages, strict=True):
        made: dict[str, Executable] = {}
        for name in (stage.worker, *stage.replicas):
            w = placement.worker(name)
            made[name] = compile(g.copy(), w.target, w.threads, options=options)
        stages.append(made)
    inputs = {name: v.type for name, v in schedule.graph.inputs.items()}
    outputs = {name: v.type for name, v in schedule.graph.outputs.items()}
    return PlacedModel(placement, tuple(stages), inputs, outputs)


def check_placed(schedule: Schedule, placement: Placement) -> None:
    """Raise ModelError unless stages begin at the nodes that the placement names."""
    name, count = shown(schedule.graph.name), len(schedule.nodes)
    if placement.stages[-1].end != count:
        raise ModelError(
            f"{name} has {count} nodes to be placed, "
            f"the placement is of {placement.stages[-1].end}",
            hint="place the model anew",
        )
    for s in placement.stages:
        if schedule.name(s.begin) != s.first:
            raise ModelError(
                f"node {s.begin} of {name} is '{shown(schedule.name(s.begin))}', "
                f"the placement says '{shown(s.first)}'",
                hint="place the model anew",
            )
