"""The first part of a graph: what it computes, and what it lets go of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
import staged_cases
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.tensor.movement import Reshape


def model() -> Graph:
    """Return a graph of two inputs and two variables, whose values have names."""
    g = ag.Graph("whole")
    x, y = g.input("x", "f32[N,3]"), g.input("y", "f32[N,3]")
    total = g.variable("total", np.zeros((1, 3), np.float32))
    calls = g.variable("calls", np.zeros(3, np.float32))
    first = g(Relu(), x, name="first")
    second = g(Add(), first, y, name="second")
    g.output("product", g(Mul(), second, second, name="squares"))
    g.output("sums", g(Add(), total, total))
    # What `total` becomes is told by `calls`.
    g.assign("total", g(Add(), total, g(Reshape((1, 3)), calls)))
    g.assign("calls", g(Add(), calls, g.constant(np.ones(3, np.float32))))
    return g


def test_a_graph_ends_with_a_value_of_its_own() -> None:
    g = model()
    part = ag.truncate(g, "first")
    x = np.array([[1, -2, 3]], np.float32)

    assert (list(part.inputs), list(part.outputs), len(part.nodes)) == (["x"], ["first"], 1)
    assert not part.initial
    np.testing.assert_array_equal(ag.compile(part)(x), [[1, 0, 3]])
    assert list(g.outputs) == ["product", "sums", "total", "calls"] and len(g.nodes) == 7


def test_values_of_several_names_are_outputs_in_their_order() -> None:
    part = ag.truncate(model(), "second", "x", "product")
    x, y = np.array([[1, -2, 3]], np.float32), np.array([[1, 1, 1]], np.float32)
    outs = ag.compile(part).run({"x": x, "y": y})

    assert list(part.outputs) == ["second", "x", "product"]
    np.testing.assert_array_equal(outs["second"], [[2, 1, 4]])
    np.testing.assert_array_equal(outs["x"], x)
    np.testing.assert_array_equal(outs["product"], [[4, 1, 16]])


def test_a_variable_that_is_read_is_assigned_what_it_was() -> None:
    part = ag.truncate(model(), "sums")
    session = ag.compile(part).session()
    found = [session.run({})["sums"][0, 0] for _ in range(4)]

    assert list(part.inputs) == ["total", "calls"] and list(part.callers_outputs()) == ["sums"]
    assert found == [0, 0, 2, 6]


def test_guards_of_extents_that_are_gone_go_too() -> None:
    g = ag.Graph("two")
    x, y = g.input("x", "f32[N]"), g.input("y", "f32[M]")
    g.output("a", g(Relu(), x, name="first"))
    g.output("b", g(Relu(), y))
    n, m = x.type.shape[0], y.type.shape[0]
    assert isinstance(n, Sym) and isinstance(m, Sym)
    large, apart = n - 2, n - m
    assert isinstance(large, Sym) and isinstance(apart, Sym)
    g.guards = ((large, ">="), (apart, "!="))

    assert ag.truncate(g, "first").guards == ((large, ">="),)


def test_what_a_graph_is_cut_at_can_go_on(tmp_path: Path) -> None:
    part = ag.truncate(model(), "second")
    second = part.outputs.pop("second")
    part.output("twice", part(Add(), second, second))
    ag.export_onnx(part, tmp_path / "part.onnx")
    x, y = np.array([[1, -2, 3]], np.float32), np.array([[1, 1, 1]], np.float32)

    np.testing.assert_array_equal(ag.compile(tmp_path / "part.onnx")(x, y), [[4, 2, 8]])


def test_names_that_are_none_or_two_are_told() -> None:
    g = model()
    with pytest.raises(OptionError, match="is called third, expected one such as squares, second"):
        ag.truncate(g, "third")
    with pytest.raises(OptionError, match="expected one name or more"):
        ag.truncate(g)
    g.output("other", g(Relu(), g.inputs["y"], name="first"))
    with pytest.raises(OptionError, match="2 values of graph whole are called first"):
        ag.truncate(g, "first")
    with pytest.raises(UnsupportedError, match="depends on its data, so it cannot be truncated"):
        ag.truncate(ag.load(staged_cases.CASES["nonzero"].model()), "y")


def test_an_output_counts_before_a_value_that_is_called_so() -> None:
    g = model()
    g.output("first", g.inputs["y"])
    y = -np.ones((1, 3), np.float32)

    np.testing.assert_array_equal(evaluate(ag.truncate(g, "first"), {"y": y})["first"], y)
