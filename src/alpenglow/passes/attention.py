"""Attention in a graph: two products with a softmax between, whoever wrote them and however.

    softmax(f(q k)) v

f is elementwise in the scores: it scales them, adds masks or biases, limits them, hides some by
their position.  What such a chain means stays written out; here it is found, so that a machine can
compute it in one kernel which never has all scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.contraction import MatMul
from alpenglow.ops.generate import Iota
from alpenglow.ops.softmax import Softmax

Takes = Callable[[Node, Node], bool]
"""Whether a machine computes all from a product of scores to the product by values at once."""


def attentions(g: Graph, takes: Takes) -> Iterator[list[Node]]:
    """Yield the nodes of each chain that a machine `takes`, in order.

    The first product makes the scores and the last node is the other one.  Nodes that tell where
    elements stand (`positions`) cost nothing where they are read, and may be in several chains.
    """
    results = set(g.outputs.values())
    place = {node: i for i, node in enumerate(g.nodes)}
    for node in g.nodes:
        match node:
            case Node(MatMul(), [Value(Node(Softmax(axis), [Value() as logits]) as softmax), _]):
                if axis not in (-1, logits.type.rank - 1):
                    continue
            case _:
                continue
        before = sorted(_cone(logits), key=place.__getitem__)
        scores = {n for n in before if isinstance(n.op, MatMul)}
        computed = reached(before, scores)
        chain = [n for n in before if n in computed | positions(before)]
        inside = {*chain, softmax, node}
        private = all(
            n.output not in results and set(n.users) <= inside for n in (*computed, softmax)
        )
        if len(scores) == 1 and private and takes(next(iter(scores)), node):
            yield [*chain, softmax, node]


def positions(nodes: list[Node]) -> set[Node]:
    """Return which of some nodes, in order, tell where an element stands, whatever its score."""
    computed = reached(nodes, {n for n in nodes if isinstance(n.op, MatMul)})
    return reached(nodes, {n for n in nodes if isinstance(n.op, Iota)}) - computed


def reached(nodes: list[Node], sources: set[Node]) -> set[Node]:
    """Return the sources and which of some nodes, in order, are computed from them."""
    inside = set(sources)
    for node in nodes:
        if any(v is not None and v.producer in inside for v in node.inputs):
            inside.add(node)
    return inside


def _cone(v: Value) -> set[Node]:
    """Return what `v` is computed from elementwise, and the products and positions behind that."""
    cone: set[Node] = set()
    waiting = [v.producer]
    while waiting:
        node = waiting.pop()
        if node is None or node in cone or not isinstance(node.op, Elementwise | MatMul | Iota):
            continue
        cone.add(node)
        if isinstance(node.op, Elementwise):
            waiting += [x.producer for x in node.inputs if x is not None]
    return cone
