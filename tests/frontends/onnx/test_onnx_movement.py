"""Operators of ONNX that move elements, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.dims import symbol
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.movement import Slice
from onnx_node import Array, assert_close, node_model, ours, references, runtimes

INT_MAX = (1 << 63) - 1


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(0).uniform(-9, 9, shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


Case = tuple[str, int, tuple[int, ...], dict[str, Array], dict[str, Any]]

CASES: list[Case] = [
    ("Squeeze", 11, (1, 3, 1), {}, {}),
    ("Squeeze", 11, (1, 3, 1), {}, {"axes": [-1]}),
    ("Squeeze", 13, (1, 3, 1), {"axes": ints(0)}, {}),
    ("Squeeze", 13, (1, 0, 1), {}, {}),
    ("Unsqueeze", 11, (3, 4), {}, {"axes": [0, -1]}),
    ("Unsqueeze", 13, (3, 4), {"axes": ints(3, 1)}, {}),
    ("Unsqueeze", 13, (), {"axes": ints(0)}, {}),
    ("Slice", 9, (5, 7), {}, {"starts": [1, -3], "ends": [-1, INT_MAX]}),
    ("Slice", 9, (5, 7), {}, {"starts": [-100], "ends": [3], "axes": [1]}),
    ("Slice", 13, (5, 7), {"s": ints(4, -1), "e": ints(0, -INT_MAX), "a": ints(0, 1),
                           "t": ints(-2, -1)}, {}),
    ("Slice", 13, (5, 7), {"s": ints(9), "e": ints(20)}, {}),
    ("Slice", 13, (5, 7), {"s": ints(3), "e": ints(1), "a": ints(-1)}, {}),
    ("Slice", 13, (5, 7), {"s": ints(0), "e": ints(INT_MAX), "a": ints(1), "t": ints(3)}, {}),
    ("Slice", 13, (0, 7), {"s": ints(0), "e": ints(3)}, {}),
    ("Expand", 8, (3, 1), {"shape": ints(2, 1, 6)}, {}),
    ("Expand", 13, (3, 4), {"shape": ints(1)}, {}),
    ("Expand", 13, (1, 4), {"shape": ints(0, 1)}, {}),
    ("Tile", 6, (2, 3), {"repeats": ints(2, 2)}, {}),
    ("Tile", 13, (1, 3, 2), {"repeats": ints(4, 1, 3)}, {}),
    ("Tile", 13, (2, 3), {"repeats": ints(0, 2)}, {}),
    ("Pad", 7, (3, 4), {}, {"pads": [1, 0, 0, 2], "value": 1.5}),
    ("Pad", 7, (3, 4), {}, {"pads": [1, 2, 2, 3], "mode": "reflect"}),
    ("Pad", 13, (3, 4), {"pads": ints(-1, 2, 1, -1), "v": np.float32(7)}, {}),
    ("Pad", 13, (3, 4), {"pads": ints(1, 2, 0, 3)}, {"mode": "edge"}),
    ("Pad", 18, (3, 4), {"pads": ints(2, 1), "v": np.float32(2), "axes": ints(-1)}, {}),
    ("Pad", 18, (3, 4), {"pads": ints(2, 0, 1, 3), "v": np.float32(2), "axes": ints(1, 0)}, {}),
    ("Pad", 19, (2, 3, 4), {"pads": ints(1, 0, 2, 3), "v": np.float32(0), "axes": ints(0, -1)},
     {"mode": "edge"}),
    ("Pad", 19, (3, 4), {"pads": ints(1, 3, 2, 0)}, {"mode": "wrap"}),
    ("Pad", 19, (2, 4), {"pads": ints(5, 3, 7, 9)}, {"mode": "wrap"}),
    ("Pad", 13, (5, 4), {"pads": ints(-1, 1, 2, -1)}, {"mode": "edge"}),
    ("DepthToSpace", 7, (2, 8, 2, 3), {}, {"blocksize": 2}),
    ("DepthToSpace", 13, (2, 18, 1, 2), {}, {"blocksize": 3, "mode": "CRD"}),
    ("SpaceToDepth", 13, (2, 3, 4, 6), {}, {"blocksize": 2}),
    ("Trilu", 14, (3, 5), {"k": np.int64(1)}, {}),
    ("Trilu", 14, (2, 5, 3), {"k": np.int64(-1)}, {"upper": 0}),
    ("Trilu", 14, (4, 4), {}, {"upper": 0}),
    ("ReverseSequence", 10, (4, 3), {"n": ints(1, 4, 2)}, {}),
    ("ReverseSequence", 10, (3, 4, 2), {"n": ints(1, 4, 2)}, {"batch_axis": 0, "time_axis": 1}),
    ("CenterCropPad", 18, (5, 4, 3), {"shape": ints(2, 7)}, {"axes": [0, -1]}),
    ("CenterCropPad", 18, (5, 4), {"shape": ints(8, 3)}, {}),
]  # fmt: skip


def label(case: Case) -> str:
    op, opset, shape, constants, attributes = case
    given = [f"{k}{v.tolist()}" for k, v in constants.items()]
    return " ".join(map(str, [op, opset, shape, *given, *attributes.values()]))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_elements_move_as_in_onnx_runtime(case: Case) -> None:
    op, opset, shape, constants, attributes = case
    feeds = {"x": drawn(*shape)}
    model = node_model(op, feeds, constants, opset=opset, **attributes)
    peer = references if op == "CenterCropPad" else runtimes

    assert_close(peer(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float16", "float64", "bool"])
@pytest.mark.parametrize("op", ["Slice", "Pad", "Tile", "Expand"])
def test_every_element_type_moves(op: str, dtype: str) -> None:
    constants = {"Slice": {"s": ints(1), "e": ints(3)}, "Pad": {"p": ints(1, 0, 0, 2)},
                 "Tile": {"r": ints(2, 1)}, "Expand": {"s": ints(2, 3, 4)}}[op]  # fmt: skip
    feeds = {"x": np.abs(drawn(3, 4)).astype(dtype)}
    model = node_model(op, feeds, constants, opset=13)

    assert_close(references(model, feeds), ours(model, feeds), 0)


def test_truth_is_padded_with_truth() -> None:
    feeds = {"x": drawn(2, 3) > 0}
    model = node_model("Pad", feeds, {"p": ints(1, 0, 0, 2), "v": np.array(True)}, opset=13)

    assert_close(references(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize(
    ("opset", "constants", "attributes", "count"),
    [
        (11, {}, {"axis": 1}, 3),
        (11, {}, {"axis": -1, "split": [1, 0, 5]}, 3),
        (13, {"n": ints(4, 2)}, {"axis": 1}, 2),
        (18, {}, {"axis": 1, "num_outputs": 4}, 4),
    ],
)
def test_split_cuts_into_parts(
    opset: int, constants: dict[str, Array], attributes: dict[str, Any], count: int
) -> None:
    feeds = {"x": drawn(2, 7 if count == 4 else 6)}
    names = [f"y{i}" for i in range(count)]
    model = node_model("Split", feeds, constants, opset=opset, outputs=names, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


def open_slice(starts: list[int], ends: list[int], steps: list[int]) -> Graph:
    """Return the graph of a slice of x[N, 4]."""
    constants = {"s": ints(*starts), "e": ints(*ends), "a": ints(0), "t": ints(*steps)}
    model = node_model("Slice", {"x": drawn(8, 4)}, constants, opset=13)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    return load(model)


@pytest.mark.parametrize(
    ("start", "end", "step", "extent"),
    [
        (0, INT_MAX, 1, symbol("N")),
        (1, -1, 1, symbol("N") - 2),
        (-2, INT_MAX, 1, 2),
        (0, 3, 1, 3),
        (-1, -INT_MAX, -1, symbol("N")),
        (0, INT_MAX, 2, (symbol("N") + 1) // 2),
    ],
)
def test_a_slice_of_an_open_extent_has_an_open_extent(
    start: int, end: int, step: int, extent: object
) -> None:
    g = open_slice([start], [end], [step])
    x = drawn(7, 4)
    stop = None if end == -INT_MAX else end

    assert g.outputs["y"].type.shape[0] == extent
    np.testing.assert_array_equal(evaluate(g.bind({"N": 7}), {"x": x})["y"], x[start:stop:step])


@pytest.mark.parametrize("pads", [(2, 0, -1, 0), (3, 5, 8, 1), (0, 9, 0, 0), (7, 0, 7, 4)])
def test_what_is_short_is_reflected_again_and_again(pads: tuple[int, ...]) -> None:
    x = drawn(3, 2)
    before, after = pads[:2], pads[2:]
    kept = x[: 3 + min(after[0], 0)]
    amounts = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    model = node_model("Pad", {"x": x}, {"pads": ints(*pads)}, opset=13, mode="reflect")

    np.testing.assert_array_equal(ours(model, {"x": x})[0], np.pad(kept, amounts, "reflect"))


def test_one_row_is_not_reflected() -> None:
    model = node_model("Pad", {"x": drawn(1, 2)}, {"pads": ints(1, 0, 0, 0)}, opset=13,
                       mode="reflect")  # fmt: skip

    with pytest.raises(TypeRuleError, match="is 1 with mode 'reflect', expected less than 1"):
        load(model)


def test_an_extent_too_small_for_its_slice_is_refused_when_bound() -> None:
    with pytest.raises(TypeRuleError, match="N-3 >= 0, which is not so with N = 2"):
        open_slice([0], [3], [1]).bind({"N": 2})


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "message"),
    [
        ("Squeeze", {"axes": ints(1)}, {}, "axis 1"),
        ("Unsqueeze", {"axes": ints(0, 0)}, {}, "distinct"),
        ("Slice", {"s": ints(0), "e": ints(1), "a": ints(5)}, {}, "axes"),
        ("Slice", {"s": ints(0), "e": ints(1), "a": ints(0), "t": ints(0)}, {}, "step"),
        ("Split", {"n": ints(1, 1)}, {"axis": 1}, "expected a sum of"),
        ("Expand", {"shape": ints(2, 5)}, {}, "broadcast"),
        ("Tile", {"repeats": ints(2)}, {}, "repeats"),
        ("Pad", {"pads": ints(1, 2)}, {}, "pads"),
        ("Pad", {"pads": ints(1, 0, 0, 0)}, {"mode": "mirror"}, "mirror"),
        ("DepthToSpace", {}, {"blocksize": 2}, "blocks"),
        ("ReverseSequence", {"n": ints(1, 2)}, {"batch_axis": 0, "time_axis": 0}, "batch"),
    ],
)
def test_wrong_attributes_are_reported(
    op: str, constants: dict[str, Array], attributes: dict[str, Any], message: str
) -> None:
    feeds = {"x": drawn(1, 3)}
    outputs = ("y", "z") if op == "Split" else ("y",)
    model = node_model(op, feeds, constants, opset=13, outputs=outputs, **attributes)

    with pytest.raises((ModelError, TypeRuleError), match=message):
        load(model)


def test_a_slice_may_depend_on_the_data() -> None:
    x = drawn(3)
    exe = ag.compile(node_model("Slice", {"x": x, "s": ints(1)}, {"e": ints(3)}, opset=13))
    for start in (1, 2, 0, -1, 3, 9, -9):
        np.testing.assert_array_equal(exe(x, ints(start)), x[start:3])


def test_a_slice_of_negative_size_cannot_be_built() -> None:
    g = Graph()
    x: Value = g.input("x", "f32[4]")

    with pytest.raises(AlpenglowError):
        g(Slice((3,), (-1,), (1,)), x)
