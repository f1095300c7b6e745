"""Programs of PyTorch whose graphs depend on data, imported in parts: see `ir.staged`.

A call that must know what a tensor holds (a size, a condition, a number that a tensor was asked
for) is left for later with all that reads its results; the import goes on when the part before has
run.  Values have the names of their nodes; outputs have theirs in the last part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.control import Turn
from alpenglow.frontends.refusals import NO_CONVERTER
from alpenglow.frontends.stepped import SteppedModel
from alpenglow.frontends.steps import Step
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.checks import checked_by
from alpenglow.frontends.torch.control import (
    EXPANDED,
    ITEM,
    NUMBER,
    SCANS,
    Applied,
    CallStep,
    Placed,
    inner,
    names_of,
    scalar_type,
    scanning,
    step_of,
)
from alpenglow.frontends.torch.importer import Importer
from alpenglow.frontends.torch.program import Body, Call, Program, Ref
from alpenglow.frontends.torch.refusals import Refusal, blaming, listed, unsupported
from alpenglow.frontends.torch.symbols import Ranges, guards, is_untold
from alpenglow.frontends.torch.whole import attempted, verify
from alpenglow.ir.dims import Dim, Guards, assumed, names
from alpenglow.ir.graph import Graph, open_in
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.staged import Action, Known, Part, Scan, StagedModel
from alpenglow.ir.types import Array, TensorType

SCALAR = TensorType("i64", ())


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """Calls that are left to import, and what the parts before have found of them."""

    steps: Sequence[CallStep]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array] = field(default_factory=dict)
    symbols: Mapping[str, Dim] = field(default_factory=dict)
    demands: Guards = ()

    def __len__(self) -> int:
        return len(self.steps) + 1  # the outputs are left, too


def model_of(program: Program) -> Graph | StagedModel:
    """Return the graph of a program, or a staged model where that depends on data.

    Raises UnsupportedError as `importer.graph_of` does, and for a program that changes buffers and
    whose graph depends on data.
    """
    graph, refusals = attempted(program)
    waits = any(r.waits for r in refusals) or any(i.kind == "symbol" for i in program.inputs)
    if waits:  # what is refused behind what is left for later, may not be where data are there
        refusals = [Refusal(c, NO_CONVERTER) for c in every_call(program.body)
                    if not _is_known(c)]  # fmt: skip
    if refusals:
        raise unsupported(program, refusals)
    if not waits:
        return graph
    changed = ", ".join(o.target for o in program.outputs if o.kind == "buffer")
    if changed:
        raise _updates(changed, program.file)
    model = of_program(program)
    types = {n: t for n, t in model.inputs.items() if t is not None}
    model.first = model.part(model.begin(), Known(types))
    for name, t in types.items():
        if name not in model.first.graph.inputs:
            model.first.graph.input(name, t)
    return model


def _is_known(call: Call) -> bool:
    if call.target in EXPANDED or checked_by(call):
        return True
    return converters.find(call.target) is not None


def every_call(body: Body) -> Iterator[Call]:
    """Yield the calls of a body and of the functions that these are called with."""
    yield from body.calls
    for function in inner(body):
        yield from every_call(function)


def of_program(program: Program) -> TorchModel:
    """Return the staged model of a program."""
    body = program.body
    inputs: dict[str, TensorType | None] = {}
    constants = dict(body.constants)
    told: list[Call] = []
    for i in program.inputs:
        if i.kind == "user":
            inputs[i.name] = body.types[i.name]
        elif i.kind == "symbol":
            inputs[i.name] = SCALAR
            number = body.symbols[i.name]
            told.append(Call(i.name, ITEM, {"self": Ref(i.name)}, (str(number),)))
        elif i.kind != "fixed":
            constants[i.name] = program.state[i.target]
    results: dict[str, str] = {}
    types = dict(body.types)
    numbers: list[Call] = []
    for o, a in zip(program.outputs, body.outputs, strict=True):
        if o.kind == "fixed":
            continue
        if isinstance(a, Ref):
            results[o.name] = a.name
            continue
        results[o.name] = name = f"{o.name}.number"
        types[name] = scalar_type(a)
        numbers.append(Call(name, NUMBER, {"self": a}, (name,)))
    steps = tuple(map(step_of, [*told, *body.calls, *numbers]))
    rest = Rest(steps, types, constants, demands=(
        *guards(program.ranges, {s for t in inputs.values() if t for s in t.symbols()}),
        *program.demands,
    ))  # fmt: skip
    model = TorchModel(
        program.name, program.file, inputs, results, rest, program.ranges, program.trusted
    )
    model.metadata = Metadata("torch", program.version, structure=program.structure)
    return model


class TorchModel(SteppedModel[Importer]):
    """A program of PyTorch, or the body of a loop in one."""

    def __init__(
        self, name: str, file: str, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, str], rest: Rest, ranges: Ranges, trusted: bool,
    ) -> None:  # fmt: skip
        outputs = {n: _declared(rest.types.get(value)) for n, value in results.items()}
        super().__init__(name, file, inputs, results, outputs, rest)
        self.constants = rest.constants
        self._ranges, self._trusted = ranges, trusted

    def part(self, rest: Rest, known: Known) -> Part:
        with blaming(self._trusted):
            part = super().part(rest, known)
        _bring(part.graph, known)
        if not self._trusted:
            verify(part.graph)
        return part

    def _importer(self, g: Graph, rest: Rest, known: Known) -> Importer:
        importer = Importer(g, self._ranges, self._trusted, known, self._rest.demands)
        importer.types |= rest.types
        importer.constants |= rest.constants
        importer.symbols |= rest.symbols
        importer.awaited = rest.demands
        importer.match()
        return importer

    def _actions(self, importer: Importer) -> tuple[list[Action], list[CallStep]]:
        if assumed() is not None:
            told = importer.told() | importer.symbols.keys()
            importer.demand([d for d in importer.awaited if names(d[0]) <= told], "")
            importer.awaited = [d for d in importer.awaited if not names(d[0]) <= told]
        if importer.refusals:
            raise UnsupportedError(listed(importer.refusals), file=self.file)
        if importer.g.initial:
            raise _updates(", ".join(importer.g.initial), self.file)
        return super()._actions(importer)

    def _left(self, importer: Importer, rest: Rest, later: Sequence[CallStep]) -> Rest:
        wanted = {n for step in importer.later for n in step.reads}
        for name in (wanted | set(self.results.values())) & importer.numbers.keys():
            importer.find(name)
        return Rest(later, importer.types, importer.constants, importer.symbols, importer.awaited)

    # ── loops ──

    def _action(self, importer: Importer, step: Step[Any]) -> Action | None:
        return self._scan(importer, step) if step.kind in SCANS else super()._action(importer, step)

    def _turning(
        self, turn: Turn[Applied], fixed: Mapping[str, Array],
        inputs: Mapping[str, TensorType | None], results: Mapping[str, str],
    ) -> TorchModel:  # fmt: skip
        types: dict[str, TensorType] = {}
        constants = dict(fixed)
        for body in turn.bodies[::-1]:
            assert isinstance(body, Placed), "functions were placed"
            types |= {**body.inputs, **body.types}
            constants |= body.constants
        for name in turn.outputs:
            types.pop(name, None)
        rest = Rest(turn.steps, types, constants)
        return TorchModel("loop", self.file, inputs, results, rest, self._ranges, self._trusted)

    def _scan(self, importer: Importer, step: CallStep) -> Scan:
        """Return the loop along tensors that a step is."""
        initial, scanned, others, region = scanning(step.payload.call, step.payload.origin)
        states, along = names_of(initial), names_of(scanned)
        read = {name: importer.find(name) for name in names_of(others)}
        fixed = {n: a for n, v in read.items() if (a := v.array) is not None}
        captured = tuple(n for n in read if n not in fixed)
        if step.outputs not in self._bodies:
            inside = [f"i{k}" for k in range(len(states) + len(along))]
            body = region.place("b/", inside)
            turn = Turn(body.steps, (body,), (), "")
            results = {f"r{k}": o for k, o in enumerate(body.outputs)}
            model = self._turning(turn, fixed, dict.fromkeys([*inside, *captured]), results)
            self._bodies[step.outputs] = model
        zeros = (0,) * (len(along) + len(step.outputs) - len(states))
        return Scan(step.label, self._bodies[step.outputs], states, along, captured, step.outputs,
                    zeros, (False,) * len(zeros))  # fmt: skip


def _declared(t: TensorType | None) -> TensorType | None:
    """Return the type of an output if all of it is told."""
    return None if t is None or any(map(is_untold, t.symbols())) else t


def _updates(names: str, file: str) -> UnsupportedError:
    """Return the error for buffers that a program writes whose graph depends on data."""
    what = f"updates of {names} in a program whose graph depends on its data are not supported"
    return UnsupportedError(what, file=file)


def _bring(g: Graph, known: Known) -> None:
    """Give a graph inputs whose shapes tell the symbols that it is open in."""
    told = {s for v in g.inputs.values() for s in v.type.symbols()}
    asked = {s for node in g.nodes for s in open_in(node)} - told
    for name, t in known.types.items():
        brings = {str(d) for d in t.shape} & asked
        if brings:
            g.input(name, t)
            asked -= brings
