"""Operators on strings and maps agree with ONNX Runtime, where that has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.ops.host.demand import text
from onnx_host import LETTERS, ML, assert_equal, hosted_form

Array = NDArray[Any]


def element_of(x: Array) -> int:
    return TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)


def runtimes(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Return what ONNX Runtime makes of a model."""
    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds))


def assert_peer(
    op_type: str, *inputs: Array | None, opset: int = 21, domain: str = "", outputs: int = 1,
    rtol: float = 0, **attributes: Any,
) -> None:  # fmt: skip
    """Assert that a model of one node gives what ONNX Runtime gives."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **attributes)
    version = opset if not domain else 2
    infos = [
        helper.make_tensor_value_info(n, element_of(x), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    graph = helper.make_graph(
        [node], "one", infos, [helper.make_empty_tensor_value_info(y) for y in made]
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version)] if domain else []
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    expected = runtimes(onnx.shape_inference.infer_shapes(model), feeds)
    actual = list(ag.compile(model).run(feeds).values())

    assert_equal([np.asarray(e) for e in expected], actual, rtol)


PEERS: dict[str, tuple[tuple[Array | None, ...], dict[str, Any]]] = {
    "StringConcat": ((text("ab", (2, 1)), text("xyz")), {}),
    "StringSplit": ((text([" a b  c", "", "x"]),), {"maxsplit": 1, "outputs": 2}),
    "StringSplit delimiter": ((text(["a--b-", "-"]),), {"delimiter": "-", "outputs": 2}),
    "RegexFullMatch": ((text(["a1", "b", "äc"]),), {"pattern": r"[[:alpha:]]\d?|\pL+"}),
    "Cast": ((np.array([0.5, 1, 314.15926, -0.0, np.inf, -np.inf, np.nan, 1e10], "f"),), {"to": 8}),
    "Cast double": ((np.array([0.5, 3, 1e-7]),), {"to": 8}),
    "Cast integer": ((np.array([[1, -300]], np.int16),), {"to": 8}),
    "Cast boolean": ((np.array([True, False]),), {"to": 8}),
    "Cast to float": ((text(["1.5", "-2e3", "INF", "-inf", "+INF", "NaN", " 7"]),), {"to": 1}),
    "Cast to double": ((text(["0.1", "1e300"]),), {"to": 11}),
    "Cast to int64": ((text(["12", "-3", "+4", "5.7"]),), {"to": 7}),
    "Cast to boolean": ((text(["0", "1"]),), {"to": 9}),
    "Cast to half": ((text(["0.1", "65536"]),), {"to": 10}),
    "Shape": ((LETTERS,), {"start": -1}),
    "Size": ((LETTERS,), {}),
    "Reshape": ((LETTERS, np.array([3, -1])), {}),
    "Flatten": ((LETTERS.reshape(1, 2, 3),), {"axis": 2}),
    "Squeeze": ((LETTERS.reshape(1, 6, 1), np.array([-1])), {}),
    "Unsqueeze": ((LETTERS, np.array([0, -1])), {}),
    "Transpose": ((LETTERS,), {"perm": [1, 0]}),
    "Expand": ((text("ab", (2, 1)), np.array([3, 1, 2])), {}),
    "Tile": ((LETTERS, np.array([2, 1])), {}),
    "Concat": ((LETTERS, text("xy", (2, 1))), {"axis": -1}),
    "Split": ((LETTERS, np.array([1, 2])), {"axis": 1, "outputs": 2}),
    "Split parts": ((text("abcde"),), {"num_outputs": 3, "outputs": 3}),
    "Slice": ((LETTERS, np.array([-1]), np.array([-9]), np.array([1]), np.array([-2])), {}),
    "Slice open": ((LETTERS, np.array([1, 0]), np.array([2**62, 1])), {}),
    "Gather": ((LETTERS, np.array([[0, -1]])), {"axis": 1}),
    "GatherElements": ((LETTERS, np.array([[0, -1], [2, 1]])), {"axis": 1}),
    "GatherND": ((LETTERS, np.array([[1], [0]])), {"batch_dims": 1}),
    "ScatterElements": ((LETTERS, np.array([[0, -1]]), text("xy", (1, 2))), {"axis": 1}),
    "ScatterND": ((LETTERS, np.array([[1, 0], [0, -1]]), text("xy")), {}),
    "Compress": ((LETTERS, np.array([False, True])), {"axis": 1}),
    "Compress all": ((LETTERS, np.array([False, True, True])), {}),
    "Where": ((np.array([[True], [False]]), LETTERS, text("xyz")), {}),
    "Equal": ((LETTERS, text("bbb")), {}),
    "OneHot": ((np.array([0, -1, 5]), np.array(3), text(["off", "on"])), {"axis": 0}),
    "Unique": ((text("babcbc", (3, 2)),), {"axis": 0, "outputs": 4}),
    "Unique all": ((text("babcbc", (3, 2)),), {"sorted": 0, "outputs": 4}),
    "ReverseSequence": ((LETTERS, np.array([3, 2])), {"batch_axis": 0, "time_axis": 1}),
    "TfIdfVectorizer": (
        (text("abbaab", (2, 3)),),
        {"pool_strings": list("ababba"), "ngram_counts": [0, 2], "ngram_indexes": [0, 2, 1, 3],
         "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "mode": "TFIDF",
         "weights": [1.0, 2.0, 0.5, 3.0]},
    ),
}  # fmt: skip
"""Operands and attributes by operator; what follows its name only tells two of them apart."""


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.sampled(8)
def test_an_operator_on_strings_agrees_with_onnx_runtime(name: str) -> None:
    inputs, attributes = PEERS[name]

    assert_peer(name.split()[0], *inputs, **attributes)


LABELS: dict[str, tuple[Array, dict[str, Any]]] = {
    "LabelEncoder": (text("abx"), {"keys_strings": ["a", "b"], "values_int64s": [3, 4]}),
    "LabelEncoder back": (
        np.array([3, 4, 5]),
        {"keys_int64s": [3, 4], "values_strings": ["a", "b"], "default_string": "?"},
    ),
    "LabelEncoder float": (text("abx"), {"keys_strings": ["a"], "values_floats": [0.5]}),
    "CategoryMapper": (text("abx"), {"cats_strings": ["a", "b"], "cats_int64s": [7, 8]}),
    "CategoryMapper back": (np.array([8, 9]), {"cats_strings": ["a", "b"], "cats_int64s": [7, 8]}),
    "OneHotEncoder": (text("abx", (3, 1)), {"cats_strings": ["b", "a"]}),
}


@pytest.mark.parametrize("name", LABELS)
def test_a_form_on_labels_agrees_with_onnx_runtime(name: str) -> None:
    x, attributes = LABELS[name]

    assert_peer(name.split()[0], x, domain=ML, **attributes)


def test_array_feature_extractor_agrees_with_onnx_runtime() -> None:
    assert_peer("ArrayFeatureExtractor", LETTERS, np.array([[2, 0]]), domain=ML)


FLOATS = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(1, []))
NUMBERED = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
ROWS = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 2])


@pytest.mark.parametrize(
    ("op_type", "kind", "x", "attributes"),
    [
        ("DictVectorizer", FLOATS, {"a": 4.0, "c": 8.0}, {"string_vocabulary": ["a", "b", "c"]}),
        ("DictVectorizer", FLOATS, {"q": 4.0}, {"string_vocabulary": ["a", "b"]}),
        ("CastMap", NUMBERED, {3: 1.5, 0: 2.0}, {}),
        (
            "CastMap",
            NUMBERED,
            {3: 1.5},
            {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 5},
        ),
        ("ZipMap", ROWS, np.array([[1, 2], [3, 4]], "f"), {"classlabels_strings": ["a", "b"]}),
        ("ZipMap", ROWS, np.array([[1, 2], [3, 4]], "f"), {"classlabels_int64s": [7, 5]}),
    ],
)
def test_maps_agree_with_onnx_runtime(
    op_type: str, kind: onnx.TypeProto, x: Any, attributes: dict[str, Any]
) -> None:
    node = helper.make_node(op_type, ["x"], ["y"], domain=ML, **attributes)
    info = onnx.ValueInfoProto(name="x", type=kind)
    graph = helper.make_graph([node], "one", [info], [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    (expected,) = runtimes(model, {"x": x})

    assert_equal(expected, hosted_form(node, 3).reference(x))
