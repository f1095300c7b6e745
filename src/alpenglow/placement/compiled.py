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
    """Hold the compiled stages of a placement, in order.

    Args:
        placement: the placement.
        stages: for each stage, the Executables by the names of the workers that run it.
        inputs: the types of the inputs of the model by name.
        outputs: the types of the outputs of the model by name.

    Example:
        >>> worker = ag.Worker("left", ag.Target.parse("cpu"))
        >>> placement = ag.place("model.onnx", [worker], measure=False, shapes={"x": (1, 8)})
        >>> placed = ag.placed("model.onnx", placement, shapes={"x": (1, 8)})
        >>> with ag.Host([worker]) as host:
        ...     host.add(placed.network()).name
        'tiny'
    """

    placement: Placement
    stages: tuple[Mapping[str, Executable], ...]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Run the stages one after another and return the outputs, with which all placements agree.

        Args:
            feeds: an array for each input by name.

        Returns:
            The outputs by name.

        Raises:
            FeedError: if an array does not fit.
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
        """Return a network for `Host.add`, with a step for each stage on its workers.

        Args:
            version: the version of the network.

        Returns:
            The network.

        Raises:
            UnsupportedError: if an output has the name of an input, but is another value.
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
    """Compile each stage of a placement for its workers.

    Args:
        model: the model that was placed.
        placement: the placement.
        shapes: the shapes of inputs with dynamic dimensions, by input name.
        options: the options of the compiler; None: `Options()`.

    Returns:
        The compiled stages.

    Raises:
        ModelError: if the placement belongs to another model.

    Example:
        >>> worker = ag.Worker("left", ag.Target.parse("cpu"))
        >>> placement = ag.place("model.onnx", [worker], measure=False, shapes={"x": (1, 8)})
        >>> placed = ag.placed("model.onnx", placement, shapes={"x": (1, 8)})
        >>> placed.run({"x": np.zeros((1, 8), np.float32)})["y"].shape
        (1, 4)
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
