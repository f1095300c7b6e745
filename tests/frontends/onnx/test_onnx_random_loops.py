"""Loops and branches that draw random numbers are in the graph: each turn draws others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from staged_cases import BOOL, GOES, GOES_ON, I64, ITERATION, count, graph, info, model, node

pytestmark = pytest.mark.usefixtures("own_cache")

NORMAL = node("RandomNormal", [], ["noise"], shape=[64])


def walk(trips: str = "n", goes: Any = (GOES_ON,), given: Any = ()) -> onnx.ModelProto:
    """Return a Loop that sums noise, and stacks it."""
    body = graph(
        [NORMAL, node("Add", ["h", "noise"], ["h2"]), node("Identity", ["noise"], ["kept"]), *goes],
        [*ITERATION, info("h", [64])], [GOES, info("h2", [64]), info("kept", [64])],
    )  # fmt: skip
    loop = node("Loop", [trips, "", "x"], ["last", "rows"], body=body)
    constants = {"many": np.array(200)}
    return model([loop], [info("x", [64]), *given], ["last", "rows"], constants)


def check(made: onnx.ModelProto, exe: Any, **feeds: Any) -> Any:
    """Run a walk twice; return the rows of the second, once all are others."""
    feeds = {"x": np.zeros(64, np.float32), **feeds}
    first, second = (exe.run(feeds) for _ in range(2))
    for found in (first, second):
        np.testing.assert_allclose(found["rows"].sum(0), found["last"], rtol=1e-4, atol=1e-4)
    both = np.concatenate([first["rows"], second["rows"]])

    assert len({row.tobytes() for row in both}) == len(both)
    assert abs(both.mean()) < 0.1
    assert abs(both.std() - 1) < 0.1
    assert abs(np.corrcoef(both[:-1].ravel(), both[1:].ravel())[0, 1]) < 0.05
    return second["rows"]


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_each_turn_draws_other_numbers(target: str) -> None:
    made = walk("many")
    g = ag.load(made)

    assert isinstance(g, ag.Graph)
    assert [type(n.op) for n in g.nodes if isinstance(n.op, Scan | While)] == [Scan]
    assert len(check(made, ag.compile(g, target))) == 200


def test_a_loop_that_data_end_draws() -> None:
    made = walk(given=[info("n", (), I64)])

    assert len(check(made, ag.compile(made), n=count(150))) == 150


def test_a_loop_in_a_loop_draws_other_numbers_in_each_turn_of_both() -> None:
    inner = walk("nine").graph.node[0]
    body = graph(
        [inner, node("Identity", ["b"], ["b2"])],
        [info("j", (), I64), info("b", (), BOOL)],
        [info("b2", (), BOOL), info("rows", [40, 64])],
    )
    loop = node("Loop", ["nine", "", ], ["all"], body=body)
    made = model([loop], [info("x", [64])], ["all"], {"nine": np.array(40)})
    rows = ag.compile(made).run({"x": np.zeros(64, np.float32)})["all"].reshape(1600, 64)

    assert len({row.tobytes() for row in rows}) == 1600
    assert abs(np.corrcoef(rows[:-40].ravel(), rows[40:].ravel())[0, 1]) < 0.02


def test_a_branch_draws() -> None:
    then = graph([node("MatMul", ["x", "x"], ["p"]), node("RandomUniform", [], ["u"], shape=[8, 8]),
                  node("Add", ["p", "u"], ["a"])], (), [info("a", [8, 8])])  # fmt: skip
    other = graph([node("Neg", ["x"], ["a"])], (), [info("a", [8, 8])])
    chosen = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    made = model([chosen], [info("c", (), BOOL), info("x", [8, 8])], ["y"])
    g = ag.load(made)
    exe = ag.compile(g)
    x = np.zeros((8, 8), np.float32)
    drawn = [exe.run({"c": np.array(True), "x": x})["y"] for _ in range(3)]

    assert isinstance(g, ag.Graph)
    assert [type(n.op) for n in g.nodes if isinstance(n.op, If)] == [If]
    assert all(y.min() >= 0 and y.max() < 1 for y in drawn)
    assert len({y.tobytes() for y in drawn}) == 3
    np.testing.assert_array_equal(exe.run({"c": np.array(False), "x": x + 1})["y"], -x - 1)
