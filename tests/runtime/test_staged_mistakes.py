"""What can be wrong with models that are imported in parts, and with what they are fed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError
from staged_cases import (
    BOOL,
    CASES,
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Feeds,
    count,
    graph,
    info,
    model,
    node,
    numbers,
)

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")


def refused(made: onnx.ModelProto, feeds: Feeds | None = None) -> str:
    """Return the message of the error that loading or running a model raises."""
    with pytest.raises(AlpenglowError) as caught:
        exe = ag.compile(made)
        if feeds is not None:
            exe.run(feeds)
    return str(caught.value)


def test_feeds_that_do_not_fit_are_refused() -> None:
    exe = ag.compile(CASES["nonzero"].model())
    good = CASES["nonzero"].calls()[0]
    for wrong, says in (
        ({"x": good["x"]}, "feeds lack k"),
        ({**good, "z": good["x"]}, "hold z that is no input"),
        ({**good, "x": good["x"].astype(np.float64)}, "input 'x' is float64"),
        ({**good, "x": good["x"][0]}, "input 'x' has shape"),
        ({**good, "k": np.array([1, 2])}, "input 'k' is int64[2], expected i64[1]"),
        ({**good, "x": "text"}, "input 'x' is"),
    ):
        with pytest.raises(FeedError) as caught:
            exe.run(wrong)

        assert says in str(caught.value)
    assert len(exe.run(good)) == 4


def loop_of(body: onnx.GraphProto, operands: Sequence[str], results: Sequence[str]) -> Any:
    nodes = [node("Loop", operands, results, body=body, name="it")]
    return model(nodes, [info("n", (), I64), info("c", (), BOOL), info("a", ["K"])], results)


PLAIN = graph([node("Neg", ["acc"], ["acc2"]), GOES_ON], [*ITERATION, info("acc")], [GOES, "acc2"])


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: loop_of(PLAIN, ["n", "c"], ["y"]), "Loop: the body has 3 inputs"),
        (lambda: loop_of(PLAIN, ["n", "c", "a", "a"], ["y"]), "expected 4 and 2"),
        (lambda: loop_of(PLAIN, ["n", "c", "a"], ["y", "z"]), "and 2 outputs, expected 3 and 3"),
        (
            lambda: model([node("Loop", ["n", "", "a"], ["y"], name="it")],
                          [info("n", (), I64), info("a", [2])], ["y"]),
            "Loop: attribute 'body' is missing",
        ),
        (
            lambda: model([node("Scan", ["a", "x"], ["y"], name="it", num_scan_inputs=1,
                                body=graph([], [info("s")], ["s"]))],
                          [info("a", [2]), info("x", [3, 2])], ["y"]),
            "Scan: 2 operands and num_scan_inputs 1, expected 1 operands",
        ),
        (
            lambda: model([node("Scan", ["a", "x"], ["y"], name="it", num_scan_inputs=3,
                                body=graph([], [info("s"), info("t")], ["s"]))],
                          [info("a", [2]), info("x", [3, 2])], ["y"]),
            "Scan: 2 operands and num_scan_inputs 3, expected 2 operands",
        ),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit_their_loop_are_refused(
    made: Callable[[], onnx.ModelProto], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.onnx"
    onnx.save(made(), path)
    with pytest.raises(ModelError) as caught:
        ag.load(path)
    text = str(caught.value)

    assert says in text
    assert "'it'" in text and str(path) in text


def branching(then: Any, other: Any, condition: Sequence[int] = ()) -> onnx.ModelProto:
    attributes = {}
    if then is not None:
        attributes["then_branch"] = then
    if other is not None:
        attributes["else_branch"] = other
    nodes = [node("If", ["c"], ["y"], name="it", **attributes)]
    return model(nodes, [info("x", [3]), info("c", condition, BOOL)], ["y"])


NEGATED = graph([node("Neg", ["x"], ["a"])], (), ["a"])
TWO = graph([node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"])], (), ["a", "b"])


@pytest.mark.parametrize(
    ("made", "c", "says"),
    [
        (lambda: branching(NEGATED, None), False, "If: attribute 'else_branch' is missing"),
        (lambda: branching(None, NEGATED), True, "If: attribute 'then_branch' is missing"),
        (lambda: branching(TWO, NEGATED), True, "returns 2 values, expected 1"),
        (
            lambda: branching(NEGATED, NEGATED, [2]),
            [True, False],
            "condition 'c' has 2 elements, expected one",
        ),
    ],
)
def test_branches_that_do_not_fit_are_refused(
    made: Callable[[], onnx.ModelProto], c: Any, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.onnx"
    onnx.save(made(), path)
    with pytest.raises(ModelError) as caught:
        ag.compile(path).run({"x": numbers(3), "c": np.array(c)})
    text = str(caught.value)

    assert says in text
    assert "'it'" in text and str(path) in text


def test_the_other_branch_still_runs() -> None:
    exe = ag.compile(branching(NEGATED, None))
    feeds = {"x": numbers(3), "c": np.array(True)}

    np.testing.assert_array_equal(exe.run(feeds)["y"], -numbers(3))
    with pytest.raises(ModelError):
        exe.run({**feeds, "c": np.array(False)})
    np.testing.assert_array_equal(exe.run(feeds)["y"], -numbers(3))


def test_an_if_without_condition_is_refused() -> None:
    nodes = [node("If", [], ["y"], name="it", then_branch=NEGATED, else_branch=NEGATED)]

    assert "expected one, the condition" in refused(model(nodes, [info("x", [3])], ["y"]))


def test_what_tells_a_loop_when_to_end_must_be_one_element() -> None:
    body = graph(
        [node("Neg", ["acc"], ["acc2"]), node("Less", ["acc2", "zero"], ["goes"])],
        [*ITERATION, info("acc")],
        [info("goes", None, BOOL), "acc2"],
    )
    nodes = [node("Loop", ["n", "", "a"], ["y"], body=body, name="it")]
    made = model(nodes, [info("n", None, I64), info("a", ["K"])], ["y"], {"zero": np.float32(0)})
    text = refused(made, {"n": count(3), "a": numbers(2)})
    assert "the condition of a loop is (2,), expected one element" in text
    assert "'it'" in text

    assert "the trip count of a loop is (2,)" in refused(
        made, {"n": np.array([1, 2]), "a": numbers(1)}
    )


def test_a_loop_is_told_how_often_to_turn_by_a_whole_number() -> None:
    body = graph([GOES_ON, node("Neg", ["acc"], ["acc2"])], [*ITERATION, info("acc")],
                 [GOES, "acc2"])  # fmt: skip
    nodes = [node("Loop", ["n", "", "a"], ["y"], body=body)]
    for kind, made in ((TensorProto.COMPLEX64, np.complex64), (TensorProto.FLOAT, np.float32)):
        whole = model(nodes, [info("n", (), kind), info("a", ["K"])], ["y"])
        text = refused(whole, {"n": np.array(3, made), "a": numbers(2)})
        assert "the trip count of a loop is" in text and "expected an integer" in text


@pytest.mark.parametrize(("opset", "operands"), [(8, ", , x"), (8, "n, , x"), (11, ", x")])
def test_a_scan_without_one_of_its_operands_is_refused(opset: int, operands: str) -> None:
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        g (float[1,k,2] x, int64[1] n) => (float[a,b] y) {{
            t, y = Scan <num_scan_inputs = 1,
                body = b (float[2] s, float[2] e) => (float[2] c, float[2] d) {{
                    c = Add (s, e) d = Identity (c) }}> ({operands}) }}""")

    assert "is missing" in refused(made, {"x": numbers(1, 3, 2), "n": count(3)})


def test_slices_of_different_number_are_refused() -> None:
    body = graph([node("Add", ["e", "f"], ["o"])], [info("e"), info("f")], ["o"])
    nodes = [node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2, name="it")]
    made = model(nodes, [info("x", ["N", 2]), info("y", ["M", 2])], ["z"])

    assert "the scanned operands have [3, 4] slices" in refused(
        made, {"x": numbers(3, 2), "y": numbers(4, 2)}
    )


def test_errors_in_later_parts_name_node_and_file(tmp_path: Path) -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Reshape", ["a", "s"], ["r"], name="turn"),
        node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    made = model(nodes, [info("x", ["N"]), info("s", [2], I64)], ["y"], {"w": numbers(4, 2)})
    path = tmp_path / "later.onnx"
    onnx.save(made, path)
    exe = ag.compile(path)
    feeds = {"x": numbers(12), "s": np.array([3, 4])}

    assert exe.run(feeds)["y"].shape == (3, 2)
    for shape, culprit in (((5, 5), "turn"), ((4, 3), "product")):
        with pytest.raises(AlpenglowError) as caught:
            exe.run({**feeds, "s": np.array(shape)})
        assert culprit in str(caught.value) and str(path) in str(caught.value)
    assert exe.run(feeds)["y"].shape == (3, 2)


def test_errors_in_bodies_name_the_node() -> None:
    body = graph(
        [node("MatMul", ["acc", "x"], ["acc2"], name="within"), GOES_ON],
        [*ITERATION, info("acc")],
        [GOES, "acc2"],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=body, name="around")]
    made = model(nodes, [info("n", (), I64), info("x", ["N", "M"])], ["y"])
    text = refused(made, {"n": count(3), "x": numbers(2, 3)})

    assert "within" in text


def test_a_hosts_complaint_names_the_node() -> None:
    nodes = [
        node("SequenceConstruct", ["x"], ["s"]),
        node("SequenceAt", ["s", "n"], ["y"], name="pick"),
    ]
    made = model(nodes, [info("x", ["N"]), info("n", (), I64)], ["y"])
    text = refused(made, {"x": numbers(2), "n": count(3)})

    assert "pick" in text


def test_an_operator_that_is_missing_in_a_branch_is_named_at_once() -> None:
    then = graph([node("Unheard", ["x"], ["a"])], (), ["a"])
    text = refused(branching(then, NEGATED))

    assert "Unheard (1 node at 'a')" in text
