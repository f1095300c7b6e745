"""Regions: what they capture, constants moved into them and out of them."""

from __future__ import annotations

import numpy as np

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.region import captured, deep, lift, taken_in
from alpenglow.ir.verify import verify_graph
from region_cases import choosing, countdown, feeds, nested, rnn


def test_captured_values_are_the_last_operands() -> None:
    (scan,) = rnn().nodes
    _, loop = countdown().nodes

    assert [(v.name, [x.name for x in own]) for v, own in captured(scan)] == [("weight", ["w"])]
    assert [x.name for _, own in captured(loop) for x in own] == ["limit", "w"]


def test_constants_are_taken_into_regions_and_the_graph_stays_as_it_is() -> None:
    for g in (rnn(), countdown(), choosing(), nested()):
        before = [len(n.inputs) for part in deep(g) for n in part.nodes]
        inside = taken_in(g)

        verify_graph(inside)
        assert [len(n.inputs) for part in deep(g) for n in part.nodes] == before
        for part in deep(inside):
            for node in part.nodes:
                if node.regions:
                    assert all(v.array is None for v, _ in captured(node))
        for name, y in evaluate(g, feeds(g)).items():
            np.testing.assert_array_equal(evaluate(inside, feeds(g))[name], y)


def test_a_graph_without_control_flow_is_taken_as_it_is() -> None:
    g = Graph("plain")
    g.output("x", g.input("x", "f32[3]"))

    assert taken_in(g) is g


def test_constants_are_lifted_out_of_regions() -> None:
    for make in (rnn, countdown, choosing):
        g = taken_in(make())
        lift(g, lambda v: v.name == "weight" or v.array.dtype.kind == "i")

        verify_graph(g)
        _, *regions = deep(g)
        assert not [v for r in regions for v in r.constants()]
        for name, y in evaluate(make(), feeds(g)).items():
            np.testing.assert_array_equal(evaluate(g, feeds(g))[name], y)
