"""Loops that fill sequences, and loops that go through them, do so in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from alpenglow.base.errors import AlpenglowError
from loop_cases import compiled
from staged_cases import (
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Array,
    Feeds,
    count,
    graph,
    info,
    model,
    node,
    numbers,
    sequence,
)

pytestmark = pytest.mark.usefixtures("own_cache")


def appending(
    kept: str = "kept", uses: Sequence[Any] = (), at: Sequence[str] = ()
) -> onnx.ModelProto:
    """Return a Loop that appends a value of each turn to a sequence that has one already."""
    body = graph(
        [node("Tanh", ["x"], ["x2"]), node("Mul", ["x2", "c"], ["kept"]),
         node("ReduceMax", ["x2"], ["least"], keepdims=0),
         node("SequenceInsert", ["acc", kept, *at], ["acc2"]), *uses, GOES_ON],
        [*ITERATION, info("x", ["K"]), sequence("acc")],
        [GOES, "x2", sequence("acc2")],
    )  # fmt: skip
    nodes = [
        node("SequenceConstruct", ["c"], ["begun"]),
        node("Loop", ["n", "", "a", "begun"], ["y", "ys"], body=body, name="it"),
        node("SequenceLength", ["ys"], ["count"]),
    ]
    inputs = [info("n", (), I64), info("a", ["K"]), info("c", ["K"])]
    return model(nodes, inputs, ["y", sequence("ys"), info("count", (), I64)])


@pytest.mark.parametrize("kept", ["kept", "x", "c", "least", "x2"])
def test_what_a_loop_appends_to_a_sequence_is_collected(kept: str) -> None:
    exe = compiled(appending(kept))
    for turns, k in ((50, 3), (1, 3), (0, 3), (7, 4), (50, 3)):
        a, c = numbers(k), numbers(k, seed=1)
        actual = exe.run({"n": count(turns), "a": a, "c": c})
        expected, x = [c], a
        for _ in range(turns):
            x2 = np.tanh(x)
            expected.append({"kept": x2 * c, "x": x, "c": c, "least": x2.max(), "x2": x2}[kept])
            x = x2

        assert actual["count"] == turns + 1
        for want, got in zip(expected, actual["ys"], strict=True):
            assert type(got) is np.ndarray and got.dtype == np.float32
            np.testing.assert_allclose(got, want, 1e-4, 1e-6)


@pytest.mark.parametrize(
    ("uses", "at"),
    [
        ([node("SequenceLength", ["acc"], ["unused"])], ()),
        ([node("SequenceLength", ["acc2"], ["unused"])], ()),
        ([], ["i"]),
    ],
)
def test_a_sequence_that_is_read_or_filled_elsewhere_stays_in_the_body(uses: Any, at: Any) -> None:
    exe = compiled(appending("kept", uses, at))
    a, c = numbers(3), numbers(3, seed=1)
    actual = exe.run({"n": count(5), "a": a, "c": c})

    assert actual["count"] == 6
    np.testing.assert_array_equal(actual["ys"][-1 if at else 0], c)


def test_values_that_do_not_belong_in_a_sequence_are_refused_as_ever() -> None:
    exe = compiled(appending("i"))
    with pytest.raises(AlpenglowError, match="acc2") as caught:
        exe.run({"n": count(3), "a": numbers(3), "c": numbers(3)})

    assert "sequence_insert" in str(caught.value)


def test_what_is_appended_may_have_any_shape() -> None:
    body = graph(
        [node("Concat", ["x", "c"], ["x2"], axis=0),
         node("SequenceInsert", ["acc", "x2"], ["acc2"]), GOES_ON],
        [*ITERATION, info("x", ["K"]), sequence("acc")],
        [GOES, "x2", sequence("acc2")],
    )  # fmt: skip
    nodes = [node("SequenceEmpty", [], ["none"]),
             node("Loop", ["n", "", "a", "none"], ["y", "ys"], body=body)]  # fmt: skip
    made = model(nodes, [info("n", (), I64), info("a", ["K"]), info("c", [1])],
                 [sequence("ys")])  # fmt: skip
    actual = compiled(made).run({"n": count(4), "a": numbers(2), "c": numbers(1)})["ys"]

    assert [y.shape for y in actual] == [(3,), (4,), (5,), (6,)]


def picking(index: str = "i", again: bool = False) -> onnx.ModelProto:
    """Return a recurrent step over the slices of x, as scripts write it: lists come and go."""
    body = graph(
        [node("SequenceAt", ["xs", index], ["e"]),
         node("SequenceAt", ["xs" if again else "ws", "i"], ["f"]),
         node("Mul", ["h", "e"], ["p"]), node("Add", ["p", "f"], ["h2"]),
         node("SequenceInsert", ["acc", "h2"], ["acc2"]), GOES_ON],
        [*ITERATION, info("h", ["K"]), sequence("acc")],
        [GOES, info("h2", ["K"]), sequence("acc2")],
    )  # fmt: skip
    nodes = [
        node("SplitToSequence", ["x"], ["xs"], axis=0, keepdims=0),
        node("SplitToSequence", ["w"], ["ws"], axis=0, keepdims=0),
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["n", "", "h0", "none"], ["last", "hs"], body=body, name="steps"),
        node("ConcatFromSequence", ["hs"], ["y"], axis=0, new_axis=1),
    ]
    inputs = [info("n", (), I64), info("x", ["L", "K"]), info("w", ["M", "K"]), info("h0", ["K"])]
    return model(nodes, inputs, ["last", "y"], {"zero": np.array(0)})


def steps(feeds: Feeds, index: str, again: bool) -> list[Array]:
    h, found = feeds["h0"], []
    for i in range(int(feeds["n"])):
        e = feeds["x"][i if index == "i" else 0]
        h = h * e + feeds["x" if again else "w"][i]
        found.append(h)
    return found


@pytest.mark.parametrize(("index", "again"), [("i", False), ("i", True), ("zero", False)])
def test_a_loop_goes_through_lists(index: str, again: bool) -> None:
    exe = compiled(picking(index, again))
    for n, length, k in ((40, 40, 3), (7, 40, 5), (1, 2, 3), (40, 40, 3)):
        feeds = {"n": count(n), "x": numbers(length, k), "w": numbers(length, k, seed=1),
                 "h0": numbers(k, seed=2)}  # fmt: skip
        actual = exe.run(feeds)
        expected = steps(feeds, index, again)

        np.testing.assert_allclose(actual["y"], expected, 1e-3, 1e-5)
        np.testing.assert_allclose(actual["last"], expected[-1], 1e-3, 1e-5)


def test_a_list_that_is_too_short_is_refused_by_the_node_that_reads_it() -> None:
    exe = compiled(picking())
    feeds = {"x": numbers(9, 3), "w": numbers(6, 3), "h0": numbers(3)}
    assert len(exe.run({"n": count(6), **feeds})["y"]) == 6
    with pytest.raises(AlpenglowError, match="position") as caught:
        exe.run({"n": count(9), **feeds})

    assert "SequenceAt 'f'" in str(caught.value)


def test_elements_of_several_shapes_are_gone_through_as_far_as_they_are_alike() -> None:
    body = graph(
        [node("SequenceAt", ["xs", "i"], ["e"]), node("ReduceSum", ["e"], ["s"], keepdims=0),
         node("Add", ["h", "s"], ["h2"]), GOES_ON],
        [*ITERATION, info("h", ())],
        [GOES, info("h2", ())],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "h0"], ["y"], body=body)]
    made = model(nodes, [info("n", (), I64), sequence("xs"), info("h0", ())], ["y"])
    exe = compiled(made)
    xs = [numbers(k) for k in (3, 3, 3, 3, 5, 2, 2, 2, 2, 2)]
    feeds = {"n": count(10), "xs": xs, "h0": np.array(0, np.float32)}
    exe.run(feeds)
    actual = exe.run(feeds)["y"]
    nothing = exe.run({**feeds, "n": count(0), "xs": []})["y"]

    np.testing.assert_allclose(actual, sum(float(x.sum()) for x in xs), 1e-4)
    assert nothing == 0
