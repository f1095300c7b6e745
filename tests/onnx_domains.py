"""Models of one node of a domain beside ai.onnx, run by us in both ways and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load

Array = NDArray[Any]

OUTSIDE = {"": 21, "ai.onnx.ml": 3, "com.microsoft": 1}


def one_node(
    domain: str, op_type: str, inputs: Sequence[Array | None], outputs: int | Sequence[str],
    constants: Sequence[int] = (), versions: dict[str, int] | None = None, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """Return a model of one node; an output called "" is absent."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op_type, names, made, name="it", domain=domain, **attributes)
    given = [(f"x{i}", x) for i, x in enumerate(inputs) if x is not None and i not in constants]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given
    ]
    tensors = [numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(inputs)
               if x is not None and i in constants]  # fmt: skip
    results = [helper.make_empty_tensor_value_info(y) for y in made if y]
    graph = helper.make_graph([node], "one", infos, results, tensors)
    opsets = [helper.make_opsetid(d, v) for d, v in {**OUTSIDE, **(versions or {})}.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def runtime(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Return what ONNX Runtime makes of a model without optimising it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(y) for y in session.run(None, feeds)]


def both(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[list[Array]]:
    """Return the outputs of the interpreter, and of compiled code without a gap in it."""
    g = load(model)
    used = {name: feeds[name] for name in g.inputs}
    exe = ag.compile(load(model), target="cpu", threads=1)
    assert all(entry.kernel for entry in exe.artifact.table), "an instruction is interpreted"
    return [list(evaluate(g, used).values()), list(exe.run(used).values())]


def check(
    domain: str, op_type: str, *inputs: Array | None, outputs: int | Sequence[str] = 1,
    constants: Sequence[int] = (), versions: dict[str, int] | None = None, rtol: float = 1e-5,
    atol: float = 1e-5, steps: int = 0, **attributes: Any,
) -> list[Array]:  # fmt: skip
    """Assert that we agree with ONNX Runtime on one node, and return what it makes.

    Integers may differ by `steps`.
    """
    model = one_node(domain, op_type, inputs, outputs, constants, versions, **attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in constants}
    expected = runtime(model, feeds)
    for actual in both(model, feeds):
        assert_close(expected, actual, rtol, atol, steps)
    return expected


def check_open(
    model: onnx.ModelProto, feeds: dict[str, Array], axes: dict[str, dict[int, str]]
) -> None:
    """Assert that we agree with ONNX Runtime where the extents of some axes are open."""
    for info in model.graph.input:
        for axis, name in axes.get(info.name, {}).items():
            info.type.tensor_type.shape.dim[axis].dim_param = name
    expected = runtime(model, feeds)
    made = ag.compile(model, target="cpu", threads=1).run(feeds)
    assert_close(expected, list(made.values()), 1e-4, 1e-4)


def assert_close(
    expected: Sequence[Array], actual: Sequence[Array], rtol: float, atol: float, steps: int = 0
) -> None:
    """Assert equal types and shapes, and close elements."""
    assert [(e.dtype, e.shape) for e in expected] == [(a.dtype, a.shape) for a in actual]
    for e, a in zip(expected, actual, strict=True):
        if e.dtype.kind in "iub":
            far = np.abs(e.astype(np.int64) - a.astype(np.int64)).max(initial=0)
            assert far <= steps, f"{e} and {a}"
        else:
            np.testing.assert_allclose(
                a.astype(np.float64), e.astype(np.float64), rtol=rtol, atol=atol)  # fmt: skip
