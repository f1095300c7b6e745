"""Placements of graphs with loops: a loop is one node, which costs as much as its turns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_place import PAIR, STRICT, cut_at

import alpenglow as ag
from alpenglow.compiler import Options
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.control.branch import If
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.product.contraction import MatMul
from alpenglow.placement.compiled import placed
from alpenglow.placement.cost import costs
from alpenglow.placement.placing import place
from alpenglow.placement.schedule import Schedule
from alpenglow.placement.text import Placement
from region_cases import branch, choosing, countdown, feeds, rnn, weights


def before_and_after(make: Callable[[], Graph]) -> Graph:
    """Return a graph with a node before its loop, and two after it."""
    g = make()
    name = next(n for n in g.inputs if g.inputs[n].type.dtype == "f32")
    x = g.inputs[name]
    y = g(Tanh(), g.input("first", str(x.type)), name="begin")
    g.replace(x, y)
    del g.inputs[name]
    last = next(v for v in g.outputs.values() if v.type.rank)
    g.output("end", g(Tanh(), g(Tanh(), last), name="end"))
    g.prune()  # restores the order of nodes
    return g


@pytest.mark.parametrize("make", [rnn, lambda: rnn(inside=True), countdown, choosing])
def test_a_loop_between_two_workers_gives_what_the_whole_gives(make: Callable[[], Graph]) -> None:
    g = before_and_after(make)
    expected = ag.compile(g.copy(), options=STRICT).run(feeds(g))
    count = len(Schedule(g).nodes)

    assert count >= 4
    for cut in range(1, count):
        placement = Placement.parse(str(cut_at(g, {0: PAIR[0], cut: PAIR[1]}, PAIR)))
        actual = placed(g, placement, options=STRICT).run(feeds(g))
        for name, y in expected.items():
            np.testing.assert_array_equal(actual[name], y)


def test_a_loop_is_estimated_as_often_as_it_runs() -> None:
    once, often = (costs(Schedule(rnn(n)), PAIR[0], Options(), False).seconds for n in (1, 40))

    assert often == pytest.approx(40 * once)
    assert once.min() > 0


def test_of_two_branches_the_dearer_is_estimated() -> None:
    def dear(b: Graph, v: Value) -> Value:
        return b(MatMul(), v, b.constant(weights(256, 256)))

    def cheap(b: Graph, v: Value) -> Value:
        return b(Tanh(), v)

    def cost(*ways: Callable[[Graph, Value], Value]) -> float:
        g = Graph("choice")
        x, flag = g.input("x", "f32[256,256]"), g.input("flag", "bool[]")
        g.output("y", g.add(If(), [flag, x], branch("f32[256,256]", *ways)).output)
        return float(costs(Schedule(g), PAIR[0], Options(), False).seconds.sum())

    assert cost(dear, cheap) == cost(cheap, dear) == cost(dear, dear) > 2 * cost(cheap, cheap)


def test_a_measured_loop_costs_most_of_a_run() -> None:
    g = before_and_after(lambda: rnn(200))
    measured = costs(Schedule(g), PAIR[0], Options(), True).seconds

    assert measured.argmax() == [n.op.name for n in Schedule(g).nodes].index("scan")
    assert measured.max() > 0.9 * measured.sum()


def test_a_graph_with_a_loop_is_placed() -> None:
    g = before_and_after(rnn)
    placement = place(g, PAIR, "throughput", measure=False)

    assert {s.worker for s in placement.stages} == {"left", "right"}
