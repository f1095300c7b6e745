"""Simplification of recurrent layers that are traced, for the sake of their gradients.

A gradient asks for the layer once more, traced.  What was there already is then its first results;
and where nobody reads the trace in the end, nothing has to store it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn

rules = Rules()


@rules.on(Lstm, Gru, Rnn)
def computed_with_trace(g: Graph, node: Node) -> Rewritten:
    """lstm(xs) => the first results of lstm(xs, traced)   where somebody reads that trace"""
    first = node.inputs[0]
    assert isinstance(node.op, Lstm | Gru | Rnn) and first is not None, "a layer has an operand"
    if node.op.traced:
        return None
    wanted = replace(node.op, traced=True)
    for user in first.users:
        if user.op == wanted and user.inputs == node.inputs and _is_read(g, _trace(user)):
            return user.results[: len(node.results)]
    return None


@rules.on(Lstm, Gru, Rnn)
def traced_for_nobody(g: Graph, node: Node) -> Rewritten:
    """lstm(xs, traced) => lstm(xs), …   where nobody reads the trace"""
    assert isinstance(node.op, Lstm | Gru | Rnn), "the roots"
    trace = _trace(node)
    if not node.op.traced or _is_read(g, trace):
        return None
    return [*g.add(replace(node.op, traced=False), node.inputs).results, *trace]


def _trace(node: Node) -> tuple[Value, ...]:
    return tuple(node.results[3 if isinstance(node.op, Lstm) else 2 :])


def _is_read(g: Graph, values: Sequence[Value]) -> bool:
    outputs = set(g.outputs.values())
    return any(v.users or v in outputs for v in values)
