"""Operators of ai.onnx.ml on numbers, beside ONNX Runtime and the specification's own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx import load
from node_cases import models
from onnx_domains import assert_close, both, check_open, one_node, runtime
from onnx_domains import check as check_domain

Array = NDArray[Any]
ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def check(op_type: str, *inputs: Array, **given: Any) -> list[Array]:
    return check_domain(ML, op_type, *inputs, **given)


def rows(n: int, f: int, seed: int = 0, dtype: type = np.float32) -> Array:
    """Return numbers of which some are equal: quarters between -2 and 2."""
    return (np.random.default_rng(seed).integers(-8, 9, (n, f)) / 4).astype(dtype)


# ── the specification's tests ──

NODE_TESTS = [
    case
    for case in models()
    if case.model is not None
    and any(node.domain == ML for node in case.model.graph.node)
    and not any(
        a.strings or a.t.data_type == TensorProto.STRING for a in case.model.graph.node[0].attribute
    )
]


@pytest.mark.parametrize("case", NODE_TESTS, ids=lambda case: case.name)
def test_the_node_tests_of_onnx_pass(case: Any) -> None:
    for ins, outs in case.data_sets:
        feeds = {i.name: a for i, a in zip(case.model.graph.input, ins, strict=True)}
        for actual in both(case.model, feeds):
            assert_close(outs, actual, case.rtol, case.atol)


# ── numbers, one by one, and features ──


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_scaler(dtype: type) -> None:
    x: Array = rows(4, 3).astype(dtype)
    check("Scaler", x, offset=[1.0, -2.0, 0.5], scale=[0.3, 2.0, -1.0])
    check("Scaler", x, offset=[0.25], scale=[3.0])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = rows(6, 4)
    x[2] = 0
    check("Normalizer", x, norm=norm)
    check("Normalizer", x.astype(np.int64), norm=norm)


def test_binarizer() -> None:
    check("Binarizer", rows(4, 5), threshold=0.25)
    check("Binarizer", rows(1, 5)[0])


def test_imputer() -> None:
    x = rows(5, 3)
    x[1, 2] = x[3, 0] = np.nan
    check("Imputer", x, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan"))
    check("Imputer", x, imputed_value_floats=[7.0], replaced_value_float=0.25)
    x = np.arange(6).reshape(2, 3)
    check("Imputer", x, imputed_value_int64s=[70, 80, 90], replaced_value_int64=4)


def test_array_feature_extractor() -> None:
    check("ArrayFeatureExtractor", rows(4, 5), np.array([3, 0, 3]))
    check("ArrayFeatureExtractor", rows(1, 5)[0], np.array([[2, 1]]))
    check("ArrayFeatureExtractor", np.arange(24).reshape(2, 3, 4), np.array([1]))


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", rows(4, 3), rows(4, 2), inputdimensions=[3, 2])
    check("FeatureVectorizer", rows(2, 2).astype(np.int64), inputdimensions=[2])
    check("FeatureVectorizer", rows(2, 3), rows(2, 3), inputdimensions=[2, 3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_one_hot_encoder(dtype: type) -> None:
    x: Array = np.array([[3, -1], [8, 4], [5, 0]]).astype(dtype)
    check("OneHotEncoder", x, cats_int64s=[8, 3, 0, -1], zeros=1)


def test_label_encoder() -> None:
    numbers = np.array([[3, 4], [-2, 9]])
    check("LabelEncoder", numbers, keys_int64s=[9, -2, 3], values_floats=[0.5, 1.5, 2.5])
    check("LabelEncoder", numbers.astype(np.float32), keys_floats=[9.0, -2.0, 3.0],
          values_int64s=[5, 6, 7], default_int64=-9)  # fmt: skip
    x = np.array([np.nan, 1.5, np.inf, -0.0], np.float32)
    check("LabelEncoder", x, keys_floats=[np.nan, 0.0, 1.5], values_floats=[1.0, 2.0, 3.0],
          versions={ML: 4})  # fmt: skip
    tensor = numpy_helper.from_array
    check("LabelEncoder", numbers, versions={ML: 4},
          keys_tensor=tensor(np.array([3, 9])),
          values_tensor=tensor(np.array([0.5, 0.25], np.float32)),
          default_tensor=tensor(np.array([-1], np.float32)))  # fmt: skip


# ── linear models ──


@pytest.mark.parametrize("after", TRANSFORMS)
def test_linear_regressor(after: str) -> None:
    weights = np.linspace(0.02, 0.2, 6).tolist()
    x = np.abs(rows(5, 3)) / 4
    check("LinearRegressor", x, coefficients=weights, targets=2, intercepts=[0.1, 0.2],
          post_transform=after, rtol=1e-4)  # fmt: skip
    check("LinearRegressor", x, coefficients=weights[:3], targets=1)


@pytest.mark.parametrize("after", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(after: str, classes: int) -> None:
    weights = np.linspace(0.02, 0.2, 3 * classes).tolist()
    check("LinearClassifier", np.abs(rows(5, 3)) / 4, outputs=2, coefficients=weights,
          intercepts=np.linspace(0.3, 0.1, classes).tolist(), rtol=1e-4,
          classlabels_ints=[4, 2, 9][:classes], post_transform=after)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("after", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_classifier_of_one_score(after: str, dtype: type) -> None:
    check("LinearClassifier", rows(9, 3).astype(dtype), outputs=2, coefficients=[0.5, -0.4, 0.3],
          intercepts=[0.1], classlabels_ints=[4, 2], post_transform=after)  # fmt: skip


# ── support vectors ──


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    check("SVMRegressor", rows(6, 3), kernel_type=kernel, kernel_params=[0.2, 0.5, 3.0],
          n_supports=4, support_vectors=rows(4, 3, 1).reshape(-1).tolist(), rho=[0.125],
          coefficients=[0.5, -1.0, 0.25, 1.5], one_class=one_class)  # fmt: skip


def test_svm_regressor_that_is_linear() -> None:
    check("SVMRegressor", rows(6, 3), coefficients=[0.5, -1.0, 0.25], rho=[0.125], n_supports=0,
          kernel_params=[0.0, 0.0, 0.0])  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
@pytest.mark.parametrize("proba", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.sampled(5)
def test_svm_classifier(classes: int, proba: bool, kernel: str, dtype: type) -> None:
    random = np.random.default_rng(classes)
    counts = [3, 2, 4, 1][:classes]
    duels, total = classes * (classes - 1) // 2, sum(counts)
    given: dict[str, Any] = {
        "kernel_type": kernel, "kernel_params": [0.2, 0.5, 3.0], "vectors_per_class": counts,
        "support_vectors": rows(total, 3, 1).reshape(-1).tolist(),
        "coefficients": random.normal(0, 1, (classes - 1) * total).tolist(),
        "rho": random.normal(0, 0.3, duels).tolist(),
        "classlabels_ints": [7, 3, 5, 11][:classes],
    }  # fmt: skip
    if proba:
        given["prob_a"] = random.normal(-1, 0.1, duels).tolist()
        given["prob_b"] = random.normal(0, 0.1, duels).tolist()
    check("SVMClassifier", rows(12, 3).astype(dtype), outputs=2, rtol=1e-4, **given)


@pytest.mark.parametrize("after", TRANSFORMS[:3])
def test_svm_classifier_that_is_linear(after: str) -> None:
    weights = np.random.default_rng(0).normal(0, 1, 9).tolist()
    check("SVMClassifier", rows(12, 3), outputs=2, coefficients=weights, rho=[0.125],
          kernel_params=[0.0, 0.0, 0.0], classlabels_ints=[7, 3, 5],
          post_transform=after)  # fmt: skip


@pytest.mark.parametrize("after", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_svm_classifier_transforms_its_scores(after: str) -> None:
    for classes in (2, 3):
        duels = classes * (classes - 1) // 2
        check("SVMClassifier", rows(12, 3), outputs=2, kernel_type="RBF", post_transform=after,
              kernel_params=[0.2, 0.0, 0.0], vectors_per_class=[2] * classes,
              support_vectors=rows(2 * classes, 3, 1).reshape(-1).tolist(),
              coefficients=np.linspace(-1, 1.5, 2 * classes * (classes - 1)).tolist(),
              rho=[0.1] * duels, classlabels_ints=list(range(classes)))  # fmt: skip


# ── trees ──


def classic_trees(
    trees: int, features: int, seed: int, what: str, targets: int, modes: tuple[str, ...],
    entries: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return the lists of random trees in the old form; leaves have 1 to `entries` entries."""
    random = np.random.default_rng(seed)
    lists: dict[str, list[Any]] = {k: [] for k in (
        "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
        "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
        f"{what}_treeids", f"{what}_nodeids", f"{what}_ids", f"{what}_weights")}  # fmt: skip

    def node(tree: int, depth: int) -> int:
        number = lists["nodes_treeids"].count(tree)
        at = len(lists["nodes_treeids"])
        leaf = depth == 0 or random.random() < 0.1
        lists["nodes_treeids"].append(tree)
        lists["nodes_nodeids"].append(number)
        lists["nodes_featureids"].append(int(random.integers(features)))
        lists["nodes_values"].append(float(random.integers(-8, 9)) / 4)
        lists["nodes_modes"].append("LEAF" if leaf else str(random.choice(modes)))
        lists["nodes_missing_value_tracks_true"].append(int(random.integers(2)))
        for way in ("true", "false"):
            lists[f"nodes_{way}nodeids"].append(0)
        if leaf:
            for target in random.permutation(targets)[: random.integers(1, entries + 1)]:
                lists[f"{what}_treeids"].append(tree)
                lists[f"{what}_nodeids"].append(number)
                lists[f"{what}_ids"].append(int(target))
                lists[f"{what}_weights"].append(float(random.integers(1, 9)) / 64)
        else:
            for way in ("true", "false"):
                lists[f"nodes_{way}nodeids"][at] = node(tree, depth - 1)
        return number

    for tree in range(trees):
        node(tree, 1 + tree % 5)
    return lists


def with_nan(x: Array) -> Array:
    x[np.random.default_rng(9).random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.parametrize("mode", BRANCHES)
def test_every_comparison_of_trees(mode: str) -> None:
    trees = classic_trees(7, 4, 0, "target", 1, (mode,))
    check("TreeEnsembleRegressor", rows(50, 4), n_targets=1, **trees)


@pytest.mark.parametrize("mode", BRANCHES[:4])
def test_nan_takes_the_branch_that_the_model_says(mode: str) -> None:
    trees = classic_trees(7, 4, 1, "target", 1, (mode,))
    check("TreeEnsembleRegressor", with_nan(rows(50, 4)), n_targets=1, **trees)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.sampled(4)
def test_tree_ensemble_regressor(aggregate: str, targets: int) -> None:
    trees = classic_trees(21, 4, 2, "target", targets, BRANCHES[:1], targets)
    base = np.linspace(0.5, -0.25, targets).tolist()
    for x in (rows(9, 4), rows(1, 4), rows(3, 4).astype(np.float64)):
        check("TreeEnsembleRegressor", x, n_targets=targets, aggregate_function=aggregate, **trees)
        check("TreeEnsembleRegressor", x, n_targets=targets, aggregate_function=aggregate,
              base_values=base, **trees)  # fmt: skip


@pytest.mark.parametrize("after", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.sampled(5)
def test_tree_ensemble_regressor_transforms(after: str, targets: int) -> None:
    trees = classic_trees(21, 4, 3, "target", targets, BRANCHES[:1], targets)
    trees["target_weights"] = [w / 8 for w in trees["target_weights"]]
    check("TreeEnsembleRegressor", rows(9, 4), n_targets=targets, post_transform=after, rtol=1e-3,
          base_values=[0.125] * targets, **trees)  # fmt: skip


def test_tensors_in_place_of_lists() -> None:
    trees = classic_trees(5, 4, 4, "target", 1, BRANCHES[:1])
    for name in ("nodes_values", "target_weights"):
        tensor = np.array(trees.pop(name))
        trees[f"{name}_as_tensor"] = numpy_helper.from_array(tensor)
    check("TreeEnsembleRegressor", rows(9, 4).astype(np.float64), n_targets=1, **trees)


@pytest.mark.parametrize("after", TRANSFORMS)
@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.sampled(3)
def test_tree_ensemble_classifier(after: str, classes: int) -> None:
    trees = classic_trees(21, 4, 5, "class", classes, BRANCHES[:1], classes)
    names = [7, 3, 5, 11][:classes]
    x = np.abs(rows(30, 4))
    check("TreeEnsembleClassifier", x, outputs=2, classlabels_int64s=names, post_transform=after,
          rtol=1e-3, base_values=[0.05] * classes, **trees)  # fmt: skip


@pytest.mark.parametrize("after", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("base", [[], [0.125]])
@pytest.mark.parametrize("named", [0, 1])
@pytest.mark.sampled(10)
def test_tree_ensemble_classifier_of_two(
    after: str, signed: bool, base: list[float], named: int
) -> None:
    trees = classic_trees(12, 4, 6, "class", 1, BRANCHES[:1])
    if signed:
        trees["class_weights"] = [w - 0.075 for w in trees["class_weights"]]
    trees["class_ids"] = [named for _ in trees["class_ids"]]
    given = {"base_values": base} if base else {}
    check("TreeEnsembleClassifier", rows(30, 4), outputs=2, classlabels_int64s=[7, 3],
          post_transform=after, rtol=1e-4, **trees, **given)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_tree_ensemble_classifier_of_other_numbers(dtype: type) -> None:
    trees = classic_trees(21, 4, 7, "class", 3, BRANCHES[:1], 3)
    check("TreeEnsembleClassifier", rows(30, 4).astype(dtype), outputs=2,
          classlabels_int64s=[0, 1, 2], **trees)  # fmt: skip


def modern_tree(dtype: type, **given: Any) -> dict[str, Any]:
    """Return one tree in the new form: every comparison, two targets, and a set of members."""
    tensor = numpy_helper.from_array
    tree: dict[str, Any] = {
        "n_targets": 2, "tree_roots": [0, 3], "nodes_featureids": [0, 1, 2, 0, 3, 1],
        "nodes_modes": tensor(np.array([1, 2, 3, 4, 6, 5], np.uint8)),
        "nodes_splits": tensor(np.array([2, -1, 3, 4, 0, 1], dtype)),
        "nodes_truenodeids": [1, 0, 2, 4, 5, 6], "nodes_trueleafs": [0, 1, 1, 1, 0, 1],
        "nodes_falsenodeids": [2, 1, 3, 4, 5, 7], "nodes_falseleafs": [0, 1, 1, 0, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 0, 1, 0, 1],
        "leaf_weights": tensor(np.array([1, 2, 3, 4, 5, 6, 7, 8], dtype) / 4),
        "membership_values": tensor(np.array([-6, 1, 8, -2, 4, np.nan], dtype)),
    }  # fmt: skip
    return {**tree, **given}


@pytest.mark.parametrize("aggregate", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble(dtype: type, aggregate: int) -> None:
    tree = modern_tree(dtype, aggregate_function=aggregate)
    check("TreeEnsemble", rows(60, 4, dtype=dtype) * 4, versions={ML: 5}, **tree)


@pytest.mark.parametrize("after", range(5))
def test_tree_ensemble_transforms(after: int) -> None:
    # ONNX Runtime counts LOGISTIC before SOFTMAX here, the specification after it.
    x, theirs = rows(20, 4) * 4, {1: 2, 2: 1}.get(after, after)
    ours, peer = (
        one_node(ML, "TreeEnsemble", [x], 1, versions={ML: 5},
                 **modern_tree(np.float32, post_transform=number))
        for number in (after, theirs)
    )  # fmt: skip
    expected = runtime(peer, {"x0": x})
    for actual in both(ours, {"x0": x}):
        assert_close(expected, actual, 1e-4, 1e-5)


def test_tree_ensemble_of_halves_is_the_one_of_floats() -> None:
    x = rows(20, 4) * 4
    half = one_node(ML, "TreeEnsemble", [x.astype(np.float16)], 1, versions={ML: 5},
                    **modern_tree(np.float16))  # fmt: skip
    single = one_node(ML, "TreeEnsemble", [x], 1, versions={ML: 5}, **modern_tree(np.float32))
    expected = [y.astype(np.float16) for y in both(single, {"x0": x})[0]]
    for actual in both(half, {"x0": x.astype(np.float16)}):
        assert_close(expected, actual, 0, 0)


def test_the_number_of_rows_may_be_open() -> None:
    x, open_rows = rows(9, 4), {"x0": {0: "N"}}
    trees = classic_trees(7, 4, 0, "class", 3, BRANCHES[:1], 3)
    model = one_node(ML, "TreeEnsembleClassifier", [x], 2, classlabels_int64s=[1, 2, 3], **trees)
    check_open(model, {"x0": x}, open_rows)
    model = one_node(ML, "SVMClassifier", [x], 2, kernel_type="RBF", kernel_params=[0.2, 0.0, 0.0],
                     vectors_per_class=[2, 1], support_vectors=rows(3, 4).reshape(-1).tolist(),
                     coefficients=[0.5, -0.25, 1.0], rho=[0.1], prob_a=[-1.0], prob_b=[0.1],
                     classlabels_ints=[3, 4])  # fmt: skip
    check_open(model, {"x0": x}, open_rows)


# ── mistakes ──


def broken(**changes: Any) -> onnx.ModelProto:
    tree = modern_tree(np.float32, **changes)
    return one_node(ML, "TreeEnsemble", [rows(2, 4)], 1, versions={ML: 5}, **tree)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes_falsenodeids": [2, 1, 3, 3, 5, 7]}, "cycle"),
        ({"nodes_truenodeids": [1, 9, 2, 4, 5, 6]}, "expected a node or leaf"),
        ({"tree_roots": [-99]}, "expected a node or leaf"),
        ({"nodes_featureids": [0, 1, 2, 0, 4, 1]}, "feature"),
        ({"leaf_targetids": [0, 1, 0, 1, 0, 1, 0, 2]}, "target"),
        ({"nodes_featureids": [0, 1, 2]}, "differ in length"),
        ({"post_transform": 9}, "post_transform"),
    ],
)
def test_broken_trees_are_reported(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load(broken(**changes))


NAMES = ["ant", "bee", "cat", "dog"]


@pytest.mark.parametrize(
    ("kind", "classes"),
    [("linear", 2), ("linear", 3), ("support vectors", 2), ("support vectors", 3), ("lines", 2),
     ("lines", 3), ("trees", 3)],
)  # fmt: skip
@pytest.mark.sampled(4)
def test_classes_that_are_called_by_strings(kind: str, classes: int) -> None:
    random = np.random.default_rng(8)
    normal = lambda n: random.normal(0, 1, n).tolist()  # noqa: E731
    given: dict[str, Any]
    match kind:
        case "linear":
            op_type = "LinearClassifier"
            scores = 1 if classes == 2 else classes
            given = {"coefficients": normal(3 * scores), "intercepts": normal(scores)}
        case "support vectors":
            op_type, counts = "SVMClassifier", [3, 2, 4][:classes]
            given = {"kernel_type": "RBF", "kernel_params": [0.2, 0.5, 3.0],
                     "vectors_per_class": counts, "support_vectors": normal(3 * sum(counts)),
                     "coefficients": normal((classes - 1) * sum(counts)),
                     "rho": normal(classes * (classes - 1) // 2)}  # fmt: skip
        case "lines":
            op_type = "SVMClassifier"
            given = {"coefficients": normal(3 * classes), "rho": [0.125],
                     "kernel_params": [0.0, 0.0, 0.0]}  # fmt: skip
        case _:
            op_type = "TreeEnsembleClassifier"
            given = classic_trees(9, 3, 8, "class", classes, BRANCHES[:1], classes)
    x = rows(30, 3)
    model = one_node(ML, op_type, [x], 2, classlabels_strings=NAMES[:classes], **given)
    expected, scores = runtime(model, {"x0": x})
    labels, results = ag.compile(model, threads=1).run({"x0": x}).values()

    assert len(set(expected.tolist())) > 1
    assert labels.tolist() == expected.tolist()
    np.testing.assert_allclose(results, scores, rtol=1e-4, atol=1e-5)
