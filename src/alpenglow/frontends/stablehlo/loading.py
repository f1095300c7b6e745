"""From a program of StableHLO to its graph, in parts where data decide (`ir.staged`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.errors import NONSENSE, AlpenglowError, ModelError, UnsupportedError
from alpenglow.frontends.control import Turn
from alpenglow.frontends.shapes import check_size
from alpenglow.frontends.stablehlo.importer import Importer
from alpenglow.frontends.stablehlo.module import Function, Module, Tensor, Type, main_of
from alpenglow.frontends.stablehlo.reading import Input, Source, read
from alpenglow.frontends.stablehlo.refusals import check_supported
from alpenglow.frontends.stablehlo.steps import Applied, placed
from alpenglow.frontends.stablehlo.table import element
from alpenglow.frontends.stepped import SteppedModel, graph_of
from alpenglow.frontends.steps import Step
from alpenglow.ir.constant_inputs import check_names, constant
from alpenglow.ir.dims import symbol
from alpenglow.ir.graph import HIDDEN, Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.staged import Known, StagedModel
from alpenglow.ir.types import Array, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What is left of a program: its steps, constants among their operands, and parts of tuples."""

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

    `shapes` binds open extents of inputs by input name; `constants` are values of inputs.
    """
    source = Source.of(model)
    try:
        return loaded(read(source), source, shapes, constants)
    except AlpenglowError as error:
        raise error.located(file=source.file) from None
    except NONSENSE as error:
        what = f"{type(error).__name__}: {error}"
        raise ModelError(
            f"the program breaks the rules of StableHLO: {what}", file=source.file
        ) from error


def loaded(
    module: Module, source: Source, shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> Graph | StagedModel:  # fmt: skip
    """Return the graph of a program that has been read, or the model in parts."""
    main = main_of(module)
    check_supported(module, main)
    whole = _whole(module, main, source, shapes, constants)
    return graph_of(whole)


def _whole(
    module: Module, main: Function, source: Source, shapes: Mapping[str, Sequence[int]] | None,
    constants: Mapping[str, Any],
) -> Program:  # fmt: skip
    """Return the function that a program is."""
    inputs = source.inputs(main)
    types = _types(inputs, shapes)
    fixed = _fixed(constants, types)
    types = {name: t for name, t in types.items() if name not in fixed}
    names = [i.name for i in inputs if i.kept]
    # The names of values inside do not begin as those of inputs do.
    prefix = "main/"
    outputs = _apart(source.outputs(main), [i.name for i in inputs])
    while any(name.startswith(prefix) for name in (*names, *outputs)):
        prefix = f"{prefix[:-1]}_/"
    body = placed(main.body, prefix, names)
    results = dict(zip(outputs, body.outputs, strict=True))
    declared = dict(zip(results, main.signature.results, strict=True))
    rest = Rest(body.steps, fixed)
    return Program(module.name or main.name, source.file, module, types, results, declared, rest)


def _apart(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names of outputs of which none is that of an input: it would be a variable."""
    made = []
    for name in names:
        while name in taken:
            name += "_"
        made.append(name)
    return made


def _fixed(constants: Mapping[str, Any], types: Mapping[str, TensorType]) -> dict[str, Array]:
    """Return inputs that have values as constants."""
    check_names(constants, types)
    return {
        # `ascontiguousarray` would make a vector of a scalar.
        name: np.asarray(constant(name, value, types[name].dtype, types[name].shape), order="C")
        for name, value in constants.items()
    }


def _types(
    inputs: Sequence[Input], shapes: Mapping[str, Sequence[int]] | None
) -> dict[str, TensorType]:
    """Return the types of inputs; each open extent has a name of its own, or is bound."""
    g = Graph("inputs")
    taken = {str(d) for i in inputs for d in i.shape}
    fresh = (symbol(f"d{n}") for n in count() if f"d{n}" not in taken)
    for i in inputs:
        if i.name.startswith(HIDDEN):
            raise UnsupportedError(f"an input is called '{i.name}'", hint="call it otherwise")
        if i.name in g.inputs:
            raise ModelError(f"two inputs are called '{i.name}'")
        made = TensorType(i.dtype, tuple(next(fresh) if d is None else d for d in i.shape))
        check_size(f"input '{i.name}'", made)
        g.input(i.name, made)
    bound = bind_shapes(g, shapes) if shapes else g
    return {name: v.type for name, v in bound.inputs.items()}


class Program(SteppedModel[Importer]):
    """A function, or a turn of a loop."""

    def __init__(
        self, name: str, file: str, module: Module, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, str], declared: Mapping[str, Type], rest: Rest,
    ) -> None:  # fmt: skip
        outputs = {n: _static(declared.get(n)) for n in results}
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
    ) -> Program:  # fmt: skip
        rest = Rest(turn.steps, fixed)
        return Program("loop", self.file, self._module, inputs, results, {}, rest)


def _static(t: Type | None) -> TensorType | None:
    """Return the type of a tensor if all of it is told."""
    if not isinstance(t, Tensor) or t.shape is None or None in t.shape:
        return None
    return TensorType(element("an output", t), tuple(d for d in t.shape if d is not None))
