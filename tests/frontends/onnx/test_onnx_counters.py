"""Loops that slice at counters are in the graph if each turn is like the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from staged_cases import F32, GOES, GOES_ON, I64, ITERATION, graph, info, model, node, numbers

pytestmark = pytest.mark.usefixtures("own_cache")

AGAIN = [GOES_ON]
BELOW = [node("Less", ["k2", "limit"], ["few"]), node("Squeeze", ["few"], ["goes"])]
AS_FLOATS = [
    node("Cast", ["k"], ["f"], to=F32),
    node("Add", ["f", "one_f"], ["f2"]),
    node("Cast", ["f2"], ["k2"], to=I64),
]
AS_INTEGERS = [node("Add", ["k", "step"], ["k2"])]


def writing(
    trips: int, ends: Any = AGAIN, counts: Any = AS_INTEGERS, start: int = 0, step: int = 1,
    limit: int = 9, rows: int = 9, width: int = 1,
) -> onnx.ModelProto:  # fmt: skip
    """Return a Loop that makes rows of a table twice what they were, and one more."""
    body = graph(
        [
            *counts,
            node("Add", ["k", "width"], ["behind"]),
            node("Min", ["behind", "rows"], ["end"]),
            node("Slice", ["table", "k", "end", "zero"], ["part"]),
            node("Add", ["part", "part"], ["twice"]),
            node("Add", ["twice", "one_f"], ["new"]),
            node("Squeeze", ["k"], ["first"]),
            node("Squeeze", ["end"], ["last"]),
            node("Range", ["first", "last", "by"], ["places"]),
            node("Unsqueeze", ["places", "one"], ["index"]),
            node("ScatterND", ["table", "index", "new"], ["table2"]),
            *ends,
        ],
        [*ITERATION, info("k", [1], I64), info("table", [rows, 2])],
        [GOES, info("k2", [1], I64), info("table2", [rows, 2])],
    )
    nodes = [node("Loop", ["n", "", "begin", "x"], ["count", "y"], body=body, name="steps")]
    constants = {
        "n": np.array(trips), "begin": np.array([start]), "step": np.array([step]),
        "limit": np.array([limit]), "rows": np.array([rows]), "width": np.array([width]),
        "zero": np.array([0]), "one": np.array([1]), "by": np.array(1), "one_f": np.float32(1),
    }  # fmt: skip
    outputs = [info("count", [1], I64), info("y", [rows, 2])]
    return model(nodes, [info("x", [rows, 2])], outputs, constants)


def check(made: onnx.ModelProto, **feeds: Any) -> bool:
    """Hold a model to ONNX Runtime; return whether it is one graph."""
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    found = ag.compile(made).run(feeds)
    for want, got in zip(peer.run(None, feeds), found.values(), strict=True):
        np.testing.assert_array_equal(got, want)
    return isinstance(ag.load(made), ag.Graph)


@pytest.mark.parametrize(
    "settings",
    [
        {"trips": 200, "rows": 200},
        {"trips": 200, "rows": 201, "start": 1},
        {"trips": 150, "rows": 250, "start": -200},
        {"trips": 100, "rows": 200, "step": 2, "width": 2},
        {"trips": 100, "rows": 300, "start": 297, "step": -3, "width": 3},
        {"trips": 1 << 40, "rows": 200, "ends": BELOW, "limit": 200},
        {"trips": 1 << 40, "rows": 200, "ends": BELOW, "limit": 200, "counts": AS_FLOATS},
        {"trips": 150, "rows": 200, "ends": BELOW, "limit": 1 << 40},
        {"trips": 150, "rows": 200, "ends": BELOW, "limit": 0},
    ],
)
def test_a_loop_that_slices_at_a_counter_is_in_the_graph(settings: dict[str, Any]) -> None:
    assert check(writing(**settings), x=numbers(settings["rows"], 2))


@pytest.mark.parametrize(
    "settings",
    [
        {"trips": 200, "rows": 199},  # the last slice is empty
        {"trips": 1 << 40, "rows": 200, "ends": BELOW, "limit": 201},
        {"trips": 200, "rows": 205, "width": 7, "start": 1},  # the last slices are shorter
    ],
)
def test_a_loop_whose_turns_differ_is_not(settings: dict[str, Any]) -> None:
    assert not check(writing(**settings), x=np.zeros((settings["rows"], 2), np.float32))
