"""Constant folding: nodes whose operands are all constants are evaluated at compile time.

Packing weights, transposing them, transforming them for Winograd: all of it is ordinary operators
on constants, so this pass is where weights are prepared.
"""

from __future__ import annotations

from alpenglow.base import deadline
from alpenglow.base.errors import FeedError, ModelError
from alpenglow.base.memory import aligned
from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Node, Value, is_closed
from alpenglow.ir.op import Control, Op
from alpenglow.ir.types import Array
from alpenglow.ops.tensor.copy import Empty
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast

GROWTH = 1 << 20
"""Results of at most this many bytes are folded however small their operands are."""

MOST_BROADCAST = 1 << 26
"""Results of at most this many bytes are folded if their operands are broadcasts of that size;
of larger broadcasts, a model may hold a number and the extent 2^36."""

MOST_READ = 1 << 30
"""Operands that are broadcasts to more bytes are not read element by element to be folded."""


def fold(g: Graph, but: tuple[type[Op], ...] = ()) -> Graph:
    """Replace nodes on constants by their results, unless that makes them much larger.

    Operators `but` these are folded: those stay as they are.  Operands are let go at once: large
    weights should not be alive before and after.  For the same reason equal nodes share a result:
    where layers share weights, each of them packs these.
    """
    waiting = list(reversed(g.nodes))
    while waiting:
        node = waiting.pop()
        if isinstance(node.op, but) or not _foldable(node):
            continue
        deadline.check(f"folding {node}")
        if any(v.users or g.users(v) for v in node.results):
            _replace(g, node)
        g.remove(node)
    g.prune()
    return g


def _replace(g: Graph, node: Node) -> None:
    """Make users of the results of `node` read constants instead."""
    arrays = [None if v is None else contents(v) for v in node.inputs]
    types = [v.type for v in node.results]
    try:
        results = apply(node.op, arrays, node.regions, types)
    except FeedError as error:  # there is no data but the model's
        raise ModelError(error.message) from None
    equal = _equal(node)
    for i, array in enumerate(results):
        old = node.results[i]
        new = g.constant(aligned(array), old.name, old.type, copy=False)
        for other in equal:
            g.replace(other.results[i], new)


def _equal(node: Node) -> list[Node]:
    """Return the nodes that compute the same of the same operands, `node` the first of them."""
    operands = [v for v in node.inputs if v is not None]
    if not operands or node.regions:
        return [node]
    # Numbers that all layers share have thousands of readers.
    rarest = min(operands, key=lambda v: len(v.users))
    same = [n for n in rarest.users if n.op == node.op and n.inputs == node.inputs]
    return [node, *(n for n in same if n is not node)]


def contents(v: Value) -> Array | None:
    """Return the elements of a constant, or of the broadcast of one; None if it is computed."""
    match v:
        case Value(Node(Broadcast() as op, [Value() as x])) if x.array is not None:
            return None if v.type.symbols() else op.reference(x.array)
    return v.array


def _foldable(node: Node) -> bool:
    if not node.op.pure or any(v is not None and contents(v) is None for v in node.inputs):
        return False
    if not is_closed(node):
        return False
    # These are free where they are read and would only waste memory when written out.
    if isinstance(node.op, Broadcast | Iota):
        return node.output.type.size == 1
    # What holds anything is no constant, and a loop on constants may take long.
    if isinstance(node.op, Empty | Control):
        return False
    nbytes = sum(v.type.nbytes for v in node.results)
    largest = max((v.type.nbytes for v in node.inputs if v is not None), default=0)
    stored = max((_stored(v) for v in node.inputs if v is not None), default=0)
    if largest > max(MOST_READ, stored):
        return False
    return nbytes <= max(GROWTH, 8 * stored, min(8 * largest, MOST_BROADCAST))


def _stored(v: Value) -> int:
    """Return how many bytes hold a constant: of a broadcast, those that it repeats."""
    match v:
        case Value(Node(Broadcast(), [Value() as x])):
            return x.type.nbytes
    return v.type.nbytes
