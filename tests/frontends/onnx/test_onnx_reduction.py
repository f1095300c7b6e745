"""Reductions and running totals of ONNX, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from alpenglow.ir.graph import Graph
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMean
from onnx_node import Array, assert_close, node_model, ours, references, runtimes

PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
NORMS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")


def drawn(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Positive numbers, so that logarithms are defined."""
    return np.random.default_rng(0).uniform(0.5, 4, shape).astype(dtype)


@pytest.mark.parametrize("op", [*PLAIN, *NORMS])
@pytest.mark.parametrize(("axes", "keepdims"), [((1,), 1), ((0, -1), 0), (None, 1), (None, 0)])
@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_a_reduction_agrees_with_onnx_runtime(
    op: str, axes: tuple[int, ...] | None, keepdims: int, opset: int
) -> None:
    feeds = {"x": drawn((3, 5, 7))}
    operand = opset >= (13 if op == "ReduceSum" else 18)
    constants, attributes = {}, {"keepdims": keepdims}
    if axes is not None and operand:
        constants = {"axes": np.array(axes, np.int64)}
    elif axes is not None:
        attributes["axes"] = axes  # type: ignore[assignment]
    model = node_model(op, feeds, constants, opset=opset, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 2e-5)


@pytest.mark.parametrize("op", PLAIN)
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_a_reduction_keeps_the_element_type(op: str, dtype: str) -> None:
    feeds = {"x": drawn((3, 4), dtype)}
    model = node_model(op, feeds, {"axes": np.array([1])}, opset=18)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-12)


@pytest.mark.parametrize("op", [*PLAIN, *NORMS])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_accumulated_in_f32(op: str, dtype: str) -> None:
    x = drawn((2, 9)).astype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    axes = {"axes": np.array([1])}
    model = node_model(op, {"x": x}, axes, opset=18)
    wide = {"x": x.astype(np.float32)}
    expected = runtimes(node_model(op, wide, axes, opset=18), wide)[0].astype(x.dtype)

    assert_close([expected], ours(model, {"x": x}), 0.01)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceSumSquare"])
def test_squares_that_f16_cannot_hold_are_summed(op: str) -> None:
    x = np.array([[300.0, 400.0]], np.float16)
    model = node_model(op, {"x": x}, {"axes": np.array([1])}, opset=18)
    (y,) = ours(model, {"x": x})

    assert y.tolist() == [[500.0 if op == "ReduceL2" else np.inf]]


@pytest.mark.parametrize("op", [*PLAIN, *NORMS])
def test_a_reduction_of_nothing_is_its_neutral_element(op: str) -> None:
    feeds = {"x": np.zeros((2, 0, 3), np.float32)}
    model = node_model(op, feeds, {"axes": np.array([1])}, opset=20)
    neutral = {"ReduceMean": np.nan, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceProd": 1,
               "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf}.get(op, 0)  # fmt: skip

    assert_close([np.full((2, 1, 3), neutral, np.float32)], ours(model, feeds), 0)


def test_the_largest_of_no_integers_is_the_lowest() -> None:
    feeds = {"x": np.zeros((2, 0), np.int8)}
    model = node_model("ReduceMax", feeds, {"axes": np.array([1])}, opset=20)

    assert [y.tolist() for y in ours(model, feeds)] == [[[-128], [-128]]]


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_bool_is_compared_as_numbers(op: str) -> None:
    feeds = {"x": np.array([[True, False], [True, True], [False, False]])}
    model = node_model(op, feeds, {"axes": np.array([1])}, opset=20, keepdims=0)

    assert_close(references(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("axes", [None, np.zeros(0, np.int64)])
def test_noop_with_empty_axes_returns_the_input(axes: Array | None) -> None:
    feeds = {"x": drawn((2, 3))}
    constants = {} if axes is None else {"axes": axes}
    model = node_model("ReduceSum", feeds, constants, opset=13, noop_with_empty_axes=1)

    assert_close([feeds["x"]], ours(model, feeds), 0)


def test_infinities_pass_through_the_logarithm_of_exponentials() -> None:
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [-np.inf, 0], [1000, 1000]], np.float32)
    model = node_model("ReduceLogSumExp", {"x": x}, {"axes": np.array([1])}, opset=18, keepdims=0)
    expected = np.array([np.inf, -np.inf, 0, 1000 + np.log(2)], np.float32)

    assert_close([expected], ours(model, {"x": x}), 1e-6)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_a_nan_wins_every_comparison(op: str) -> None:
    x = np.array([[1, np.nan, 3]], np.float32)
    model = node_model(op, {"x": x}, {"axes": np.array([1])}, opset=18)

    assert np.isnan(ours(model, {"x": x})[0]).all()


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attributes", [
    {}, {"axis": 1, "keepdims": 0}, {"axis": -1, "select_last_index": 1},
    {"axis": 0, "select_last_index": 1, "keepdims": 0},
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
def test_the_place_of_an_extreme_agrees_with_onnx_runtime(
    op: str, attributes: dict[str, int], dtype: str
) -> None:
    # Few distinct values, so that there are ties.
    feeds = {"x": np.random.default_rng(1).integers(0, 3, (4, 5, 6)).astype(dtype)}
    model = node_model(op, feeds, opset=13, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(("axis", "shape"), [(0, (5,)), (1, (2, 3, 4)), (-1, (3, 1)), (0, (0, 2))])
def test_a_cumulative_sum_agrees_with_onnx_runtime(
    exclusive: int, reverse: int, axis: int, shape: tuple[int, ...]
) -> None:
    feeds = {"x": drawn(shape)}
    model = node_model("CumSum", feeds, {"axis": np.array(axis)}, opset=14,
                       exclusive=exclusive, reverse=reverse)  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-6)


def test_a_cumulative_product_agrees_with_the_reference() -> None:
    feeds = {"x": drawn((3, 4))}
    model = node_model("CumProd", feeds, {"axis": np.array(1)}, opset=26, exclusive=1)

    assert_close(references(model, feeds), ours(model, feeds), 1e-6)


@pytest.mark.parametrize(("op", "constants", "attributes", "error"), [
    ("ReduceSum", {"axes": np.array([3])}, {}, ModelError),
    ("ArgMax", {}, {"axis": 2}, ModelError),
    ("CumSum", {"axis": np.array([0, 1])}, {}, ModelError),
    ("CumSum", {"axis": np.array(-3)}, {}, ModelError),
])  # fmt: skip
def test_a_wrong_axis_is_the_models_mistake(
    op: str, constants: dict[str, Array], attributes: dict[str, Any], error: type[AlpenglowError]
) -> None:
    x = {"x": drawn((2, 3))}
    with pytest.raises(error, match=op):
        load(node_model(op, x, constants, opset=13, **attributes))


def test_axes_may_be_computed() -> None:
    x = drawn((2, 3))
    exe = ag.compile(node_model("ReduceSum", {"x": x, "axes": np.array([1])}, opset=13))
    for axis in (0, 1, -1):
        actual = exe(x, np.array([axis]))

        np.testing.assert_allclose(actual, x.sum(axis, keepdims=True), 1e-5)
    with pytest.raises(FeedError, match=r"axis is 2, .*node ReduceSum 'it'"):
        exe(x, np.array([2]))


def test_nothing_has_no_largest_place() -> None:
    feeds = {"x": np.zeros((2, 0), np.float32)}
    with pytest.raises(TypeRuleError, match="expected an element on axis"):
        load(node_model("ArgMax", feeds, opset=13, axis=1))


def test_a_blocked_tensor_is_averaged_over_its_spatial_axes_only() -> None:
    g = Graph()
    x = g.input("x", "f32[2,20/16,5,3,16]")
    y = g(ReduceMean((2, 3)), x)

    assert str(y.type) == "f32[2,20/16,1,1,16]"
    for op in (ReduceMean((1,)), ReduceMax((4,)), ReduceMean((2, 3), False)):
        with pytest.raises(TypeRuleError, match="in its layout"):
            g(op, x)


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (-1,), (2,)])
def test_axes_are_sorted_distinct_and_not_negative(axes: tuple[int, ...]) -> None:
    g = Graph()
    with pytest.raises(TypeRuleError, match="in order"):
        g(ReduceMax(axes), g.input("x", "f32[2,3]"))


def test_open_extents_are_reduced() -> None:
    g = Graph()

    assert str(g(ReduceMean((0, 2)), g.input("x", "f32[N,3,M]")).type) == "f32[1,3,1]"
