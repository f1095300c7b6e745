"""Models of TFLite as files have them: names, types, sparse constants, refusals, layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.frontends.tflite.flat import CODES, file_of, one_op

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.tflite.converters import supported
from alpenglow.frontends.tflite.file.schema import BUILTINS
from alpenglow.frontends.tflite.front_end import TfliteFrontEnd
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph

CONV: dict[str, Any] = {"padding": 0, "stride_w": 1, "stride_h": 1, "fused_activation_function": 0}


def graph_of(model: dict[str, Any], **shapes: Any) -> Graph:
    graph = load(file_of(model), shapes or None)
    assert isinstance(graph, Graph)
    return graph


def test_a_model_is_told_by_its_structure(tmp_path: Path) -> None:
    content = file_of(one_op("ABS", ["f32[3]"], ["f32[3]"]))
    path = tmp_path / "model"
    path.write_bytes(content)
    accepts = TfliteFrontEnd().accepts

    assert accepts(content)
    assert accepts(str(path))
    assert not accepts(content.replace(b"TFL3", b"TFL2"))
    assert not accepts(b"\xff\xff\xff\x7fTFL3")
    assert not accepts(tmp_path / "missing.tflite")


def test_a_model_of_onnx_whose_maker_is_called_so_is_none(tmp_path: Path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, producer_name="TFL3", opset_imports=opsets, ir_version=8)
    content = model.SerializeToString()
    (tmp_path / "model").write_bytes(content)

    assert content[4:8] == b"TFL3"
    for given in (content, tmp_path / "model"):
        np.testing.assert_array_equal(ag.compile(given)(np.ones(3, np.float32)), [-1, -1, -1])


def test_a_model_that_begins_as_one_of_onnx_is_none() -> None:
    content = file_of(one_op("ABS", ["f32[3]"], ["f32[3]"]))
    root = int.from_bytes(content[:4], "little")
    shift = (8 - root) % 256  # the first table moves so far that its offset ends in 8
    moved = content[:8] + bytes(shift) + content[8:]
    moved = (root + shift).to_bytes(4, "little") + moved[4:]

    assert moved[0] == 8
    assert ag.load(moved).name == "main"


def test_a_file_of_any_name_is_loaded_by_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(file_of(one_op("ABS", ["f32[3]"], ["f32[3]"])))

    np.testing.assert_array_equal([1, 2, 3], ag.compile(path)(np.array([1, -2, 3], np.float32)))


def test_inputs_and_outputs_are_called_as_the_signature_says() -> None:
    model = one_op("ADD", ["f32[3]", "f32[3]"], ["f32[3]"])
    model["signature_defs"] = [{
        "signature_key": "serve", "inputs": [{"name": "left", "tensor_index": 0}],
        "outputs": [{"name": "sum", "tensor_index": 2}],
    }]  # fmt: skip
    graph = graph_of(model)

    assert list(graph.inputs) == ["left", "x1"]
    assert list(graph.outputs) == ["sum"]


def test_tensors_of_one_name_are_told_apart() -> None:
    model = one_op("SUB", ["f32[3]", "f32[3]"], ["f32[3]"])
    for t in model["subgraphs"][0]["tensors"]:
        t["name"] = "t"
    graph = graph_of(model)
    a, b = np.full(3, 5, np.float32), np.full(3, 2, np.float32)
    (difference,) = evaluate(graph, dict(zip(graph.inputs, (a, b), strict=True))).values()

    assert len(graph.inputs) == 2
    np.testing.assert_array_equal([3, 3, 3], difference)


def test_a_builtin_is_the_larger_of_its_two_codes() -> None:
    model = one_op("SIGN", ["f32[3]"], ["f32[3]"])

    assert model["operator_codes"][0] == {"deprecated_builtin_code": 127, "builtin_code": 158}
    assert [n.op.name for n in graph_of(model).nodes] == ["sign"]


def test_all_that_is_not_supported_is_told_at_once() -> None:
    model = one_op("ABS", ["f32[3]"], ["f32[3]"])
    model["operator_codes"] = [
        {"builtin_code": CODES["SKIP_GRAM"]}, {"builtin_code": 32, "custom_code": "Mine"},
        {"builtin_code": 999},
    ]  # fmt: skip
    model["subgraphs"][0]["operators"] = [
        {"opcode_index": i, "inputs": [0], "outputs": [1]} for i in (0, 0, 1, 2)
    ]

    wanted = r"SKIP_GRAM \(2 nodes at operator 0 .*; custom Mine \(1 node .*; builtin 999 \(1 node"
    with pytest.raises(UnsupportedError, match=wanted):
        load(file_of(model))


def test_a_result_that_is_not_as_declared_is_told() -> None:
    with pytest.raises(ModelError, match=r"'/?y0' is f32\[3\], expected i32\[3\] as declared"):
        load(file_of(one_op("ABS", ["f32[3]"], ["i32[3]"])))
    with pytest.raises(ModelError, match=r"is f32\[3\], expected f32\[3,1\] as declared"):
        load(file_of(one_op("ABS", ["f32[3]"], ["f32[3,1]"])))


def test_a_contradiction_names_its_operator_and_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(file_of(one_op("ADD", ["f32[3]", "f32[4]"], ["f32[3]"])))

    with pytest.raises(ModelError, match=r"do not broadcast.*ADD '/?y0'.*broken\.tflite"):
        ag.load(path)


def test_sparse_weights_are_made_dense() -> None:
    """Rows of [[0, 2], [0, 0], [5, 0]]: all rows, and in each the columns that there are."""
    model = one_op("DENSIFY", [np.array([2, 5], np.float32)], ["f32[3,2]"])
    model["subgraphs"][0]["tensors"][0] |= {"shape": [3, 2], "sparsity": {
        "traversal_order": [0, 1],
        "dim_metadata": [
            {"format": 0, "dense_size": 3},
            {"format": 1, "array_segments_type": 3,
             "array_segments": ("Uint8Vector", {"values": [0, 1, 1, 2]}),
             "array_indices_type": 3, "array_indices": ("Uint8Vector", {"values": [1, 0]})},
        ],
    }}  # fmt: skip
    (y,) = evaluate(graph_of(model), {}).values()

    np.testing.assert_array_equal([[0, 2], [0, 0], [5, 0]], y)


def test_a_constant_may_lie_behind_the_model() -> None:
    model = one_op("ADD", ["f32[3]", np.zeros(3, np.float32)], ["f32[3]"])
    values = np.array([1, 2, 3], np.float32).tobytes()
    model["buffers"][1] = {"offset": 1 << 20, "size": len(values)}
    nbytes = len(file_of(model))
    model["buffers"][1]["offset"] = nbytes
    graph = load(file_of(model) + values)
    assert isinstance(graph, Graph)
    (y,) = evaluate(graph, {"x0": np.ones(3, np.float32)}).values()

    np.testing.assert_array_equal([2, 3, 4], y)


@pytest.mark.parametrize("padding", [1, 2])
@pytest.mark.parametrize(("extent", "kernel", "stride"), [(3, 2, 2), (4, 3, 2), (3, 4, 3)])
def test_mediapipes_deconvolution_adds_windows_up(
    padding: int, extent: int, kernel: int, stride: int
) -> None:
    random = np.random.default_rng(0)
    w = random.standard_normal((2, kernel, kernel, 3)).astype(np.float32)
    bias = np.array([1, -1], np.float32)
    x = random.standard_normal((1, extent, extent, 3)).astype(np.float32)
    full = stride * (extent - 1) + kernel
    sums = np.zeros((full, full, 2), np.float32)
    for i, j in np.ndindex(extent, extent):
        window = np.einsum("c,ohwc->hwo", x[0, i, j], w)
        sums[stride * i :, stride * j :][:kernel, :kernel] += window
    cut = max(kernel - (extent - 1) % stride - 1, 0) if padding == 1 else 0
    expected = sums[cut // 2 : full - cut + cut // 2, cut // 2 : full - cut + cut // 2] + bias
    size = full - cut
    model = one_op("ABS", [f"f32[1,{extent},{extent},3]", w, bias], [f"f32[1,{size},{size},2]"])
    model["operator_codes"] = [{"builtin_code": 32, "custom_code": "Convolution2DTransposeBias"}]
    options = np.frombuffer(np.array([padding, stride, stride], "<i4").tobytes(), np.uint8)
    model["subgraphs"][0]["operators"][0]["custom_options"] = options

    np.testing.assert_allclose(ag.compile(file_of(model))(x)[0], expected, atol=1e-5)


def test_padding_of_open_images_serves_all_extents() -> None:
    """SAME padding depends on whether strides divide an extent; other extents are imported anew."""
    w, b = np.ones((2, 3, 3, 4), np.float32), np.zeros(2, np.float32)
    options = {**CONV, "stride_w": 2, "stride_h": 2}
    content = file_of(
        one_op("CONV_2D", ["f32[?,?,?,4]", w, b], ["f32[?,?,?,2]"], "Conv2DOptions", **options)
    )
    compiled = ag.compile(content)
    for h, w_ in ((4, 6), (5, 6), (7, 7), (2, 9)):
        x = np.random.default_rng(0).standard_normal((1, h, w_, 4)).astype(np.float32)
        fixed = load(content, {"x0": x.shape})
        assert isinstance(fixed, Graph)
        (wanted,) = evaluate(fixed, {"x0": x}).values()

        assert wanted.shape == (1, -(-h // 2), -(-w_ // 2), 2)
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-4, atol=1e-5)


def test_most_builtins_have_a_converter() -> None:
    real = [n for n in BUILTINS if not n.startswith("STABLEHLO")]

    assert len([n for n in supported() if n in real]) >= 120


@pytest.mark.parametrize(
    ("number", "size", "wanted"),
    [(1, (0, 2), r"window_shape is \(0, 2\)"), (1, (2,), r"window_shape is \(2,\)"),
     (9, (1, 2), "reduce_function is 9"), (5, (1, 2), "reduce_function ALL of f32")],
)  # fmt: skip
def test_windows_that_make_no_sense_are_errors(
    number: int, size: tuple[int, ...], wanted: str
) -> None:
    ones = np.ones(2, np.int64)
    operands = ["f32[3,4]", "f32[1]", np.array(size, np.int64), ones, ones]
    model = one_op("REDUCE_WINDOW", operands, ["f32[3,3]"], "ReduceWindowOptions",
                   reduce_function=number)  # fmt: skip

    with pytest.raises((ModelError, UnsupportedError), match=wanted):
        load(file_of(model))


def test_rows_are_those_of_keys() -> None:
    keys = np.array([1, 2], np.int32)
    model = one_op("HASHTABLE_LOOKUP", ["i32[5]", keys, "f32[3,2]"], ["f32[5,2]", "u8[5]"])

    with pytest.raises(ModelError, match=r"value is f32\[3,2\], expected 2 rows"):
        load(file_of(model))


@pytest.mark.parametrize(("step", "place"), [(1, 0), (-1, 3)])
def test_begin_mask_says_where_an_axis_shrinks(step: int, place: int) -> None:
    numbers = (np.array(n, np.int32) for n in ([2], [3], [step]))
    model = one_op("STRIDED_SLICE", ["f32[4]", *numbers], ["f32[]"], "StridedSliceOptions",
                   begin_mask=1, shrink_axis_mask=1)  # fmt: skip
    x = np.arange(4, dtype=np.float32)

    assert evaluate(graph_of(model), {"x0": x})["y0"] == place
