"""Softmax and normalisation operators of ONNX, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from onnx_node import Array, assert_close, node_model, ours, references, runtimes

SHARES = ("Softmax", "LogSoftmax", "Hardmax")
NEW = {"LayerNormalization": 17, "GroupNormalization": 21, "RMSNormalization": 23}


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.asarray(np.random.default_rng(0).standard_normal(shape) * 3, dtype)


def positive(*shape: int) -> Array:
    return np.random.default_rng(1).uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("op", SHARES)
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": 2}])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 17, 3)])
def test_shares_agree_with_onnx_runtime(
    op: str, opset: int, attributes: dict[str, int], shape: tuple[int, ...]
) -> None:
    feeds = {"x": drawn(*shape)}
    model = node_model(op, feeds, opset=opset, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("op", SHARES)
@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_shares_of_nothing_are_nothing(op: str, shape: tuple[int, ...]) -> None:
    feeds = {"x": drawn(*shape)}

    assert_close([feeds["x"]], ours(node_model(op, feeds, opset=13), feeds), 0)


@pytest.mark.parametrize("op", SHARES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_shares_come_in_every_float(op: str, dtype: str) -> None:
    x = drawn(3, 9).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    wide = {"x": x.astype(np.float64)}
    expected = references(node_model(op, wide, opset=13), wide)[0].astype(x.dtype)

    assert_close([expected], ours(node_model(op, {"x": x}, opset=13), {"x": x}), 0.01)


def test_large_numbers_do_not_overflow_softmax() -> None:
    x = np.array([[1e38, 1e38, -1e38], [-np.inf, 0, 0]], np.float32)
    y = ours(node_model("Softmax", {"x": x}, opset=13), {"x": x})

    assert_close([np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]], np.float32)], y, 0)


def test_hardmax_marks_the_first_of_equals() -> None:
    x = np.array([[1, 3, 3], [2, 2, 2]], np.float32)
    y = ours(node_model("Hardmax", {"x": x}, opset=13), {"x": x})

    assert [a.tolist() for a in y] == [[[0, 1, 0], [1, 0, 0]]]


@pytest.mark.parametrize(("axis", "inner"), [(-1, (7,)), (1, (5, 7)), (2, (7,)), (0, (3, 5, 7))])
@pytest.mark.parametrize("outputs", [("y",), ("y", "mean", "deviation"), ("y", "", "deviation")])
@pytest.mark.parametrize("biased", [True, False])
def test_layer_normalization_agrees_with_onnx_runtime(
    axis: int, inner: tuple[int, ...], outputs: tuple[str, ...], biased: bool
) -> None:
    feeds = {"x": drawn(3, 5, 7), "scale": positive(*inner)}
    if biased:
        feeds["bias"] = drawn(*inner)
    model = node_model("LayerNormalization", feeds, opset=17, axis=axis, outputs=outputs)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


def test_layer_normalization_stretches_its_scale() -> None:
    feeds = {"x": drawn(3, 5, 7), "scale": positive(3, 1, 7), "bias": drawn(1)}
    model = node_model("LayerNormalization", feeds, opset=17, axis=1)

    assert_close(references(model, feeds), ours(model, feeds), 1e-4)


def test_rms_normalization_agrees_with_the_reference() -> None:
    feeds = {"x": drawn(3, 5, 7), "scale": positive(7)}
    model = node_model("RMSNormalization", feeds, opset=23, axis=-1, epsilon=0.01)

    assert_close(references(model, feeds), ours(model, feeds), 1e-4)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 5), (2, 5, 3), (2, 5, 2, 3, 2)])
def test_batch_normalization_agrees_with_onnx_runtime(opset: int, shape: tuple[int, ...]) -> None:
    feeds = {"x": drawn(*shape)}
    constants = {"scale": positive(5), "b": drawn(5), "mean": drawn(5), "var": positive(5)}
    model = node_model("BatchNormalization", feeds, constants, opset=opset, epsilon=0.01)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


def test_one_axis_is_one_channel() -> None:
    feeds = {"x": drawn(7)}
    constants = {"scale": positive(1), "b": drawn(1), "mean": drawn(1), "var": positive(1)}
    model = node_model("BatchNormalization", feeds, constants, opset=15, epsilon=0.0)
    expected = (feeds["x"] - constants["mean"]) / np.sqrt(constants["var"])

    assert_close([expected * constants["scale"] + constants["b"]], ours(model, feeds), 1e-5)


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (1, 6, 17), (0, 6, 3)])
@pytest.mark.parametrize(("op", "opset", "attributes", "channels"), [
    ("InstanceNormalization", 7, {}, 6),
    ("InstanceNormalization", 22, {"epsilon": 0.1}, 6),
    ("GroupNormalization", 18, {"num_groups": 2}, 2),
    ("GroupNormalization", 21, {"num_groups": 3, "epsilon": 0.1}, 6),
])  # fmt: skip
def test_channels_are_normalised_as_in_the_reference(
    op: str, opset: int, attributes: dict[str, Any], channels: int, shape: tuple[int, ...]
) -> None:
    feeds = {"x": drawn(*shape)}
    constants = {"scale": positive(channels), "bias": drawn(channels)}
    model = node_model(op, feeds, constants, opset=opset, **attributes)
    expected = references(model, feeds) if shape[0] else [feeds["x"]]

    assert_close(expected, ours(model, feeds), 1e-4)


@pytest.mark.parametrize(("op", "opset", "attributes"), [
    ("MeanVarianceNormalization", 9, {}),
    ("MeanVarianceNormalization", 13, {"axes": [0, -1]}),
    ("LRN", 7, {"size": 3}),
    ("LRN", 13, {"size": 5, "alpha": 0.3, "beta": 0.5, "bias": 2.0}),
    ("LpNormalization", 7, {"p": 1}),
    ("LpNormalization", 7, {"p": 2, "axis": 1}),
])  # fmt: skip
def test_other_normalisations_agree_with_onnx_runtime(
    op: str, opset: int, attributes: dict[str, Any]
) -> None:
    feeds = {"x": drawn(2, 7, 3, 5)}
    model = node_model(op, feeds, opset=opset, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


def test_an_even_response_window_reaches_one_further_behind() -> None:
    feeds = {"x": drawn(1, 7, 2, 2)}
    model = node_model("LRN", feeds, opset=13, size=4, alpha=0.5)
    squares = np.pad(feeds["x"] ** 2, [(0, 0), (1, 2), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + 7] for i in range(4))

    assert_close([feeds["x"] / (1 + 0.5 / 4 * total) ** 0.75], ours(model, feeds), 1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_nothing_but_zeros_stays_zero(p: int) -> None:
    feeds = {"x": np.zeros((2, 3), np.float32)}
    model = node_model("LpNormalization", feeds, opset=22, p=p)

    assert_close([feeds["x"]], ours(model, feeds), 0)


@pytest.mark.parametrize(("op", "shapes", "attributes", "error"), [
    ("Softmax", [(2, 3)], {"axis": 2}, ModelError),
    ("LayerNormalization", [(2, 3), (4,)], {}, TypeRuleError),
    ("LpNormalization", [(2, 3)], {"p": 3}, TypeRuleError),
    ("LRN", [(2, 3, 4, 4)], {}, ModelError),
    ("GroupNormalization", [(2, 5, 4), (5,), (5,)], {"num_groups": 2}, TypeRuleError),
    ("GroupNormalization", [(2, 5, 4), (5,), (5,)], {}, ModelError),
    ("InstanceNormalization", [(2, 5, 4), (4,), (5,)], {}, TypeRuleError),
    ("RMSNormalization", [(2, 5), (4,)], {}, TypeRuleError),
    ("BatchNormalization", [(2, 5, 4), (4,), (5,), (5,), (5,)], {}, TypeRuleError),
])  # fmt: skip
def test_what_does_not_fit_raises(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], error: type[AlpenglowError]
) -> None:
    feeds = {f"x{i}": positive(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(error):
        load(node_model(op, feeds, opset=NEW.get(op, 15), **attributes))
