"""Whatever is wrong with a node of a model is an error of ours that names the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError, UnsupportedError
from alpenglow.frontends.onnx import load
from alpenglow.frontends.onnx.functions.functions import inferred
from tiny_models import I64, W4, X4, floats, info, ints, made, node, one

WRONG_NODES: dict[str, Callable[[], onnx.ModelProto]] = {
    "Conv of rank 2": lambda: one("Conv", info("x"), info("w")),
    "Conv of rank 0": lambda: one("Conv", info("x", ()), info("w", ())),
    "Conv of wrong channels": lambda: one("Conv", X4, floats("w", 4, 5, 3, 3)),
    "Conv of too large a kernel": lambda: one("Conv", X4, floats("w", 4, 3, 9, 9)),
    "Conv of an empty kernel": lambda: one("Conv", X4, floats("w", 4, 3, 0, 3)),
    "Conv of 5 inputs": lambda: one("Conv", X4, W4, floats("a"), floats("b"), floats("c")),
    "Conv of no group": lambda: one("Conv", X4, W4, group=0),
    "Conv of a minus group": lambda: one("Conv", X4, W4, group=-1),
    "Conv of stride 0": lambda: one("Conv", X4, W4, strides=[0, 1]),
    "Conv of stride -1": lambda: one("Conv", X4, W4, strides=[-1, 1]),
    "Conv of dilation 0": lambda: one("Conv", X4, W4, dilations=[0, 1]),
    "Conv of one pad": lambda: one("Conv", X4, W4, pads=[1]),
    "Conv of int strides": lambda: one("Conv", X4, W4, strides=1),
    "Conv of text strides": lambda: one("Conv", X4, W4, strides="1"),
    "Conv of ints group": lambda: one("Conv", X4, W4, group=[1, 1]),
    "Conv of unknown auto_pad": lambda: one("Conv", X4, W4, auto_pad="SOME"),
    "Conv of SAME with too few strides": lambda: one(
        "Conv", X4, W4, auto_pad="SAME_UPPER", strides=[1]
    ),
    "MaxPool without kernel": lambda: one("MaxPool", X4),
    "MaxPool of kernel -1": lambda: one("MaxPool", X4, kernel_shape=[-1, 2]),
    "MaxPool of kernel 0": lambda: one("MaxPool", X4, kernel_shape=[0, 0]),
    "AveragePool of stride 0": lambda: one(
        "AveragePool", X4, kernel_shape=[2, 2], strides=[0, 0]
    ),
    "Add of two types": lambda: one("Add", info("x"), info("w", code=I64)),
    "Add of two shapes": lambda: one("Add", info("x", (2, 3)), info("w", (4, 3))),
    "Add of one": lambda: one("Add", info("x")),
    "Add of three": lambda: one("Add", info("x"), info("w"), info("v")),
    "MatMul of wrong shapes": lambda: one("MatMul", info("x"), info("w")),
    "MatMul of scalars": lambda: one("MatMul", info("x", ()), info("w", ())),
    "Gemm of rank 3": lambda: one("Gemm", info("x", (1, 2, 3)), info("w", (3, 2))),
    "Relu of nothing": lambda: one("Relu"),
    "Relu of bool": lambda: one("Relu", info("x", code=TensorProto.BOOL)),
    "Softmax of axis 7": lambda: one("Softmax", info("x"), axis=7),
    "Softmax of a text axis": lambda: one("Softmax", info("x"), axis="last"),
    "Softmax of a float axis": lambda: one("Softmax", info("x"), axis=1.5),
    "Concat without axis": lambda: one("Concat", info("x"), info("w")),
    "Concat of nothing": lambda: one("Concat", axis=0),
    "Transpose of no permutation": lambda: one("Transpose", info("x"), perm=[0, 0]),
    "Transpose of text": lambda: one("Transpose", info("x"), perm=["a", "b"]),
    "Cast without type": lambda: one("Cast", info("x")),
    "Cast to nowhere": lambda: one("Cast", info("x"), to=77),
    "Cast to text": lambda: one("Cast", info("x"), to="FLOAT"),
    "Reshape of wrong size": lambda: one("Reshape", info("x"), ints("s", 4)),
    "Reshape of two unknowns": lambda: one("Reshape", info("x"), ints("s", -1, -1)),
    "Reshape of a negative extent": lambda: one("Reshape", info("x"), ints("s", -2, -3)),
    "Reshape to floats": lambda: one("Reshape", info("x"), floats("s", 2)),
    "Reshape of an unknown beside nothing": lambda: one(
        "Reshape", info("x", (0, 3)), ints("s", 0, -1)
    ),
    "Gather of floats": lambda: one("Gather", info("x"), info("i")),
    "Gather of axis 5": lambda: one("Gather", info("x"), info("i", (1,), I64), axis=5),
    "Split of wrong sizes": lambda: one("Split", info("x"), ints("s", 1, 7), outputs=["y", "z"]),
    "Slice of step 0": lambda: one(
        "Slice", info("x"), ints("s", 0), ints("e", 1), ints("a", 0), ints("t", 0)
    ),
    "Slice of axis 9": lambda: one("Slice", info("x"), ints("s", 0), ints("e", 1), ints("a", 9)),
    "Slice of too few ends": lambda: one("Slice", info("x"), ints("s", 0, 0), ints("e", 1)),
    "Pad of one number": lambda: one("Pad", info("x"), ints("p", 1)),
    "Tile of one number": lambda: one("Tile", info("x"), ints("p", 1)),
    "Tile of a negative number": lambda: one("Tile", info("x"), ints("p", -1, 1)),
    "Expand of wrong shape": lambda: one("Expand", info("x"), ints("p", 5, 5)),
    "Squeeze of 3": lambda: one("Squeeze", info("x"), ints("p", 1)),
    "Unsqueeze of axis 9": lambda: one("Unsqueeze", info("x"), ints("p", 9)),
    "DepthToSpace of block 0": lambda: one("DepthToSpace", X4, blocksize=0),
    "Einsum of nonsense": lambda: one("Einsum", info("x"), equation="i€->->"),
    "Einsum without equation": lambda: one("Einsum", info("x")),
    "Constant without value": lambda: one("Constant"),
    "Range of step 0": lambda: one("Range", ints("a", 0), ints("b", 3), ints("c", 0)),
    "Range of vectors": lambda: one("Range", ints("a", 0, 1), ints("b", 3), ints("c", 1)),
    "LSTM of wrong shapes": lambda: one("LSTM", info("x"), info("w"), info("r"), hidden_size=3),
    "GRU without weights": lambda: one("GRU", info("x", (1, 2, 3)), hidden_size=3),
    "Resize without sizes": lambda: one("Resize", X4),
    "BatchNormalization of one": lambda: one("BatchNormalization", X4),
    "LayerNormalization of axis 9": lambda: one(
        "LayerNormalization", info("x"), info("w", (3,)), axis=9
    ),
    "TopK of too many": lambda: one("TopK", info("x"), ints("k", 9), outputs=["y", "z"]),
    "ReduceSum of axis 9": lambda: one("ReduceSum", info("x"), ints("a", 9)),
    "QuantizeLinear of zero point f32": lambda: one(
        "QuantizeLinear", info("x"), floats("s"), floats("z")
    ),
}  # fmt: skip


@pytest.mark.parametrize("build", WRONG_NODES.values(), ids=WRONG_NODES.keys())
def test_a_wrong_node_is_named(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(build().SerializeToString())

    with pytest.raises((ModelError, TypeRuleError, UnsupportedError), match="'it'") as caught:
        load(path)

    assert caught.value.file == str(path)
    assert len(caught.value.message) < 600


def test_an_attribute_given_twice_is_refused() -> None:
    model = one("Softmax", info("x"), axis=0)
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))

    with pytest.raises(ModelError, match="'axis' is given 2 times"):
        load(model)


def test_a_shape_computed_from_nan_is_refused() -> None:
    nodes = [
        helper.make_node("Cast", ["nan"], ["s"], name="cast", to=I64),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    nan = numpy_helper.from_array(np.array([np.nan, 3], np.float32), "nan")

    with pytest.raises(AlpenglowError, match="'it'"):
        load(made(nodes, [info("x")], [nan]))


@pytest.mark.parametrize(
    ("domain", "op"),
    [("ai.onnx.ml", "LabelEncoder"), ("ai.onnx.ml", "DictVectorizer"), ("", "RegexFullMatch")],
)
def test_onnx_is_not_asked_where_its_inference_dies(domain: str, op: str) -> None:
    """These read the type of an operand of which nothing is known: the process would be gone."""
    reading = helper.make_node(op, ["nowhere"], ["y"], domain=domain)
    bounds = [helper.make_tensor(n, TensorProto.BOOL, [], [True]) for n in ("yes", "also")]
    branches = {
        f"{way}_branch": helper.make_graph([reading, helper.make_node("Not", ["yes"], [way])], way,
                                           [], [info(way, (), TensorProto.BOOL)])
        for way in ("then", "else")
    }  # fmt: skip
    nodes = [reading, helper.make_node("If", ["yes"], ["z"], **branches)]
    graph = helper.make_graph(nodes, "g", [], [info("z", (), TensorProto.BOOL)], bounds)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 1)]

    types = inferred(helper.make_model(graph, opset_imports=opsets))

    assert types["z"].tensor_type.elem_type == TensorProto.BOOL
