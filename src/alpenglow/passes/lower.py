"""Lowering: composites are replaced by what they stand for, until only primitives remain."""

from __future__ import annotations

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite


def lower(g: Graph) -> Graph:
    """Expand every composite operator."""
    while composites := [n for n in g.nodes if isinstance(n.op, Composite)]:
        for node in composites:
            op = node.op
            assert isinstance(op, Composite)
            missing = [None] * (len(op.operands) - len(node.inputs))
            inputs = node.inputs if op.variadic else (*node.inputs, *missing)
            lowered = op.lower(g, *inputs)
            for old, new in zip(
                node.results, [lowered] if isinstance(lowered, Value) else lowered, strict=True
            ):
                g.replace(old, new)
        g.prune()
    return g
