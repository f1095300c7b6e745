"""Both branches of an If are computed where that is cheap; otherwise the graph has an If, or the
model is in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.ops.control.branch import If
from staged_cases import BOOL, I64, Feeds, graph, info, model, node, numbers, sequence

pytestmark = pytest.mark.usefixtures("own_cache")

NEG = graph([node("Neg", ["x"], ["a"])], (), ["a"])
ABS = graph([node("Abs", ["x"], ["a"])], (), ["a"])


def choosing(
    then: Any, other: Any, inputs: Any = (), constants: Any = None, results: Any = ("y",),
    shape: Any = (3,),
) -> onnx.ModelProto:  # fmt: skip
    """Return a model that is an If on an input c, with an input x of f32[3]."""
    nodes = [node("If", ["c"], list(results), then_branch=then, else_branch=other, name="it")]
    given = [info("x", shape), info("c", (), BOOL), *inputs]
    return model(nodes, given, [r for r in results if r], constants or {})


def check(made: onnx.ModelProto, feeds: Feeds) -> None:
    """Hold a model to ONNX Runtime for both conditions."""
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    exe = ag.compile(made)
    for c in (True, False):
        given = {**feeds, "c": np.array(c)}
        for want, got in zip(peer.run(None, given), exe.run(given).values(), strict=True):
            assert (want.dtype, want.shape) == (got.dtype, got.shape)
            np.testing.assert_array_equal(want, got)


def is_graph(made: onnx.ModelProto) -> bool:
    return isinstance(ag.load(made), ag.Graph)


def is_branch(made: onnx.ModelProto) -> bool:
    """Whether a graph has an If among its nodes."""
    g = ag.load(made)
    assert isinstance(g, ag.Graph)
    return any(isinstance(n.op, If) for n in g.nodes)


def test_short_branches_are_one_graph() -> None:
    made = choosing(NEG, ABS)

    assert is_graph(made)
    check(made, {"x": numbers(3)})


def test_branches_hold_constants_and_branches_of_their_own() -> None:
    weights = [numpy_helper.from_array(np.float32([1, 2, 3]), "w")]
    inner = choosing(NEG, ABS).graph.node[0]
    inner.output[0] = "b"
    nested = graph([inner, node("Mul", ["b", "w"], ["a"])], (), ["a"])
    nested.initializer.extend(weights)
    other = graph([node("Add", ["x", "w"], ["a"])], (), ["a"])
    other.initializer.extend([numpy_helper.from_array(np.float32([4, 5, 6]), "w")])
    made = choosing(nested, other)

    assert is_graph(made)
    check(made, {"x": numbers(3)})


def test_a_result_that_nobody_reads_is_left_out() -> None:
    two = graph([node("Neg", ["x"], ["a"]), node("Exp", ["x"], ["b"])], (), ["a", "b"])
    made = choosing(two, two, results=("", "y"))

    assert is_graph(made)
    np.testing.assert_allclose(
        ag.compile(made).run({"x": numbers(3), "c": np.array(True)})["y"], np.exp(numbers(3)), 1e-6
    )


def test_open_extents_stay_open() -> None:
    made = choosing(NEG, ABS, shape=("N",))
    exe = ag.compile(made)

    assert is_graph(made)
    for n in (0, 1, 7):
        for c, want in ((True, -numbers(n)), (False, np.abs(numbers(n)))):
            np.testing.assert_array_equal(exe.run({"x": numbers(n), "c": np.array(c)})["y"], want)


def test_branches_of_other_shapes_are_parts() -> None:
    joined = graph([node("Concat", ["x", "x"], ["a"], axis=0)], (), ["a"])
    first = graph([node("Slice", ["x", "zero", "one"], ["a"])], (), ["a"])
    constants = {"zero": np.array([0]), "one": np.array([1])}
    for shape in ((3,), ("N",)):
        for other in (joined, first):
            made = choosing(NEG, other, constants=constants, shape=shape)

            assert not is_graph(made)
            check(made, {"x": numbers(3)})


def test_a_branch_that_is_not_taken_ends_no_call() -> None:
    picked = graph([node("Gather", ["x", "i"], ["a"])], (), ["a"])
    made = choosing(NEG, picked, [info("i", [3], I64)])
    exe = ag.compile(made)
    feeds = {"x": numbers(3), "i": np.array([9, 9, 9]), "c": np.array(True)}

    assert is_branch(made)
    np.testing.assert_array_equal(exe.run(feeds)["y"], -numbers(3))
    with pytest.raises(FeedError, match="index"):
        exe.run({**feeds, "c": np.array(False)})


def test_a_division_by_zero_in_the_other_branch_changes_nothing() -> None:
    divided = graph([node("Div", ["n", "d"], ["q"]), node("Cast", ["q"], ["a"], to=1)], (), ["a"])
    made = choosing(NEG, divided, [info("n", [3], I64), info("d", [3], I64)])
    feeds = {"x": numbers(3), "n": np.array([1, 2, -(2**63)]), "d": np.array([0, 0, -1])}

    assert is_graph(made)
    got = ag.compile(made).run({**feeds, "c": np.array(True)})
    np.testing.assert_array_equal(got["y"], -numbers(3))


def test_of_costly_branches_one_runs() -> None:
    product = graph([node("MatMul", ["x", "w"], ["a"])], (), ["a"])
    weights = {"w": np.ones((1025, 1025), np.float32)}
    made = choosing(graph([node("Neg", ["x"], ["a"])], (), ["a"]), product,
                    constants=weights, shape=(1, 1025))  # fmt: skip

    assert is_branch(made)
    check(made, {"x": np.ones((1, 1025), np.float32)})


def test_values_of_other_kinds_are_parts() -> None:
    joined = graph([node("SequenceConstruct", ["x", "w"], ["a"])], (), ["a"])
    joined.initializer.extend([numpy_helper.from_array(np.float32([5]), "w")])
    single = graph([node("SequenceConstruct", ["x"], ["a"])], (), ["a"])
    for sub in (joined, single):
        sub.output[0].CopyFrom(sequence("a"))
    nodes = [node("If", ["c"], ["s"], then_branch=joined, else_branch=single),
             node("ConcatFromSequence", ["s"], ["y"], axis=0)]  # fmt: skip
    made = model(nodes, [info("x", [3]), info("c", (), BOOL)], ["y"])

    assert not is_graph(made)
    check(made, {"x": numbers(3)})


def test_a_model_with_short_branches_can_be_bundled(tmp_path: Path) -> None:
    ag.bundle(choosing(NEG, ABS), tmp_path / "chosen")

    assert list((tmp_path / "chosen").iterdir())
