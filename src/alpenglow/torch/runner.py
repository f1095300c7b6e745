"""A plan as a function on a list of tensors, as AOTAutograd calls it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from alpenglow.base.errors import FeedError
from alpenglow.compiler.options import Options
from alpenglow.frontends.torch.program import Ref
from alpenglow.frontends.torch.symbols import extent
from alpenglow.ir.dims import Dim, Sym, bind, is_open, names
from alpenglow.ir.solve import sources, values_of
from alpenglow.torch.compiled import Compiled, Lying, lying
from alpenglow.torch.plan import Eager, Part, Plan, read_by, refs


class Runner:
    """Runs the steps of a plan; called with a list of arguments, which it empties.

    `fixed` are the places of arguments that are always the same tensor.
    """

    def __init__(
        self, module: Any, plan: Plan, fixed: frozenset[int], options: Options | None
    ) -> None:
        self._boxed_call = True  # of the instance: torch copies what instances have
        self._module = module
        self.plan = plan
        self._nodes = {node.name: node for node in module.graph.nodes}
        self._inputs = [i.name for i in plan.program.inputs]
        body = plan.program.body
        self._types = body.types
        self._outputs = body.outputs
        forms = dict(_forms(module))
        own = {self._inputs[i] for i in fixed}
        self.steps: list[Compiled | Eager] = []
        self._reads: list[list[str]] = []
        for step in plan.steps:
            if isinstance(step, Part):
                inner = frozenset(i for i, n in enumerate(step.body.inputs) if n in own)
                ranges = plan.program.ranges
                self.steps.append(Compiled(step.body, ranges, forms, inner, options))
                self._reads.append(list(step.body.inputs))
            else:
                self.steps.append(step)
                self._reads.append(list(read_by(step.call)))
        self._dead = self._last_reads()
        self._constants = {n: getattr(module, _attribute(module, n)) for n in body.constants}
        self._symbols = [
            (i.name, at) for at, i in enumerate(plan.program.inputs) if i.kind == "symbol"
        ]
        shapes = {i.name: self._types[i.name].shape for i in plan.program.inputs
                  if i.name in self._types}  # fmt: skip
        self._sources = sources(shapes)
        self._whole = self._is_whole()

    def _is_whole(self) -> bool:
        """Whether one compiled part is all there is: inputs go in, its outputs come out."""
        first = self.steps[0] if len(self.steps) == 1 else None
        return isinstance(first, Compiled) and first.body.outputs == self._outputs

    def _last_reads(self) -> list[list[str]]:
        """Return, for each step, the names that nothing reads after it."""
        kept = {n for a in self._outputs for n in refs(a)}
        dead: list[list[str]] = []
        for reads in reversed(self._reads):
            dead.append([n for n in dict.fromkeys(reads) if n not in kept])
            kept.update(reads)
        return dead[::-1]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        values = self._values(given)
        env = dict(zip(self._inputs, given, strict=True))
        if self._whole:
            first = self.steps[0]
            assert isinstance(first, Compiled)
            return first([env[n] for n in first.body.inputs], values)
        env |= self._constants
        del given
        for step, reads, dead in zip(self.steps, self._reads, self._dead, strict=True):
            if isinstance(step, Compiled):
                made = step([env[n] for n in reads], values)
                env.update((a.name, y) for a, y in zip(step.body.outputs, made, strict=True)
                           if isinstance(a, Ref))  # fmt: skip
            else:
                self._eager(step, env, values)
            for name in dead:
                env.pop(name, None)
        return [self._result(a, env, values) for a in self._outputs]

    def _values(self, given: Sequence[Any]) -> dict[str, int]:
        """Return the values of the symbols of a call."""
        values: dict[str, int] = {}
        for name, at in self._symbols:
            number = self.plan.program.body.symbols.get(name)
            if isinstance(number, Sym) and str(number).isidentifier():
                values[str(number)] = int(given[at])
        if self._sources and any(s.symbol not in values for s in self._sources):
            shapes = {n: tuple(x.shape) for n, x in zip(self._inputs, given, strict=True)
                      if isinstance(x, torch.Tensor)}  # fmt: skip
            told, _ = values_of(self._sources, shapes)
            values = {**told, **values}
        return values

    def _eager(self, step: Eager, env: dict[str, Any], values: Mapping[str, int]) -> None:
        node = step.node

        def value(n: Any) -> Any:
            if n.name in env:
                return env[n.name]
            if n.op == "get_attr":
                return operator.attrgetter(n.target)(self._module)
            if n.target is operator.getitem:
                return value(n.args[0])[n.args[1]]
            return _number(n, values)

        args = torch.fx.node.map_arg(node.args, value)
        kwargs = torch.fx.node.map_arg(node.kwargs, value)
        made = node.target(*args, **kwargs)
        env[node.name] = made
        if isinstance(made, tuple | list):
            env.update((n, y) for n, y in zip(step.call.results, made, strict=True) if n)

    def _result(self, argument: Any, env: Mapping[str, Any], values: Mapping[str, int]) -> Any:
        if isinstance(argument, Ref):
            return env[argument.name]
        if is_open(argument):
            return bind(argument, values)
        return argument


def _forms(module: Any) -> Iterator[tuple[str, Lying]]:
    """Yield how the tensors of a graph lie, by name."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            yield node.name, lying(val)
        elif isinstance(val, tuple | list):
            for i, fake in enumerate(val):
                if isinstance(fake, torch.Tensor):
                    yield f"{node.name}#{i}", lying(fake)


def _attribute(module: Any, name: str) -> str:
    return next(str(n.target) for n in module.graph.nodes if n.name == name)


def _number(node: Any, values: Mapping[str, int]) -> int:
    """Return the number that a node computes from extents."""
    d: Dim = extent(str(node.meta["val"]))
    if missing := names(d) - values.keys():
        raise FeedError(f"the extent {d} is not told by the inputs: {', '.join(sorted(missing))}")
    number = bind(d, values)
    assert isinstance(number, int), f"{d} is open"
    return number
