"""Quantization in ONNX, and operators on quantized tensors, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from onnx_node import Array, check, ours, single
from peer_bytes import spared

MICROSOFT = "com.microsoft"
BYTES = ["u1", "i1"]


def draw(shape: tuple[int, ...], dtype: str = "f4", scale: float = 50) -> Array:
    rng = np.random.default_rng(sum(shape) + len(shape))
    values = np.asarray(rng.standard_normal(shape) * scale)
    if dtype[0] == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    middle = (limits.max + limits.min + 1) // 2
    return np.clip(values + middle, limits.min, limits.max).astype(dtype)


def scales(*shape: int) -> Array:
    return np.random.default_rng(7).uniform(0.02, 0.9, shape).astype(np.float32)


HALVES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 300, -300, 3e9, -3e9, np.inf, -np.inf], "f4")


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_quantize_rounds_to_even_and_saturates(dtype: str) -> None:
    opset = 21 if dtype[1] == "2" else 13
    for zero in (0, 5):
        check("QuantizeLinear", HALVES, np.float32(1), np.array(zero, dtype), opset=opset)
        check("QuantizeLinear", HALVES, np.float32(2), np.array(zero, dtype), opset=opset)
    for shape in ((), (0, 3), (17,), (3, 5, 2)):
        zero_point = draw((), dtype, 3)
        check("QuantizeLinear", draw(shape), np.float32(0.3), zero_point, opset=opset)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_quantize_without_zero_point_makes_u8(opset: int) -> None:
    check("QuantizeLinear", draw((3, 5)), np.float32(0.25), opset=opset)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_dequantize_in_every_opset(opset: int) -> None:
    for dtype in ("u1", "i1"):
        zero = draw((), dtype, 3)
        check("DequantizeLinear", draw((3, 5), dtype), np.float32(0.25), zero, opset=opset)
        check("DequantizeLinear", draw((3, 5), dtype), np.float32(0.25), opset=opset)
    numbers = np.array([0, -5, 1 << 30, -(1 << 31)], np.int32)
    check("DequantizeLinear", numbers, np.float32(0.25), opset=opset)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_scale_along_an_axis(axis: int) -> None:
    x, count = draw((3, 4, 5)), (3, 4, 5)[axis]
    for dtype in BYTES:
        zero = draw((count,), dtype, 3)
        check("QuantizeLinear", x, scales(count), zero, opset=13, axis=axis)
        check("DequantizeLinear", draw((3, 4, 5), dtype), scales(count), zero, opset=13, axis=axis)


@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [((4, 6), 1, 2), ((4, 7), 1, 3), ((4, 6), 0, 4), ((2, 5, 3), -2, 2)],
)
def test_scale_for_blocks(shape: tuple[int, ...], axis: int, block: int) -> None:
    groups = list(shape)
    groups[axis] = -(-groups[axis] // block)
    for dtype in ("u1", "i1", "i2"):
        zero = draw(tuple(groups), dtype, 3)
        x, q = draw(shape), draw(shape, dtype)
        check("QuantizeLinear", x, scales(*groups), zero, axis=axis, block_size=block)
        check("DequantizeLinear", q, scales(*groups), zero, axis=axis, block_size=block)


def test_quantize_of_other_types() -> None:
    x, scale = draw((3, 5), "f2"), np.float16(0.25)
    check("QuantizeLinear", x, np.array(scale), np.array(3, "u1"))
    check("DequantizeLinear", draw((3, 5), "u1"), np.array(scale), np.array(3, "u1"), rtol=1e-3)
    parts = [x.astype("i4"), np.array(0.25, "f4"), np.array(3, "i1")]
    (actual,) = ours(single("QuantizeLinear", parts, 13), parts)

    np.testing.assert_array_equal(actual, np.clip(np.rint(parts[0] / 0.25) + 3, -128, 127))
    model = single("QuantizeLinear", [x, np.array(scale)], 21, output_dtype=TensorProto.INT8)

    assert ours(model, [x, np.array(scale)])[0].dtype == np.int8


def test_quantize_of_onnx_runtime() -> None:
    x, scale = draw((3, 5)), np.float32(0.25)
    check("QuantizeLinear", x, scale, np.array(3, "u2"), domain=MICROSOFT)
    check("DequantizeLinear", draw((3, 5), "i2"), scale, np.array(3, "i2"), domain=MICROSOFT)


@pytest.mark.parametrize("values", [[0, 2, -3, -2.5, 1.34, 0.5], [1, 2.5, 4], [-3, -1], [0, 0]])
def test_dynamic_quantize(values: list[float]) -> None:
    check("DynamicQuantizeLinear", np.array(values, "f4"), opset=11, outputs=3)
    check("DynamicQuantizeLinear", draw((3, 5, 2)), opset=11, outputs=3)


@pytest.mark.parametrize(("x", "y"), [("u1", "u1"), ("u1", "i1"), ("i1", "i1")])
def test_integer_matrix_product(x: str, y: str) -> None:
    a, b = draw((4, 7), x), draw((7, 5), y)
    check("MatMulInteger", a, b, opset=10)
    check("MatMulInteger", a, b, draw((), x, 3), draw((), y, 3), opset=10)
    check("MatMulInteger", a, b, draw((), x, 3), draw((5,), y, 3), opset=10)
    check("MatMulInteger", draw((2, 3, 7), x), b, draw((1,), x, 3), opset=10)


def test_integer_matrix_product_by_the_reference() -> None:
    a, b = draw((2, 3, 4), "i1"), draw((4, 5), "u1")
    for zeros in ((), (draw((3, 1), "i1", 3), draw((5,), "u1", 3))):
        inputs = [a, b, *zeros]
        model = single("MatMulInteger", inputs, 10)
        (actual,) = ours(model, inputs)

        expected = ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(inputs)})
        np.testing.assert_array_equal(actual, expected[0])


def test_integer_matrix_product_of_vectors() -> None:
    for a, b in (((4,), (4, 3)), ((3, 4), (4,)), ((4,), (4,))):
        x, y = draw(a, "u1"), draw(b, "i1")
        inputs = [x, y, np.array(3, "u1"), np.array(-2, "i1")]
        (actual,) = ours(single("MatMulInteger", inputs, 10), inputs)

        expected = np.matmul(x.astype("i4") - 3, y.astype("i4") + 2)
        np.testing.assert_array_equal(actual, expected)


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"pads": [1, 0, 1, 2]},
    {"strides": [2, 1], "pads": [1, 1, 1, 1]},
    {"dilations": [2, 1]},
    {"auto_pad": "SAME_UPPER"},
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
def test_integer_convolution(attributes: dict[str, Any]) -> None:
    x, w = draw((2, 4, 7, 6), "u1"), draw((6, 4, 3, 3), "u1")
    check("ConvInteger", x, w, opset=10, **attributes)
    check("ConvInteger", x, w, np.array(100, "u1"), np.array(90, "u1"), opset=10, **attributes)
    grouped = draw((6, 2, 3, 3), "u1")
    check("ConvInteger", x, grouped, np.array(100, "u1"), opset=10, group=2, **attributes)


@pytest.mark.parametrize("attributes", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_convolution(attributes: dict[str, Any], dtype: str) -> None:
    x, zero, one = draw((2, 4, 7, 6), dtype), draw((), dtype, 3), draw((1,), dtype, 3)
    bias = draw((6,), "i4")
    for filters in ((), (6,)):
        parameters = (np.float32(0.05), zero, spared(draw((6, 4, 3, 3), "i1")), scales(*filters),
                      np.zeros(filters, "i1"), np.float32(6), one[0:1].reshape(()))  # fmt: skip
        check("QLinearConv", x, *parameters, opset=10, constants=[1, 2, 3, 4, 5, 6, 7],
              **attributes)  # fmt: skip
        check("QLinearConv", x, *parameters, bias, opset=10, constants=[1, 2, 3, 4, 5, 6, 7, 8],
              **attributes)  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_matrix_product(dtype: str) -> None:
    zero = draw((), dtype, 3)
    for a, b, filters in (((3, 7), (7, 5), ()), ((2, 3, 7), (7, 5), (5,)), ((3, 7), (7, 5), (5,))):
        check("QLinearMatMul", draw(a, dtype), np.float32(0.05), zero, draw(b, dtype),
              scales(*filters), draw(filters, dtype, 3), np.float32(3), zero, opset=10,
              constants=[1, 2, 3, 4, 5, 6, 7])  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
def test_elementwise_operators_of_onnx_runtime(dtype: str) -> None:
    first = (draw((2, 3, 5), dtype), np.float32(0.1), np.array(7, dtype))
    second = (draw((3, 1), dtype), np.float32(0.2), np.array(9, dtype))
    for op, scale in (("QLinearAdd", 0.25), ("QLinearMul", 1.5)):
        result = (np.float32(scale), np.array(11, dtype))
        check(op, *first, *second, *result, domain=MICROSOFT, constants=[1, 2, 4, 5, 6, 7], atol=1)
    result = (np.float32(1 / 256), np.array(0, dtype))
    check("QLinearSigmoid", *first, *result, domain=MICROSOFT, constants=[1, 2, 3, 4])
    result = (np.float32(0.1), np.array(5, dtype))
    check("QLinearLeakyRelu", *first, *result, domain=MICROSOFT, constants=[1, 2, 3, 4], alpha=0.2)


@pytest.mark.parametrize("dtype", BYTES)
def test_concat_and_pooling_of_onnx_runtime(dtype: str) -> None:
    a = (draw((2, 3), dtype), np.float32(0.1), np.array(7, dtype))
    b = (draw((2, 5), dtype), np.float32(0.2), np.array(9, dtype))
    result = (np.float32(0.15), np.array(8, dtype))
    check("QLinearConcat", *result, *a, *b, domain=MICROSOFT, constants=[0, 1, 3, 4, 6, 7], axis=1)
    x = (draw((2, 3, 5, 4), dtype), np.float32(0.1), np.array(7, dtype))
    for last in (0, 1):
        check("QLinearGlobalAveragePool", *x, *result, domain=MICROSOFT, constants=[1, 2, 3, 4],
              channels_last=last)  # fmt: skip


X, ONE = np.ones((2, 3), "f4"), np.float32(1)


@pytest.mark.parametrize(
    ("inputs", "attributes", "error"),
    [
        ([X, np.ones(4, "f4")], {}, TypeRuleError),
        ([X, np.ones(3, "f4")], {"axis": 2}, ModelError),
        ([X, np.ones((2, 3), "f4")], {}, ModelError),
        ([X, np.ones(3, "f4"), np.array(0, "u1")], {}, ModelError),
        ([X, np.ones((2, 3), "f4")], {"block_size": 2}, ModelError),
        ([X, ONE, np.array(0, "u1")], {"output_dtype": TensorProto.INT8}, ModelError),
        ([X, ONE, np.array(0, "i4")], {}, TypeRuleError),
        ([X.astype("f8"), ONE], {}, TypeRuleError),
        ([X, np.array(1)], {}, TypeRuleError),
        ([X], {}, ModelError),
    ],
)
def test_wrong_quantisation_is_refused(
    inputs: list[Array], attributes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="node QuantizeLinear 'it'"):
        load(single("QuantizeLinear", inputs, 21, **attributes))
