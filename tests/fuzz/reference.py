"""What a random model should give: its graph, as it was imported, evaluated node by node.

Models that are imported in stages are, too: their parts are evaluated where others compile them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.dims import Guards
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel
from alpenglow.ir.types import Array
from alpenglow.machines.api import Artifact
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.staged.staged import StagedExecutable

from . import noise


def loaded(model: bytes, feeds: Mapping[str, Array]) -> Graph:
    """Import a model for the very extents of its feeds."""
    named = {i.name for i in onnx.load_model_from_string(model).graph.input}
    return ag.load(model, {k: a.shape for k, a in feeds.items() if k in named})


Evaluate = Callable[[Graph, Mapping[str, Array]], dict[str, Array]]


class Reference:
    """The results of a model for one choice of feeds, and how exactly they are determined."""

    def __init__(self, graph: Graph | StagedModel, feeds: Mapping[str, Array]) -> None:
        self.graph = graph
        self.feeds = feeds
        self.evaluate: Evaluate = evaluate
        self.staged = None
        if isinstance(graph, StagedModel):
            self.staged = StagedExecutable(graph, self._plain, 1, ag.Target.parse("interpreter"))
        self.expected = self._run(evaluate)
        self._slack: dict[tuple[int, str], dict[str, Array]] = {}

    def slack(self, runs: int, precision: str = "f32") -> dict[str, Array]:
        """Return by how much each element of each output may move (see `noise`)."""
        key = runs, precision
        if key not in self._slack:
            rng = np.random.default_rng(0)

            def noisy(g: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
                return noise.noisy(g, feeds, rng, precision)

            made = (self._run(noisy) for _ in range(runs))
            self._slack[key] = noise.spread(self.expected, made)
        return self._slack[key]

    def widely(self) -> dict[str, Array]:
        """Return the results with halves computed as f32 (see `noise`)."""
        return self._run(noise.widely)

    def traits(self) -> set[str]:
        """Return what is inside that may explain a difference: halves, bytes, nan, large, empty."""
        found: set[str] = set()

        def look(g: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
            types = [v.type for n in g.nodes for v in (*n.inputs, *n.results) if v is not None]
            if any(t.dtype in ("f16", "bf16") for t in types):
                found.add("halves")
            if any(t.dtype in ("i8", "u8") for t in types):
                found.add("bytes")
            if any(t.static and not t.size for t in types):
                found.add("empty")
            found.update(noise.strange(g, feeds))
            return evaluate(g, feeds)

        self._run(look)
        if any(0 in y.shape for y in self.expected.values()):
            found.add("empty")
        return found

    def _run(self, evaluate_: Evaluate) -> dict[str, Array]:
        if self.staged is None:
            return evaluate_(self.graph, self.feeds)
        # Its parts are imported once, however often and by whatever they are evaluated.
        self.evaluate = evaluate_
        return flat(self.staged.run(self.feeds))

    def _plain(
        self, g: Graph, guards: Guards = (), artifacts: Sequence[Artifact] = ()
    ) -> ag.Executable:
        return cast(ag.Executable, Plain(g, self))


class Evaluated:
    """A part of a staged model for certain extents, which has no compiled code for short calls."""

    layout = None

    def __init__(self, place: Graph) -> None:
        self.place = place

    def run(self, env: dict[str, Any], call: Call) -> bool:
        return False


class Plain:
    """One part of a staged model, evaluated; it stands where others have an Executable."""

    def __init__(self, g: Graph, reference: Reference) -> None:
        self.graph = g
        self.reference = reference

    def prepared(self, values: Mapping[str, int]) -> Evaluated:
        return Evaluated(self.graph.bind(values))

    def execute(self, env: dict[str, Any], place: Graph, call: Call) -> None:
        inputs = {n: env[n] for n in place.callers_inputs()}
        env.update(self.reference.evaluate(place, inputs))

    def layout(self, values: Mapping[str, int]) -> None:
        """Say that there is no code, by which turns of a loop could follow each other."""


def flat(outputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return outputs as arrays: the elements of a sequence each by a name of its own."""
    found: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            found |= flat({f"{name}[{i}]": element for i, element in enumerate(value)})
            found[f"{name}.length"] = np.array(len(value))
        else:
            found[name] = np.zeros(0, bool) if value is None else np.asarray(value)
    return found
