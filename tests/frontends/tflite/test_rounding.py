"""How integers that stand for reals are rounded: as is asked for, wherever a model is read."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tests.frontends.tflite.flat import file_of, one_op

import alpenglow as ag
from alpenglow.base.errors import ModelError, OptionError, UnsupportedError
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph
from command import alpenglow

HALVES = np.array([0.125, 0.375, -0.125, 0.3], np.float32)
EVEN, AWAY = [0, 2, 0, 1], [1, 2, -1, 1]


def quantising(scale: float = 0.25, zero: int = 0) -> bytes:
    """Return a model that quantizes four floats: of a scale of 0.25 three lie in the middle."""
    model = one_op("QUANTIZE", ["f32[4]"], ["i8[4]"])
    rule = {"scale": np.array([scale], np.float32), "zero_point": np.array([zero])}
    model["subgraphs"][0]["tensors"][1]["quantization"] = rule
    return file_of(model)


def test_halves_go_to_even_or_away_from_zero() -> None:
    for rounding, wanted in ((None, EVEN), ("xnnpack", EVEN), ("reference", AWAY)):
        graph = ag.load(quantising(), rounding=rounding)
        assert ag.compile(graph)(HALVES).tolist() == wanted
        assert ag.compile(quantising(), rounding=rounding)(HALVES).tolist() == wanted


def test_what_is_kept_of_a_file_is_kept_for_each_rounding(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(quantising())
    for _ in range(2):
        assert ag.compile(path)(HALVES).tolist() == EVEN
        assert ag.compile(path, rounding="reference")(HALVES).tolist() == AWAY


def test_commands_and_bundles_take_a_rounding(tmp_path: Path) -> None:
    path, feeds = tmp_path / "model.tflite", tmp_path / "x.npy"
    path.write_bytes(quantising())
    np.save(feeds, HALVES)
    for rounding, wanted in (("xnnpack", EVEN), ("reference", AWAY)):
        alpenglow(f"run {path} --input x0={feeds} --output {tmp_path} --rounding {rounding}")
        assert np.load(tmp_path / "y0.npy").tolist() == wanted
        text = alpenglow(f"show {path} --after import --rounding {rounding}").stdout
        assert ("requantize" in text) == (rounding == "xnnpack")
    assert "rounding" in inspect.signature(ag.bundle).parameters
    ag.bundle(path, tmp_path / "bundle", rounding="reference")


def test_bytes_on_another_grid_are_written_as_onnx(tmp_path: Path) -> None:
    model = one_op("QUANTIZE", ["i8[256]"], ["u8[256]"])
    for t, scale, zero in zip(model["subgraphs"][0]["tensors"], (0.5, 0.7), (3, 130), strict=True):
        t["quantization"] = {
            "scale": np.array([scale], np.float32), "zero_point": np.array([zero]),
        }  # fmt: skip
    path, x = tmp_path / "model.tflite", np.arange(-128, 128).astype(np.int8)
    path.write_bytes(file_of(model))

    alpenglow(f"convert {path} -o {tmp_path / 'model.onnx'}")

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    wanted = np.rint((x.astype(np.float64) - 3) * 0.5 / 0.7) + 130
    assert np.array_equal(y, ag.compile(path)(x))
    assert np.abs(y.astype(np.int64) - np.clip(wanted, 0, 255)).max() == 0


def test_a_rounding_that_there_is_not_is_told() -> None:
    with pytest.raises(OptionError, match=r"'down', expected one of xnnpack, reference"):
        ag.load(quantising(), rounding="down")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, [3])], [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(OptionError, match="expected None, as onnx models define how"):
        ag.compile(onnx.ModelProto.SerializeToString(model), rounding="reference")
    loaded = ag.load(quantising())
    with pytest.raises(OptionError, match="imported already"):
        ag.compile(loaded, rounding="reference")


def test_scales_that_make_no_sense_are_told() -> None:
    with pytest.raises(ModelError, match=r"zero point is 300, expected -128 to 127"):
        load(quantising(zero=300))
    with pytest.raises(ModelError, match="has scale nan, expected at least 0 and finite"):
        load(quantising(scale=float("nan")))
    model = one_op("DEQUANTIZE", ["i8[2,3]"], ["f32[2,3]"])
    tensor = model["subgraphs"][0]["tensors"][0]
    tensor["quantization"] = {"scale": np.ones(3, np.float32), "quantized_dimension": 0}
    with pytest.raises(ModelError, match=r"axis 0 of i8\[2,3\] has 3 scales or zero points"):
        load(file_of(model))
    tensor["quantization"] = {"scale": np.ones(3, np.float32), "quantized_dimension": 2}
    with pytest.raises(ModelError, match="3 scales and 1 zero points on axis 2, expected 1 or"):
        load(file_of(model))


def test_scales_of_an_axis_stand_for_its_indices() -> None:
    model = one_op("DEQUANTIZE", ["i8[2,3]"], ["f32[2,3]"])
    model["subgraphs"][0]["tensors"][0]["quantization"] = {
        "scale": np.array([1, 10], np.float32), "zero_point": np.array([0, 1]),
        "quantized_dimension": 0,
    }  # fmt: skip
    graph = load(file_of(model))
    assert isinstance(graph, Graph)

    made = ag.compile(graph)(np.array([[1, 2, 3], [1, 2, 3]], np.int8))

    assert made.tolist() == [[1, 2, 3], [0, 10, 20]]


def test_operators_without_integers_are_refused() -> None:
    model = one_op("ATAN2", ["i8[3]", "i8[3]"], ["i8[3]"])
    for t in model["subgraphs"][0]["tensors"]:
        t["quantization"] = {"scale": np.array([0.5], np.float32)}

    wanted = r"ATAN2 \(1 node at .*\): there is no converter for quantized i8"
    with pytest.raises(UnsupportedError, match=wanted):
        load(file_of(model))


def test_reference_sums_of_a_fully_connected_layer_round_halves_away_from_zero() -> None:
    w = np.array([[1]], np.int8)
    model = one_op("FULLY_CONNECTED", ["i8[4,1]", w], ["i8[4,1]"], "FullyConnectedOptions")
    for tensor, scale in zip(model["subgraphs"][0]["tensors"], (0.5, 1.0, 1.0), strict=True):
        step = np.array([scale], np.float32)
        tensor["quantization"] = {"scale": step, "zero_point": np.array([0])}
    x = np.array([[-143 // 2], [-3], [3], [5]], np.int8)

    for rounding, wanted in (("xnnpack", [-36, -2, 2, 2]), ("reference", [-36, -2, 2, 3])):
        assert ag.compile(file_of(model), rounding=rounding)(x).ravel().tolist() == wanted
