"""Branches compute only the results that are read."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ops.control.branch import If
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.passes.control import shrink_control


def region(first: Tanh | Neg) -> Graph:
    """Return a region with three results, of which the second alone reads z."""
    g = Graph("region")
    x, z = g.input("x", "f32[4]"), g.input("z", "f32[4]")
    g.output("a", g(first, x))
    g.output("b", g(Mul(), g(Exp(), z), x))
    g.output("c", g(Add(), x, x))
    return g


@pytest.mark.parametrize("truth", [False, True])
def test_results_of_a_branch_that_are_not_read_are_dropped(truth: bool) -> None:
    g = Graph("branch")
    condition, x, z = g.input("c", "bool[]"), g.input("x", "f32[4]"), g.input("z", "f32[4]")
    a, _, c = g.add(If(), [condition, x, z], [region(Tanh()), region(Neg())]).results
    g.output("c", c)
    g.output("a", a)
    feeds = {"c": np.array(truth), "x": np.arange(4, dtype=np.float32), "z": np.ones(4, np.float32)}
    expected = evaluate(g, feeds)
    (node,) = shrink_control(g).nodes

    assert node.inputs == (condition, x)
    assert [[type(n.op) for n in r.nodes] for r in node.regions] == [[Tanh, Add], [Neg, Add]]
    for name, y in evaluate(g, feeds).items():
        np.testing.assert_array_equal(y, expected[name])


def test_a_branch_of_which_nothing_is_read_is_gone() -> None:
    g = Graph("branch")
    condition, x = g.input("c", "bool[]"), g.input("x", "f32[4]")
    g.add(If(), [condition, x, x], [region(Tanh()), region(Neg())])
    g.output("y", x)

    assert not list(shrink_control(g).nodes)
