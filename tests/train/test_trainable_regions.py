"""What of regions is trained: weights that they capture, and those that are their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.region import deep, taken_in
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.training.training import Dropout
from alpenglow.train.parameters import fixed, inference, trainable
from region_cases import countdown, feeds, rnn


@pytest.mark.parametrize("make", [rnn, lambda: rnn(inside=True), countdown,
                                  lambda: taken_in(countdown())])  # fmt: skip
def test_weights_of_a_loop_are_parameters(make: Callable[[], Graph]) -> None:
    g = make()
    trained = trainable(g)
    initial = {n: v.array for n, v in trained.initial.items()}

    assert list(initial) == ["weight"]
    for form in (trained, fixed(trained, initial)):
        for name, y in evaluate(g, feeds(g)).items():
            np.testing.assert_array_equal(evaluate(form, feeds(g))[name], y)


def test_other_weights_of_a_loop_stay_in_it() -> None:
    g = rnn(inside=True)
    (body,) = next(iter(g.nodes)).regions
    (weight,) = body.constants()
    weight.name = "frozen"
    g.output("scaled", g.constant(np.ones(3, np.float32), "free"))
    trained = trainable(g, "free")

    assert list(trained.initial) == ["free"]
    _, region = deep(trained)
    assert [v.name for v in region.constants()] == ["frozen"]


def test_a_weight_of_two_loops_is_one_parameter() -> None:
    g = rnn()
    (loop,) = g.nodes
    _, xs, weight = loop.inputs
    again = g.add(loop.op, [loop.results[0], xs, weight], [r.copy() for r in loop.regions])
    g.output("again", again.results[0])

    assert list(trainable(g).initial) == ["weight"]
    assert list(trainable(taken_in(g)).initial) == ["weight"]


def normalised(captures: bool) -> Graph:
    """Return a loop with a batch norm, which captures its numbers or has them."""
    body = Graph("step")
    body.input("i", "i64[]")
    x = body.input("x", "f32[2,3]")
    names = ("scale", "bias", "mean", "variance")
    own = [body.input(n, "f32[3]") for n in names]
    body.output("x", body(BatchNorm(), x, *own, name="norm"))
    g = Graph("normalised")
    numbers = [g.constant(np.full(3, i + 1, np.float32), n) for i, n in enumerate(names)]
    g.output("y", g.add(Scan(2, 1), [g.input("x", "f32[2,3]"), *numbers], [body]).output)
    return g if captures else taken_in(g)


@pytest.mark.parametrize("captures", [False, True])
def test_running_statistics_of_a_loop_are_not_trained(captures: bool) -> None:
    g = normalised(captures)

    assert set(trainable(g, statistics="running").initial) == {"scale", "bias"}
    with pytest.raises(UnsupportedError, match="batch_norm norm is inside of a loop") as error:
        trainable(g)
    assert 'statistics="running"' in str(error.value)


def test_dropout_in_a_loop_is_gone_when_a_graph_is_used() -> None:
    body = Graph("step")
    body.input("i", "i64[]")
    x, key = body.input("x", "f32[64]"), body.input("key", "u32[2]")
    body.output("x", body(Dropout(0.5), x, key))
    g = Graph("dropping")
    g.output("y", g.add(Scan(2, 1), [g.input("x", "f32[64]"), g.random_key()], [body]).output)
    used = inference(g)

    ones = {"x": np.ones(64, np.float32)}
    assert (evaluate(g, ones)["y"] != 1).any()
    np.testing.assert_array_equal(evaluate(used, ones)["y"], ones["x"])
