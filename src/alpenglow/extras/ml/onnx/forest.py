"""Forests as models write them, brought into the one form that `TreeEnsemble` has.

ONNX knows seven comparisons; the operator has <= alone.  With `before(t)` the next number below t:

    x <  t   is  x <= before(t)
    x >= t   is  x < t with the branches exchanged, and so is x > t of x <= t
    x == t   is  x <= t, and there not x <= before(t): two nodes; x != t is its exchange
    x in S   is  a search tree over the sorted S, whose last nodes compare for equality

NaN goes to the false branch, or to the true one where the model says so; x != t holds for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.extras.ml.tree import distinct
from alpenglow.ir.types import Array

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""The comparisons, by their numbers in TreeEnsemble."""


@dataclass(frozen=True)
class Nodes:
    """Inner nodes: each compares a feature with a threshold and goes on to `yes` or `no`.

    A child is the number of a node, or -1 - the number of a leaf.
    """

    feature: Array
    threshold: Array
    mode: Array
    yes: Array
    no: Array
    nan: Array

    def __len__(self) -> int:
        return len(self.feature)

    def joined(self, more: Nodes) -> Nodes:
        """Return these nodes with more behind them."""
        pairs = [(getattr(self, f), getattr(more, f)) for f in self.__dataclass_fields__]
        return Nodes(*(np.concatenate(pair) for pair in pairs))


def plain(nodes: Nodes, members: list[Array]) -> Nodes:
    """Return nodes that do the same and all compare by <=.

    `members` are the sets of the nodes that test for membership, in their order.
    """
    nodes = searched(nodes, members)
    below = np.where(
        nodes.threshold == -np.inf,
        np.nan,
        np.nextafter(nodes.threshold, nodes.threshold.dtype.type(-np.inf)),
    ).astype(nodes.threshold.dtype)
    turned = np.isin(nodes.mode, (GTE, GT, NEQ))
    strict = np.isin(nodes.mode, (LT, GTE))
    equal = np.flatnonzero(np.isin(nodes.mode, (EQ, NEQ)))
    threshold = np.where(strict, below, nodes.threshold)
    # No number is NaN or beyond it: what is turned then always takes the false branch.
    threshold[turned & np.isnan(nodes.threshold)] = np.inf
    yes = np.where(turned, nodes.no, nodes.yes)
    no = np.where(turned, nodes.yes, nodes.no)
    nan = np.where(turned, ~nodes.nan, nodes.nan)
    unequal = nodes.mode == NEQ
    nan[unequal] = False
    threshold[unequal & np.isnan(nodes.threshold)] = np.nan
    # Of two nodes for equality the first keeps its number and finds what is larger.
    second = len(nodes) + np.arange(len(equal))
    more = Nodes(
        nodes.feature[equal],
        below[equal],
        np.full(len(equal), LEQ),
        no[equal],
        yes[equal],
        np.zeros(len(equal), np.bool_),
    )
    yes[equal] = second
    mode = np.full(len(nodes), LEQ)
    return Nodes(nodes.feature, threshold, mode, yes, no, nan).joined(more)


def searched(nodes: Nodes, members: list[Array]) -> Nodes:
    """Return nodes with search trees in place of tests for membership."""
    at = np.flatnonzero(nodes.mode == MEMBER)
    if len(at) != len(members):
        raise ModelError(f"membership_values has {len(members)} sets, expected {len(at)}, one for "
                         "each node of mode MEMBER")  # fmt: skip
    if not len(at):
        return nodes
    grown = _SearchNodes(len(nodes))
    mode, threshold = nodes.mode.copy(), nodes.threshold.copy()
    yes, no = nodes.yes.copy(), nodes.no.copy()
    for i, values in zip(at, members, strict=True):
        row = grown.tree(np.unique(values), int(yes[i]), int(no[i]), int(i))
        mode[i], threshold[i], yes[i], no[i] = row
    source = np.array(grown.source, np.int64)
    columns = [np.array(c) for c in zip(*grown.rows, strict=True)] or [np.zeros(0)] * 4
    more = Nodes(
        nodes.feature[source],
        columns[1].astype(threshold.dtype),
        columns[0].astype(mode.dtype),
        columns[2].astype(yes.dtype),
        columns[3].astype(no.dtype),
        nodes.nan[source],
    )
    return replace(nodes, mode=mode, threshold=threshold, yes=yes, no=no).joined(more)


class _SearchNodes:
    """The nodes that search trees need beyond those that they stand in place of."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.rows: list[tuple[int, float, int, int]] = []
        self.source: list[int] = []

    def tree(self, keys: Array, yes: int, no: int, source: int) -> tuple[int, float, int, int]:
        """Return the mode, threshold and children of a node that tests for these sorted keys."""
        if len(keys) < 2:
            return EQ, float(keys[0]) if len(keys) else float("nan"), yes, no
        middle = len(keys) // 2
        halves = [self.put(self.tree(part, yes, no, source), source)
                  for part in (keys[:middle], keys[middle:])]  # fmt: skip
        return LEQ, float(keys[middle - 1]), halves[0], halves[1]

    def put(self, row: tuple[int, float, int, int], source: int) -> int:
        self.rows.append(row)
        self.source.append(source)
        return self.start + len(self.rows) - 1


def depth(nodes: Nodes, roots: Array, leaves: int) -> int:
    """Return how many nodes the longest path has; raise ModelError if one has no end."""
    for what, at in (("child", nodes.yes), ("child", nodes.no), ("root", roots)):
        if len(at) and (at.max() >= len(nodes) or at.min() < -leaves):
            raise ModelError(f"trees: a {what} is out of range, expected a node or leaf")
    steps, front = 0, distinct(roots, len(nodes))
    while len(front):
        steps += 1
        if steps > len(nodes):
            raise ModelError("trees: the nodes form a cycle, expected trees")
        front = distinct(np.concatenate([nodes.yes[front], nodes.no[front]]), len(nodes))
    return steps
