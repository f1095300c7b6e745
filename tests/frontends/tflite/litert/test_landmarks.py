"""MediaPipe's operators on landmarks, beside their definitions as products of matrices in f64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import pytest
from flatbuffers import flexbuffers
from tests.frontends.tflite.litert.written import buffer, model_of, packed, subgraph, tensor

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.ir.types import NAMES, Array

RANDOM = np.random.default_rng(4)


def custom(kind: str, operands: list[Array], shape: tuple[int, ...],
           options: Mapping[str, Any] | None, version: int = 2) -> bytes:  # fmt: skip
    """Return a model of one custom operator on inputs."""
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode, code.version = kind, version
    o = schema.OperatorT()
    o.opcodeIndex, o.inputs, o.outputs = 0, list(range(len(operands))), [len(operands)]
    content = dumped(options) if options is not None else b""
    o.customOptions = np.frombuffer(content, np.uint8) if content else None
    tensors = [tensor(f"x{i}", NAMES[v.dtype], v.shape) for i, v in enumerate(operands)]
    tensors.append(tensor("y", "f32", shape))
    g = subgraph(tensors, o.inputs, o.outputs, [o])
    return packed(model_of([g], [code], [buffer()]))


def dumped(options: Mapping[str, Any]) -> bytes:
    """Return options as the converters of such models write them: lists have one type."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in options.items():
            match value:
                case list():
                    builder.TypedVectorFromElements(name, value)
                case bool():
                    builder.Bool(name, value)
                case float():
                    builder.Float(name, value)
                case _:
                    builder.Int(name, value)
    return bytes(builder.Finish())


def shift(x: float, y: float) -> Array:
    return np.array([[1, 0, 0, x], [0, 1, 0, y], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)


def turn(angle: float) -> Array:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)


def region(points: Array, options: Mapping[str, Any]) -> Array:
    """Return the matrix of a region: shifts, turns and stretches one after the other."""
    p = points[0].astype(np.float64)
    left, right = p[options["left_rotation_idx"]], p[options["right_rotation_idx"]]
    angle = options["target_rotation_radians"] - math.atan2(*(right - left)[1::-1])
    chosen = p[list(options["subset_idxs"])].copy()
    chosen[:, 2] = 0
    level = (turn(angle) @ np.c_[chosen, np.ones(len(chosen))].T)[:2]
    middle = turn(-angle) @ np.array([*(level.max(1) + level.min(1)) / 2, 0, 1])
    width, height = level.max(1) - level.min(1)
    w, h = options["output_width"], options["output_height"]
    stretch = np.diag([options["scale_x"] * width / w, options["scale_y"] * height / h, 1, 1])
    whole: Array = shift(*middle[:2]) @ turn(-angle) @ stretch @ shift(-w / 2, -h / 2)
    return whole


@pytest.mark.parametrize("chosen", [[0, 3, 5, 7], list(range(300, 200, -7)), [4] * 3])
def test_a_region_holds_landmarks_turned_level(chosen: list[int], no_cache: None) -> None:
    points = RANDOM.uniform(0, 40, (1, 310, 3)).astype(np.float32)
    options = {
        "subset_idxs": chosen, "left_rotation_idx": 2, "right_rotation_idx": 301,
        "target_rotation_radians": 0.25, "output_height": 16, "output_width": 24,
        "scale_x": 1.5, "scale_y": 1.25,
    }  # fmt: skip

    made = ag.compile(custom("Landmarks2TransformMatrix", [points], (1, 4, 4), options))(points)

    np.testing.assert_allclose(made[0], region(points, options), atol=2e-5)


@pytest.mark.parametrize("width", [2, 3])
def test_landmarks_are_taken_by_a_matrix(width: int, no_cache: None) -> None:
    points = RANDOM.uniform(-9, 9, (1, 7, width)).astype(np.float32)
    matrix = RANDOM.uniform(-2, 2, (1, 4, 4)).astype(np.float32)
    wanted = points.astype(np.float64)
    wanted[0, :, :2] = points[0, :, :2] @ matrix[0, :2, :2].T + matrix[0, :2, 3]

    made = ag.compile(custom("TransformLandmarks", [points, matrix], points.shape, None))(
        points, matrix
    )

    np.testing.assert_allclose(made, wanted, atol=1e-5)


def cut_out(x: Array, matrix: Array, high: int, wide: int) -> Array:
    """Return what a matrix cuts out, pixel by pixel."""
    rows, columns = x.shape[1:3]
    out = np.zeros((1, high, wide, x.shape[3]))
    for v in range(high):
        for u in range(wide):
            px, py = (matrix[0, :2] @ np.array([u + 0.5, v + 0.5, 0, 1])) - 0.5
            if not (0 <= px <= columns - 1 and 0 <= py <= rows - 1):
                continue
            i, j = int(py), int(px)
            for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = (1 - abs(py - i - di)) * (1 - abs(px - j - dj))
                if i + di < rows and j + dj < columns:
                    out[0, v, u] += share * x[0, i + di, j + dj]
    return out


@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0])
def test_a_matrix_cuts_out_of_an_image(angle: float, no_cache: None) -> None:
    x = RANDOM.uniform(-2, 2, (1, 9, 12, 5)).astype(np.float32)
    whole = shift(4, 5) @ turn(angle) @ np.diag([1.3, 0.9, 1, 1]) @ shift(-3, -4)
    matrix = whole[None].astype(np.float32)
    options = {"output_height": 8, "output_width": 6}
    model = custom("TransformTensorBilinear", [x, matrix], (1, 8, 6, 5), options)

    made = ag.compile(model)(x, matrix)

    wanted = cut_out(x, matrix.astype(np.float64), 8, 6)
    assert np.isclose(made, wanted, atol=1e-4).mean() > 0.98  # an edge may be hit or missed
    assert np.count_nonzero(wanted) > 40


def test_what_is_not_read_of_them_is_told() -> None:
    points, matrix = np.zeros((1, 5, 2), np.float32), np.zeros((1, 4, 4), np.float32)
    with pytest.raises(UnsupportedError, match="version 1 is not supported; supported: version 2"):
        ag.load(custom("TransformLandmarks", [points, matrix], (1, 5, 2), None, version=1))
    with pytest.raises(ModelError, match="custom_options lacks output_width"):
        ag.load(custom("TransformTensorBilinear", [points[..., None], matrix], (1, 4, 4, 1),
                       {"output_height": 4}))  # fmt: skip
    options = {
        "subset_idxs": [0, 9], "left_rotation_idx": 2, "right_rotation_idx": 3,
        "target_rotation_radians": 0.0, "output_height": 16, "output_width": 24,
        "scale_x": 1.5, "scale_y": 1.25,
    }  # fmt: skip
    landmarks = np.zeros((1, 5, 3), np.float32)
    with pytest.raises(ModelError, match="expected at least 1 index each, from 0 to 4"):
        ag.load(custom("Landmarks2TransformMatrix", [landmarks], (1, 4, 4), options))
