"""Quantized ONNX models of several nodes, as exporters write them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import alpenglow as ag
from alpenglow.frontends.onnx import load
from peer_bytes import spared

Array = NDArray[Any]

KINDS = {"u1": np.uint8, "i1": np.int8}


class Model:
    """Nodes, appended one by one, and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(2)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node; return its output, or the common start of the names of several."""
        name = f"v{len(self.nodes)}"
        made = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, made, **attributes))
        return name

    def there_and_back(self, x: str, scale: float, zero: int, kind: str) -> str:
        grid = self.constant(np.float32(scale)), self.constant(np.array(zero, KINDS[kind]))
        return self("DequantizeLinear", self("QuantizeLinear", x, *grid), *grid)

    def weight(self, *shape: int) -> tuple[str, Array]:
        """Return weights that are dequantized with a scale for each row, and the scales."""
        q = spared(self.rng.integers(-127, 128, shape).astype(np.int8))
        scales = self.rng.uniform(0.002, 0.01, shape[0]).astype(np.float32)
        zero = self.constant(np.zeros(shape[0], np.int8))
        made = self("DequantizeLinear", self.constant(q), self.constant(scales), zero, axis=0)
        return made, scales

    def bias(self, x_scale: float, scales: Array) -> str:
        q = self.rng.integers(-500, 500, len(scales)).astype(np.int32)
        scale = self.constant(np.float32(x_scale) * scales)
        zero = self.constant(np.zeros(len(scales), np.int32))
        return self("DequantizeLinear", self.constant(q), scale, zero, axis=0)

    def made(self, y: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
        outputs = [helper.make_empty_tensor_value_info(y)]
        graph = helper.make_graph(self.nodes, "quantized", [x], outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(model: onnx.ModelProto, shape: tuple[int, ...], step: float) -> None:
    """Assert that compiled code answers like ONNX Runtime, up to a step."""
    x = np.random.default_rng(9).normal(0, 1, shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, {"x": x})
    (actual,) = ag.compile(load(model), threads=1).run({"x": x}).values()

    assert np.abs(actual - expected).max() <= step * 1.001
    assert (np.abs(actual - expected) > step / 2).mean() < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_convolutions_with_a_residual_sum(kind: str) -> None:
    m, zero = Model(), 128 if kind == "u1" else 0
    low = zero - 128
    x = m.there_and_back("x", 0.03, zero, kind)
    w, scales = m.weight(16, 4, 3, 3)
    y = m("Relu", m("Conv", x, w, m.bias(0.03, scales), pads=[1, 1, 1, 1]))
    y = m.there_and_back(y, 0.0097, low, kind)
    y = m("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = m.there_and_back(y, 0.0097, low, kind)
    w, scales = m.weight(16, 1, 3, 3)
    z = m("Conv", y, w, m.bias(0.0097, scales), pads=[1, 1, 1, 1], group=16)
    z = m.there_and_back(z, 0.0123, zero, kind)
    # Scales with small quotients would put many sums in the middle between two steps.
    y = m.there_and_back(m("Add", y, z), 0.0211, zero, kind)

    check(m.made(y, (1, 4, 8, 8)), (1, 4, 8, 8), 0.0211)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_by_turned_weights(kind: str) -> None:
    m, zero = Model(), 128 if kind == "u1" else 0
    x = m.there_and_back("x", 0.03, zero, kind)
    w, scales = m.weight(7, 33)
    y = m("Gemm", x, w, m.bias(0.03, scales), transB=1)

    check(m.made(m.there_and_back(y, 0.05, zero, kind), (5, 33)), (5, 33), 0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_whose_range_is_measured(kind: str) -> None:
    m = Model()
    made = m("DynamicQuantizeLinear", "x", outputs=3)
    w = spared(m.rng.integers(0, 100, (33, 7)).astype(KINDS[kind]))
    zero = m.constant(np.array(50, KINDS[kind]))
    sums = m("MatMulInteger", f"{made}.0", m.constant(w), f"{made}.2", zero)
    scale = m("Mul", f"{made}.1", m.constant(np.float32(0.01)))
    y = m("Mul", m("Cast", sums, to=onnx.TensorProto.FLOAT), scale)
    y = m("Add", y, m.constant(m.rng.normal(0, 1, 7).astype(np.float32)))

    # A byte of x that is rounded the other way moves a sum by at most 50 of its steps.
    check(m.made(y, (5, 33)), (5, 33), 50 * 0.01 * 6 / 255)
