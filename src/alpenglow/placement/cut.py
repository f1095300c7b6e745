"""Cutting a scheduled graph into graphs of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.placement.schedule import Schedule


def parts(s: Schedule, positions: Sequence[int]) -> list[Graph]:
    """Return a graph for each part between two positions, which begin with 0 and end with the last.

    What crosses is an output of the part that makes it and an input of those that read it, under
    its name in the schedule.  Outputs of the whole are outputs of the part that makes them, or of
    the last one, which hands on inputs and what is constant.
    """
    return [part(s, begin, end) for begin, end in pairwise(positions)]


def part(s: Schedule, begin: int, end: int) -> Graph:
    """Return the graph of the nodes from `begin` to before `end`."""
    g = Graph(f"{s.graph.name}.{begin}-{end}")
    known: dict[Value, Value] = {}
    if not begin:  # what nobody reads is fed all the same
        read = {life.value for life in s.lives}
        for v in s.graph.inputs.values():
            if v not in read:
                _operand(g, s, v, known, begin)
    for node in s.nodes[begin:end]:
        _take(g, s, node, known, begin)
    for life in s.lives:
        if begin <= life.maker < end and any(end <= r < len(s.nodes) for r in life.readers):
            g.output(life.value.name, known[life.value])
    for name, v in s.graph.outputs.items():
        made = s.number.get(v.producer, -1) if v.producer is not None else -1
        last = made < 0 and end == len(s.nodes)
        if (begin <= made < end or last) and name not in g.outputs:
            g.output(name, _operand(g, s, v, known, begin))
    return g


def _take(g: Graph, s: Schedule, node: Node, known: dict[Value, Value], begin: int) -> None:
    """Add a node and what it reads."""
    inputs = [None if v is None else _operand(g, s, v, known, begin) for v in node.inputs]
    copy = node.over(inputs, [r.copy() for r in node.regions])
    g.nodes[copy] = None
    known.update(zip(node.results, copy.results, strict=True))


def _operand(g: Graph, s: Schedule, v: Value, known: dict[Value, Value], begin: int) -> Value:
    """Return a value as the part knows it: computed there, constant, or an input."""
    if v in known:
        return known[v]
    if v.array is not None:
        known[v] = v.detached()
    elif v.producer is not None and v.producer not in s.number:
        _take(g, s, v.producer, known, begin)
    else:
        known[v] = g.input(v.name, v.type)
    return known[v]
