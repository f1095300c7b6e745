"""Losses, what differs in training, and optimizers, against ONNX's node tests and its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from node_cases import cases, check_cases
from onnx_node import Array, assert_close, node_model, ours, references, runtimes, single

LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
PREVIEW = "ai.onnx.preview.training"


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Return what compiled code makes of a model, all of it compiled."""
    exe = ag.compile(model, threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    made = exe(*feeds.values())
    return list(made) if isinstance(made, tuple | list) else [made]


@pytest.mark.parametrize("op", [*LOSSES, "Adagrad", "Adam", "BatchNormalization", "Momentum"])
@pytest.mark.sampled(3)
def test_node_tests_of_onnx_agree(op: str) -> None:
    check_cases(cases(op))


def test_node_tests_of_dropout_agree_but_for_the_numbers_drawn() -> None:
    found = cases("Dropout", constants=(1, 2))
    check_cases([c for c in found if "training" not in c.name or "zero_ratio" in c.name])


# ── losses ──


@pytest.mark.parametrize("op", LOSSES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ignored", [None, 2, -7, 99])
@pytest.mark.parametrize("rest", [(), (3,), (4, 1, 2)])
@pytest.mark.sampled(72)
def test_losses_agree_with_onnx_runtime(
    op: str, reduction: str, weighted: bool, ignored: int | None, rest: tuple[int, ...]
) -> None:
    target = np.random.default_rng(1).integers(0, 5, (6, *rest))
    if ignored is not None:
        target.reshape(-1)[::4] = ignored
    feeds = {"x": drawn(6, 5, *rest), "t": target}
    if weighted:
        feeds["w"] = np.abs(drawn(5)) + 0.5
    options: dict[str, Any] = {} if ignored is None else {"ignore_index": ignored}
    model = node_model(op, feeds, opset=13, reduction=reduction, **options)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_cross_entropy_shows_its_logarithms(dtype: str) -> None:
    feeds = {"x": drawn(4, 7, 3).astype(dtype), "t": np.arange(12).reshape(4, 3) % 7}
    model = node_model(LOSSES[1], feeds, opset=13, outputs=("y", "logarithms"))
    expected = [y.astype(dtype) for y in references(model, feeds)]

    assert_close(expected, ours(model, feeds), 2e-3 if dtype == "float16" else 1e-12)
    assert_close(expected, compiled(model, feeds), 2e-3 if dtype == "float16" else 1e-12)


# ── batch normalization and dropout ──


@pytest.mark.parametrize("shape", [(4, 5, 3, 2), (6, 5), (3, 5, 7)])
@pytest.mark.parametrize("momentum", [0.9, 0.25])
def test_batch_statistics(shape: tuple[int, ...], momentum: float) -> None:
    feeds = {"x": drawn(*shape)}
    feeds |= {k: np.abs(drawn(5, seed=i)) + 0.5 for i, k in enumerate(("s", "b", "m", "v"))}
    model = node_model("BatchNormalization", feeds, opset=15, outputs=("y", "mean", "var"),
                       training_mode=1, momentum=momentum)  # fmt: skip
    expected = references(model, feeds)

    assert_close(expected, ours(model, feeds), 1e-5)
    assert_close(expected, compiled(model, feeds), 1e-5)


def test_five_outputs_meant_training_once() -> None:
    feeds = {"x": drawn(4, 5, 3)}
    feeds |= {k: np.abs(drawn(5, seed=i)) + 0.5 for i, k in enumerate(("s", "b", "m", "v"))}
    outputs = ("y", "mean", "var", "saved_mean", "saved_var")
    old = ours(node_model("BatchNormalization", feeds, opset=9, outputs=outputs), feeds)
    new = node_model("BatchNormalization", feeds, opset=15, outputs=outputs[:3], training_mode=1)

    assert_close(ours(new, feeds), old[:3], 0)
    assert_close([feeds["x"].mean((0, 2)), feeds["x"].var((0, 2))], old[3:], 1e-5)


def test_what_is_not_spatial_is_normalised_by_element() -> None:
    shape = (3, 5, 2)
    feeds = {"x": drawn(4, *shape)}
    feeds |= {k: np.abs(drawn(*shape, seed=i)) + 0.5 for i, k in enumerate(("s", "b", "m", "v"))}
    model = node_model("BatchNormalization", feeds, opset=7, spatial=0, epsilon=0.0)
    expected = (feeds["x"] - feeds["m"]) / np.sqrt(feeds["v"]) * feeds["s"] + feeds["b"]

    assert_close([expected], ours(model, feeds), 1e-5)


def dropped(ratio: float | None, seed: int, x: Array) -> list[Array]:
    inputs = [x, None if ratio is None else np.asarray(ratio, np.float32), np.array(True)]
    model = single("Dropout", inputs, 13, 2, constants=[2], seed=seed)
    feeds = {f"x{i}": a for i, a in enumerate(inputs[:2]) if a is not None}
    interpreted = ours(model, feeds)
    assert_close(interpreted, compiled(model, feeds), 1e-6)
    return interpreted


@pytest.mark.parametrize("ratio", [None, 0.1, 0.75])
def test_dropout_keeps_a_share_and_scales_it(ratio: float | None) -> None:
    x = np.abs(drawn(100, 101)) + 1
    y, mask = dropped(ratio, 3, x)
    share = 1 - (0.5 if ratio is None else ratio)

    assert mask.dtype == bool
    assert abs(mask.mean() - share) < 0.02
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(share), 0), 1e-6)


def test_a_seed_drops_the_same_again() -> None:
    x = drawn(20, 21)
    first, again, other = (dropped(0.5, seed, x)[1] for seed in (1, 1, 2))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_ratio_of_nothing_keeps_everything() -> None:
    x = drawn(20, 21)
    y, mask = dropped(0.0, 1, x)

    assert mask.all()
    assert np.array_equal(x, y)


# ── optimizers ──


def optimizer_model(
    op: str, feeds: dict[str, Array], outputs: int, **attributes: Any
) -> onnx.ModelProto:
    model = node_model(op, feeds, opset=21, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    model.graph.node[0].domain = PREVIEW
    model.opset_import.append(helper.make_opsetid(PREVIEW, 1))
    return model


@pytest.mark.parametrize("step", [0, 5])
@pytest.mark.parametrize(("op", "parts", "attributes"), [
    ("Momentum", 3, {"alpha": 0.9, "beta": 0.3, "norm_coefficient": 0.1, "mode": "standard"}),
    ("Momentum", 3, {"alpha": 0.9, "beta": 0.3, "norm_coefficient": 0.1, "mode": "nesterov"}),
    ("Adagrad", 3, {"norm_coefficient": 0.1, "decay_factor": 0.2}),
    ("Adam", 4, {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2}),
])  # fmt: skip
def test_two_variables_at_once(op: str, parts: int, step: int, attributes: dict[str, Any]) -> None:
    feeds = {"r": np.array([0.1], np.float32), "t": np.array([step])}
    for part in range(parts):
        feeds |= {f"a{part}": np.abs(drawn(3, 17, seed=part)), f"b{part}": np.abs(drawn(5))}
    model = optimizer_model(op, feeds, 2 * (parts - 1), **attributes)
    # The reference does not know what attributes are by default.
    expected = references(optimizer_model(op, feeds, 2 * (parts - 1), **filled_in(op, attributes)),
                          feeds)  # fmt: skip
    expected = [y.astype(np.float32) for y in expected]

    assert_close(expected, ours(model, feeds), 1e-5)
    assert_close(expected, compiled(model, feeds), 1e-5)


def filled_in(op: str, attributes: dict[str, Any]) -> dict[str, Any]:
    defaults = {"Adagrad": {"epsilon": 1e-6},
                "Adam": {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6}}  # fmt: skip
    return defaults.get(op, {}) | attributes


@pytest.mark.parametrize(("op", "shapes", "attributes", "error"), [
    ("NegativeLogLikelihoodLoss", [(3, 5), (3,), (4,)], {}, TypeRuleError),
    ("NegativeLogLikelihoodLoss", [(3, 5), (2,)], {}, TypeRuleError),
    ("SoftmaxCrossEntropyLoss", [(3, 5), (3,)], {"reduction": "most"}, TypeRuleError),
    ("BatchNormalization", [(3, 5), (4,), (5,), (5,), (5,)], {"training_mode": 1}, TypeRuleError),
])  # fmt: skip
def test_what_does_not_fit_raises(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], error: type[AlpenglowError]
) -> None:
    feeds = {f"x{i}": drawn(*shape) for i, shape in enumerate(shapes)}
    if op != "BatchNormalization":
        feeds["x1"] = feeds["x1"].astype(np.int64)
    with pytest.raises(error):
        load(node_model(op, feeds, opset=15, **attributes))


def test_optimizers_want_all_parts_of_each_variable() -> None:
    feeds = {"r": np.float32(0.1), "t": np.array(1), "x": drawn(3), "g": drawn(3)}
    given = {k: np.asarray(a) for k, a in feeds.items()}
    with pytest.raises(ModelError, match="each variable"):
        load(optimizer_model("Adagrad", given, 2))
