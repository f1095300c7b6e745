"""Activations that meet weights of few bits are rounded by groups where a caller lets them be.

What a model itself rounds stays as it is.  Other products that can be computed in integers have
their activations rounded here, whatever form a model stores its weights in: first those by weights
in blocks, before these are packed; then all others, once constants are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.machines.vector.passes.groups import fits
from alpenglow.machines.vector.passes.low_bit_matmul import Weights
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.groups import RoundGroups
from alpenglow.passes.keep import names_of

LONGEST = 256
"""A group of activations that no model has chosen is no longer than this: one large element costs
it all of its steps."""

SHORT = 32
"""How long a group is where those of weights are longer."""


def round_groups(
    g: Graph, target: Target, keep: Collection[str], read: Callable[[Value], Weights | None]
) -> Graph:
    """Round what meets the weights that `read` finds, but for products that `keep` names.

    Groups are those of the weights; where these are long, of SHORT.
    """
    for node in list(g.nodes):
        match node:
            case Node(MatMul(), [Value(Node(RoundGroups())), _]):
                continue
            case Node(MatMul(), [Value() as x, Value() as w]) if x.type.dtype == "f32":
                matrix = None if names_of(node) & set(keep) else read(w)
                if matrix is None:
                    continue
                size = matrix.size if matrix.size <= LONGEST else SHORT
                if fits(matrix, size, target):
                    g.replace(node.output, g(node.op, g(RoundGroups(size), x), w))
    g.prune()
    return g
