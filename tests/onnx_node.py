"""Models of one ONNX node with named operands, run by the interpreter and by its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load

Array = NDArray[Any]


def node_model(
    op_type: str,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    *,
    opset: int,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node, whose operands are the feeds and then the constants."""
    constants = constants or {}
    node = helper.make_node(op_type, [*feeds, *constants], list(outputs), **attributes)
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in feeds.items()
    ]
    tensors = [numpy_helper.from_array(a, k) for k, a in constants.items()]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([node], "one", infos, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return shape_inference.infer_shapes(model)


def ours(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs that the interpreter makes of a model."""
    return list(evaluate(load(model), feeds).values())


def runtimes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs that ONNX Runtime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def references(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs that ONNX's reference evaluator makes of a model."""
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feeds))]


def assert_close(expected: Sequence[Array], actual: Sequence[Array], tolerance: float) -> None:
    """Assert equal types and shapes, and elements equal to a relative and absolute tolerance."""
    assert [(e.dtype, e.shape) for e in expected] == [(a.dtype, a.shape) for a in actual]
    for e, a in zip(expected, actual, strict=True):
        wide = e.dtype if e.dtype.kind in "iub" else np.float64
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), tolerance, tolerance)
