"""Regions: graphs that a node holds, as parts of the graph around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Control


def inlined(g: Graph, region: Graph, operands: Sequence[Value | None]) -> list[Value]:
    """Append what a region computes of operands, one for each of its inputs; return its outputs."""
    env: dict[Value, Value | None] = dict(zip(region.inputs.values(), operands, strict=True))
    env |= {v: v.detached() for v in region.constants()}
    for part in region.nodes:
        inputs = [None if v is None else env[v] for v in part.inputs]
        node = g.add(part.op, inputs, part.regions, part.results[0].name)
        env.update(zip(part.results, node.results, strict=True))
    outputs = []
    for v in region.outputs.values():
        value = env[v]
        assert value is not None, "what a region returns is there"
        outputs.append(value)
    return outputs


def captured(node: Node) -> list[tuple[Value, tuple[Value, ...]]]:
    """Return each value that the regions of a node of control flow capture, and what it is called
    in each of them."""
    assert isinstance(node.op, Control), f"{node.op.name} captures nothing"
    operands = node.inputs[node.op.captures_from :]
    first = {r: len(r.inputs) - len(operands) for r in node.regions}
    inner = [list(r.inputs.values())[first[r] :] for r in node.regions]
    pairs = []
    for operand, *own in zip(operands, *inner, strict=True):
        assert operand is not None, "what is captured is there"
        pairs.append((operand, tuple(own)))
    return pairs


def take_in(node: Node) -> None:
    """Make constants that regions of a node capture constants of these regions, in place."""
    at = len(node.inputs)
    for operand, own in reversed(captured(node)):
        at -= 1
        if operand.array is None:
            continue
        for region, v in zip(node.regions, own, strict=True):
            name = next(n for n, x in region.inputs.items() if x is v)
            del region.inputs[name]
            region.replace(v, operand.detached())
        node.inputs = (*node.inputs[:at], *node.inputs[at + 1 :])
        if operand not in node.inputs:
            operand.users.pop(node, None)


def taken_in(g: Graph) -> Graph:
    """Return a copy in which constants are in the regions that capture them, at any depth.

    A graph without control flow is returned as it is.
    """
    if not any(isinstance(node.op, Control) for node in g.nodes):
        return g
    g = g.copy()
    for inner in deep(g):
        for node in inner.nodes:
            if isinstance(node.op, Control):
                take_in(node)
    return g


def deep(g: Graph) -> Iterator[Graph]:
    """Yield a graph and the regions of its control flow, outer ones first."""
    yield g
    for node in g.nodes:
        if isinstance(node.op, Control):
            for region in node.regions:
                yield from deep(region)


def lift(g: Graph, wanted: Callable[[Value], bool]) -> None:
    """Make constants of regions that are `wanted` constants of the graph, which regions capture.

    Constants of one name that share their memory become one.
    """
    known = {(id(v.array), v.name): v for v in g.constants()}
    for node in [n for n in g.nodes if isinstance(n.op, Control)]:
        for region in node.regions:
            lift(region, wanted)
        inner = [v for r in node.regions for v in r.constants() if wanted(v)]
        for key, v in {(id(v.array), v.name): v for v in inner}.items():
            outer = known.setdefault(key, v.detached())
            node.inputs = (*node.inputs, outer)
            outer.users[node] = None
            for region in node.regions:
                name = next(n for i in count() if (n := f"{v.name}.{i}") not in region.inputs)
                own = region.input(name, v.type)
                for old in [c for c in region.constants() if (id(c.array), c.name) == key]:
                    region.replace(old, own)
