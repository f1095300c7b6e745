"""Outputs that hold another output, or what is computed, in another shape."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Reshape


def relu(g: Graph) -> Value:
    return g(Relu(), g.input("x", "f32[3,4,5]"))


def copies(g: Graph) -> int:
    """Return how many copies a graph takes, and check its results."""
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    exe = ag.compile(g, threads=1)
    actual = exe.run({"x": x})
    for name, expected in evaluate(g, {"x": x}).items():
        np.testing.assert_array_equal(actual[name], expected, err_msg=name)
    (artifact,) = exe.artifacts
    return sum(isinstance(i.op, Copy) for i in artifact.program.instrs())


@pytest.mark.parametrize("shape", [(12, 5), (60,), (3, 1, 20)])
def test_a_result_is_computed_in_the_output_that_reshapes_it(shape: tuple[int, ...]) -> None:
    g = Graph("f")
    g.output("y", g(Reshape(shape), relu(g)))

    assert copies(g) == 0


def test_a_result_that_others_read_is_computed_there_too() -> None:
    g = Graph("f")
    y = relu(g)
    g.output("flat", g(Reshape((60,)), y))
    g.output("twice", g(Add(), y, y))

    assert copies(g) == 0


def test_an_output_in_two_shapes_is_copied_once() -> None:
    g = Graph("f")
    y = relu(g)
    g.output("flat", g(Reshape((60,)), y))
    g.output("rows", g(Reshape((12, 5)), y))

    assert copies(g) == 1


def test_an_output_and_its_shape_are_two_outputs() -> None:
    g = Graph("f")
    y = relu(g)
    g.output("y", y)
    g.output("flat", g(Reshape((60,)), y))

    assert copies(g) == 1


def test_an_input_in_another_shape_is_copied() -> None:
    g = Graph("f")
    g.output("y", g(Reshape((60,)), g.input("x", "f32[3,4,5]")))

    assert copies(g) == 1
