"""Recognising constants: what rules ask about operands that are known when the graph is compiled.

Broadcasts are explicit nodes, so a number that multiplies a tensor is behind one; these
functions look through it.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.tensor.movement import Broadcast, Reshape, unstretched

DEPTH = 16
"""How many nodes deep `is_constant` looks: preparations of weights are shorter."""


@dataclass(frozen=True)
class Along:
    """A constant that varies along one axis of the tensor it is stretched to, or along none."""

    value: Value
    axis: int | None


def uniform(v: Value) -> float | None:
    """Return the number that every element of the constant v is; None if there is no such."""
    while v.producer is not None and isinstance(v.producer.op, Broadcast | Reshape):
        v = _only_input(v.producer)
    if v.array is None or not v.array.size:
        return None
    elements = v.array.reshape(-1)
    first = elements[0]
    # Most arrays that are not uniform already show it at their ends.
    if len(elements) > 1 and (elements[-1] != first or not (elements == first).all()):
        return None
    return float(first) if v.type.dtype in FLOATS else int(first)


def is_constant(v: Value, depth: int = DEPTH) -> bool:
    """Whether v is a constant or computed from constants alone."""
    if v.array is not None:
        return True
    node = v.producer
    if node is None or not depth or not node.op.pure or node.regions or not node.inputs:
        return False
    for i in node.inputs:  # asked of every node again and again: constants need no call
        if i is not None and i.array is None and not is_constant(i, depth - 1):
            return False
    return True


def along(v: Value) -> Along | None:
    """Return the constant that v stretches and the axis of v it varies along; None if several."""
    source = unstretched(v)
    if not v.type.is_plain or not is_constant(source):
        return None
    shape = (1,) * (v.type.rank - source.type.rank) + source.type.shape
    wide = [i for i, d in enumerate(shape) if d != 1]
    return Along(source, wide[0] if wide else None) if len(wide) < 2 else None


def with_constant(node: Node) -> list[tuple[Value, Value]]:
    """Return (x, constant) for each way to see a node of two operands so."""
    a, b = node.inputs
    assert a is not None and b is not None
    return [(x, c) for x, c in ((a, b), (b, a)) if is_constant(c) and not is_constant(x)]


def read_once(g: Graph, v: Value) -> bool:
    """Whether v has a single reader, so that rewriting it duplicates no work."""
    return g.users(v) == 1


def _only_input(node: Node) -> Value:
    (v,) = node.inputs
    assert v is not None
    return v
