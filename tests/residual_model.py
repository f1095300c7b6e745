"""A small model of what quantization meets: convolutions, a residual sum, a pooling, and a Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NODES = [
    helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Conv", ["p", "v"], ["d"]),
    helper.make_node("Add", ["d", "p"], ["e"]),
    helper.make_node("Flatten", ["e"], ["f"]),
    helper.make_node("Gemm", ["f", "u", "a"], ["scores"], transB=1),
]
SHAPES = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 1, 1), "u": (5, 128), "a": (5,)}


def small(opset: int = 17) -> onnx.ModelProto:
    """Two convolutions with a residual sum, and a Gemm with transposed weights."""
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float32) / 3 for n, s in SHAPES.items()}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])
    y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 5])
    initial = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(NODES, "small", [x], [y], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def inputs(count: int = 12) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((1, 3, 8, 8)).astype(np.float32) for _ in range(count)]
