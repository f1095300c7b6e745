"""From a program of PyTorch to a graph: calls in order, each through its entry in the table.

What a converter makes is held to the type that PyTorch states for it.  What cannot be converted is
reported all at once: an input of the stated type takes its place while the rest is looked at.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpenglow.base.errors import (
    NONSENSE,
    AlpenglowError,
    GraphError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.base.words import counted
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.checks import checked, checked_by
from alpenglow.frontends.torch.fx import unique
from alpenglow.frontends.torch.program import Argument, Body, Call, Program, Ref, Unknown
from alpenglow.frontends.torch.symbols import Ranges, guards
from alpenglow.frontends.torch.table import Site, bound
from alpenglow.ir.dims import Dim, bind, is_open, names
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.types import Array, TensorType
from alpenglow.ir.verify import verify_graph

TRIALS = 8
"""With how many values of their symbols two extents are compared that are not the same text."""


EXPLAIN = "alpenglow.torch.explain(module, *args) lists them with their places"
DECOMPOSE = "save exported_program.run_decompositions(), whose operators are fewer"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that could not be converted, and why."""

    call: Call
    reason: str


class Importer:
    """The state of the import of one body."""

    def __init__(self, g: Graph, ranges: Ranges, trusted: bool) -> None:
        self.g = g
        self.ranges = ranges
        self.trusted = trusted
        self.values: dict[str, Value] = {}
        self.scalars: dict[str, Value] = {}  # symbols that are no extents of inputs
        self.foreign: set[str] = set()  # names of what is no tensor of ours
        self.checked: frozenset[str] = frozenset()  # what calls have to check
        self.held: set[str] = set()  # and what does so
        self.refusals: list[Refusal] = []

    def run(self, body: Body, operands: Sequence[Value | None]) -> list[Value]:
        """Import a body, whose inputs are these operands, and return the values of its outputs."""
        for name, v in zip(body.inputs, operands, strict=True):
            if v is None:
                self.foreign.add(name)
            else:
                self.values[name] = v
        for name, array in body.constants.items():
            self.values[name] = self.g.constant(array, name)
        self.checked = checked(body.calls)
        for call in body.calls:
            if checked_by(call) not in self.held:  # its maker checks it
                self._call(body, call)
        return [self.output(body, argument) for argument in body.outputs]

    def output(self, body: Body, argument: Argument) -> Value:
        """Return an output of a body: a tensor, or a number as one."""
        if isinstance(argument, Ref):
            return self.find(argument.name)
        if isinstance(argument, int | float) or is_open(argument):
            dtype = "bool" if isinstance(argument, bool) else (
                "f32" if isinstance(argument, float) else "i64")  # fmt: skip
            site = Site(self.g, Call("output", "output", {}, ()), [], self.scalars)
            return site.constant(argument, dtype)  # type: ignore[arg-type]  # a number or an extent
        raise UnsupportedError(f"an output is {argument!r}, no tensor")

    def find(self, name: str) -> Value:
        """Return a value by name; raise ModelError if there is none."""
        if name in self.foreign and name not in self.values:
            raise UnsupportedError(f"'{name}' is no dense tensor on the CPU, of a type of ours")
        if name not in self.values:
            raise ModelError(f"'{name}' is read before anything makes it")
        return self.values[name]

    def _call(self, body: Body, call: Call) -> None:
        stated = [body.types.get(name) if name else None for name in call.results]
        before = len(self.g.nodes)
        try:
            results = self._converted(call, stated)
            for name, v, t in zip(call.results, results, stated, strict=True):
                if name:
                    self.values[name] = self._checked(v, t)
        except (UnsupportedError, TypeRuleError) as error:  # torch checked the program itself
            for node in list(itertools.islice(reversed(self.g.nodes), len(self.g.nodes) - before)):
                self.g.remove(node)
            self.refusals.append(Refusal(call, error.message))
            self._stand_in(call, stated)
        except AlpenglowError as error:
            raise error.located(node=label(call)) from None
        except NONSENSE as error:
            raise ModelError(
                f"{call.target} breaks the rules of PyTorch: {type(error).__name__}: {error}",
                node=label(call),
            ) from error
        except AssertionError as error:
            if self.trusted:
                raise
            raise ModelError(f"{call.target}: {error}", node=label(call)) from error

    def _converted(
        self, call: Call, stated: Sequence[TensorType | None]
    ) -> list[Value | None]:  # fmt: skip
        entry = converters.find(call.target)
        if entry is None:
            raise UnsupportedError("there is no converter")
        arguments = bound(entry, {k: self._given(a) for k, a in call.arguments.items()})
        checks = self.checked & set(call.results) if "check_errors" in entry.parameters else set()
        if checks:
            arguments["check_errors"] = True
        outcome = entry.convert(Site(self.g, call, stated, self.scalars), **arguments)
        self.held |= checks
        results: list[Value | None] = [outcome] if isinstance(outcome, Value) else list(outcome)
        if len(results) < len(call.results):
            raise AssertionError(f"{call.target}: {len(results)} results of {len(call.results)}")
        return results[: len(call.results)]

    def _given(self, argument: Argument) -> Any:
        """Return an argument as converters take it: tensors are values."""
        if isinstance(argument, Ref):
            return self.find(argument.name)
        if isinstance(argument, tuple):
            unknown = [a for a in argument if isinstance(a, Unknown)]
            return unknown[0] if unknown else tuple(map(self._given, argument))
        return argument

    def _checked(self, v: Value | None, stated: TensorType | None) -> Value:
        """Return v; assert that it has the type that PyTorch states."""
        if stated is None:
            raise UnsupportedError("a result is no tensor")
        assert v is not None, "a result that is read is not made"
        same = v.type.dtype == stated.dtype and self._agree(v.type.shape, stated.shape)
        assert same, f"made {v.type}, PyTorch states {stated}"
        return v

    def _agree(self, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
        """Whether two shapes are the same; open extents of different texts are tried."""
        if len(a) != len(b):
            return False
        return all(x == y if not is_open(x) and not is_open(y) else self._equal(x, y)
                   for x, y in zip(a, b, strict=True))  # fmt: skip

    def _equal(self, x: Dim, y: Dim) -> bool:
        if not is_open(difference := x - y):
            return difference == 0
        symbols = sorted(names(difference))
        draw = random.Random(0)
        for _ in range(TRIALS):
            values = {}
            for s in symbols:
                low, high = self.ranges.get(s, (2, None))
                most = low + 1000 if high is None else high
                values[s] = draw.randint(low, max(low, min(most, low + 1000)))
            if bind(difference, values) != 0:
                return False
        return True

    def _stand_in(self, call: Call, stated: Sequence[TensorType | None]) -> None:
        for name, t in zip(call.results, stated, strict=True):
            if name and t is not None:
                self.values[name] = Value(t, name)
            elif name:
                self.foreign.add(name)


def label(call: Call) -> str:
    """Return how messages name a call."""
    where = f", {call.source}" if call.source else ""
    return f"{call.target} '{call.name}'{where}"


def graph_of(program: Program) -> Graph:
    """Return the graph of a program.

    Parameters, constants and buffers that nothing writes are constants; buffers that the program
    writes are variables.  Raises UnsupportedError, which names all operators that have no
    converter or are called in a way that none takes, with the places in the user's code.
    """
    g = Graph(program.name)
    importer = Importer(g, program.ranges, program.trusted)
    # A buffer may have the name of an argument or a result, which a variable of the graph may not.
    taken = {i.name for i in program.inputs} | {o.name for o in program.outputs}
    written = {o.target: unique(o.target, taken) for o in program.outputs if o.kind == "buffer"}
    constants: dict[int, Value] = {}
    operands: list[Value | None] = []
    for i in program.inputs:
        if i.kind in ("symbol", "fixed"):
            operands.append(None)
        elif i.kind == "user":
            operands.append(g.input(i.name, _type(program, i.name)))
        elif i.target in written:
            operands.append(g.variable(written[i.target], program.state[i.target]))
        else:
            operands.append(_constant(g, constants, program.state, i.target))
    kept = [o for o in program.outputs if o.kind != "fixed"]
    body = replace(program.body, outputs=tuple(
        a for a, o in zip(program.body.outputs, program.outputs, strict=True) if o.kind != "fixed"
    ))  # fmt: skip
    results = importer.run(body, operands)
    if importer.refusals:
        raise UnsupportedError(
            listed(importer.refusals),
            file=program.file,
            hint=EXPLAIN if program.trusted else DECOMPOSE,
        )
    for o, v in zip(kept, results, strict=True):
        if o.kind == "buffer":
            g.assign(written[o.target], v)
        else:
            g.output(o.name, v)
    symbols = {s for v in g.inputs.values() for s in v.type.symbols()}
    g.guards = (*guards(program.ranges, symbols), *program.demands)
    g.metadata = Metadata("torch", program.version, structure=program.structure)
    g.prune()
    if not program.trusted:
        _verify(g)
    return g


def _verify(g: Graph) -> None:
    """Raise ModelError if a graph breaks a rule: it is open in extents that no input brings."""
    try:
        verify_graph(g)
    except GraphError as error:
        raise ModelError(error.message, node=error.node) from error


def _type(program: Program, name: str) -> TensorType:
    t = program.body.types.get(name)
    if t is None:
        raise UnsupportedError(f"input '{name}' is no tensor", file=program.file)
    return t


def _constant(
    g: Graph, constants: dict[int, Value], state: Mapping[str, Array], target: str
) -> Value:  # fmt: skip
    """Return a constant of the state; those that are tied are one."""
    if target not in state:
        raise ModelError(f"the state has no '{target}'")
    array = state[target]
    if id(array) not in constants:
        constants[id(array)] = g.constant(np.asarray(array), target)
    return constants[id(array)]


def listed(refusals: Sequence[Refusal]) -> str:
    """Return what could not be converted: each operator and reason, how often, and where first."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for r in refusals:
        groups.setdefault((r.call.target, r.reason), []).append(r.call)
    lines = []
    for (target, reason), calls in groups.items():
        where = f" at {calls[0].source}" if calls[0].source else ""
        lines.append(f"{target} ({counted(len(calls), 'call')}{where}): {reason}")
    return f"{counted(len(groups), 'operator')} cannot be converted: " + "; ".join(lines)
