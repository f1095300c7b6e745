"""Loops that are known to turn a few times become the nodes of their turns, others are nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError
from alpenglow.frontends.onnx import control
from alpenglow.ir.staged import StagedModel
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from staged_cases import (
    BOOL,
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Feeds,
    graph,
    info,
    model,
    node,
    numbers,
)

F32 = TensorProto.FLOAT

pytestmark = pytest.mark.usefixtures("own_cache")


def strictly(made: onnx.ModelProto, feeds: Feeds, most: int = control.MOST_NODES) -> Feeds:
    """Run a model as it is written, operation by operation; unroll loops to so many nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "MOST_NODES", most)
        g = ag.load(made)
        found = ag.compile(made, options=ag.Options(numerics="strict")).run(feeds)
    assert (isinstance(g, StagedModel) or is_loop(g)) == (most == 0)
    return found


def is_loop(g: ag.Graph | StagedModel) -> bool:
    """Whether a graph has a loop among its nodes."""
    assert isinstance(g, ag.Graph)
    return any(isinstance(n.op, Scan | While) for n in g.nodes)


def check(made: onnx.ModelProto, feeds: Feeds) -> Feeds:
    """Return what an unrolled model gives: the bits that the loop gives."""
    expected, actual = strictly(made, feeds, most=0), strictly(made, feeds)
    assert list(expected) == list(actual)
    for name, want in expected.items():
        got = actual[name]
        assert (want.dtype, want.shape) == (got.dtype, got.shape), name
        assert want.tobytes() == got.tobytes(), name
    return actual


def recurrent(trips: int, opset: int = 21, goes: Any = GOES_ON, extra: Any = ()) -> onnx.ModelProto:
    """Return a Loop that uses its number, collects, captures, and has constants of its own."""
    body = helper.make_graph(
        [
            node("Cast", ["i"], ["step"], to=F32),
            node("Mul", ["h", "w"], ["p"]),
            node("Add", ["p", "step"], ["q"]),
            node("Add", ["q", "own"], ["h2"]),
            node("Neg", ["h"], ["kept"]),
            *extra,
            *([goes] if goes else []),
        ],
        "turn",
        [*ITERATION, info("h", ["K"])],
        [GOES, info("h2", ["K"]), info("kept", ["K"])],
        [numpy_helper.from_array(np.float32([0.5]), "own")],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "ys"], body=body, name="steps")]
    inputs = [info("x", ["K"]), info("w", ["K"])]
    return model(nodes, inputs, ["y", "ys"], {"n": np.array(trips)}, opset)


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize("trips", [1, 2, 9])
@pytest.mark.sampled(5)
def test_a_counted_loop_is_the_nodes_of_its_turns(trips: int, opset: int) -> None:
    feeds = {"x": numbers(5), "w": numbers(5, seed=1)}
    found = check(recurrent(trips, opset), feeds)

    assert found["ys"].shape == (trips, 5)


def test_what_is_unrolled_can_be_saved(tmp_path: Path) -> None:
    exe = ag.compile(recurrent(4), shapes={"x": (3,), "w": (3,)})
    exe.save(tmp_path / "loop.ago")
    feeds = {"x": numbers(3), "w": numbers(3, seed=1)}
    expected, actual = exe.run(feeds), ag.open(tmp_path / "loop.ago").run(feeds)

    for name, want in expected.items():
        np.testing.assert_array_equal(want, actual[name])


@pytest.mark.parametrize("trips", [0, 1000, -1])
def test_no_turns_or_very_many_are_a_loop_in_the_graph(trips: int) -> None:
    made = recurrent(trips)
    found = ag.compile(made).run({"x": numbers(5), "w": np.zeros(5, np.float32)})

    assert is_loop(ag.load(made))
    assert len(found["ys"]) == max(trips, 0)


@pytest.mark.parametrize(("trips", "turns"), [(9, 4), (3, 3)])
def test_a_condition_that_counts_tells_how_many_results_are_stacked(trips: int, turns: int) -> None:
    goes = node("Less", ["i", "three"], ["goes"])
    made = recurrent(trips, goes=goes, extra=[node("Constant", [], ["three"], value_int=3)])

    assert is_loop(ag.load(made))
    assert len(ag.compile(made).run({"x": numbers(5), "w": numbers(5)})["ys"]) == turns


@pytest.mark.parametrize(
    "goes",
    [
        node("Cast", ["go"], ["goes"], to=BOOL),
        node("Constant", [], ["goes"], value=helper.make_tensor("t", BOOL, [], [True])),
    ],
)
def test_a_condition_is_known_where_it_is_handed_on_or_constant(goes: Any) -> None:
    check(recurrent(5, goes=goes), {"x": numbers(5), "w": numbers(5, seed=1)})


def test_a_constant_that_ends_the_loop_does() -> None:
    goes = node("Constant", [], ["goes"], value=helper.make_tensor("t", BOOL, [], [False]))
    exe = ag.compile(recurrent(5, goes=goes))

    assert len(exe.run({"x": numbers(5), "w": numbers(5)})["ys"]) == 1


@pytest.mark.parametrize("go", [True, False, None])
@pytest.mark.parametrize("trips", [None, 0, 1, 9])
@pytest.mark.parametrize("limit", [5, 0, -3, 100])
@pytest.mark.sampled(12)
def test_what_ends_a_loop_is_asked_after_its_first_turn(
    limit: int, trips: int | None, go: bool | None
) -> None:
    body = graph(
        [
            node("Add", ["k", "one"], ["after"]),
            node("Add", ["h", "h"], ["h2"]),
            node("Less", ["after", "limit"], ["goes"]),
        ],
        [*ITERATION, info("k", (), I64), info("h", ["K"])],
        [GOES, info("after", (), I64), info("h2", ["K"])],
    )
    constants = {"zero": 0, "one": 1, "limit": limit} | ({} if trips is None else {"n": trips})
    operands = ["" if trips is None else "n", "" if go is None else "first", "zero", "x"]
    inputs = [info("x", ["K"]), info("first", (), BOOL)]
    made = model([node("Loop", operands, ["count", "y"], body=body)], inputs, ["count", "y"],
                 {name: np.int64(i) for name, i in constants.items()})  # fmt: skip
    exe = ag.compile(made)
    most = max(limit, 1) if trips is None else min(trips, max(limit, 1))
    count = 0 if go is False else most

    for _ in range(2):
        found = exe.run({"x": np.ones(3, np.float32), "first": np.array(go is not False)})

        assert found["count"] == count
        np.testing.assert_array_equal(found["y"], np.full(3, 2.0**count, np.float32))


def test_a_branch_in_a_body_is_one_in_each_turn() -> None:
    then = graph([node("Neg", ["h"], ["r"])], (), ["r"])
    # A product of open extents is too much for both branches to be computed.
    other = graph([node("MatMul", ["h", "h"], ["p"]), node("Mul", ["h", "p"], ["r"])], (), ["r"])
    extra = [
        node("ReduceSum", ["h"], ["sum"], keepdims=0),
        node("Greater", ["sum", "step"], ["c"]),
        node("If", ["c"], ["unused"], then_branch=then, else_branch=other),
    ]
    made = recurrent(4, extra=extra)
    body = made.graph.node[0].attribute[0].g
    body.output[2].name = "unused"
    g = ag.load(made)

    assert isinstance(g, ag.Graph)
    assert sum(isinstance(n.op, If) for n in g.nodes) == 4
    assert ag.compile(g).run({"x": numbers(5), "w": numbers(5)})["ys"].shape == (4, 5)


def test_an_input_that_such_a_body_read_first_is_there_behind_the_loop() -> None:
    branch = graph([node("Neg", ["h"], ["r"])], (), ["r"])
    extra = [
        node("ReduceSum", ["h"], ["sum"], keepdims=0), node("Greater", ["sum", "step"], ["c"]),
        node("If", ["c"], ["unused"], then_branch=branch, else_branch=branch),
    ]  # fmt: skip
    made = recurrent(4, extra=extra)
    made.graph.node.append(node("Abs", ["w"], ["z"]))
    made.graph.output.append(info("z", ["K"]))
    feeds = {"x": numbers(5), "w": -numbers(5)}

    np.testing.assert_array_equal(ag.compile(made).run(feeds)["z"], np.abs(feeds["w"]))


def test_a_branch_by_the_number_of_the_turn_is_chosen() -> None:
    then, other = graph([node("Neg", ["h"], ["r"])], (), ["r"]), graph(
        [node("Abs", ["h"], ["r"])], (), ["r"])  # fmt: skip
    extra = [
        node("Constant", [], ["two"], value_int=2), node("Less", ["i", "two"], ["c"]),
        node("If", ["c"], ["either"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    made = recurrent(4, extra=extra)
    made.graph.node[0].attribute[0].g.output[2].name = "either"
    feeds = {"x": numbers(5), "w": np.ones(5, np.float32)}
    found = strictly(made, feeds)
    states = strictly(recurrent(4), feeds)["ys"] * -1

    np.testing.assert_array_equal(found["ys"], [-states[0], -states[1], *np.abs(states[2:])])


def test_loops_in_loops_and_growing_values_are_unrolled() -> None:
    inner = graph(
        [node("Concat", ["v", "x"], ["v2"], axis=0), node("Identity", ["g"], ["g2"])],
        [info("j", (), I64), info("g", (), BOOL), info("v", ["V"])],
        [info("g2", (), BOOL), "v2"],
    )
    outer = graph(
        [node("Loop", ["m", "", "u"], ["u2"], body=inner), GOES_ON,
         node("ReduceSum", ["u2"], ["sum"], keepdims=0)],
        [*ITERATION, info("u", ["U"])],
        [GOES, "u2", "sum"],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "x"], ["y", "sums"], body=outer)]
    made = model(nodes, [info("x", ["K"])], ["y", "sums"], {"n": np.array(3), "m": np.array(2)})
    found = check(made, {"x": numbers(4)})

    assert found["y"].shape == (28,)
    assert found["sums"].shape == (3,)


@pytest.mark.parametrize("opset", [9, 12, 21])
def test_a_scan_of_few_slices_is_the_nodes_of_its_turns(opset: int) -> None:
    body = graph(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "f"], ["o"]),
         node("Identity", ["e"], ["q"])],
        [info("s"), info("e"), info("f")],
        ["s2", "o", "q"],
    )  # fmt: skip
    nodes = [
        node("Scan", ["s0", "x", "z"], ["last", "ys", "qs"], body=body, num_scan_inputs=2,
             scan_input_axes=[1, 0], scan_output_axes=[1, 0], scan_input_directions=[1, 0],
             scan_output_directions=[1, 0])
    ]  # fmt: skip
    made = model(nodes, [info("s0", ["K"]), info("x", ["K", 6]), info("z", [6, "K"])],
                 ["last", "ys", "qs"], opset=opset)  # fmt: skip

    check(made, {"s0": numbers(3), "x": numbers(3, 6), "z": numbers(6, 3, seed=1)})


def test_an_error_in_a_turn_names_the_node() -> None:
    exe = ag.compile(recurrent(3, extra=[node("MatMul", ["own", "i"], ["bad"], name="within")]))
    with pytest.raises(AlpenglowError, match="within"):
        exe.run({"x": numbers(5), "w": numbers(5)})


def test_what_fits_for_some_extents_alone_is_left_a_loop() -> None:
    """Of an empty tensor there are slices of one shape, of another there are not."""
    body = graph(
        [node("Slice", ["h", "one", "end"], ["h2"]), node("Neg", ["h2"], ["kept"]), GOES_ON],
        [*ITERATION, info("h", ["K"])],
        [GOES, "h2", "kept"],
    )
    constants = {"n": np.array(3), "one": np.array([1]), "end": np.array([1 << 40])}
    made = model([node("Loop", ["n", "", "x"], ["y", "ys"], body=body)], [info("x", ["N"])],
                 ["y", "ys"], constants)  # fmt: skip
    exe = ag.compile(made)

    assert exe.run({"x": numbers(0)})["ys"].shape == (3, 0)
    with pytest.raises(
        FeedError, match=r"collects tensors of the shapes \[\(4,\), \(5,\), \(6,\)\]"
    ):
        exe.run({"x": numbers(7)})
