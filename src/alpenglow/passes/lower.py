"""Lowering: composites are replaced by what they stand for, until only primitives remain."""

from __future__ import annotations

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Control, is_composite


def lower(g: Graph) -> Graph:
    """Expand every composite operator, and each of control flow that stands for others."""
    while composites := [n for n in g.nodes if is_composite(n.op)]:
        for node in composites:
            lower_node(g, node)
        g.prune()
    return g


def lower_node(g: Graph, node: Node) -> None:
    """Make readers of a composite read what it stands for; the node stays for `prune` to drop."""
    op = node.op
    assert isinstance(op, Composite | Control), f"{op.name} stands for nothing else"
    assert op.lower is not None, f"{op.name} stands for nothing else"
    missing = [None] * (len(op.operands) - len(node.inputs))
    inputs = node.inputs if op.variadic else (*node.inputs, *missing)
    regions = {"regions": node.regions} if isinstance(op, Control) else {}
    lowered = op.lower(g, *inputs, **regions)
    values = [lowered] if isinstance(lowered, Value) else lowered
    for old, new in zip(node.results, values, strict=True):
        g.replace(old, new)
