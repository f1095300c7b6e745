"""Activations stay as they are where a model allows them to be rounded, and the caller does not."""

from __future__ import annotations

from alpenglow.ir.graph import Graph
from alpenglow.ops.quantized.groups import RoundGroups


def rounds(g: Graph) -> bool:
    """Whether a graph rounds anything by groups."""
    return any(isinstance(node.op, RoundGroups) for node in g.nodes)


def keep_exact(g: Graph) -> Graph:
    """Multiply activations as they are, not rounded by groups."""
    for node in list(g.nodes):
        if isinstance(node.op, RoundGroups):
            (x,) = node.inputs
            assert x is not None
            g.replace(node.output, x)
    g.prune()
    return g
