"""Gathering, scattering and selecting in ONNX, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import apply, evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.dims import symbol
from alpenglow.ops.tensor.gather import Gather, GatherElements, GatherNd, OneHot, ScatterNd
from alpenglow.ops.tensor.order import TopK
from onnx_node import Array, assert_close, node_model, ours, references, runtimes


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(0).uniform(-9, 9, shape).astype(dtype)


def indices(below: int, *shape: int, dtype: str = "int64") -> Array:
    return np.random.default_rng(1).integers(-below, below, shape, dtype)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather_agrees(opset: int, axis: int, shape: tuple[int, ...], dtype: str) -> None:
    x = drawn(2, 5, 3)
    at = indices(x.shape[axis], *shape, dtype=dtype)
    feeds = {"x": x, "i": np.asarray(at % x.shape[axis]) if opset < 11 else at}
    model = node_model("Gather", feeds, opset=opset, axis=axis)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 3)), (1, (2, 7)), (-1, (1, 1)), (1, (2, 0))])
def test_gather_elements_agrees(axis: int, shape: tuple[int, int]) -> None:
    feeds = {"x": drawn(2, 3), "i": indices(2 if axis == 0 else 3, *shape)}
    model = node_model("GatherElements", feeds, opset=13, axis=axis)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize(
    ("shape", "batch_dims", "opset"),
    [((4, 3), 0, 11), ((2, 1), 0, 12), ((2, 4, 2), 1, 12), ((2, 3, 1), 2, 13), ((0, 2), 0, 13)],
)
def test_gather_nd_agrees(shape: tuple[int, ...], batch_dims: int, opset: int) -> None:
    feeds = {"x": drawn(2, 3, 4), "i": indices(2, *shape)}
    attributes = {"batch_dims": batch_dims} if opset > 11 else {}
    model = node_model("GatherND", feeds, opset=opset, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize(
    ("op", "opset"), [("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 13)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_agrees(op: str, opset: int, axis: int) -> None:
    at = np.array([[0, 2, 1], [1, 0, 2]]) if axis else np.array([[0, 2, 1], [3, 0, 2]])
    feeds = {"x": drawn(4, 5), "i": at, "u": drawn(2, 3)}
    model = node_model(op, feeds, opset=opset, axis=axis)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_scatter_reductions_agree(reduction: str, dtype: str) -> None:
    x, updates = drawn(4, 3, dtype=dtype), drawn(5, 3, dtype=dtype)
    elements = {"x": x, "i": indices(4, 5, 3), "u": updates}
    slices = {"x": x, "i": indices(4, 5, 1), "u": updates}
    peer = references if dtype == "float16" else runtimes
    by_element = node_model("ScatterElements", elements, opset=18, axis=0, reduction=reduction)
    by_slice = node_model("ScatterND", slices, opset=18, reduction=reduction)
    tolerance = 0.1 if dtype == "float16" else 1e-6  # the peer rounds after every update

    assert_close(peer(by_element, elements), ours(by_element, elements), tolerance)
    assert_close(peer(by_slice, slices), ours(by_slice, slices), tolerance)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd_agrees(depth: int) -> None:
    x = drawn(3, 4, 5)
    at = np.array([[0, 1, 2], [2, 3, 4]])[:, :depth]
    feeds = {"x": x, "i": at, "u": drawn(2, *x.shape[depth:])}
    model = node_model("ScatterND", feeds, opset=13)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 4)])
@pytest.mark.parametrize("count", [1, 2])
def test_scatter_nd_is_compiled_with_the_check_of_its_indices(
    count: int, shape: tuple[int, ...]
) -> None:
    feeds = {"x": drawn(*shape), "i": np.array([[2], [0]])[:count], "u": drawn(count, *shape[1:])}
    model = node_model("ScatterND", feeds, opset=13)
    found = list(ag.compile(model).run(feeds).values())

    assert_close(runtimes(model, feeds), found, 0)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["int64", "float32", "int32"])
def test_one_hot_agrees(axis: int, dtype: str) -> None:
    feeds = {"i": np.array([[0, 4, -1], [-5, 5, 2]], dtype)}
    constants = {"depth": np.array(5), "values": np.array([-1, 3], np.float32)}
    model = node_model("OneHot", feeds, constants, opset=11, axis=axis)

    assert_close(references(model, feeds), ours(model, feeds), 0)


def test_one_hot_takes_a_depth_of_any_type() -> None:
    feeds = {"i": np.array([0, 2], np.int64)}
    constants = {"depth": np.array(3, np.float32), "values": np.array([0, 1], np.int64)}
    model = node_model("OneHot", feeds, constants, opset=11)

    assert_close(references(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_top_k_agrees_and_takes_the_lower_of_equals(largest: int, axis: int, dtype: str) -> None:
    feeds = {"x": np.random.default_rng(0).integers(0, 4, (5, 6, 7)).astype(dtype)}
    k = {"k": np.array([4], np.int64)}
    names = ("values", "indices")
    model = node_model("TopK", feeds, k, opset=11, outputs=names, axis=axis, largest=largest)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize(("opset", "attribute"), [(9, True), (10, False)])
def test_old_forms_of_top_k_agree(opset: int, attribute: bool) -> None:
    feeds = {"x": drawn(3, 7)}
    constants = {} if attribute else {"k": np.array([7], np.int64)}
    attributes: dict[str, Any] = {"k": 7} if attribute else {}
    model = node_model("TopK", feeds, constants, opset=opset, outputs=("v", "i"), **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


def test_nan_is_the_largest_of_all() -> None:
    x = np.array([1, np.nan, 2, np.inf], np.float32)

    assert apply(TopK(0, 4), [x])[1].tolist() == [1, 3, 2, 0]
    assert apply(TopK(0, 4, False), [x])[1].tolist() == [0, 2, 3, 1]


def test_an_index_out_of_range_is_clamped() -> None:
    x, far = np.arange(4, dtype=np.float32), np.array([-9, -4, 3, 9])

    assert apply(Gather(0), [x, far])[0].tolist() == [0, 0, 3, 3]
    assert apply(GatherElements(0), [x, far])[0].tolist() == [0, 0, 3, 3]
    assert apply(GatherNd(), [x, far[:, None]])[0].tolist() == [0, 0, 3, 3]
    ones = np.ones(4, np.float32)
    assert apply(ScatterNd("add"), [0 * x, far[:, None], ones])[0].tolist() == [2, 0, 0, 2]


def test_indices_of_eight_bits_reach_past_a_larger_depth() -> None:
    at = np.array([-1, 127], np.int8)

    hot = apply(OneHot(200, 1), [at, np.array([0, 1])])[0]

    assert hot.argmax(axis=1).tolist() == [199, 127]


def test_a_gather_from_a_shape_is_folded_into_the_extent() -> None:
    feeds = {"x": drawn(2, 5), "i": indices(5, 2, 3)}
    model = node_model("GatherElements", feeds, opset=13, axis=1)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "N"
    g = load(model)

    assert g.outputs["y"].type.shape == (symbol("N"), 3)
    np.testing.assert_array_equal(
        evaluate(g.bind({"N": 2}), feeds)["y"], np.take_along_axis(feeds["x"], feeds["i"], 1)
    )


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("Gather", [drawn(2, 3), indices(2, 2)], {"axis": 2}, "axis"),
        ("Gather", [drawn(0, 3), indices(2, 2)], {}, "expected an element on axis"),
        ("GatherElements", [drawn(2, 3), indices(2, 5, 5)], {}, "expected at most 3 on axis 1"),
        ("GatherND", [drawn(2), indices(2, 2, 3)], {}, "last axis"),
        ("ScatterElements", [drawn(3), indices(3, 2), drawn(3)], {}, "updates"),
        ("ScatterND", [drawn(3, 2), indices(3, 1, 1), drawn(1)], {}, "updates"),
        ("ScatterND", [drawn(3), indices(3, 1, 1), drawn(1)], {"reduction": "xor"}, "xor"),
    ],
)
def test_operands_that_do_not_fit_are_reported(
    op: str, operands: list[Array], attributes: dict[str, Any], message: str
) -> None:
    feeds = {f"x{i}": a for i, a in enumerate(operands)}
    model = node_model(op, feeds, opset=18, **attributes)

    with pytest.raises(AlpenglowError, match=message):
        load(model)
