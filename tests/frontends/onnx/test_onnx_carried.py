"""What a loop carries and never changes becomes a captured value of its body."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.frontends.onnx.rewrite.carried import settled
from staged_cases import GOES, GOES_ON, ITERATION, graph, info, model, node

F32 = TensorProto.FLOAT

pytestmark = pytest.mark.usefixtures("own_cache")


def weighted(result: str, extra: Any = (), start: str = "w") -> onnx.ModelProto:
    """Return h = tanh(h·w) in a loop that hands on `result` as its next w."""
    body = graph(
        [node("MatMul", ["h", "held"], ["p"]), node("Tanh", ["p"], ["h2"]), *extra, GOES_ON],
        [*ITERATION, info("h", [2, 3]), info("held", [3, 3])],
        [GOES, info("h2", [2, 3]), info(result, [3, 3])],
    )
    nodes = [
        node("Neg", ["x"], ["z"]),
        node("Loop", ["n", "", "z", start], ["y", "last"], body=body),
    ]
    w = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    inputs = [info("x", [2, 3]), helper.make_tensor_value_info("n", TensorProto.INT64, [])]
    return model(nodes, inputs, ["y", "last"], {"w": w})


def assigned(number: float, axis: int = 0) -> list[Any]:
    """Return nodes that add a number to a value behind an axis that is taken away again."""
    return [
        node("Constant", [], ["axes"], value_ints=[axis]),
        node("Constant", [], ["number"], value_floats=[number]),
        node("Unsqueeze", ["held", "axes"], ["wide"]), node("Add", ["wide", "number"], ["sum"]),
        node("Squeeze", ["sum", "axes"], ["same"]),
    ]  # fmt: skip


HANDED_ON = {
    "itself": weighted("held"),
    "a copy": weighted("same", [node("Identity", ["held"], ["same"])]),
    "a copy of a copy": weighted(
        "same", [node("Identity", ["held"], ["once"]), node("Identity", ["once"], ["same"])]
    ),
    "what a loop of Paddle assigns": weighted("same", assigned(0.0)),
}
CHANGED = {
    "a sum on an axis of its own": weighted("same", assigned(1.0)),
    "axes that are not stated": weighted(
        "same", [*assigned(0.0)[:-1], node("Squeeze", ["sum"], ["same"])]
    ),
    "another value": weighted("other", [node("Neg", ["held"], ["other"])]),
    "a name that the body has for something else": weighted(
        "held", [node("Neg", ["p"], ["unread"])], start="unread"
    ),
}


def left(made: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [n for node in made.graph.node for n in settled(node)]


@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize("name", HANDED_ON)
def test_what_is_handed_on_is_captured(name: str, trips: int) -> None:
    made = HANDED_ON[name]
    feeds = {"x": np.float32([[1, 2, 3], [0, -1, 0.5]]), "n": np.array(trips)}
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    actual = ag.compile(made).run(feeds)
    loop, *copies = left(made)[1:]

    assert list(loop.input) == ["n", "", "z"] and [c.op_type for c in copies] == ["Identity"]
    for want, got in zip(expected, actual.values(), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_is_carried(name: str) -> None:
    made = CHANGED[name]

    assert left(made) == list(made.graph.node)


def test_a_body_reads_what_it_was_handed_by_its_name_outside() -> None:
    made = HANDED_ON["itself"]
    (loop,) = (n for n in left(made) if n.op_type == "Loop")
    (body,) = (a.g for a in loop.attribute if a.name == "body")

    assert [i.name for i in body.input] == [*(i.name for i in ITERATION), "h"]
    assert "w" in {name for n in body.node for name in n.input}


def test_strings_and_sequences_are_carried_as_they_were() -> None:
    kinds = [
        helper.make_tensor_value_info("v", TensorProto.STRING, [1]),
        helper.make_tensor_sequence_value_info("v", F32, None),
    ]
    for kind in kinds:
        body = graph([GOES_ON], [*ITERATION, kind], [GOES, kind])
        loop = node("Loop", ["n", "", "s"], ["t"], body=body)

        assert settled(loop) == [loop]


def test_graphs_in_the_body_read_from_outside_too() -> None:
    zero = numpy_helper.from_array(np.float32([0]), "zero")
    then = helper.make_graph([node("Add", ["h", "held"], ["a"])], "then", [], [info("a", [1])])
    other = helper.make_graph([node("Identity", ["held"], ["b"])], "other", [], [info("b", [1])])
    body = helper.make_graph(
        [
            node("Less", ["h", "zero"], ["low"]),
            node("If", ["low"], ["h2"], then_branch=then, else_branch=other), GOES_ON,
        ],
        "turn", [*ITERATION, info("h", [1]), info("held", [1])],
        [GOES, info("h2", [1]), info("held", [1])], [zero],
    )  # fmt: skip
    made = model([node("Loop", ["n", "", "x", "x"], ["y", "same"], body=body)],
                 [info("x", [1])], ["y", "same"], {"n": np.array(3)})  # fmt: skip
    actual = ag.compile(made).run({"x": np.float32([-2])})

    assert actual["y"] == -8 and actual["same"] == -2


@pytest.mark.parametrize("opset", [1, 8, 11, 21])
def test_a_loop_carries_something_as_it_had_to_at_first(opset: int) -> None:
    body = graph(
        [node("MatMul", ["x", "held"], ["row"]), GOES_ON],
        [*ITERATION, info("held", [3, 3])],
        [GOES, info("held", [3, 3]), info("row", [2, 3])],
    )
    nodes = [node("Loop", ["n", "", "w"], ["last", "rows"], body=body)]
    inputs = [info("x", [2, 3]), helper.make_tensor_value_info("n", TensorProto.INT64, [])]
    w = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    made = model(nodes, inputs, ["last", "rows"], {"w": w}, opset=opset)
    x = np.float32([[1, 2, 3], [0, -1, 0.5]])

    last, rows = ag.compile(made).run({"x": x, "n": np.array(3)}).values()

    np.testing.assert_array_equal(last, w)
    np.testing.assert_allclose(rows, np.stack([x @ w] * 3), 1e-5, 1e-6)


def test_a_loop_may_carry_nothing() -> None:
    body = graph([node("Gather", ["x", "i"], ["row"]), node("Neg", ["row"], ["kept"]), GOES_ON],
                 [*ITERATION], [GOES, "kept"])  # fmt: skip
    made = model([node("Loop", ["n", ""], ["y"], body=body)], [info("x", [200, 2])], ["y"],
                 {"n": np.array(200)})  # fmt: skip
    x = np.arange(400, dtype=np.float32).reshape(200, 2)

    np.testing.assert_array_equal(ag.compile(made).run({"x": x})["y"], -x)
