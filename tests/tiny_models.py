"""ONNX models of a node or two, and what they are made of: right, or wrong where a test asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
ABSENT = onnx.ValueInfoProto()
"""An optional operand that is not given."""


def info(name: str, shape: Sequence[int | str] = (2, 3), code: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def made(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    outputs: Sequence[str] = ("y",),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(nodes, "bad", inputs, results, constants)
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def one(
    op: str,
    *inputs: onnx.ValueInfoProto | onnx.TensorProto,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node called 'it'."""
    node = helper.make_node(op, [i.name for i in inputs], outputs, name="it", **attributes)
    infos = [i for i in inputs if isinstance(i, onnx.ValueInfoProto) and i.name]
    return made([node], infos, [i for i in inputs if isinstance(i, onnx.TensorProto)])


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def floats(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, name="it", **attributes)


def small() -> onnx.ModelProto:
    return one("Relu", info("x"))


X4 = info("x", (1, 3, 8, 8))
W4 = floats("w", 4, 3, 3, 3)
