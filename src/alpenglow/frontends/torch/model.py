"""Programs of PyTorch whose graphs depend on data, imported in parts: see `ir.staged`.

A call that must know what a tensor holds (a size, a condition, a number that a tensor was asked
for) is left for later with all that reads its results; the import goes on when the part before has
run.  Values have the names of their nodes; outputs have theirs in the last part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.checks import checked_by
from alpenglow.frontends.torch.control import ITEM, LOOP, LOOPS, Splice, inlined, is_expanded
from alpenglow.frontends.torch.importer import Importer
from alpenglow.frontends.torch.program import Argument, Body, Call, Program, Ref, refs
from alpenglow.frontends.torch.refusals import Refusal, blaming, label, listed, unsupported
from alpenglow.frontends.torch.symbols import Ranges, guards, is_untold
from alpenglow.frontends.torch.whole import attempted, verify
from alpenglow.ir.dims import Dim, Guards, assumed, names
from alpenglow.ir.graph import Graph, open_in
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.staged import Action, Known, Loop, Part, Scan, StagedModel
from alpenglow.ir.types import Array, TensorType

SCALAR = TensorType("i64", ())


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What is left to import, and what the parts before have found of it."""

    calls: Sequence[Call]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array] = field(default_factory=dict)
    symbols: Mapping[str, Dim] = field(default_factory=dict)
    demands: Guards = ()

    def __len__(self) -> int:
        return len(self.calls) + 1  # the outputs are left, too


def model_of(program: Program) -> Graph | StagedModel:
    """Return the graph of a program, or a staged model where that depends on data.

    Raises UnsupportedError as `importer.graph_of` does, and for a program that changes buffers and
    whose graph depends on data.
    """
    graph, refusals = attempted(program)
    waits = any(r.waits for r in refusals) or any(i.kind == "symbol" for i in program.inputs)
    if waits:  # what is refused behind what is left for later, may not be where data are there
        refusals = [Refusal(c, "there is no converter") for c in every_call(program.body)
                    if not _is_known(c)]  # fmt: skip
    if refusals:
        raise unsupported(program, refusals)
    if not waits:
        return graph
    changed = ", ".join(o.target for o in program.outputs if o.kind == "buffer")
    if changed:
        raise UnsupportedError(
            f"buffers are changed ({changed}) by a program whose graph depends on its data",
            file=program.file,
        )
    model = of_program(program)
    types = {n: t for n, t in model.inputs.items() if t is not None}
    model.first = model.part(model.begin(), Known(types))
    for name, t in types.items():
        if name not in model.first.graph.inputs:
            model.first.graph.input(name, t)
    return model


def _is_known(call: Call) -> bool:
    known = converters.find(call.target) is not None or is_expanded(call.target)
    return known or bool(checked_by(call))


def every_call(body: Body) -> Iterator[Call]:
    """Yield the calls of a body and of the functions that these are called with."""
    for call in body.calls:
        yield call
        for argument in call.arguments.values():
            if isinstance(argument, Body):
                yield from every_call(argument)


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
    outputs = {o.name: a for o, a in zip(program.outputs, body.outputs, strict=True)
               if o.kind != "fixed"}  # fmt: skip
    metadata = Metadata("torch", program.version, structure=program.structure)
    return TorchModel(
        program.name, program.file, inputs, outputs, constants,
        Rest([*told, *body.calls], body.types, demands=(
            *guards(program.ranges, {s for t in inputs.values() if t for s in t.symbols()}),
            *program.demands,
        )),
        program.ranges, program.trusted, metadata,
    )  # fmt: skip


class TorchModel(StagedModel):
    """A program of PyTorch, or the body of a loop in one; `results` are its outputs by name."""

    def __init__(
        self, name: str, file: str, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, Argument], constants: Mapping[str, Array], rest: Rest,
        ranges: Ranges, trusted: bool, metadata: Metadata = NONE,
    ) -> None:  # fmt: skip
        self.name, self.file, self.metadata = name, file, metadata
        self.inputs, self.kinds, self.constants = inputs, {}, constants
        self.results = results
        self.outputs = {n: self._declared(a, rest.types) for n, a in results.items()}
        self._rest = rest
        self._ranges, self._trusted = ranges, trusted
        self._bodies: dict[str, TorchModel] = {}

    @staticmethod
    def _declared(result: Argument, types: Mapping[str, TensorType]) -> TensorType | None:
        t = types.get(result.name) if isinstance(result, Ref) else None
        return None if t is None or any(map(is_untold, t.symbols())) else t

    def begin(self) -> Rest:
        return self._rest

    def part(self, rest: Rest, known: Known) -> Part:
        """Import as much of the rest as what is known decides."""
        with blaming(self._trusted):
            part = self._imported(rest, known)
        if not self._trusted:
            verify(part.graph)
        return part

    def _imported(self, rest: Rest, known: Known) -> Part:
        g = Graph(self.name)
        importer = Importer(g, self._ranges, self._trusted, known, self._rest.demands)
        importer.types |= rest.types
        importer.constants |= {**self.constants, **rest.constants}
        importer.symbols |= rest.symbols
        importer.match()
        importer.calls(rest.calls)
        demands = self._demanded(importer, rest.demands)
        if importer.refusals:
            raise UnsupportedError(listed(importer.refusals), file=self.file)
        if g.initial:
            raise UnsupportedError(
                f"{', '.join(g.initial)} changes in a program whose graph depends on its data",
                file=self.file,
            )
        actions, later = self._actions(importer)
        needs = tuple(importer.needs)
        if later or actions:
            self._hand_on(g, importer)
            _bring(g, known)
            after = Rest(later, importer.types, importer.constants, importer.symbols, demands)
            return Part(g, tuple(actions), needs, after)
        for name, argument in self.results.items():
            g.output(name, importer.output(argument))
        g.prune()
        _bring(g, known)
        return Part(g, (), (), None)

    def _demanded(self, importer: Importer, demands: Guards) -> Guards:
        """Take demands for granted whose symbols are known by now; return the others."""
        if assumed() is None:
            return demands
        told = importer.told() | importer.symbols.keys()
        importer.demand([d for d in demands if names(d[0]) <= told], "")
        return [d for d in demands if not names(d[0]) <= told]

    def _hand_on(self, g: Graph, importer: Importer) -> None:
        """Make outputs of the values that what comes later reads."""
        wanted = dict.fromkeys(n for call in importer.later for n in refs(call.arguments))
        wanted |= dict.fromkeys(n for a in self.results.values() for n in refs(a))
        for name in wanted:
            here = name in importer.values and name not in importer.constants
            if here and name not in g.inputs and name not in importer.kept:
                g.output(name, importer.values[name])
        for name, v in {**importer.needs, **importer.kept}.items():
            g.output(name, v)
        g.prune()

    # ── loops ──

    def _actions(self, importer: Importer) -> tuple[list[Action], list[Call]]:
        """Return the loops whose operands are there, and the calls that are left."""
        pending = {r for call in importer.later for r in call.results if r}
        actions: list[Action] = []
        later: list[Call] = []
        for call in importer.later:
            if call.target in LOOPS and pending.isdisjoint(refs(call.arguments)):
                turn = self._loop if call.target == LOOP else self._scan
                actions.append(turn(importer, call))
            else:
                later.append(call)
        return actions, later

    def _loop(self, importer: Importer, call: Call) -> Loop:
        step, condition = call.arguments["body_fn"], call.arguments["cond_fn"]
        carried, others = call.arguments["carried_inputs"], call.arguments["additional_inputs"]
        going = call.arguments["going"]
        assert isinstance(step, Body) and isinstance(condition, Body) and isinstance(going, Ref)
        assert isinstance(carried, tuple) and isinstance(others, tuple), (
            "what loops are called with"
        )
        held = self._operands(importer, call, carried, "i")
        captured = self._operands(importer, call, others, "a")
        inside = [f"{call.name}.c{k}" for k in range(len(carried))]
        first, made = inlined(step, [*map(Ref, inside), *map(Ref, captured)], f"{call.name}.b.")
        last, goes_on = inlined(condition, [*made, *map(Ref, captured)], f"{call.name}.e.")
        inputs: dict[str, TensorType | None] = {
            f"{call.name}.turn": SCALAR, f"{call.name}.going": TensorType("bool", ()),
        }  # fmt: skip
        inputs |= {n: _plain(step, i) for n, i in zip(inside, step.inputs, strict=False)}
        results = {f"{call.name}.goes_on": goes_on[0]}
        results |= {f"{call.name}.o{k}": a for k, a in enumerate(made)}
        stated = _stated(step, inside)
        body = self._body(importer, call, inputs, captured, results, stated, first, last)
        return Loop(label(call), body, "", going.name, tuple(held),
                    tuple(n for n in captured if n in body.inputs), call.results)  # fmt: skip

    def _scan(self, importer: Importer, call: Call) -> Scan:
        step, initial = call.arguments["body"], call.arguments["init"]
        scanned, others = call.arguments["xs"], call.arguments["others"]
        assert isinstance(step, Body) and isinstance(initial, tuple), "what scans are called with"
        assert isinstance(scanned, tuple) and isinstance(others, tuple)
        held = self._operands(importer, call, initial, "i")
        along = self._operands(importer, call, scanned, "x")
        captured = self._operands(importer, call, others, "a")
        inside = [f"{call.name}.c{k}" for k in range(len(held) + len(along))]
        splice, made = inlined(step, [*map(Ref, inside), *map(Ref, captured)], f"{call.name}.b.")
        inputs = {n: _plain(step, i) for n, i in zip(inside, step.inputs, strict=False)}
        results = {f"{call.name}.o{k}": a for k, a in enumerate(made)}
        stated = _stated(step, inside)
        body = self._body(importer, call, inputs, captured, results, stated, splice)
        zeros = (0,) * (len(along) + len(made) - len(held))
        return Scan(label(call), body, tuple(held), tuple(along),
                    tuple(n for n in captured if n in body.inputs), call.results, zeros,
                    (False,) * len(zeros))  # fmt: skip

    def _operands(
        self, importer: Importer, call: Call, operands: Sequence[Argument], letter: str
    ) -> list[str]:  # fmt: skip
        """Return the names of operands; numbers become tensors with names of their own."""
        named = []
        for k, a in enumerate(operands):
            if isinstance(a, Ref):
                named.append(a.name)
                continue
            named.append(f"{call.name}.{letter}{k}")
            importer.kept[named[-1]] = importer.output(a)
        return named

    def _body(
        self, importer: Importer, call: Call, inputs: Mapping[str, TensorType | None],
        captured: Sequence[str], results: Mapping[str, Argument],
        stated: Mapping[str, TensorType], *splices: Splice,
    ) -> TorchModel:  # fmt: skip
        """Return the body of a loop as a model; what it captures are further inputs.

        However often the loop is imported, this is one model, so that it is compiled once.
        """
        if call.name not in self._bodies:
            fixed = {n: importer.constants[n] for n in captured if n in importer.constants}
            given = {**inputs, **{n: None for n in captured if n not in fixed}}
            types = {**importer.types, **stated}
            constants = dict(fixed)
            for splice in splices:
                types |= splice.types
                constants |= splice.constants
            calls = [c for splice in splices for c in splice.calls]
            self._bodies[call.name] = TorchModel(
                call.name, self.file, given, results, constants, Rest(calls, types), self._ranges,
                self._trusted,
            )  # fmt: skip
        return self._bodies[call.name]


def _bring(g: Graph, known: Known) -> None:
    """Give a graph inputs whose shapes tell the symbols that it is open in."""
    told = {s for v in g.inputs.values() for s in v.type.symbols()}
    asked = {s for node in g.nodes for s in open_in(node)} - told
    for name, t in known.types.items():
        brings = {str(d) for d in t.shape} & asked
        if brings:
            g.input(name, t)
            asked -= brings


def _stated(body: Body, inside: Sequence[str]) -> dict[str, TensorType]:
    """Return the types that are stated for what a loop carries, by its names there."""
    pairs = zip(inside, body.inputs, strict=False)
    return {name: body.types[i] for name, i in pairs if i in body.types}


def _plain(body: Body, name: str) -> TensorType | None:
    """Return the type of an input of a body if each extent is a number; an extent is a scalar."""
    if name in body.symbols:
        return SCALAR
    t = body.types[name]
    return None if t.symbols() else t
