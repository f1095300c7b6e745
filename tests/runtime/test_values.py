"""Inputs that are no tensors of known rank are checked before anything runs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.base.errors import FeedError

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
PAIRS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 2])


def identity(t: onnx.TypeProto, op: str = "Identity") -> ag.Executable:
    """Return an Executable of one node with one input, x."""
    infos = [helper.make_value_info("x", t)]
    node = helper.make_node(op, ["x"], ["y"])
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return ag.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


@pytest.mark.parametrize(
    ("t", "given", "says"),
    [
        (FLOATS, np.zeros(3), "input 'x' is float64, expected float32 (f32[…])"),
        (FLOATS, [["a"]], "input 'x' is <U1, expected float32"),
        (FLOATS, None, "input 'x' is None, expected f32[…]"),
        (helper.make_tensor_type_proto(TensorProto.STRING, [2]), np.zeros(2),
         "input 'x' is float64, expected string[2]"),
        (helper.make_tensor_type_proto(TensorProto.STRING, [2]), ["a", "b", "c"],
         "input 'x' has shape (3,), expected string[2]"),
        (helper.make_sequence_type_proto(PAIRS), np.zeros((3, 2), np.float32),
         "expected a sequence of f32[?,2], as a list"),
        (helper.make_sequence_type_proto(PAIRS), [np.zeros((3, 2), np.int32)],
         "input 'x[0]' is int32, expected float32"),
        (helper.make_sequence_type_proto(PAIRS), [np.zeros((3, 3), np.float32)],
         "input 'x[0]' has shape (3, 3), expected f32[?,2]"),
        (helper.make_optional_type_proto(PAIRS), [1], "input 'x' is int64, expected float32"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_refused(t: onnx.TypeProto, given: Any, says: str) -> None:
    exe = identity(t)
    with pytest.raises(FeedError) as caught:
        exe.run({"x": given})

    assert says in str(caught.value)


def test_values_that_fit_are_taken() -> None:
    for given in (np.float32(3), np.zeros((2, 3), np.float32), [[1.0, 2.0]]):
        np.testing.assert_array_equal(
            identity(FLOATS, "Neg").run({"x": given})["y"], -np.array(given)
        )
    strings = identity(helper.make_tensor_type_proto(TensorProto.STRING, ["N"]))
    assert strings(np.array(["a", "b"])).tolist() == ["a", "b"]
    assert strings(np.array([], object)).tolist() == []
    assert strings(pickle.loads(pickle.dumps(np.array(["a", "b"], object)))).tolist() == ["a", "b"]
    pairs = identity(helper.make_sequence_type_proto(PAIRS))
    assert len(pairs([np.zeros((1, 2), np.float32)])) == 1
