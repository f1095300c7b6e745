"""The tests of single nodes that the onnx package brings, as models with inputs and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

SEVERAL = "(several)"
"""The name under which models of several nodes (expanded functions) are filed."""

RANDOM = "random numbers differ"
NOISE = "where 0 is exact it expects the rounding of NumPy's FFT, 1.9e-7, to within 1e-7"

UNDECIDED: Mapping[str, str] = {
    "attention_4d_causal_fp16_expanded": "two elements are one step of f16 off, which is more than "
    "the test's tolerance",
    "dft_inverse": NOISE,
    "dft_inverse_opset19": NOISE,
    "maxunpool_export_with_output_shape": "its indices count in another tensor than the one that "
    "was pooled (onnx issue 2398); ONNX Runtime gives what we give",
    **dict.fromkeys(
        ("bernoulli", "bernoulli_double", "bernoulli_double_expanded", "bernoulli_expanded",
         "bernoulli_seed", "bernoulli_seed_expanded", "training_dropout",
         "training_dropout_default", "training_dropout_default_mask", "training_dropout_mask"),
        RANDOM,
    ),
}  # fmt: skip
"""Tests that say nothing of who fails them, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeTest:
    """A model of a node, values by name for its inputs, and what its outputs must be.

    Outputs agree within `rtol` and `atol`, as `numpy.testing.assert_allclose` has it.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    rtol: float
    atol: float


def node_tests() -> Iterator[NodeTest]:
    """Yield the tests, one for each data set.  Making them takes some 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expected values are infinite here and there
        cases = load_model_tests(kind="node")
    for case in cases:
        assert case.model is not None, "tests of nodes are made, not fetched"
        graph = case.model.graph
        inputs = [value.name for value in graph.input]
        outputs = [value.name for value in graph.output]
        operators = {node.op_type for node in graph.node}
        for operands, expected in case.data_sets or ():
            yield NodeTest(
                case.name.removeprefix("test_"),
                operators.pop() if len(operators) == 1 else SEVERAL,
                case.model,
                dict(zip(inputs, map(_value, operands), strict=False)),
                dict(zip(outputs, map(_value, expected), strict=True)),
                case.rtol, case.atol,
            )  # fmt: skip


def _value(v: Any) -> Any:
    """Return a value of a test; arrays of types that NumPy lacks are given as protobufs."""
    if isinstance(v, onnx.TensorProto):
        return numpy_helper.to_array(v)
    return v
