"""Gradients through an If are the gradients of the taken branch, though both are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import alpenglow as ag
from alpenglow import train
from staged_cases import BOOL, graph, info, model, node

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("own_cache")

SQUARE = graph([node("Mul", ["x", "x"], ["a"])], (), ["a"])

BROKEN = {
    "sqrt": ([node("Sqrt", ["x"], ["a"])], (0, -1)),
    "log": ([node("Log", ["x"], ["a"])], (0, -1)),
    "divided": ([node("Reciprocal", ["x"], ["a"])], (0, 0)),
    "power": ([node("Pow", ["x", "half"], ["a"])], (0, -1)),
    "norm": ([node("ReduceL2", ["x"], ["b"], keepdims=1), node("Add", ["b", "x"], ["a"])], (0, 0)),
    "nested": (
        [node("If", ["d"], ["a"], then_branch=graph([node("Sqrt", ["x"], ["b"])], (), ["b"]),
              else_branch=graph([node("Log", ["x"], ["b"])], (), ["b"]))],
        (0, -1),
    ),
}  # fmt: skip
"""Branches, and an x at which their derivative is infinite or NaN."""


def choosing(then: Any, other: Any, shape: Any = (2,), constants: Any = None) -> ag.Graph:
    """Return a graph that computes one of two branches of x, by c."""
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [info("x", shape), info("c", (), BOOL), info("d", (), BOOL)]
    numbers = {"half": np.float32([0.5]), **(constants or {})}
    loaded = ag.load(model(nodes, inputs, ["y"], numbers))
    assert isinstance(loaded, ag.Graph)
    return loaded


def differentiated(g: ag.Graph, target: str = "interpreter") -> ag.Executable:
    """Return what computes y and its first two derivatives by x."""
    first = ag.gradients(g, g.outputs["y"], [g.inputs["x"]])
    g.output("dx", first[0])
    g.output("ddx", ag.gradients(g, first[0], [g.inputs["x"]])[0])
    return ag.compile(g, target)


@pytest.mark.parametrize("shape", [(2,), ("N",)])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", BROKEN)
def test_the_branch_that_is_not_taken_has_no_slope(name: str, first: bool, shape: Any) -> None:
    nodes, at = BROKEN[name]
    branches = (graph(nodes, (), ["a"]), SQUARE)
    exe = differentiated(choosing(*(branches if first else branches[::-1]), shape))
    x = np.float32(at)
    for d in (True, False):
        outs = exe.run({"x": x, "c": np.array(not first), "d": np.array(d)})

        np.testing.assert_array_equal(outs["y"], x * x)
        np.testing.assert_array_equal(outs["dx"], 2 * x)
        np.testing.assert_array_equal(outs["ddx"], [2, 2])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_the_branch_that_is_taken_has_its_own_slope(target: str) -> None:
    exe = differentiated(choosing(graph(BROKEN["sqrt"][0], (), ["a"]), SQUARE), target)
    outs = exe.run({"x": np.float32([0, 4]), "c": np.array(True), "d": np.array(True)})

    np.testing.assert_array_equal(outs["dx"], [np.inf, 0.25])
    np.testing.assert_array_equal(outs["ddx"], [-np.inf, -1 / 32])


@pytest.mark.parametrize("inside", [True, False])
def test_weights_are_trained_by_the_branch_that_is_taken(inside: bool) -> None:
    """A weight of a branch, or of the graph around it, is 0, where a square root has no slope."""
    weights = {"w": np.float32([0, 0]), "v": np.float32([1, 1])}
    then = graph([node("Mul", ["x", "w"], ["b"]), node("Sqrt", ["b"], ["a"])], (), ["a"])
    other = graph([node("Mul", ["x", "v"], ["a"])], (), ["a"])
    if inside:
        then.initializer.append(numpy_helper.from_array(weights.pop("w"), "w"))
    g = train.supervise(ag.trainable(choosing(then, other, constants=weights), ["*w", "v"]), "mse")
    trainer = train.Trainer(g, "loss", train.SGD(0.5))
    feeds = {"x": np.float32([1, 2]), "d": np.array(True), "labels": np.float32([0, 0])}
    trainer.step({**feeds, "c": np.array(False)})
    values = {name.rpartition("/")[2]: v for name, v in trainer.values().items()}

    # The loss is the mean of (x v)², whose slope is x² v.
    np.testing.assert_array_equal(values["v"], [0.5, -1])
    np.testing.assert_array_equal(values["w"], [0, 0])
    with pytest.raises(ag.errors.TrainingError):
        trainer.step({**feeds, "c": np.array(True), "labels": np.float32([-1, -1])})


def test_the_gradient_of_onnx_goes_through_the_branch_that_is_taken() -> None:
    branch = graph(BROKEN["sqrt"][0], (), ["a"])
    preview = "ai.onnx.preview.training"
    nodes = [
        node("If", ["c"], ["y"], then_branch=branch, else_branch=SQUARE),
        node("Gradient", ["x", "c"], ["dx"], domain=preview, y="y", xs=["x"], zs=["c"]),
    ]
    made = model(nodes, [info("x", (2,)), info("c", (), BOOL)], ["dx"])
    made.opset_import.append(helper.make_opsetid(preview, 1))
    exe = ag.compile(made)

    for c, want in ((False, [0, 8]), (True, [np.inf, 0.25])):
        (dx,) = exe.run({"x": np.float32([0, 4]), "c": np.array(c)}).values()
        np.testing.assert_array_equal(dx, want)
