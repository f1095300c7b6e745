"""What a graph becomes before it is written: operators without a writer, as what they stand for."""

from __future__ import annotations

from alpenglow.exporters.onnx.table import find
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite
from alpenglow.ops.fused import Fused
from alpenglow.passes.lower import lower_node


def prepared(graph: Graph, opset: int) -> Graph:
    """Return a copy without fused nodes, and with no composite but those that have a writer."""
    g = graph.copy()
    while waiting := [n for n in g.nodes if _stands_for_others(n, opset)]:
        for node in waiting:
            if isinstance(node.op, Fused):
                _inline(g, node)
            else:
                lower_node(g, node)
        g.prune()
    return g


def _stands_for_others(node: Node, opset: int) -> bool:
    if isinstance(node.op, Fused):
        return True
    return isinstance(node.op, Composite) and find(node, opset) is None


def _inline(g: Graph, node: Node) -> None:
    """Put the parts of a fused node in its place."""
    (body,) = node.regions
    env: dict[Value, Value | None] = dict(zip(body.inputs.values(), node.inputs, strict=True))
    for part in body.nodes:
        operands = [None if v is None else env.get(v, v) for v in part.inputs]
        new = g.add(part.op, operands, part.regions, part.results[0].name)
        env.update(zip(part.results, new.results, strict=True))
    for old, inner in zip(node.results, body.outputs.values(), strict=True):
        new_value = env.get(inner, inner)
        assert new_value is not None, "the operands of a fused node are there"
        g.replace(old, new_value)
