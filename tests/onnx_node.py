"""Models of one ONNX node, run by the interpreter and by its peers.

The operands have names (`node_model`), or numbers: `single` calls them x0, x1, ….
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
Feeds = Mapping[str, Array] | Sequence[Array | None]
"""Arrays by name, or by number, None for an operand that is absent."""


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
    operands = [*feeds, *constants]
    return _model(op_type, operands, feeds, constants, opset, outputs, "", attributes)


def single(
    op_type: str,
    inputs: Sequence[Array | None],
    opset: int,
    outputs: int = 1,
    constants: Sequence[int] = (),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node; the inputs numbered in `constants` are initializers."""
    operands = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    arrays = _named(inputs)
    fixed = {f"x{i}": arrays.pop(f"x{i}") for i in constants if f"x{i}" in arrays}
    made = [f"y{i}" for i in range(outputs)]
    return _model(op_type, operands, arrays, fixed, opset, made, domain, attributes)


def _model(
    op_type: str, operands: Iterable[str], feeds: Mapping[str, Array],
    constants: Mapping[str, Array], opset: int, outputs: Sequence[str], domain: str,
    attributes: Mapping[str, Any],
) -> onnx.ModelProto:  # fmt: skip
    node = helper.make_node(op_type, operands, outputs, name="it", domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in feeds.items()
    ]
    tensors = [numpy_helper.from_array(a, k) for k, a in constants.items()]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([node], "one", infos, results, tensors)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _named(feeds: Feeds) -> dict[str, Array]:
    if isinstance(feeds, Mapping):
        return dict(feeds)
    return {f"x{i}": x for i, x in enumerate(feeds) if x is not None}


def ours(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Return the outputs that the interpreter makes of a model; feeds of constants are dropped."""
    g, arrays = load(model), _named(feeds)
    return list(evaluate(g, {name: arrays[name] for name in g.inputs}).values())


def runtimes(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Return the outputs that ONNX Runtime makes of a model without optimising it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    inferred = shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(inferred.SerializeToString(), options)
    arrays = _named(feeds)
    made = session.run(None, {i.name: arrays[i.name] for i in session.get_inputs()})
    return [np.asarray(y) for y in made]


def references(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs that ONNX's reference evaluator makes of a model."""
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feeds))]


def assert_close(expected: Sequence[Array], actual: Sequence[Array], tolerance: float) -> None:
    """Assert equal types and shapes, and elements equal to a relative and absolute tolerance."""
    assert [(e.dtype, e.shape) for e in expected] == [(a.dtype, a.shape) for a in actual]
    for e, a in zip(expected, actual, strict=True):
        wide = e.dtype if e.dtype.kind in "iub" else np.float64
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), tolerance, tolerance)


def check(
    op_type: str, *inputs: Array | None, opset: int = 21, rtol: float = 1e-5, atol: float = 1e-6,
    outputs: int = 1, constants: Sequence[int] = (), domain: str = "", **attributes: Any,
) -> None:  # fmt: skip
    """Assert that we agree with ONNX Runtime on one node."""
    given = [None if x is None else np.asarray(x) for x in inputs]
    model = single(op_type, given, opset, outputs, constants, domain, **attributes)
    with np.errstate(all="ignore"):
        expected, actual = runtimes(model, given), ours(model, given)

    assert [(y.dtype, y.shape) for y in actual] == [(y.dtype, y.shape) for y in expected]
    for y, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(y, wanted, rtol, atol)
