"""Recipes for ensembles of decision trees (ai.onnx.ml), old form and new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import numpy_helper

from .draft import Draft, Var
from .elements import DTYPES, Array
from .inference import Declined
from .recipe import recipe
from .recipes_ml import ML, TRANSFORMS, add, renew

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
MEMBER = 6
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass
class Tree:
    """A random tree: nodes in the order in which they were made, those without children leaves."""

    features: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of the nodes of the true and the false branch; (0, 0) for leaves."""

    def is_leaf(self, i: int) -> bool:
        return self.children[i] == (0, 0)


def tree(d: Draft, features: int, deepest: int, modes: list[int]) -> Tree:
    """Return a tree that is at most so deep; it may be a single leaf."""
    t = Tree()

    def node(depth: int) -> int:
        number = len(t.features)
        leaf = depth >= deepest or d.chance(0.15)
        t.features.append(0 if leaf else d.number(0, features - 1))
        t.splits.append(0.0 if leaf else float(d.rng.integers(-8, 9)) / 4)
        t.modes.append(0 if leaf else d.one_of(modes))
        t.children.append((0, 0))
        if not leaf:
            t.children[number] = (node(depth + 1), node(depth + 1))
        return number

    node(0)
    return t


def forest(d: Draft, features: int, modes: list[int]) -> list[Tree]:
    count = d.one_of((1, 1, 2, 3, 5, 17))
    deepest = d.one_of((0, 1, 2, 3, 5)) if count < 9 else 2
    return [tree(d, features, deepest, modes) for _ in range(count)]


def kinds_of_branches(d: Draft) -> list[int]:
    return [0] if d.chance(0.4) else [d.number(0, 5)] if d.chance(0.5) else list(range(6))


def listed(d: Draft, trees: list[Tree], wide: bool) -> dict[str, Any]:
    """Return the attributes that describe the nodes, in the old form."""
    ids = [(t, i) for t, each in enumerate(trees) for i in range(len(each.features))]
    if d.chance(0.2):
        # ONNX Runtime takes the node of a tree for its root that is listed first.
        ids = sorted((ids[i] for i in d.rng.permutation(len(ids))), key=lambda node: node[1] > 0)
    modes = ["LEAF" if trees[t].is_leaf(i) else MODES[trees[t].modes[i]] for t, i in ids]
    splits = [trees[t].splits[i] for t, i in ids]
    found: dict[str, Any] = {
        "nodes_treeids": [t for t, _ in ids], "nodes_nodeids": [i for _, i in ids],
        "nodes_featureids": [trees[t].features[i] for t, i in ids], "nodes_modes": modes,
        "nodes_truenodeids": [trees[t].children[i][0] for t, i in ids],
        "nodes_falsenodeids": [trees[t].children[i][1] for t, i in ids],
    }  # fmt: skip
    if wide:
        found["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(splits))
    else:
        found["nodes_values"] = splits
    if d.chance(0.3):
        found["nodes_missing_value_tracks_true"] = [d.number(0, 1) for _ in ids]
    if d.chance(0.2):
        found["nodes_hitrates"] = [1.0] * len(ids)
    return found


def weighted(d: Draft, trees: list[Tree], targets: list[int], what: str, positive: bool,
             wide: bool) -> dict[str, Any]:  # fmt: skip
    """Return the attributes that say what leaves give: one entry each, several, or none."""
    entries = []
    for t, each in enumerate(trees):
        for i in range(len(each.features)):
            if each.is_leaf(i):
                some = d.one_of((1, 1, 1, len(targets)))
                if what == "class" and len(targets) == 2:
                    some = 2  # with one score of two, ONNX Runtime takes it for the only one
                chosen = d.rng.permutation(targets)[:some].tolist()
                entries += [(t, i, int(k)) for k in chosen]
    weights = d.rng.standard_normal(len(entries))
    weights = np.abs(weights) / len(trees) if positive else weights
    found: dict[str, Any] = {
        f"{what}_treeids": [t for t, _, _ in entries],
        f"{what}_nodeids": [i for _, i, _ in entries],
        f"{what}_ids": [k for _, _, k in entries],
    }  # fmt: skip
    if wide:
        found[f"{what}_weights_as_tensor"] = numpy_helper.from_array(weights)
    else:
        found[f"{what}_weights"] = weights.astype(np.float32).tolist()
    return found


def samples(d: Draft, kinds: tuple[str, ...]) -> Var:
    """Return rows of quarters, which meet the splits, some of them missing."""
    x = d.pick(kinds, 2, 2, empty=False)
    if x.name in d.inputs and x.dtype in ("float", "double", "float16"):
        quarters = np.asarray(d.rng.integers(-8, 9, x.shape) / 4)
        if d.chance(0.3):
            quarters[d.rng.random(x.shape) < 0.1] = np.nan
        d.inputs[x.name] = quarters.astype(DTYPES[x.dtype])
    return x


def old(d: Draft, op: str) -> tuple[Var, list[Tree], bool]:
    x = samples(d, ("float", "float", "double", "int64", "int32"))
    trees = forest(d, x.shape[1], kinds_of_branches(d))
    wide = x.dtype == "double" and d.versions.get(ML, 1) >= 3
    if x.dtype == "double" and not wide:
        raise Declined
    return x, trees, wide


def all_named(trees: list[Tree], ids: list[int], targets: int) -> bool:
    """Whether every leaf names all targets: what no leaf of a row names ONNX Runtime gives 0,
    whatever its base value."""
    leaves = sum(each.is_leaf(i) for each in trees for i in range(len(each.features)))
    return len(ids) == leaves * targets


@recipe("ai.onnx.ml:TreeEnsembleRegressor")
def regressor(d: Draft, op: str) -> None:
    x, trees, wide = old(d, op)
    targets = d.one_of((1, 1, 2, 3))
    more = listed(d, trees, wide) | weighted(d, trees, list(range(targets)), "target", False, wide)
    if len(set(more["target_ids"])) < targets:
        raise Declined  # a target that no leaf names
    more |= d.some("TreeEnsembleRegressor", ML, aggregate_function=AGGREGATES)
    if d.chance(0.4) and not wide and all_named(trees, more["target_ids"], targets):
        more["base_values"] = d.rng.standard_normal(targets).astype(np.float32).tolist()
    if d.chance(0.3):
        more["post_transform"] = d.one_of(TRANSFORMS[:4])
    add(d, op, [x], ("float", (x.shape[0], targets)), n_targets=targets, **more)


@recipe("ai.onnx.ml:TreeEnsembleClassifier")
def classifier(d: Draft, op: str) -> None:
    x, trees, wide = old(d, op)
    classes = d.one_of((2, 2, 2, 3, 4))
    names = d.rng.permutation(20)[:classes].tolist()
    targets = [d.number(0, 1)] if classes == 2 and d.chance(0.5) else list(range(classes))
    more = listed(d, trees, wide)
    more |= weighted(d, trees, targets, "class", d.chance(0.5), wide)
    if len(set(more["class_ids"])) < len(targets):
        raise Declined  # a class that no leaf names
    if d.chance(0.3) and not wide and all_named(trees, more["class_ids"], len(targets)):
        count = 1 if len(targets) == 1 else classes
        more["base_values"] = d.rng.standard_normal(count).astype(np.float32).tolist()
    if d.chance(0.5):
        more["post_transform"] = d.one_of(TRANSFORMS[:3])
    add(d, op, [x], ("int64", x.shape[:1]), ("float", (x.shape[0], classes)),
        classlabels_int64s=names, **more)  # fmt: skip


@recipe("ai.onnx.ml:TreeEnsemble")
def ensemble(d: Draft, op: str) -> None:
    """The new form: nodes and leaves have lists of their own, and a test may be of a set."""
    renew(d, 5)
    x = samples(d, ("float", "float", "double", "float16"))
    modes = kinds_of_branches(d)
    if d.chance(0.3):
        modes = [*modes, MEMBER]
    trees = [t for t in forest(d, x.shape[1], modes) if len(t.features) > 1]
    if not trees:
        raise Declined  # a tree has a node, in this form
    targets = d.one_of((1, 1, 2, 3))
    kind = DTYPES[x.dtype]
    place: dict[tuple[int, int], int] = {}
    leaves: dict[tuple[int, int], int] = {}
    for t, each in enumerate(trees):
        for i in range(len(each.features)):
            where = leaves if each.is_leaf(i) else place
            where[t, i] = len(where)
    ways: dict[str, list[int]] = {k: [] for k in ("trueleafs", "truenodeids", "falseleafs",
                                                  "falsenodeids")}  # fmt: skip
    for t, i in place:
        for way, child in zip(("true", "false"), trees[t].children[i], strict=True):
            leaf = trees[t].is_leaf(child)
            ways[f"{way}leafs"].append(int(leaf))
            ways[f"{way}nodeids"].append((leaves if leaf else place)[t, child])
    more: dict[str, Any] = {f"nodes_{k}": v for k, v in ways.items()}
    if any(trees[t].modes[i] == MEMBER for t, i in place):
        more["membership_values"] = numpy_helper.from_array(members(d, trees, place, kind))
    if d.chance(0.3):
        more["nodes_missing_value_tracks_true"] = [d.number(0, 1) for _ in place]
    more |= d.some("TreeEnsemble", ML, aggregate_function=range(4), post_transform=range(4))
    if targets == 1:
        more.pop("post_transform", None)
    weights = d.rng.standard_normal(len(leaves)).astype(kind)
    add(d, op, [x], (x.dtype, (x.shape[0], targets)), n_targets=targets,
        nodes_featureids=[trees[t].features[i] for t, i in place],
        nodes_splits=tensor([trees[t].splits[i] for t, i in place], kind),
        nodes_modes=tensor([trees[t].modes[i] for t, i in place], np.dtype(np.uint8)),
        leaf_weights=numpy_helper.from_array(weights),
        leaf_targetids=[d.number(0, targets - 1) for _ in leaves],
        tree_roots=[place[t, 0] for t in range(len(trees))], **more)  # fmt: skip


def tensor(numbers: list[Any], kind: np.dtype[Any]) -> object:
    return numpy_helper.from_array(np.array(numbers).astype(kind))


def members(d: Draft, trees: list[Tree], place: dict[tuple[int, int], int],
            kind: np.dtype[Any]) -> Array:  # fmt: skip
    """Return a set for each node that tests for one, with NaN behind it."""
    found: list[float] = []
    for t, i in place:
        if trees[t].modes[i] == MEMBER:
            found += (d.rng.permutation(17)[: d.number(1, 4)] / 4 - 2).tolist()
            found.append(float("nan"))
    return np.array(found).astype(kind)
