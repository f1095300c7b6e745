"""Branches that are all computed, where a program runs one: gradients of the others are 0.

A front end computes short branches and chooses between their results by `Where(lazy=True)`.  The
gradient that enters the branch which is not taken is 0, and a derivative there may be infinite or
NaN, so that their product is NaN.  A value that is computed for a branch alone is *guarded* by the
condition of that branch.  A gradient that leaves such a value for one that the condition does not
guard is set to 0 unless the condition holds, by another lazy `Where`; so the rule also holds for
gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch

Guard = tuple[Value, bool]
"""A condition of one element, and which of its truth values lets the branch run."""

Edge = tuple[Node, Value]
"""A node and one of its operands."""


def guards_left(
    nodes: Sequence[Node], ys: Iterable[Value], xs: Collection[Value | None],
    moving: Collection[Value],
) -> Mapping[Edge, Sequence[Guard]]:  # fmt: skip
    """Return the guards of nodes that their operands lack, for each edge that has any.

    Gradients of ys go back to xs through these nodes, which are in order, and through values that
    are `moving`.  Neither ys nor xs are guarded.
    """
    if not any(isinstance(n.op, Where) and n.op.lazy for n in nodes):
        return {}
    # In a dict, the order of guards does not depend on addresses.
    guards: dict[Value, dict[Guard, None]] = {y: {} for y in ys}
    of_node: dict[Node, dict[Guard, None]] = {}
    for node in reversed(nodes):
        of_results = [guards[v] for v in node.results if v in guards]
        if not of_results:
            continue
        own = of_node[node] = _common(of_results)
        for i, v in enumerate(node.inputs):
            if v is not None and v in moving:
                here = own | _of_operand(node, i)
                guards[v] = _common([guards[v], here]) if v in guards else here
    left: dict[Edge, Sequence[Guard]] = {}
    for node, own in of_node.items():
        for v in node.inputs:
            if v is not None and v in moving:
                lacking = [k for k in own if v in xs or k not in guards[v]]
                if lacking:
                    left[node, v] = lacking
    return left


def guarded(g: Graph, dx: Value, guards: Sequence[Guard]) -> Value:
    """Return a gradient where all guards hold, and 0 elsewhere."""
    for condition, truth in guards:
        scalar = g(Reshape(()), condition) if condition.type.rank else condition
        nothing = filled(g, 0, dx)
        pair = (dx, nothing) if truth else (nothing, dx)
        dx = g(Where(lazy=True), stretch(g, scalar, dx.type.shape), *pair)
    return dx


def _common(groups: Sequence[dict[Guard, None]]) -> dict[Guard, None]:
    """Return the guards that are in all groups."""
    first, *others = groups
    return {k: None for k in first if all(k in other for other in others)}


def _of_operand(node: Node, i: int) -> dict[Guard, None]:
    """Return the guard under which a lazy choice reads its operand i, if it has one element."""
    if not (isinstance(node.op, Where) and node.op.lazy and i):
        return {}
    condition = node.inputs[0]
    while (
        condition is not None
        and condition.producer is not None
        and isinstance(condition.producer.op, Broadcast | Reshape)
    ):
        (condition,) = condition.producer.inputs
    if condition is None or not condition.type.static or condition.type.size != 1:
        return {}
    return {(condition, i == 1): None}
