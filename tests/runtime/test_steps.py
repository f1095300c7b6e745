"""A run like an earlier one takes its steps again: nothing is decided, and nothing is mixed up."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.frontends import control
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.staged import runner
from alpenglow.runtime.staged.staged import StagedExecutable
from alpenglow.runtime.staged.stages import Matcher, Stage
from staged_cases import CASES, I64, Case, info, model, node, numbers

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")


def compiled(made: Any) -> StagedExecutable:
    exe = ag.compile(made, threads=1)
    assert isinstance(exe, StagedExecutable)
    return exe


def summing() -> StagedExecutable:
    """Return a sum whose axis is data."""
    nodes = [node("Neg", ["x"], ["n"]), node("ReduceSum", ["n", "axis"], ["y"], keepdims=0)]
    return compiled(model(nodes, [info("x", ["N", "M"]), info("axis", [1], I64)], ["y"]))


def along(exe: StagedExecutable, x: Any, axis: int) -> Any:
    return exe(x, np.array([axis]))


@pytest.mark.parametrize("case", CASES.values(), ids=str)
@pytest.mark.sampled(7)
def test_a_run_like_an_earlier_one_decides_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = compiled(case.model())
    calls = list(case.calls())
    expected = [list(exe.run(feeds).values()) for feeds in calls for _ in range(2)][::2]
    decided: list[str] = []
    for kind, method in ((Matcher, "match"), (Stage, "accepts")):
        monkeypatch.setattr(kind, method, lambda *_, method=method: decided.append(method))
    for feeds, wanted in zip(calls, expected, strict=True):
        for want, got in zip(wanted, exe.run(feeds).values(), strict=True):
            np.testing.assert_array_equal(got, want)

    assert decided == []


def test_parts_of_a_run_like_an_earlier_one_are_prepared_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe, x = summing(), numbers(3, 3)
    for axis in (0, 1, 0, 1, 0, 1):  # the first calls may be long
        along(exe, x, axis)
    monkeypatch.setattr(InProcess, "execute", lambda *_: pytest.fail("the call is not short"))
    for axis in (0, 1):
        np.testing.assert_allclose(along(exe, x, axis), -x.sum(axis), 1e-5)


def test_prepared_calls_take_arrays_that_are_not_dense() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("SequenceAt", ["parts", "one"], ["second"]),
        node("Neg", ["second"], ["y"]),
    ]
    constants = {"one": np.array(1), "sizes": np.array([2, 3])}
    exe = compiled(model(nodes, [info("x", ["N", 5])], ["y"], constants))
    for _ in range(4):
        x = numbers(6, 5)
        np.testing.assert_array_equal(exe(x), -x[:, 2:])


def test_elements_that_were_measured_tell_steps_apart() -> None:
    exe, x = summing(), numbers(3, 3)
    for axis in (0, 1, 0, 1, -1, 0):
        np.testing.assert_allclose(along(exe, x, axis), -x.sum(axis), 1e-5)


def test_shapes_of_what_the_host_made_tell_steps_apart() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "zero"], ["first"]),
        node("Neg", ["first"], ["y"]),
    ]
    inputs = [info("x", ["N", 2]), info("sizes", [2], I64)]
    exe = compiled(model(nodes, inputs, ["y"], {"zero": np.array(0)}))
    x = numbers(6, 2)
    for k in (2, 3, 2, 5, 3):
        np.testing.assert_array_equal(exe(x, np.array([k, 6 - k])), -x[:k])


def test_extents_of_strings_tell_steps_apart() -> None:
    nodes = [
        node("LabelEncoder", ["s"], ["n"], domain="ai.onnx.ml", keys_strings=["a", "b"],
             values_int64s=[1, 2], default_int64=-1),
        node("Mul", ["n", "n"], ["y"]),
    ]  # fmt: skip
    made = model(nodes, [info("s", ["N"], TensorProto.STRING)], [info("y", ["N"], I64)])
    made.opset_import.add(domain="ai.onnx.ml", version=2)
    exe = compiled(made)
    for word, squares in (("abx", [1, 4, 1]), ("bb", [4, 4]), ("xab", [1, 1, 4]), ("", [])):
        assert exe(np.array(list(word), object)).tolist() == squares


def test_host_operators_that_read_each_other_are_one_step() -> None:
    nodes = [
        node("StringNormalizer", ["s"], ["low"], case_change_action="LOWER"),
        node("StringNormalizer", ["low"], ["kept"], stopwords=["x"]),
        node("LabelEncoder", ["kept"], ["n"], domain="ai.onnx.ml", keys_strings=["a", "b"],
             values_int64s=[1, 2], default_int64=-1),
        node("Mul", ["n", "n"], ["y"]),
    ]  # fmt: skip
    made = model(nodes, [info("s", ["N"], TensorProto.STRING)], [info("y", ["N"], I64)])
    made.opset_import.add(domain="ai.onnx.ml", version=2)
    exe = compiled(made)
    for word, squares in (("AxB", [1, 4]), ("aXxx", [1]), ("bab", [4, 1, 4]), ("aXbA", [1, 4, 1])):
        assert exe(np.array(list(word), object)).tolist() == squares

    (first,) = exe._runner._first
    actions = first.outline.then.actions
    assert [action.outputs for action in actions] == [("low",), ("kept",), ("n",)]


def test_more_steps_than_are_kept_give_right_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_STEPS", 5)
    exe = summing()
    for _ in range(2):
        for n in range(1, 8):
            x = numbers(n, 4)
            np.testing.assert_allclose(along(exe, x, n % 2), -x.sum(n % 2), 1e-5)

            assert len(exe._runner._starts) <= 5


def test_steps_do_not_keep_what_the_tree_of_stages_has_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "MOST_STAGES", 1)
    exe, x = summing(), numbers(3, 4)
    along(exe, x, 0)
    dropped = weakref.ref(exe._runner._first[0].next[0])
    along(exe, x, 1)
    gc.collect()

    assert dropped() is None
    np.testing.assert_allclose(along(exe, x, 0), -x.sum(0), 1e-5)


def branching(source: str, outputs: list[str]) -> StagedExecutable:
    """Return a model of two branches, of which one is imported when it is taken.

    One has more to do, one hands `source` on as it is.
    """
    far = helper.make_graph([node("Exp", ["x"], ["far"])], "far", [], [info("far", None)])
    near = helper.make_graph(
        [node("Identity", [source], ["near"])], "near", [], [info("near", None)]
    )
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("ReduceMax", ["t"], ["most"], keepdims=0),
        node("Greater", ["most", "half"], ["is_far"]),
        node("If", ["is_far"], ["y"], then_branch=far, else_branch=near),
    ]
    made = model(nodes, [info("x", ["N"])], outputs, {"half": np.array(0.5, np.float32)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "SHORT", 0)
        return compiled(made)


@pytest.mark.parametrize("source", ["x", "t"])
@pytest.mark.parametrize("outputs", [["y"], ["y", "t"]])
def test_what_a_branch_hands_on_is_the_callers_alone(source: str, outputs: list[str]) -> None:
    exe = branching(source, outputs)
    for high in (0.1, 2.0, 0.1, 0.1):
        x = np.full(5, high, np.float32)
        expected = np.exp(x) if high > 1 else x if source == "x" else np.tanh(x)
        made = exe.run({"x": x})
        np.testing.assert_allclose(made["y"], expected, 1e-6)
        made["y"][:] = -1
        assert x[0] == np.float32(high)
        if "t" in made:
            np.testing.assert_allclose(made["t"], np.tanh(x), 1e-6)


def test_a_part_that_hands_on_runs_nothing() -> None:
    exe = branching("t", ["y"])
    for _ in range(2):
        exe.run({"x": np.zeros(3, np.float32)})
    assert len(exe.report()) == 1
