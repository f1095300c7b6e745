"""Every operator of ONNX has a converter in every opset, and old forms mean what they meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import defs

from alpenglow.frontends.onnx.converters import find
from alpenglow.frontends.onnx.hosted import find_hosted
from onnx_node import Array, assert_close, check, ours, runtimes, single

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 3, 5, 6)).astype(np.float32)

SCHEMAS = [(s.name, s.since_version) for s in defs.get_all_schemas_with_history() if not s.domain]


def test_every_form_of_an_operator_has_a_converter() -> None:
    newest = {name: max(v for n, v in SCHEMAS if n == name) for name, _ in SCHEMAS}
    known = {name for name, version in newest.items() if find("", name, version)}

    assert [f"{n} {v}" for n, v in SCHEMAS if n in known and find("", n, v) is None] == []


def test_every_operator_of_the_specification_is_there() -> None:
    control = {"If", "Loop", "Scan"}
    newest = [defs.get_schema(name) for name in {n for n, _ in SCHEMAS} - control]
    missing = [
        s.name
        for s in newest
        if not find("", s.name, s.since_version) and not find_hosted("", s.name, s.since_version)
    ]

    # What ONNX defines by a body of other operators needs no converter.
    assert set(missing) <= {"SequenceMap"}


UNARY = ("Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Neg",
         "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Tanh")  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_operators_in_place_are_ordinary_ones(op: str) -> None:
    x = np.abs(IMAGES)
    old = ours(single(op, [x], 1, consumed_inputs=[0]), [x])

    assert_close(ours(single(op, [x], 13), [x]), old, 0)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(("axis", "shape"), [(None, (5, 6)), (None, ()), (1, (3,)), (0, (2, 3)),
                                             (2, (5,)), (-2, (5, 6))])  # fmt: skip
@pytest.mark.parametrize("opset", [1, 6])
def test_an_attribute_said_where_the_second_operand_goes(
    op: str, axis: int | None, shape: tuple[int, ...], opset: int
) -> None:
    y = np.asarray(RNG.standard_normal(shape), np.float32)
    place: dict[str, Any] = {} if axis is None else {"axis": axis}
    start = 4 - len(shape) if axis is None else axis % 4
    wide = y.reshape((*shape, *[1] * (4 - start - len(shape))))

    old = ours(single(op, [IMAGES, y], opset, broadcast=1, **place), [IMAGES, y])
    new = ours(single(op, [IMAGES, wide], 13), [IMAGES, wide])

    assert_close(new, old, 0)


@pytest.mark.parametrize(
    ("op", "opset", "old", "new", "constants"),
    [
        ("Reshape", 1, {"shape": [6, 0, -1]}, {}, [np.array([6, 0, -1])]),
        ("Pad", 1, {"paddings": [0, 0, 1, 2, 0, 0, 3, 4], "value": 2.5}, {},
         [np.array([0, 0, 1, 2, 0, 0, 3, 4]), np.float32(2.5)]),
        ("Pad", 2, {"pads": [0, 0, 1, 2, 0, 0, 3, 4], "mode": "reflect"}, {"mode": "reflect"},
         [np.array([0, 0, 1, 2, 0, 0, 3, 4])]),
        ("Slice", 1, {"starts": [1, -3], "ends": [9, -1], "axes": [1, 3]}, {},
         [np.array([1, -3]), np.array([9, -1]), np.array([1, 3])]),
        ("Clip", 1, {"min": -0.5, "max": 0.25}, {}, [np.float32(-0.5), np.float32(0.25)]),
        ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 3.0]}, None, [np.array([1, 1, 2, 3], "f4")]),
        ("Unsqueeze", 1, {"axes": [0, 3]}, {}, [np.array([0, 3])]),
        ("Squeeze", 1, {}, {}, []),
        ("TopK", 1, {"k": 2, "axis": 3}, {"axis": 3}, [np.array([2])]),
        ("Split", 2, {"split": [1, 4], "axis": 2}, {"axis": 2}, [np.array([1, 4])]),
        ("Cast", 1, {"to": "DOUBLE"}, {"to": 11}, []),
        ("Concat", 1, {}, {"axis": 1}, []),
        ("ReduceMean", 1, {"axes": [1, -1]}, {}, [np.array([1, -1])]),
        ("ReduceSum", 11, {"axes": [2], "keepdims": 0}, {"keepdims": 0}, [np.array([2])]),
        ("LpPool", 1, {"kernel_shape": [2, 2], "p": 2.0}, {"kernel_shape": [2, 2]}, []),
        ("GlobalLpPool", 1, {"p": 2.0}, {}, []),
        ("DepthToSpace", 1, {"blocksize": 1}, {"blocksize": 1}, []),
    ],
)  # fmt: skip
def test_attributes_became_operands(
    op: str, opset: int, old: dict[str, Any], new: dict[str, Any] | None, constants: list[Array]
) -> None:
    outputs = 2 if op in ("TopK", "Split") else 1
    operands = [IMAGES, *constants]
    numbers = range(1, len(operands))
    before = ours(single(op, [IMAGES], opset, outputs, **old), [IMAGES])
    after = single(op, operands, 9 if new is None else 21, outputs, numbers, **(new or {}))

    assert_close(ours(after, operands), before, 1e-6)


def test_upsample_took_a_scale_for_each_axis_of_an_image() -> None:
    first = single("Upsample", [IMAGES], 1, height_scale=2.0, width_scale=3.0)
    second = single("Upsample", [IMAGES], 7, scales=[1.0, 1.0, 2.0, 3.0])

    assert_close(ours(second, [IMAGES]), ours(first, [IMAGES]), 0)


def test_tile_repeated_one_axis() -> None:
    operands = [IMAGES, np.array([3.0], np.float32), np.array([2.0], np.float32)]
    counts = np.array([1, 1, 3, 1])
    before = single("Tile", operands, 1, constants=(1, 2))
    after = single("Tile", [IMAGES, counts], 13, constants=(1,))

    assert_close(ours(after, [IMAGES, counts]), ours(before, operands), 0)


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers_said_if_they_return_every_step(
    op: str, gates: int, direction: str
) -> None:
    ways = 2 if direction == "bidirectional" else 1
    x = RNG.standard_normal((4, 2, 3)).astype(np.float32)
    w = RNG.standard_normal((ways, gates * 5, 3)).astype(np.float32)
    r = RNG.standard_normal((ways, gates * 5, 5)).astype(np.float32)
    b = RNG.standard_normal((ways, gates * 10)).astype(np.float32)
    given: dict[str, Any] = {"hidden_size": 5, "direction": direction}

    for opset in (1, 3):
        old = single(op, [x, w, r, b], opset, 2, output_sequence=1, **given)
        new = single(op, [x, w, r, b], 14, 2, **given)

        assert_close(ours(new, [x, w, r, b]), ours(old, [x, w, r, b]), 0)


# ── operators on trial, which ONNX dropped ──


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Affine", {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
        ("Scale", {"scale": 2.0}),
        ("ImageScaler", {"scale": 2.0, "bias": [1.0, -2.0, 3.0]}),
        ("ImageScaler", {"bias": [1.0, -2.0, 3.0]}),
        ("Crop", {"border": [1, 2, 1, 0]}),
        ("Crop", {"border": [1, 2, 1, 0], "scale": [2, 3]}),
        ("ThresholdedRelu", {"alpha": 0.5}),
        ("MeanVarianceNormalization", {}),
        ("MeanVarianceNormalization", {"across_channels": 1}),
        ("MeanVarianceNormalization", {"normalize_variance": 0}),
        ("MeanVarianceNormalization", {"across_channels": 1, "normalize_variance": 0}),
    ],
)
def test_an_operator_on_trial(op: str, attributes: dict[str, Any]) -> None:
    check(op, IMAGES, opset=7, **attributes)


def test_dynamic_slice() -> None:
    operands = [IMAGES, np.array([0, 1]), np.array([2, -1]), np.array([1, 2])]
    model = single("DynamicSlice", operands, 7, constants=(1, 2, 3))

    assert_close(runtimes(single("DynamicSlice", operands, 7), operands), ours(model, operands), 0)


def test_given_tensor_fill() -> None:
    model = single("GivenTensorFill", [], 7, shape=[2, 1], values=[1.0, 2.0])

    assert_close([np.array([[1], [2]], np.float32)], ours(model, []), 0)
