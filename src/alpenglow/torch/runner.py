"""A plan as a function on a list of tensors, as AOTAutograd calls it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from alpenglow.base.errors import UnsupportedError
from alpenglow.compiler.options import Options
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.program import Body, Ref, refs
from alpenglow.frontends.torch.symbols import extent
from alpenglow.ir.dims import Dim, Sym, bind, is_open
from alpenglow.ir.solve import sources, values_of
from alpenglow.torch.compiled import Compiled, Lying, lying
from alpenglow.torch.plan import Eager, Part, Plan
from alpenglow.torch.writes import Writes


class Runner:
    """Runs the steps of a plan; called with a list of arguments, which it empties.

    `fixed` are the places of arguments that are always the same tensor.  `writes` says which
    results are written into arguments.
    """

    def __init__(
        self, module: Any, plan: Plan, fixed: frozenset[int], options: Options | None,
        writes: Writes,
    ) -> None:  # fmt: skip
        self._boxed_call = True  # of the instance: torch copies what instances have
        self._module = module
        self.plan = plan
        self._nodes = {node.name: node for node in module.graph.nodes}
        self._inputs = [i.name for i in plan.program.inputs]
        body = plan.program.body
        self._types = body.types
        self._outputs = body.outputs
        self._returned = module.graph.output_node().args[0]
        self._writes = writes
        forms = dict(_forms(module))
        own = {self._inputs[i] for i in fixed}
        self.steps: list[Compiled | Eager] = []
        self._reads: list[list[str]] = []
        for step in plan.steps:
            if isinstance(step, Part):
                inner = frozenset(i for i, n in enumerate(step.body.inputs) if n in own)
                ranges = plan.program.ranges
                written = self._written_by(step.body)
                self.steps.append(Compiled(step.body, ranges, forms, inner, options, written))
                self._reads.append(list(step.body.inputs))
            else:
                self.steps.append(step)
                self._reads.append(list(refs(step.call.arguments)))
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
        return (
            isinstance(first, Compiled)
            and first.body.outputs == self._outputs
            and not any(map(_has_fraction, self._returned))
        )

    def _written_by(self, body: Body) -> dict[int, int]:
        """Return which results of a body it writes into its inputs itself: all, if it is all."""
        if body.outputs != self._outputs or len(self.plan.steps) > 1:
            return {}
        names = [self._inputs[i] for i in self._writes.into]
        first = len(body.outputs) - len(names)
        return {at: body.inputs.index(n) for at, n in enumerate(names, first) if n in body.inputs}

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
            made = first([env[n] for n in first.body.inputs], values)
            return self._writes.done(made, given) if self._writes.into else made
        env |= self._constants
        kept = given if self._writes.into else ()
        del given
        for step, reads, dead in zip(self.steps, self._reads, self._dead, strict=True):
            if isinstance(step, Compiled):
                made = step([_tensor(env[n]) for n in reads], values)
                env.update((a.name, y) for a, y in zip(step.body.outputs, made, strict=True)
                           if isinstance(a, Ref))  # fmt: skip
            else:
                self._eager(step, env, values)
            for name in dead:
                env.pop(name, None)
        made = [
            self._value(n, env, values) if isinstance(n, torch.fx.Node) else n
            for n in self._returned
        ]
        return self._writes.done(made, kept) if self._writes.into else made

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

    def _eager(self, step: Eager, env: dict[str, Any], values: dict[str, int]) -> None:
        node = step.node
        made = self._applied(node, env, values)
        env[node.name] = made
        if step.call.results == (node.name,):
            pass  # also where it is a list of whose elements PyTorch states no types
        elif isinstance(made, tuple | list):
            env.update((n, y) for n, y in zip(step.call.results, made, strict=True) if n)
        if not isinstance(made, torch.Tensor) and is_open(number := self._symbols_of(node)):
            values[str(number)] = int(made)
        for name in step.call.results:
            self._bind(name, env, values)

    def _applied(self, node: Any, env: Mapping[str, Any], values: Mapping[str, int]) -> Any:
        """Return what a call of the graph makes, as Python makes it."""
        value = partial(self._value, env=env, values=values)
        args, kwargs = (torch.fx.node.map_arg(a, value) for a in (node.args, node.kwargs))
        return node.target(*args, **kwargs)

    def _value(self, node: Any, env: Mapping[str, Any], values: Mapping[str, int]) -> Any:
        """Return what a node stands for: what was made, an attribute, or a number of extents."""
        if node.name in env:
            made = env[node.name]
            is_number = _has_fraction(node) and isinstance(made, torch.Tensor)
            return made.item() if is_number else made
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(self._module)
        if node.target is not operator.getitem and (number := _number(node, values)) is not None:
            return number
        return self._applied(node, env, values)

    def _symbols_of(self, node: Any) -> Dim | None:
        """Return the extent that a node computes of data, which has a symbol of its own."""
        val = node.meta.get("val")
        return extent(str(val)) if isinstance(val, torch.SymInt) else None

    def _bind(self, name: str, env: Mapping[str, Any], values: dict[str, int]) -> None:
        """Take the values of symbols that stand for extents of what eager has made."""
        t = self._types.get(name)
        if t is None or not isinstance(env.get(name), torch.Tensor):
            return
        for d, actual in zip(t.shape, env[name].shape, strict=True):
            if is_open(d) and str(d).isidentifier():
                values.setdefault(str(d), int(actual))


def _forms(module: Any) -> Iterator[tuple[str, Lying]]:
    """Yield how the tensors of a graph lie, by name."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if fx.type_of(val) is not None:
            yield node.name, lying(val)
        elif _has_fraction(node):
            yield node.name, Lying(torch.float64, (), (), ())
        elif isinstance(val, tuple | list):
            for i, fake in enumerate(val):
                if fx.type_of(fake) is not None:
                    yield f"{node.name}#{i}", lying(fake)


def _tensor(given: Any) -> Any:
    """Return what a compiled part reads: a float of Python's as a tensor."""
    return torch.tensor(given, dtype=torch.float64) if isinstance(given, float) else given


def _has_fraction(node: Any) -> bool:
    """Whether a node is a float of Python's, which compiled parts have as a tensor."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.SymFloat)


def _attribute(module: Any, name: str) -> str:
    return next(str(n.target) for n in module.graph.nodes if n.name == name)


def _number(node: Any, values: Mapping[str, int]) -> int | None:
    """Return the number that a node computes from extents; None if these do not tell it."""
    val = node.meta.get("val")
    if not isinstance(val, int | torch.SymInt):
        return None
    try:
        number = bind(extent(str(val)), values)
    except UnsupportedError:
        return None
    return number if isinstance(number, int) else None
