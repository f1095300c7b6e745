"""Pooling, Gemm, ConvTranspose and Einsum of ONNX, against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from onnx_node import Array, assert_close, node_model, ours, references, runtimes


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.asarray(np.random.default_rng(0).standard_normal(shape) * 3, dtype)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 17, 4), (2, 2, 2, 3, 4), (0, 3, 4, 4)])
def test_global_pooling_agrees_with_onnx_runtime(op: str, shape: tuple[int, ...]) -> None:
    feeds = {"x": drawn(*shape)}
    model = node_model(op, feeds, opset=11)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_norms_have_their_p(p: int) -> None:
    feeds = {"x": drawn(2, 3, 4, 5)}
    model = node_model("GlobalLpPool", feeds, opset=11, p=p)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


def test_global_average_of_f16_is_summed_in_f32() -> None:
    feeds = {"x": np.full((1, 1, 64, 64), 20, np.float16)}
    model = node_model("GlobalAveragePool", feeds, opset=11)

    assert_close([np.full((1, 1, 1, 1), 20, np.float16)], ours(model, feeds), 0)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 8), {"kernel_shape": [3, 2]}),
    ((1, 5, 9, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    ((1, 2, 8, 9), {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 8, 9), {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 8, 9), {"kernel_shape": [2, 3], "strides": [3, 2], "auto_pad": "VALID"}),
    ((2, 3, 11), {"kernel_shape": [4], "strides": [3]}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2]}),
    ((0, 2, 4, 5), {"kernel_shape": [2, 2]}),
]


@pytest.mark.parametrize(("shape", "attributes"), POOLS)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pooling_agrees_with_the_reference(
    shape: tuple[int, ...], attributes: dict[str, Any], p: int
) -> None:
    feeds = {"x": drawn(*shape)}
    model = node_model("LpPool", feeds, opset=18, p=p, **attributes)
    expected = runtimes(model, feeds)

    assert_close(expected, ours(model, feeds), 1e-4)


@pytest.mark.parametrize(("shape", "attributes"), POOLS)
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_max_pooling_tells_where_its_elements_were(
    shape: tuple[int, ...], attributes: dict[str, Any], storage_order: int, dtype: str
) -> None:
    feeds = {"x": np.random.default_rng(0).permutation(int(np.prod(shape)))
             .reshape(shape).astype(dtype)}  # fmt: skip
    model = node_model("MaxPool", feeds, opset=12, outputs=("y", "i"),
                       storage_order=storage_order, **attributes)  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


def test_the_first_of_equal_elements_is_where_the_largest_is() -> None:
    feeds = {"x": np.full((1, 2, 3, 3), -np.inf, np.float32)}
    model = node_model("MaxPool", feeds, opset=12, outputs=("", "i"), kernel_shape=[2, 2],
                       pads=[1, 1, 0, 0])  # fmt: skip
    (index,) = ours(model, feeds)

    assert index[0, 1].tolist() == [[9, 9, 10], [9, 9, 10], [12, 12, 13]]


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
@pytest.mark.parametrize("attributes", [
    {}, {"transA": 1}, {"transB": 1, "alpha": 0.5}, {"transA": 1, "transB": 1, "beta": 2.5},
    {"alpha": 3.0, "beta": 0.0},
])  # fmt: skip
@pytest.mark.parametrize("bias", [(3, 5), (5,), (3, 1), (1,), ()])
@pytest.mark.parametrize("constant", [True, False])
def test_gemm_agrees_with_onnx_runtime(
    opset: int, attributes: dict[str, Any], bias: tuple[int, ...], constant: bool
) -> None:
    a = drawn(4, 3) if "transA" in attributes else drawn(3, 4)
    b = drawn(5, 4) if "transB" in attributes else drawn(4, 5)
    feeds, constants = {"a": a}, {"b": b, "c": drawn(*bias)}
    if not constant:
        feeds, constants = feeds | constants, {}
    model = node_model("Gemm", feeds, constants, opset=opset, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_gemm_works_without_a_bias(dtype: str) -> None:
    feeds = {"a": drawn(3, 4, dtype=dtype), "b": drawn(4, 2, dtype=dtype)}
    model = node_model("Gemm", feeds, opset=13, alpha=2.0)

    assert_close(references(model, feeds), ours(model, feeds), 1e-10)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    ((2, 3, 4, 5), (3, 2, 3, 2), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
    ((1, 4, 3, 3), (4, 3, 3, 3), {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}),
    ((1, 6, 3, 3), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((1, 2, 3, 4), (2, 2, 2, 3), {"dilations": [2, 3], "strides": [1, 2]}),
    ((2, 4, 3, 4), (4, 2, 3, 2), {"dilations": [2, 3], "strides": [4, 2], "pads": [0, 3, 2, 0]}),
    ((1, 4, 1, 1), (4, 2, 1, 1), {"dilations": [3, 3], "strides": [3, 2], "group": 2,
                                  "pads": [1, 0, 0, 0], "output_padding": [2, 1]}),
    ((1, 2, 3, 2, 3), (2, 3, 2, 3, 2), {"strides": [3, 2, 4], "dilations": [2, 3, 6]}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "output_shape": [6, 9]}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [3, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 4), (2, 2, 3, 4), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 4), (2, 2, 2, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
    ((1, 2, 3, 4), (2, 2, 2, 2), {"pads": [2, 1, 1, 2]}),
    ((2, 3, 7), (3, 4, 4), {"strides": [3], "pads": [2, 1]}),
    ((1, 2, 3, 3, 2), (2, 3, 2, 3, 2), {"strides": [2, 1, 2], "output_padding": [1, 0, 0]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
@pytest.mark.parametrize("biased", [True, False])
def test_conv_transpose_agrees_with_onnx_runtime(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], biased: bool
) -> None:
    feeds, constants = {"x": drawn(*x)}, {"w": drawn(*w)}
    if biased:
        constants["b"] = drawn(w[1] * attributes.get("group", 1))
    model = node_model("ConvTranspose", feeds, constants, opset=11, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-4)


SPREAD = [
    (stride, dilation, kernel, pads, extra)
    for stride, dilation in itertools.product((1, 2, 3, 4, 6), (2, 3, 4, 6))
    for kernel, pads, extra in ((1, (0, 0), 0), (2, (1, 0), 1), (3, (2, 5), 0), (5, (0, 3), 1))
    if extra < stride and 2 * stride + (kernel - 1) * dilation + 1 + extra > sum(pads)
]


@pytest.mark.parametrize("place", range(0, len(SPREAD), 8))
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.sampled(2)
def test_dilated_conv_transpose_agrees_with_onnx_runtime(place: int, group: int) -> None:
    """Compare lines and planes, and the code for dynamic dimensions of one in eight."""
    for number in range(place, min(place + 8, len(SPREAD))):
        axes = [SPREAD[number], SPREAD[(7 * number + 3) % len(SPREAD)]]
        for spatial in (1, 2):
            strides, dilations, kernel, pads, extra = map(list, zip(*axes[:spatial], strict=True))
            attributes = {"strides": strides, "dilations": dilations, "output_padding": extra,
                          "pads": [p[end] for end in (0, 1) for p in pads], "group": group}
            feeds = {"x": drawn(1, 4, *(3, 5)[:spatial])}
            constants = {"w": drawn(4, 3, *kernel), "b": drawn(3 * group)}
            model = node_model("ConvTranspose", feeds, constants, opset=11, **attributes)
            expected = runtimes(model, feeds)
            graph = load(model)
            assert isinstance(graph, ag.Graph)
            assert_close(expected, [*evaluate(graph, feeds).values()], 1e-4)
            if number > place:
                continue
            for axis in range(spatial):
                model.graph.input[0].type.tensor_type.shape.dim[2 + axis].dim_param = f"n{axis}"
            assert_close(expected, [*ag.compile(model).run(feeds).values()], 1e-4)


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 5, 4), (2, 3, 7, 4)]),
    ("bqhd, bkhd -> bhqk", [(2, 5, 3, 4), (2, 7, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
    ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
    ("i,i->", [(5,), (5,)]),
    ("i,j->ij", [(5,), (3,)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("bij,bjk->bk", [(2, 3, 4), (2, 4, 5)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("iJ,Jk->kiJ", [(2, 3), (3, 4)]),
    ("ij,j->i", [(3, 0), (0,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_agrees_with_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    feeds = {f"x{i}": drawn(*shape) for i, shape in enumerate(shapes)}
    model = node_model("Einsum", feeds, opset=12, equation=equation)
    expected = np.asarray(np.einsum(equation, *feeds.values()))

    assert_close([expected], ours(model, feeds), 1e-4)


@pytest.mark.parametrize(("op", "shapes", "attributes", "error"), [
    ("Gemm", [(2, 3), (4, 5)], {}, TypeRuleError),
    ("Gemm", [(2, 3, 4), (4, 5)], {}, ModelError),
    ("Gemm", [(2, 3), (3, 5), (4,)], {}, TypeRuleError),
    ("ConvTranspose", [(1, 3, 4), (2, 3, 3)], {}, TypeRuleError),
    ("ConvTranspose", [(1, 3, 4), (3, 3, 3)], {"strides": [1, 1]}, TypeRuleError),
    ("ConvTranspose", [(1, 3, 4), (3, 3, 3)], {"pads": [4, 4]}, TypeRuleError),
    ("ConvTranspose", [(1, 3, 4), (3, 3, 3)], {"group": 2}, TypeRuleError),
    ("ConvTranspose", [(1, 3, 4), (3, 3, 3)], {"auto_pad": "SAME"}, ModelError),
    ("Einsum", [(2, 3), (4, 5)], {"equation": "ij,jk->ik"}, TypeRuleError),
    ("Einsum", [(2, 3)], {"equation": "ij,jk->ik"}, ModelError),
    ("Einsum", [(2, 3)], {"equation": "ij->k"}, TypeRuleError),
    ("Einsum", [(2, 3)], {"equation": "ijk->k"}, ModelError),
    ("Einsum", [(2, 3)], {"equation": "ii->i"}, TypeRuleError),
    ("Einsum", [(2, 3)], {"equation": "i;->i"}, TypeRuleError),
    ("LpPool", [(1, 3, 4)], {}, ModelError),
    ("LpPool", [(1, 3, 4)], {"kernel_shape": [5]}, TypeRuleError),
    ("MaxPool", [(1, 3, 4)], {"kernel_shape": [2, 2]}, ModelError),
    ("GlobalMaxPool", [(3,)], {}, ModelError),
])  # fmt: skip
def test_what_does_not_fit_raises(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], error: type[AlpenglowError]
) -> None:
    feeds = {f"x{i}": drawn(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(error):
        load(node_model(op, feeds, opset=18, **attributes))


def test_a_fraction_does_not_scale_integers() -> None:
    feeds = {"a": drawn(2, 3, dtype="int32"), "b": drawn(3, 2, dtype="int32")}
    with pytest.raises(UnsupportedError, match=r"is 0\.5, expected a value of i32"):
        load(node_model("Gemm", feeds, opset=13, alpha=0.5))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "strides"), [("MaxPool", [1, 1]), ("AveragePool", [2, 3])])
def test_open_extents_are_padded_once_they_are_known(
    op: str, mode: str, strides: list[int]
) -> None:
    x = drawn(1, 2, 9, 8)
    model = node_model(op, {"x": x}, opset=12, kernel_shape=[3, 3], strides=strides, auto_pad=mode)
    expected = runtimes(model, {"x": x})
    for i in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[i].dim_param = f"d{i}"

    assert_close(expected, [ag.compile(model, threads=1)(x)], 1e-5)


def test_global_norms_take_open_extents() -> None:
    x = drawn(2, 3, 4, 5)
    model = node_model("GlobalLpPool", {"x": x}, opset=11, p=3)
    expected = runtimes(model, {"x": x})
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "W"

    assert_close(expected, [ag.compile(model, threads=1)(x)], 1e-4)
