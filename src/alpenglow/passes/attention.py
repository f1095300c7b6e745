"""Attention in a graph: two products with a softmax between, in any spelling.

    softmax(f(q k)) v

f is elementwise in the scores: it scales them, adds masks or biases, limits them, hides some by
their position.  The chain stays in the graph; these functions find it, so that a machine can
compute it in one kernel which never has all scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from alpenglow.ir.dims import estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.reduction.reduction import SumBytes
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.passes.keep import names_of

MANY = 256
"""Keys from which on attention is one kernel, in f32 if there is none in halves."""

Takes = Callable[[Node, Node], bool]
"""Whether a machine computes all from a product of scores to the product by values at once."""


def attentions(g: Graph, takes: Takes) -> Iterator[list[Node]]:
    """Yield the nodes of each chain that a machine `takes`, in order.

    The shares may be rounded before they are multiplied: to halves, or to bytes, whose sum may be
    asked for, too, and is then added to the product.  The first product makes the scores and the
    last one is that by values.  Nodes that tell where elements stand (`positions`) cost nothing
    where they are read, and may be in several chains.
    """
    results = set(g.outputs.values())
    place = {node: i for i, node in enumerate(g.nodes)}
    for node in g.nodes:
        parts = _from_softmax(node)
        if parts is None:
            continue
        softmax, *rounding = parts
        (logits,) = softmax.inputs
        assert logits is not None, "a softmax has an operand"
        before = sorted(_cone(logits), key=place.__getitem__)
        scores = {n for n in before if isinstance(n.op, MatMul)}
        computed = reached(before, scores)
        chain = [n for n in before if n in computed | positions(before)]
        summing, after = _corrected(node, place) if rounding else ([], [])
        whole = [*chain, softmax, *rounding, *summing, node, *after]
        private = all(
            n.output not in results and set(n.users) <= {*whole}
            for n in (*computed, *whole[len(chain) : -1])
        )
        if len(scores) == 1 and private and takes(next(iter(scores)), node):
            yield whole


def _from_softmax(node: Node) -> list[Node] | None:
    """Return the softmax whose shares a product takes, and what rounds them, if that is so."""
    match node:
        case Node(
            MatMul(),
            [Value(Node(Cast("bf16") | Requantize(dtype="u8", rounding="even")) as rounding), _],
        ):
            shares, after = rounding.inputs[0], [rounding]
        case Node(MatMul(), [Value() as shares, _]):
            after = []
        case _:
            return None
    match shares:
        case Value(Node(Softmax(axis)) as softmax):
            return [softmax, *after] if axis in (-1, shares.type.rank - 1) else None
    return None


def _corrected(product: Node, place: dict[Node, int]) -> tuple[list[Node], list[Node]]:
    """Return what sums the bytes that values are multiplied by, and what brings these sums to the
    product: a zero point of the values is taken off so."""
    shares = product.inputs[0]
    assert shares is not None, "a product has operands"
    match [user for user in shares.users if user is not product]:
        case [Node(SumBytes(axes=(axis,), keepdims=True)) as summing]:
            if axis not in (-1, shares.type.rank - 1):
                return [], []
        case _:
            return [], []
    after: list[Node] = []
    waiting = list(summing.users)
    while waiting:
        node = waiting.pop()
        if node in after:
            continue
        if not isinstance(node.op, Elementwise | Broadcast):
            return [], []
        after.append(node)
        if product.output not in node.inputs:
            waiting += node.users
    return [summing], sorted(after, key=place.__getitem__)


def whole_in_f32(
    g: Graph, takes: Takes, takes_halves: Takes, keep: Collection[str]
) -> Iterator[Node]:
    """Yield what one kernel computes if it stays in f32, and none would in halves.

    Not to have the scores in memory is worth more than halves where there are many.  `keep` names
    what has to stay.
    """
    for chain in attentions(g, takes):
        scores, product = (n for n in chain if isinstance(n.op, MatMul))
        kept = any(names_of(n) & set(keep) for n in (scores, product))
        many = estimate(scores.output.type.shape[-1]) >= MANY
        if many and (kept or not takes_halves(scores, product)):
            yield from chain


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
