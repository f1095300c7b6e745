"""ONNX Runtime adds products of bytes in 16 bits on x86 without VNNI, and there they saturate."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


@cache
def saturates() -> bool:
    """Return whether ONNX Runtime, asked here, takes 255·127 + 255·127 for 32,767."""
    weights = numpy_helper.from_array(np.full((16, 16), 127, np.int8), "w")
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 16))
    y = helper.make_tensor_value_info("y", TensorProto.INT32, (1, 16))
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "sums", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (sums,) = session.run(None, {"x": np.full((1, 16), 255, np.uint8)})
    return bool((np.asarray(sums) != 16 * 255 * 127).any())


def spared(weights: Array) -> Array:
    """Return weights for products that the peer computes exactly: where it saturates, of 7 bits.

    That is what ONNX Runtime's documentation asks of those who quantize for such machines.
    """
    if weights.dtype != np.int8 or not saturates():
        return weights
    return weights // 2
