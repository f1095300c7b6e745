"""What of a traced graph is compiled, and what is left to eager.

Every call is imported by trial.  Those that no converter takes run in eager, as PyTorch would run
them; what stands between them is compiled in as few parts as their dependences allow.  Calls that
draw random numbers keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.importer import Importer
from alpenglow.frontends.torch.program import Body, Call, Program, Ref, refs
from alpenglow.frontends.torch.refusals import Refusal
from alpenglow.ir.graph import Graph, Value


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Calls that are compiled together: a body from tensors to tensors by name."""

    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class Eager:
    """A call that PyTorch runs."""

    node: Any
    call: Call


Step = Part | Eager


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A traced graph in steps, and why calls were refused."""

    program: Program
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]

    @property
    def compiled(self) -> int:
        """How many calls are compiled."""
        return sum(len(s.body.calls) for s in self.steps if isinstance(s, Part))


def plan(module: Any) -> Plan:
    """Return how a GraphModule of ATen calls is run."""
    program = fx.traced(module)
    refusals = tried(program)
    refused = {id(r.call) for r in refusals}
    nodes = {node.name: node for node in module.graph.nodes}
    levels = _levels(program.body, refused, nodes)
    steps: list[Step] = []
    for level in range(max(levels, default=-1) + 1):
        calls = [c for c, x in zip(program.body.calls, levels, strict=True) if x == level]
        if level % 2:
            steps += [Eager(nodes[c.name], c) for c in calls]
        elif calls:
            steps.append(_part(program.body, calls))
    return Plan(program, tuple(steps), tuple(refusals))


def tried(program: Program) -> list[Refusal]:
    """Return the calls of a program that cannot be converted."""
    g = Graph(program.name)
    importer = Importer(g, program.ranges, program.trusted)
    types = program.body.types
    operands = [Value(types[i.name], i.name) if i.name in types else None for i in program.inputs]
    importer.body(replace(program.body, outputs=()), operands)
    return importer.refusals


def _levels(body: Body, refused: set[int], nodes: dict[str, Any]) -> list[int]:
    """Return a level for each call: even where it is compiled, odd in eager.

    A call stands no lower than what it reads, and a random one no lower than those before.
    """
    made: dict[str, int] = {}
    levels: list[int] = []
    drawn = 0
    for call in body.calls:
        level = max((made.get(name, 0) for name in refs(call.arguments)), default=0)
        odd = id(call) in refused
        if odd and _draws(nodes[call.name]):
            level = max(level, drawn)
        if level % 2 != odd:
            level += 1
        if odd and _draws(nodes[call.name]):
            drawn = level
        levels.append(level)
        made.update(dict.fromkeys(call.results, level))
    return levels


def _draws(node: Any) -> bool:
    """Whether a call must keep its place among its like: it draws random numbers or has effects."""
    tags = getattr(node.target, "tags", ())
    schema = getattr(node.target, "_schema", None)
    return torch.Tag.nondeterministic_seeded in tags or schema is None or schema.is_mutable


def _part(body: Body, calls: Sequence[Call]) -> Part:
    """Return calls as a body from what they read of others to what others read of them."""
    own = {name for c in calls for name in c.results if name}
    inputs = dict.fromkeys(n for c in calls for n in refs(c.arguments) if n not in own)
    constants = {n: a for n, a in body.constants.items() if n in inputs}
    inside = set(map(id, calls))
    wanted = dict.fromkeys(n for a in body.outputs for n in refs(a) if n in own)
    for c in body.calls:
        if id(c) not in inside:
            wanted |= dict.fromkeys(n for n in refs(c.arguments) if n in own)
    return Part(Body(tuple(n for n in inputs if n not in constants), tuple(calls),
                     tuple(map(Ref, wanted)), body.types, constants))  # fmt: skip
