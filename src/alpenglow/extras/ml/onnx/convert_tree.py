"""Converters for ensembles of decision trees (ai.onnx.ml), old form and new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.extras.ml.onnx.convert_ml import ML, array, class_labels, labelled, matrix
from alpenglow.extras.ml.onnx.convert_scores import TRANSFORMS, posted, probit
from alpenglow.extras.ml.onnx.forest import MEMBER, Nodes, depth, plain
from alpenglow.extras.ml.tree import TreeEnsemble, records
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.frontends.presume import presume
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Div, Neg, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.reduction.reduction import ArgMax
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice, stretch

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""By their numbers in TreeEnsemble."""


@dataclass(frozen=True)
class Forest:
    """Trees with their leaves, whose entries first[l] to first[l+1] are of leaf l."""

    nodes: Nodes
    members: list[Array]
    roots: Array
    target: Array
    weight: Array
    first: Array


# ── the new form ──


@on("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(s: Site) -> Made:
    x = s.input(0)
    wide = matrix(s) if x.type.dtype != "f16" else s.cast(matrix(s), "f32")
    targets = s.attribute("n_targets", 1)
    aggregate, after = s.attribute("aggregate_function", 1), s.attribute("post_transform", 0)
    if aggregate not in range(len(AGGREGATES)) or after not in range(len(TRANSFORMS)):
        raise s.wrong(f"aggregate_function is {aggregate} and post_transform {after}, expected "
                      f"0 to {len(AGGREGATES) - 1} and 0 to {len(TRANSFORMS) - 1}")  # fmt: skip
    y = grown(s, wide, modern(s, wide.type.numpy), targets, AGGREGATES[aggregate])
    return s.cast(finished(s, y, TRANSFORMS[after]), x.type.dtype)


def modern(s: Site, dtype: np.dtype[np.floating]) -> Forest:
    """Return the trees of a TreeEnsemble: nodes and leaves each have lists of their own."""
    children = []
    for way in ("true", "false"):
        at = array(s, f"nodes_{way}nodeids", np.int64)
        ends = array(s, f"nodes_{way}leafs", np.int64)
        if at.shape != ends.shape:
            raise s.wrong(f"nodes_{way}leafs has {len(ends)} entries, expected {len(at)}")
        children.append(np.where(ends != 0, -1 - at, at))
    mode = array(s, "nodes_modes", np.int64)
    if len(mode) and not 0 <= mode.min() <= mode.max() <= MEMBER:
        raise s.wrong(f"nodes_modes is {mode.min()} to {mode.max()}, expected 0 to {MEMBER}")
    nodes = Nodes(
        array(s, "nodes_featureids", np.int64),
        array(s, "nodes_splits", dtype),
        mode,
        children[0],
        children[1],
        flags(s, len(mode)),
    )
    weight = array(s, "leaf_weights", dtype)
    target = array(s, "leaf_targetids", np.int64)
    first = np.arange(len(weight) + 1)
    return Forest(nodes, sets(s), array(s, "tree_roots", np.int64), target, weight, first)


def sets(s: Site) -> list[Array]:
    """Return the sets of membership_values, which NaN keeps apart."""
    values = array(s, "membership_values", np.float64)
    ends = np.flatnonzero(np.isnan(values))
    members = [part[~np.isnan(part)] for part in np.split(values, ends)]
    wanted = int((array(s, "nodes_modes", np.int64) == MEMBER).sum())
    # A NaN may also follow the last set.
    return members[:-1] if len(members) == wanted + 1 and not len(members[-1]) else members


# ── the old form ──


@on("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(s: Site) -> Made:
    x = real(s)
    targets, aggregate = s.attribute("n_targets", 1), s.attribute("aggregate_function", "SUM")
    if aggregate not in AGGREGATES:
        raise s.wrong(f"aggregate_function is '{aggregate}', "
                      f"expected one of {', '.join(AGGREGATES)}")  # fmt: skip
    y = grown(s, x, classic(s, "target", x.type.numpy), targets, aggregate)
    y = based(s, y, numbers(s, "base_values", x.type.numpy))
    return finished(s, s.cast(y, "f32"), s.attribute("post_transform", "NONE"))


@on("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(s: Site) -> Made:
    x, names = real(s), class_labels(s, "classlabels_int64s")
    forest = classic(s, "class", x.type.numpy)
    base = numbers(s, "base_values", x.type.numpy)
    scores = grown(s, x, forest, len(names), "SUM")
    named = set(forest.target.tolist())
    after = s.attribute("post_transform", "NONE")
    if len(names) == 2 and named == {0} and len(base) < 2:
        return one_score(s, scores, names, base, bool((forest.weight >= 0).all()), after)
    if len(base) == len(names):
        scores = based(s, scores, base)
    scores = s.cast(scores, "f32")
    if len(names) == 2 and named == {1}:
        winner = decided(s, column(s, scores, 1), bool((forest.weight >= 0).all()))
    else:
        winner = s.g(ArgMax(1, False), scores)
    return labelled(s, winner, names), posted(s, scores, after)


def one_score(
    s: Site, scores: Value, names: Array, base: Array, positive: bool, after: str
) -> list[Value]:
    """Return the label and both scores of a classifier whose trees only score the first class.

    The trees' score of the first of two classes is the score of the second.  It is a probability if
    no weight is negative, else the logarithm of odds or the like.
    """
    score = s.cast(based(s, column(s, scores, 0), base), "f32")
    label = labelled(s, decided(s, score, positive), names)
    if after == "LOGISTIC":
        return [label, s.g(Concat(1), s.g(Sigmoid(), s.g(Neg(), score)), s.g(Sigmoid(), score))]
    other = s.g(Sub(), scalar(s.g, 1, score), score) if positive else s.g(Neg(), score)
    both = s.g(Concat(1), other, score)
    return [label, probit(s, both) if after == "PROBIT" else both]


def decided(s: Site, score: Value, positive: bool) -> Value:
    """Return 1 for rows whose score[N, 1] selects the second class, else 0."""
    above = s.g(Greater(), score, scalar(s.g, 0.5 if positive else 0, score))
    return s.cast(s.g(Reshape(score.type.shape[:1]), above), "i64")


def column(s: Site, scores: Value, i: int) -> Value:
    rows = scores.type.shape[0]
    return s.g(Slice((0, i), (rows, 1), (1, 1)), scores)


def real(s: Site) -> Value:
    """Return X as rows of floats."""
    x = matrix(s)
    return s.cast(x, "f64" if x.type.dtype == "f64" else "f32")


def numbers(s: Site, name: str, dtype: np.dtype[np.floating]) -> Array:
    """Return a list of floats that may also be given as a tensor."""
    tensor = s.attribute(f"{name}_as_tensor")
    return array(s, name, dtype) if tensor is None else np.asarray(tensor, dtype).reshape(-1)


def flags(s: Site, count: int) -> Array:
    """Return for each node whether NaN takes its true branch."""
    tracks = array(s, "nodes_missing_value_tracks_true", np.int64)
    if len(tracks) not in (0, count):
        raise s.wrong(f"nodes_missing_value_tracks_true has {len(tracks)} entries, "
                      f"expected 0 or {count}")  # fmt: skip
    return tracks != 0 if len(tracks) else np.zeros(count, np.bool_)


def classic(s: Site, what: str, dtype: np.dtype[np.floating]) -> Forest:
    """Return trees whose leaves stand among the nodes; `what` is named by entries of leaves."""
    words = s.attribute("nodes_modes", ())
    trees, numbers_ = array(s, "nodes_treeids", np.int64), array(s, "nodes_nodeids", np.int64)
    feature = array(s, "nodes_featureids", np.int64)
    threshold = numbers(s, "nodes_values", dtype)
    if len({len(words), len(trees), len(numbers_), len(feature), len(threshold)}) != 1:
        raise s.wrong("the nodes_… attributes differ in length, expected one length")
    if not len(words):
        raise s.wrong("nodes_modes is empty, expected at least 1 node")
    number = {word: i for i, word in enumerate((*MODES, "LEAF"))}
    if unknown := set(words) - number.keys():
        raise s.wrong(f"nodes_modes has {min(unknown)}, expected one of {', '.join(number)}")
    modes = np.fromiter(map(number.__getitem__, words), np.int8, len(words))
    del words
    leaf = modes == number["LEAF"]
    # What a node is called from now on: inner nodes and leaves are counted apart.
    code = np.where(leaf, -np.cumsum(leaf), np.cumsum(~leaf) - 1)
    find = Finder(s.op_type, trees, numbers_)
    inner = np.flatnonzero(~leaf)
    yes, no = (
        code[find(trees[inner], array(s, f"nodes_{way}nodeids", np.int64)[inner])]
        for way in ("true", "false")
    )
    nodes = Nodes(
        feature[inner], threshold[inner], modes[inner], yes, no, flags(s, len(leaf))[inner]
    )
    roots = code[np.sort(np.unique(trees, return_index=True)[1])]
    owner = code[find(array(s, f"{what}_treeids", np.int64), array(s, f"{what}_nodeids", np.int64))]
    target = array(s, f"{what}_ids", np.int64)
    weight = numbers(s, f"{what}_weights", dtype)
    if len({len(owner), len(target), len(weight)}) != 1:
        raise s.wrong(f"the {what}_… attributes differ in length, expected one length")
    order = np.argsort(-1 - owner, kind="stable")
    order = order[owner[order] < 0]  # an inner node says nothing
    counts = np.bincount(-1 - owner[order], minlength=int(leaf.sum()))
    first = np.concatenate([[0], np.cumsum(counts)])
    return Forest(nodes, [], roots, target[order], weight[order], first)


class Finder:
    """Finds nodes by the number of their tree and their own in it."""

    def __init__(self, op_type: str, trees: Array, numbers: Array) -> None:
        self.op_type = op_type
        self.trees, self.numbers = np.unique(trees), np.unique(numbers)
        pairs = self._pairs(trees, numbers)
        self.order = np.argsort(pairs, kind="stable")
        self.pairs = pairs[self.order]
        if (self.pairs[1:] == self.pairs[:-1]).any():
            raise ModelError(f"{op_type}: nodes_nodeids has duplicates, expected one node for each")

    def _pairs(self, trees: Array, numbers: Array) -> Array:
        """Return one number for each pair of those that are known."""
        tree = np.searchsorted(self.trees, trees)
        number = np.searchsorted(self.numbers, numbers)
        return np.asarray(tree * len(self.numbers) + number)

    def __call__(self, trees: Array, numbers: Array) -> Array:
        if len(trees) != len(numbers):
            raise ModelError(f"{self.op_type}: treeids and nodeids differ in length, "
                             "expected one length")  # fmt: skip
        missing = ~(np.isin(trees, self.trees) & np.isin(numbers, self.numbers))
        pairs = self._pairs(trees, numbers)
        at = np.minimum(np.searchsorted(self.pairs, pairs), max(len(self.pairs) - 1, 0))
        missing |= self.pairs[at] != pairs
        if missing.any():
            first = int(np.argmax(missing))
            raise ModelError(f"{self.op_type}: node {numbers[first]} is missing in tree "
                             f"{trees[first]}")  # fmt: skip
        return np.asarray(self.order[at])


# ── both ──


def grown(s: Site, x: Value, forest: Forest, targets: int, aggregate: str) -> Value:
    """Return the aggregated weights of the trees for x[N, F], by target."""
    lists = [len(v) for v in vars(forest.nodes).values()]
    if len(set(lists)) != 1 or len(forest.target) != len(forest.weight):
        raise s.wrong("attributes of nodes or leaves differ in length, expected one length each")
    leaves = len(forest.first) - 1
    features = x.type.shape[1]
    for what, ids, limit in (("feature", forest.nodes.feature, features),
                             ("target", forest.target, targets)):  # fmt: skip
        if len(ids) and (ids.min() < 0 or not presume(limit - 1 - int(ids.max()), ">=")):
            raise s.wrong(f"a {what} is out of range, expected at least 0 and less than {limit}")
    if not len(forest.roots) or not leaves or targets < 1:
        raise s.wrong(f"there are {len(forest.roots)} trees, {leaves} leaves and {targets} "
                      "targets, expected at least 1 each")  # fmt: skip
    steps = depth(forest.nodes, forest.roots, leaves)
    nodes = plain(forest.nodes, forest.members)
    steps = depth(nodes, forest.roots, leaves) if len(nodes) != len(forest.nodes) else steps
    target, weight = forest.target, forest.weight
    one_each = bool((np.diff(forest.first) == 1).all())
    if not len(weight):
        target, weight = np.zeros(1, np.int64), np.zeros(1, x.type.numpy)
    children = np.stack([nodes.no, nodes.yes], axis=1)
    arrays = [
        records(nodes.feature, nodes.threshold, children, forest.roots, nodes.nan),
        target.astype(np.int32),
        weight,
    ]
    operands: list[Value | None] = [s.g.constant(a) for a in arrays]
    operands.append(None if one_each else s.g.constant(forest.first.astype(np.int32)))
    how = "sum" if aggregate == "AVERAGE" else aggregate.lower()
    y = s.g(TreeEnsemble(targets, len(forest.roots), steps, how), x, *operands)
    if aggregate == "AVERAGE":
        y = s.g(Div(), y, scalar(s.g, len(forest.roots), y))
    return y


def based(s: Site, y: Value, base: Array) -> Value:
    """Return y[N, T] plus base values, one for each target."""
    if not len(base):
        return y
    if y.type.shape[1] != len(base):
        raise s.wrong(f"base_values has {len(base)} entries, expected {y.type.shape[1]}")
    return s.g(Add(), y, stretch(s.g, s.g.constant(base.astype(y.type.numpy)), y.type.shape))


def finished(s: Site, y: Value, after: str) -> Value:
    """Return a regression after its transform; of a single target only PROBIT is one.

    That is how ONNX Runtime reads the format, which does not say it.
    """
    return y if y.type.shape[1] == 1 and after != "PROBIT" else posted(s, y, after)
