"""Models of one ONNX node, evaluated by us and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype as code

from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load

Array = NDArray[Any]


def single(
    op: str,
    inputs: Sequence[Array | None],
    opset: int,
    outputs: int = 1,
    constants: Sequence[int] = (),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node; the inputs numbered in `constants` are initializers."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, name="it", domain=domain, **attributes)
    given = {i: x for i, x in enumerate(inputs) if x is not None}
    graph = helper.make_graph(
        [node],
        "single",
        [
            helper.make_tensor_value_info(names[i], code(x.dtype), x.shape)
            for i, x in given.items()
            if i not in constants
        ],
        [helper.make_empty_tensor_value_info(y) for y in made],
        [numpy_helper.from_array(x, names[i]) for i, x in given.items() if i in constants],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def ours(model: onnx.ModelProto, inputs: Sequence[Array | None]) -> list[Array]:
    """Evaluate the model on the inputs that are not constants."""
    g = load(model)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    return list(evaluate(g, {name: feeds[name] for name in g.inputs}).values())


def theirs(model: onnx.ModelProto, inputs: Sequence[Array | None]) -> list[Array]:
    """Run the model in ONNX Runtime, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    return list(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()}))


def check(
    op: str, *inputs: Array | None, opset: int = 21, rtol: float = 1e-5, atol: float = 1e-6,
    outputs: int = 1, constants: Sequence[int] = (), domain: str = "", **attributes: Any,
) -> None:  # fmt: skip
    """Assert that we agree with ONNX Runtime on one node."""
    given = [None if x is None else np.asarray(x) for x in inputs]
    model = single(op, given, opset, outputs, constants, domain, **attributes)
    with np.errstate(all="ignore"):
        expected, actual = theirs(model, given), ours(model, given)

    assert [(y.dtype, y.shape) for y in actual] == [(y.dtype, y.shape) for y in expected]
    for y, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(y, wanted, rtol, atol)
