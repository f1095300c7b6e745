"""Trained networks that are published as bare weights, written as ONNX.

SqueezeNet 1.1 (ImageNet) and the three nets of the MTCNN face detector exist in no package as ONNX
files, but their weights do. The structure is ours to write down; the weights are taken as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 13
IR_VERSION = 8

Array = NDArray[Any]
Shape = Sequence[int | str]
Outputs = Mapping[str, Shape]

# In each group a max pool comes first.
SQUEEZENET_GROUPS = (
    ("fire2", "fire3"),
    ("fire4", "fire5"),
    ("fire6", "fire7", "fire8", "fire9"),
)


@dataclass(frozen=True)
class Writer:
    """Collects nodes and weights in the order in which they are written."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, operands: Sequence[str], result: str, **attributes: Any) -> str:
        made = helper.make_node(op, list(operands), [result], name=result, **attributes)
        self.nodes.append(made)
        return result

    def weight(self, name: str, array: Array) -> str:
        contiguous = np.ascontiguousarray(array, np.float32)
        self.weights.append(numpy_helper.from_array(contiguous, name))
        return name

    def model(self, name: str, shape: Shape, outputs: Outputs) -> onnx.ModelProto:
        """Close the graph: one input `x`, and these outputs."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [
                helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
                for output, shape in outputs.items()
            ],
            self.weights,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model


def squeezenet(weights: Mapping[str, tuple[Array, Array]]) -> onnx.ModelProto:
    """SqueezeNet 1.1 for x[N, 3, 227, 227], as BGR less the mean colour; logits[N, 1000].

    Every convolution keeps the size but for its stride, and the last has no ReLU: so the weights
    are used in the package that they come from.
    """
    writer = Writer()

    def conv(x: str, name: str, stride: int = 1) -> str:
        kernel, bias = weights[name]
        kernel = kernel.transpose(3, 2, 0, 1)  # stored as height, width, in, out
        size = kernel.shape[2]
        operands = [x, writer.weight(f"{name}/W", kernel), writer.weight(f"{name}/b", bias)]
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        return writer.node("Conv", operands, name, **window)

    def relu(x: str) -> str:
        return writer.node("Relu", [x], f"{x}/relu")

    def fire(x: str, name: str) -> str:
        narrow = relu(conv(x, f"{name}/squeeze1x1"))
        wide = [relu(conv(narrow, f"{name}/expand{size}")) for size in ("1x1", "3x3")]
        return writer.node("Concat", wide, f"{name}/concat", axis=1)

    x = relu(conv("x", "conv1", stride=2))
    for group in SQUEEZENET_GROUPS:
        x = writer.node("MaxPool", [x], f"{group[0]}/pool", kernel_shape=[3, 3], strides=[2, 2])
        for name in group:
            x = fire(x, name)
    x = writer.node("GlobalAveragePool", [conv(x, "conv10")], "mean")
    writer.node("Flatten", [x], "logits", axis=1)
    return writer.model("squeezenet11", ["N", 3, 227, 227], {"logits": ["N", 1000]})


def mtcnn_pnet(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The proposal net: faces and boxes at every place of a picture of any size."""
    writer = Writer()
    x = _conv(writer, weights, "x", "1")
    x = _max_pool(writer, x, "pool1", 2)
    x = _conv(writer, weights, x, "2")
    x = _conv(writer, weights, x, "3")
    scores = _affine(writer, weights, "Conv", x, "conv4_1", "scores")
    writer.node("Softmax", [scores], "prob", axis=1)
    _affine(writer, weights, "Conv", x, "conv4_2", "reg")
    outputs: Outputs = {"reg": ["N", 4, "h", "w"], "prob": ["N", 2, "h", "w"]}
    return writer.model("mtcnn_pnet", ["N", 3, "H", "W"], outputs)


def mtcnn_rnet(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The refinement net, on cut-outs of 24 by 24."""
    writer = Writer()
    x = _conv(writer, weights, "x", "1")
    x = _max_pool(writer, x, "pool1", 3)
    x = _conv(writer, weights, x, "2")
    x = _max_pool(writer, x, "pool2", 3)
    x = _conv(writer, weights, x, "3")
    x = _dense(writer, weights, x, "4")
    scores = _affine(writer, weights, "Gemm", x, "dense5_1", "scores")
    writer.node("Softmax", [scores], "prob", axis=1)
    _affine(writer, weights, "Gemm", x, "dense5_2", "reg")
    outputs: Outputs = {"reg": ["N", 4], "prob": ["N", 2]}
    return writer.model("mtcnn_rnet", ["N", 3, 24, 24], outputs)


def mtcnn_onet(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The output net, on cut-outs of 48 by 48; it also finds five landmarks."""
    writer = Writer()
    x = _conv(writer, weights, "x", "1")
    x = _max_pool(writer, x, "pool1", 3)
    x = _conv(writer, weights, x, "2")
    x = _max_pool(writer, x, "pool2", 3)
    x = _conv(writer, weights, x, "3")
    x = _max_pool(writer, x, "pool3", 2)
    x = _conv(writer, weights, x, "4")
    x = _dense(writer, weights, x, "5")
    scores = _affine(writer, weights, "Gemm", x, "dense6_1", "scores")
    writer.node("Softmax", [scores], "prob", axis=1)
    _affine(writer, weights, "Gemm", x, "dense6_2", "reg")
    _affine(writer, weights, "Gemm", x, "dense6_3", "landmarks")
    outputs: Outputs = {"reg": ["N", 4], "landmarks": ["N", 10], "prob": ["N", 2]}
    return writer.model("mtcnn_onet", ["N", 3, 48, 48], outputs)


def _conv(writer: Writer, weights: Mapping[str, Array], x: str, number: str) -> str:
    """A convolution without padding, and its PRelu with a slope for each channel."""
    x = _affine(writer, weights, "Conv", x, f"conv{number}", f"conv{number}/out")
    slope = weights[f"prelu{number}.weight"].reshape(-1, 1, 1)
    return writer.node("PRelu", [x, writer.weight(f"slope{number}", slope)], f"prelu{number}")


def _dense(writer: Writer, weights: Mapping[str, Array], x: str, number: str) -> str:
    """Flatten with width before height, as the weights expect; a matrix, and its PRelu."""
    x = writer.node("Transpose", [x], "turned", perm=[0, 3, 2, 1])
    x = writer.node("Flatten", [x], "flat", axis=1)
    x = _affine(writer, weights, "Gemm", x, f"dense{number}", f"dense{number}/out")
    slope = writer.weight(f"slope{number}", weights[f"prelu{number}.weight"])
    return writer.node("PRelu", [x, slope], f"prelu{number}")


def _affine(
    writer: Writer, weights: Mapping[str, Array], op: str, x: str, name: str, result: str
) -> str:
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    operands = [x, writer.weight(f"{name}/W", kernel), writer.weight(f"{name}/b", bias)]
    if op == "Gemm":
        return writer.node("Gemm", operands, result, transB=1)
    return writer.node("Conv", operands, result, kernel_shape=kernel.shape[2:])


def _max_pool(writer: Writer, x: str, result: str, size: int) -> str:
    return writer.node("MaxPool", [x], result, kernel_shape=[size] * 2, strides=[2, 2], ceil_mode=1)
