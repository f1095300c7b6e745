"""Simplification of loops whose count is known, for the sake of their gradients.

A gradient asks for a loop once more, which also stacks the values that are carried into each
iteration.  The first results of that are those of the loop as it was.  What nobody reads in the end
is neither carried nor stacked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.text import print_graph
from alpenglow.ops.control.loop import Scan

rules = Rules()


@rules.on(Scan)
def computed_with_stacks(g: Graph, node: Node) -> Rewritten:
    """scan(xs){A} => first results of scan(xs){B}   where outputs of B begin with those of A"""
    (body,) = node.regions
    count = len(body.outputs)
    for other in _alike(node):
        (more,) = other.regions
        if len(more.outputs) > count and _is_read(g, other.results[count:]):
            first = _with_outputs(more, list(more.outputs)[:count])
            if print_graph(first) == print_graph(_with_outputs(body, list(body.outputs))):
                return other.results[:count]
    return None


@rules.on(Scan)
def without_what_nobody_reads(g: Graph, node: Node) -> Rewritten:
    """scan(xs){A} => scan(fewer xs){B}   where B makes only what is read, and what that needs"""
    op, (body,) = node.op, node.regions
    assert isinstance(op, Scan), "the root"
    read = [i for i, v in enumerate(node.results) if _is_read(g, [v])]
    outputs, inputs = _needed(op, body, read)
    if len(outputs) == len(body.outputs) and len(inputs) == len(node.inputs):
        return None
    less = _with_outputs(body, [name for i, name in enumerate(body.outputs) if i in outputs])
    names = list(body.inputs)
    less.inputs = {n: less.inputs[n] for n in (names[0], *(names[i + 1] for i in inputs))}
    carried, scanned, _ = op.split(range(len(node.inputs)))
    fewer = replace(
        op,
        carried_count=len([i for i in inputs if i in carried]),
        scanned_count=len([i for i in inputs if i in scanned]),
    )
    made = g.add(fewer, [node.inputs[i] for i in inputs], [less])
    results = dict(zip(outputs, made.results, strict=True))
    return [results.get(i, v) for i, v in enumerate(node.results)]


def _needed(op: Scan, body: Graph, read: Collection[int]) -> tuple[list[int], list[int]]:
    """Return the outputs of a body that results which are `read` need, and the operands, in order.

    What is carried stays if an output that stays reads it, or it is a result that is read.
    """
    _, *inputs = body.inputs.values()
    outputs, needed = list(body.outputs.values()), set(read)
    while True:
        seen = _ancestors([outputs[i] for i in needed])
        carried = {i for i in range(op.carried_count) if inputs[i] in seen}
        if carried <= needed:
            break
        needed |= carried
    carried = {i for i in needed if i < op.carried_count}
    return sorted(needed), [i for i, v in enumerate(inputs) if v in seen or i in carried]


def _ancestors(values: Sequence[Value]) -> set[Value]:
    """Return values and all that they are computed from."""
    seen, waiting = set[Value](), list(values)
    while waiting:
        v = waiting.pop()
        if v not in seen:
            seen.add(v)
            waiting += [] if v.producer is None else [x for x in v.producer.inputs if x is not None]
    return seen


def _alike(node: Node) -> list[Node]:
    """Return other nodes of the same operator on the same operands."""
    operands = [v for v in node.inputs if v is not None]
    users = min((v.users for v in operands), key=len, default={})
    return [n for n in users if n is not node and n.op == node.op and n.inputs == node.inputs]


def _with_outputs(body: Graph, names: Sequence[str]) -> Graph:
    """Return a copy of a region that makes only some of its outputs."""
    less = body.copy()
    less.outputs = {name: less.outputs[name] for name in names}
    less.prune()
    return less


def _is_read(g: Graph, values: Sequence[Value]) -> bool:
    outputs = set(g.outputs.values())
    return any(v.users or v in outputs for v in values)
