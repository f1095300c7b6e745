"""From a program of StableHLO to its graph, in parts where data decide (`ir.staged`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any

from alpenglow.frontends.control import Turn
from alpenglow.frontends.files import importing
from alpenglow.frontends.inputs import input_arrays, input_types
from alpenglow.frontends.refusals import refusing
from alpenglow.frontends.stablehlo.declared import static
from alpenglow.frontends.stablehlo.importer import Importer
from alpenglow.frontends.stablehlo.module import Function, Module, Type, main_of
from alpenglow.frontends.stablehlo.reading import Source, read
from alpenglow.frontends.stablehlo.refusals import missing
from alpenglow.frontends.stablehlo.steps import Applied, placed
from alpenglow.frontends.stepped import SteppedModel, graph_of
from alpenglow.frontends.steps import Step
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import Known, StagedModel
from alpenglow.ir.types import Array, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """The rest of a program: its steps, constants among their operands, and parts of tuples."""

    steps: Sequence[Step[Applied]]
    constants: Mapping[str, Array]
    tuples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps) + 1  # the outputs are left, too


def load(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> Graph | StagedModel:
    """Read a program and return its graph, or the model where that depends on the data.

    `shapes` fixes dynamic dimensions by input name; `constants` are values of inputs.
    """
    source = Source.of(model)
    with importing(source.file, "StableHLO"):
        return loaded(read(source), source, shapes, constants)


def loaded(
    module: Module, source: Source, shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> Graph | StagedModel:  # fmt: skip
    """Return the graph of a program that has been read, or the model in parts."""
    main = main_of(module)
    with refusing(missing(module, main)):
        return graph_of(_whole(module, main, source, shapes, constants))


def _whole(
    module: Module, main: Function, source: Source, shapes: Mapping[str, Sequence[int]] | None,
    constants: Mapping[str, Any],
) -> StablehloModel:  # fmt: skip
    """Return the function that a program is."""
    inputs = source.inputs(main)
    types = input_types([(i.name, i.dtype, i.shape) for i in inputs], shapes)
    fixed = input_arrays(constants, types)
    types = {name: t for name, t in types.items() if name not in fixed}
    names = [i.name for i in inputs if i.kept]
    # Names of values inside and names of inputs begin differently.
    prefix = "main/"
    outputs = _apart(source.outputs(main), [i.name for i in inputs])
    while any(name.startswith(prefix) for name in (*names, *outputs)):
        prefix = f"{prefix[:-1]}_/"
    body = placed(main.body, prefix, names)
    results = dict(zip(outputs, body.outputs, strict=True))
    declared = dict(zip(results, main.signature.results, strict=True))
    rest = Rest(body.steps, fixed)
    name = module.name or main.name
    return StablehloModel(name, source.file, module, types, results, declared, rest)


def _apart(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names of outputs that no input has: a shared name would be a variable."""
    made = []
    for name in names:
        while name in taken:
            name += "_"
        made.append(name)
    return made


class StablehloModel(SteppedModel[Importer]):
    """A function, or a turn of a loop."""

    def __init__(
        self, name: str, file: str, module: Module, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, str], declared: Mapping[str, Type], rest: Rest,
    ) -> None:  # fmt: skip
        outputs = {n: static(declared.get(n)) for n in results}
        super().__init__(name, file, inputs, results, outputs, rest)
        self._module = module

    def _importer(self, g: Graph, rest: Rest, known: Known) -> Importer:
        importer = Importer(g, self._module, rest.constants, known)
        importer.tuples.update(rest.tuples)
        return importer

    def _left(self, importer: Importer, rest: Rest, later: Sequence[Step[Applied]]) -> Rest:
        return Rest(later, rest.constants, importer.tuples)

    def _kept(self, importer: Importer) -> Iterable[str]:
        return chain(*importer.tuples.values(), self.results.values())

    def _turning(
        self, turn: Turn[Applied], fixed: Mapping[str, Array],
        inputs: Mapping[str, TensorType | None], results: Mapping[str, str],
    ) -> StablehloModel:  # fmt: skip
        rest = Rest(turn.steps, fixed)
        return StablehloModel("loop", self.file, self._module, inputs, results, {}, rest)
