"""Which contractions keep their precision: those that a caller names, by result or by operator.

A bias, a scale or an activation that joins a contraction takes the name of the result away with
it, so names are followed through both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from alpenglow.base.errors import OptionError
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.region import deep
from alpenglow.ops.product.contraction import Conv, MatMul

PRECISIONS = ("f32", "bf16", "f16")
"""The dtypes of operands of contractions; f32 leaves them as they are."""

FOLLOWED = 3
"""So many elementwise operators behind a contraction go by its name: a bias, an activation."""


def check_kept(g: Graph, keep: Sequence[str]) -> None:
    """Raise OptionError unless each name is a result or an operator that `keep` can name."""
    nodes = (n for part in deep(g) for n in part.nodes)
    known = {v.name for n in nodes for v in n.results} | {Conv.name, MatMul.name}
    for name in keep:
        if name not in known:
            raise OptionError(
                f"keep: '{name}' is unknown, expected the name of a node's result",
                hint=f"names of results, or {Conv.name} or {MatMul.name} for all of a kind",
            )


def known_as(g: Graph, keep: Collection[str]) -> frozenset[str]:
    """Return the results that `keep` names in a graph as it was read, with their later names.

    A bias or a scale that joins a contraction takes the name of the result away with it.
    """
    names = set(keep)
    for node in (n for part in deep(g) for n in part.nodes):
        if isinstance(node.op, Conv | MatMul) and node.output.name in keep:
            names.update(v.name for v in _followed(node) if v.name)
    return frozenset(names)


def names_of(node: Node) -> set[str]:
    """Return the names of a contraction: its operator's, its result's, and what it becomes."""
    names = {node.op.name}
    for _ in range(FOLLOWED):
        names.add(node.output.name)
        users = list(node.output.users)
        if len(users) != 1 or not isinstance(users[0].op, Elementwise):
            break
        (node,) = users
    return names


def _followed(node: Node) -> Iterator[Value]:
    """Yield what follows the result by operators on it and constants, if nothing else reads it."""
    for _ in range(FOLLOWED):
        v = node.output
        if len(v.users) != 1:
            return
        (node,) = v.users
        others = (x for x in node.inputs if x is not None and x is not v)
        if len(node.results) != 1 or not all(map(_constant, others)):
            return
        yield node.output


def _constant(v: Value) -> bool:
    """Whether a value depends on constants alone."""
    return v.array is not None or (
        v.producer is not None and all(x is None or _constant(x) for x in v.producer.inputs)
    )
