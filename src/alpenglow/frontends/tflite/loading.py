"""From the bytes of a TFLite model to its graph, in parts where data decide (`ir.staged`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.control import Turn
from alpenglow.frontends.files import content_of, importing
from alpenglow.frontends.inputs import input_arrays, input_types
from alpenglow.frontends.refusals import refusing
from alpenglow.frontends.stepped import SteppedModel, graph_of
from alpenglow.frontends.steps import Step
from alpenglow.frontends.tflite.file.model import HELD, Model, Subgraph, Tensor, named
from alpenglow.frontends.tflite.importer import Importer
from alpenglow.frontends.tflite.refusals import missing
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.frontends.tflite.steps import Applied, Placed, placed, subgraphs
from alpenglow.frontends.tflite.variables import SPLIT_VARIABLES, Key
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.staged import Known, StagedModel
from alpenglow.ir.types import DTYPES, Array, TensorType

MOST_INITIAL = 1 << 28
"""So many bytes may be computed for what variables hold at first."""

MAIN = 0
"""The subgraph that a model is, if it does not say otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """The rest of a model: its steps, and the declarations of their tensors and of its inputs."""

    steps: Sequence[Step[Applied]]
    tensors: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.steps) + 1  # the outputs are left, too


def load(
    model: str | Path | bytes,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] = MappingProxyType({}),
    rounding: str = ROUNDINGS[0],
) -> Graph | StagedModel:
    """Read a TFLite model and return its graph, or the model where that depends on the data.

    `shapes` binds open extents of inputs by input name; `constants` are values of inputs;
    `rounding` is one of `ROUNDINGS`.
    """
    content, file = content_of(model)
    with importing(file, "TFLite"):
        parsed = Model(content, rounding)
        with refusing(missing(subgraphs(parsed, MAIN))):
            return graph_of(_whole(parsed, file, shapes, constants))


def _whole(
    model: Model, file: str, shapes: Mapping[str, Sequence[int]] | None,
    constants: Mapping[str, Any],
) -> TfliteModel:  # fmt: skip
    """Return the subgraph that a model is."""
    subgraph = model.subgraph(MAIN)
    signed = [s for s in model.signatures() if s.subgraph == MAIN]
    said = (signed[0].inputs, signed[0].outputs) if signed else ({}, {})
    inputs = named(subgraph.inputs, subgraph.tensors, said[0])
    outputs = named(subgraph.outputs, subgraph.tensors, said[1])
    types = _types(subgraph, inputs, shapes)
    # Other tensors get a prefix where there are inputs of the same name.
    own = set(subgraph.inputs)
    others = [t.name for i, t in enumerate(subgraph.tensors) if i not in own]
    prefix = ""
    while any(prefix + name in types for name in others):
        prefix += "/"
    body = placed(subgraph, prefix, inputs)
    fixed = _fixed(input_arrays(constants, types), body.inputs)
    types = {name: t for name, t in types.items() if name not in fixed}
    results = dict(zip(outputs, body.outputs, strict=True))
    rest = Rest(body.steps, {**body.tensors, **fixed}, body.inputs)
    name, initial = subgraph.name or "main", _initial(model, subgraph)
    whole = TfliteModel(name, file, model, types, results, rest, initial)
    whole.metadata = Metadata(description=model.description)
    return whole


def _fixed(arrays: Mapping[str, Array], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs that have values as tensors that are constants."""
    return {
        name: replace(
            inputs[name], shape=array.shape, signature=array.shape,
            content=array.reshape(-1).view(np.uint8), sparsity=None,
        )
        for name, array in arrays.items()
    }  # fmt: skip


def _types(
    subgraph: Subgraph, names: Sequence[str], shapes: Mapping[str, Sequence[int]] | None
) -> dict[str, TensorType]:
    """Return the types of inputs; each open extent has a name of its own, or is bound."""
    if len(set(subgraph.inputs)) < len(subgraph.inputs):
        raise ModelError(f"subgraph inputs are {subgraph.inputs}, expected different tensors")
    inputs: list[tuple[str, str, list[Dim | None]]] = []
    for name, number in zip(names, subgraph.inputs, strict=True):
        tensor = subgraph.tensors[number]
        if tensor.dtype not in DTYPES:
            raise UnsupportedError(
                f"input '{name}': dtype {tensor.dtype} is not supported; supported: {HELD}"
            )
        inputs.append((name, tensor.dtype, [None if d < 0 else d for d in tensor.signature]))
    return input_types(inputs, shapes)


def _initial(model: Model, subgraph: Subgraph) -> dict[Key, Array]:
    """Return the first values of variables, which subgraphs that run once assign."""
    initial: dict[Key, Array] = {}
    for operator in subgraph.operators:
        if operator.kind != "CALL_ONCE" or operator.custom:
            continue
        once = placed(
            model.subgraph(operator.options("CallOnceOptions")["init_subgraph_index"]), "", ()
        )
        g = Graph("once")
        importer = Importer(g, model, once.tensors, once.inputs, Known({}), initial)
        importer.run(once.steps)
        if importer.later:
            raise UnsupportedError(
                "CALL_ONCE: shapes that depend on data are not supported; supported: fixed shapes"
            )
        keys = list(importer.variables.held)
        for i, key in enumerate(keys):
            g.output(str(i), importer.variables.held[key])
        g.prune()
        total = sum(v.type.nbytes for node in g.nodes for v in node.results)
        if total > MOST_INITIAL:
            raise UnsupportedError(
                f"CALL_ONCE: its tensors have {total} bytes, expected at most {MOST_INITIAL}"
            )
        arrays = evaluate(g, {})
        initial |= {key: arrays[str(i)] for i, key in enumerate(keys)}
    return initial


class TfliteModel(SteppedModel[Importer]):
    """A subgraph, or a turn of a loop."""

    def __init__(
        self, name: str, file: str, model: Model, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, str], rest: Rest, initial: Mapping[Key, Array],
    ) -> None:  # fmt: skip
        told = {n: rest.tensors.get(value) for n, value in results.items()}
        outputs = {n: None if tensor is None else tensor.type for n, tensor in told.items()}
        super().__init__(name, file, inputs, results, outputs, rest)
        self._model = model
        self._initial = initial

    def _importer(self, g: Graph, rest: Rest, known: Known) -> Importer:
        reserved = {*self.inputs, *self.results}
        return Importer(g, self._model, rest.tensors, rest.inputs, known, self._initial, reserved)

    def _finish(self, importer: Importer) -> None:
        importer.variables.finish()

    def _left(self, importer: Importer, rest: Rest, later: Sequence[Step[Applied]]) -> Rest:
        if len(importer.variables):
            raise UnsupportedError(SPLIT_VARIABLES)
        return Rest(later, importer.tensors, rest.inputs)

    def _turning(
        self, turn: Turn[Applied], fixed: Mapping[str, Array],
        inputs: Mapping[str, TensorType | None], results: Mapping[str, str],
    ) -> TfliteModel:  # fmt: skip
        tensors: dict[str, Tensor] = {}
        begins: dict[str, Tensor] = {}
        for body in turn.bodies:
            assert isinstance(body, Placed), "subgraphs were placed"
            tensors |= body.tensors
            begins |= body.inputs
        rest = Rest(turn.steps, tensors, begins)
        return TfliteModel("loop", self.file, self._model, inputs, results, rest, self._initial)
