"""Networks in f64: what the errors of f32 are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
import models
from alpenglow.debug.exact import distance, exact, widened
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul

LIMIT = 1e-4
"""What the whole of a network may be off, as a share of the largest element of an output."""

OTHERS = {
    # It takes logarithms of what is left where sums cancel: any order of f32 is as far off.
    "basic_pitch": 5e-3,
}

IN_FEW_BITS = ("qdq", "qlinear", "half")

HEAVY = (
    "vgg19", "densenet121", "zfnet512", "bvlc_alexnet", "basic_pitch", "inception_v1",
    "inception_v2", "style26",
)  # fmt: skip


def net() -> Graph:
    rng = np.random.default_rng(0)
    g = Graph("net")
    w = g.constant((rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32))
    g.output("y", g(Relu(), g(Conv(pads=(1, 1, 1, 1)), g.input("x", "f32[1,64,24,24]"), w)))
    return g


def test_all_that_depends_on_inputs_is_computed_in_f64() -> None:
    g = Graph("types")
    x = g.input("x", "i64[4,4]")
    w = g(Add(), g.constant(np.eye(4, dtype=np.float32)), g.constant(np.ones((4, 4), np.float32)))
    g.output("y", g(MatMul(), g(Cast("f32"), x), w))
    g.output("n", x)
    wide = widened(g)
    types = [str(node.results[0].type) for node in wide.nodes if not isinstance(node.op, Cast)]

    assert [str(v.type) for v in wide.outputs.values()] == ["f64[4,4]", "i64[4,4]"]
    assert types == ["f32[4,4]", "f64[4,4]"]  # the sum of two constants is a number of the model


def test_it_is_nearer_to_the_truth_than_f32() -> None:
    g = Graph("sum")
    x = g.input("x", "f32[1,3]")
    g.output("y", g(MatMul(), x, g.constant(np.ones((3, 1), np.float32))))
    feeds = {"x": np.array([[2.0**24, 1.0, 1.0]], np.float32)}

    assert exact(g, feeds)["y"].item() == 2.0**24 + 2


def test_the_distance_is_the_largest_difference_by_the_largest_element() -> None:
    wanted = {"a": np.array([1.0, 4.0]), "b": np.array([7])}

    assert distance({"a": np.array([1.5, 4.0]), "b": np.array([8])}, wanted) == 0.125
    assert distance({"a": np.array([np.nan, 4.0])}, wanted) == np.inf
    assert distance({"a": np.zeros(3)}, wanted) == np.inf


def test_winograd_is_within_the_limit_and_further_off_than_the_interpreter() -> None:
    g = net()
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 64, 24, 24)).astype(np.float32)}
    wanted = exact(g, feeds)
    compiled, interpreted = ag.compile(g).run(feeds), evaluate(g, feeds)

    assert distance(interpreted, wanted) < distance(compiled, wanted) < LIMIT


def in_f32() -> list[Any]:
    """The fetched models in f32; of those that are there twice, the ones with seeded weights."""
    left_out = (*IN_FEW_BITS, "light_")
    found = [n for n in models.names() if not any(part in n for part in left_out)]
    return [pytest.param(n, marks=pytest.mark.slow if n.endswith(HEAVY) else ()) for n in found]


@pytest.mark.models
@pytest.mark.parametrize("name", in_f32())
@pytest.mark.sampled(0, "squeezenet11", "mnist8")
def test_a_whole_network_is_within_the_limit(name: str) -> None:
    feeds = models.inputs(name)
    shapes = {key: array.shape for key, array in feeds.items()}
    g = ag.load(models.model_path(name), shapes)
    if not isinstance(g, Graph):
        pytest.skip("what it computes depends on its data: there is no graph of the whole")
    outputs = ag.compile(models.model_path(name), shapes=shapes).run(feeds)

    assert distance(outputs, exact(g, feeds)) <= OTHERS.get(name, LIMIT)
