"""Loops that stack as many rows as data say: the loop is in the graph, the cut behind it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from alpenglow.frontends import regions
from alpenglow.ops.control.loop import Scan, While
from alpenglow.runtime.staged.staged import StagedExecutable
from staged_cases import BOOL, GOES, GOES_ON, I64, ITERATION, graph, info, model, node, numbers

pytestmark = pytest.mark.usefixtures("own_cache")

ENDS = (
    node("ReduceSum", ["h2"], ["sum"], keepdims=0),
    node("Less", ["sum", "limit"], ["goes"]),
)
TRIPS, BEGINS = info("n", (), I64), info("begins", (), BOOL)
NUMBERS = info("numbers", None, I64)


def decoder(
    ends: Any = ENDS, trips: str = "n", begins: str = "", given: Any = (), **constants: Any
) -> onnx.ModelProto:
    """Return a Loop that makes h larger, and stacks rows of two element types until it ends."""
    body = graph(
        [
            node("Add", ["h", "x"], ["h2"]),
            node("Mul", ["h2", "h2"], ["square"]),
            node("Identity", ["i"], ["number"]),
            *ends,
        ],
        [*ITERATION, info("h", ["K"])],
        [GOES, info("h2", ["K"]), info("square", ["K"]), info("number", (), I64)],
    )
    loop = node("Loop", [trips, begins, "x"], ["last", "rows", "numbers"], body=body, name="steps")
    nodes = [loop, node("Neg", ["rows"], ["negated"])]
    inputs = [info("x", ["K"]), info("limit", ()), *given]
    return model(nodes, inputs, ["last", "negated", NUMBERS], constants)


def check(made: onnx.ModelProto, exe: Any, **feeds: Any) -> int:
    """Hold a call to ONNX Runtime; return how many rows there are."""
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    feeds = {n: np.asarray(v) for n, v in {"limit": np.float32(10), **feeds}.items()}
    expected, found = peer.run(None, feeds), list(exe.run(feeds).values())
    for want, got in zip(expected, found, strict=True):
        assert (want.dtype, want.ndim, len(want)) == (got.dtype, got.ndim, len(got))
        if not want.size:  # ONNX Runtime takes open extents of no rows to be 0
            continue
        np.testing.assert_allclose(got, want, rtol=1e-6)
    return len(found[1])


def test_a_loop_that_may_end_early_is_cut_behind_it() -> None:
    made = decoder(n=np.array(9))
    exe = ag.compile(made)
    x = np.full(3, 0.6, np.float32)
    counts = [check(made, exe, x=x, limit=np.float32(limit)) for limit in (10, 0, 100, 5)]

    assert counts == [5, 1, 9, 2]
    assert [r.what for r in exe.report()] == ["staged", "staged"]


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_data_say_how_many_rows_there_are_at_most(target: str) -> None:
    made = decoder(begins="begins", given=[TRIPS, BEGINS])
    exe = ag.compile(made, target)
    x = np.full(3, 0.6, np.float32)
    calls = [(9, True), (2, True), (0, True), (4, False), (-3, True), (1, True), (100, True)]
    counts = [check(made, exe, x=x, n=np.array(n), begins=np.array(b)) for n, b in calls]

    assert counts == [5, 2, 0, 0, 0, 1, 5]


def test_a_loop_that_turns_as_often_as_data_say_is_not_cut() -> None:
    made = decoder([GOES_ON], given=[TRIPS])
    exe = ag.compile(made)
    counts = [check(made, exe, x=numbers(3), n=np.array(n)) for n in (5, 0, 1, 7)]

    assert counts == [5, 0, 1, 7]
    assert [r.what for r in exe.report()] == ["staged"]


def test_an_extent_says_how_many_rows_there_are_at_most() -> None:
    body = decoder(n=np.array(0)).graph.node[0]
    nodes = [node("Shape", ["x"], ["shape"]), node("Squeeze", ["shape"], ["n"]), body]
    made = model(nodes, [info("x", ["K"]), info("limit", ())], ["last", "rows", NUMBERS])
    exe = ag.compile(made)
    counts = [check(made, exe, x=np.ones(n, np.float32)) for n in (1, 4, 7)]

    assert counts == [1, 2, 1]


def test_a_loop_without_a_bound_is_left_to_the_runtime() -> None:
    made = decoder(trips="")
    exe = ag.compile(made)

    assert isinstance(exe, StagedExecutable)
    assert check(made, exe, x=np.ones(3, np.float32)) == 3


@pytest.mark.parametrize("most", [1 << 40, (1 << 63) - 1])
def test_a_bound_that_is_no_bound_is_none(most: int) -> None:
    made = decoder(n=np.array(most))
    exe = ag.compile(made)

    assert check(made, exe, x=np.ones(3, np.float32)) == 3
    assert most * 20 > regions.MOST_STACKED


def test_results_that_nobody_reads_need_no_cut() -> None:
    made = decoder(n=np.array(9))
    del made.graph.output[1:]
    made.graph.node[0].output[1:] = ["", ""]
    del made.graph.node[1:]
    g = ag.load(made)

    assert isinstance(g, ag.Graph)
    assert [type(n.op) for n in g.nodes if isinstance(n.op, Scan | While)] == [While]


def test_a_loop_in_a_loop_stacks_what_data_say() -> None:
    inner = decoder(n=np.array(0)).graph.node[0]
    body = graph(
        [node("Add", ["j", "one"], ["n"]), inner, node("ReduceSum", ["rows"], ["all"], keepdims=0),
         node("Add", ["all", "total"], ["t2"]), node("Identity", ["b"], ["b2"])],
        [info("j", (), I64), info("b", (), BOOL), info("total", ())],
        [info("b2", (), BOOL), info("t2", ())],
    )  # fmt: skip
    loop = node("Loop", ["four", "", "zero"], ["y"], body=body)
    constants = {"four": np.array(4), "zero": np.float32(0), "one": np.array(1)}
    made = model([loop], [info("x", ["K"]), info("limit", ())], ["y"], constants)
    feeds = {"x": np.full(3, 0.6, np.float32), "limit": np.array(10, np.float32)}
    (want,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)

    np.testing.assert_allclose(ag.compile(made).run(feeds)["y"], want, rtol=1e-6)
