"""Regions: graphs that a node holds, as parts of the graph around it."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.ir.graph import Graph, Value


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
