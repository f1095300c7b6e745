"""The ONNX backend: its interface, and a sample of the tests that ONNX has for backends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx.backend.test import runner

import models
import node_cases
from alpenglow import onnx_backend
from alpenglow.base.errors import FeedError, ModelError, OptionError
from onnx_node import node_model

sys.path.insert(0, str(models.ROOT / "tools"))

import conformance
from conformance_page import NOTES, Outcome, how, page, table

X = np.arange(6, dtype=np.float32).reshape(2, 3)
STRIDE = 26
"""Every so many tests of single nodes are in the sample."""


@pytest.fixture(scope="module")
def recorder() -> conformance.Recorder:
    return conformance.Recorder()


@pytest.fixture(scope="module")
def tests(recorder: conformance.Recorder) -> conformance.Tests:
    """Return ONNX's node tests; what they expect is stored (`node_cases`), not computed again."""
    load = runner.load_model_tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            runner, "load_model_tests",
            lambda kind: node_cases.models() if kind == "node" else load(kind=kind),
        )  # fmt: skip
        return conformance.suites(recorder, re.compile("^Node$"))


def known_to_fail() -> set[str]:
    """Return the tests that docs/conformance.md lists as failing."""
    return set(re.findall(r"^- `(test_\w+)`", conformance.PAGE.read_text(), re.MULTILINE))


def test_notes_are_of_tests_that_fail() -> None:
    elsewhere = {"test_squeezenet"}  # whether that one fails is a matter of the machine

    assert known_to_fail() >= NOTES.keys() - elsewhere


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_sample_of_node_tests_passes(
    target: str, tests: conformance.Tests, recorder: conformance.Recorder
) -> None:
    recorder.target = target
    known = known_to_fail()
    sample = [key for key in list(tests)[::STRIDE] if key[1] not in known]
    outcomes = {name: conformance.attempt(tests[suite, name]) for suite, name in sample}

    assert len(tests) > 1000
    assert {n: why for n, (status, why) in outcomes.items() if status != "passed"} == {}


# ── the interface ──


@pytest.mark.parametrize("device", ["CPU", "CPU:0", "INTERPRETER"])
def test_a_node_runs_on_each_device(device: str) -> None:
    (y,) = onnx_backend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [X, X], device)

    assert onnx_backend.supports_device(device)
    np.testing.assert_array_equal(y, X + X)


def test_a_target_stands_in_for_the_device() -> None:
    prepared = onnx_backend.prepare(node_model("Relu", {"x": X}, opset=21), target="interpreter")

    assert prepared.executable.artifact.target.name == "interpreter"


def test_a_device_that_is_not_there_is_refused() -> None:
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(OptionError, match="device is 'CUDA:1', expected one of: CPU"):
        onnx_backend.prepare(node_model("Relu", {"x": X}, opset=21), "CUDA:1")


@pytest.mark.parametrize("values", [[X, None, np.float32(3)], [X, np.float32(3)]])
def test_an_input_that_a_node_leaves_out_is_none_or_left_out(values: list[object]) -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])

    (y,) = onnx_backend.run_node(node, values, outputs_info=[(X.dtype, X.shape)])

    np.testing.assert_array_equal(y, np.minimum(X, 3))


def test_a_node_keeps_to_the_opset_that_is_asked_for() -> None:
    """Softmax was over all axes from the first on in opset 12."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)

    (old,) = onnx_backend.run_node(node, [X], opset_version=12)
    (new,) = onnx_backend.run_node(node, [X], opset_version=13)

    assert np.isclose(old.sum(), 1)
    np.testing.assert_allclose(new.sum(0), np.ones(3), 1e-6)


@pytest.mark.parametrize("values", [[], [None], [X, X]])
def test_inputs_that_do_not_fit_a_node_are_refused(values: list[object]) -> None:
    with pytest.raises((FeedError, ModelError)):
        onnx_backend.run_node(helper.make_node("Relu", ["x"], ["y"]), values)


def test_a_model_with_open_extents_runs_at_each_of_them() -> None:
    model = node_model("Relu", {"x": X}, opset=21)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    prepared = onnx_backend.prepare(model)

    for n in range(12):
        x = np.full((n, 3), -1.5, np.float32)
        (y,) = prepared.run([x])

        np.testing.assert_array_equal(y, np.zeros((n, 3)))


def test_a_model_refuses_another_number_of_inputs() -> None:
    with pytest.raises(FeedError, match="2 inputs given, expected 1: x"):
        onnx_backend.run_model(node_model("Relu", {"x": X}, opset=21), [X, X])


# ── how conformance is counted ──


@pytest.mark.parametrize(
    ("op", "target", "ran"),
    [("Neg", "cpu", ("compiled", ())), ("Identity", "cpu", ("compiled", ())),
     ("Shape", "cpu", ("folded", ())), ("Neg", "interpreter", ("in part", ("neg",)))],
)  # fmt: skip
def test_how_a_model_ran(op: str, target: str, ran: tuple[str, tuple[str, ...]]) -> None:
    prepared = onnx_backend.prepare(node_model(op, {"x": X}, opset=21), target=target)

    assert how(prepared.executable) == ran


def die(_: object) -> None:
    sys.exit(3)


def hang(_: object) -> None:
    while True:
        pass


def differ(_: object) -> None:
    np.testing.assert_allclose(1, 2)


def test_a_worker_that_dies_or_hangs_fails_its_test_alone(tmp_path: Path) -> None:
    made: dict[str, Callable[[object], object]] = {
        "test_dies": die, "test_hangs": hang, "test_differs": differ, "test_passes": id
    }  # fmt: skip
    jobs = [conformance.Job("Node", name, "cpu") for name in made]
    suite = {("Node", name): made[name] for name in made}

    outcomes = conformance.run(jobs, suite, conformance.Recorder(), 2, 1.0, tmp_path)

    assert {o.test: (o.status, o.reason) for o in outcomes} == {
        "test_dies": ("crashed", "the process died (3)"),
        "test_hangs": ("timeout", "took more than 1 s"),
        "test_differs": ("failed", "values differ"),
        "test_passes": ("passed", ""),
    }


@pytest.mark.parametrize(
    ("expected", "actual", "agrees", "stock"),
    [
        ([X], [X], True, True),
        ([X], [X + 1], False, False),
        ([X], [X.astype(np.float64)], False, False),
        ([[np.float32(1)]], [[np.float32(1)]], True, False),
        ([None], [None], True, False),
        ([[X, X]], [[X]], False, True),
    ],
    ids=["equal", "values", "types", "rank-0", "empty", "shorter"],
)
def test_where_our_comparator_differs_from_onnx_s(
    expected: list[object], actual: list[object], agrees: bool, stock: bool
) -> None:
    recorder = conformance.Recorder()
    compare = conformance.compared(recorder).assert_similar_outputs

    status, _ = conformance.attempt(lambda _: compare(expected, actual, 1e-3, 1e-7))

    assert (status == "passed", recorder.stock) == (agrees, stock)


def test_the_page_counts_what_passed() -> None:
    outcomes = [
        Outcome("Node", "test_a", "cpu", "passed", "compiled", "", ("Add",), 0.1, stock=True),
        Outcome("Node", "test_a", "interpreter", "passed", "in part", "", ("Add",), 0.1),
        Outcome("Node", "test_b", "cpu", "failed", "", "values differ", ("Add", "Mul"), 0.1),
        Outcome("Node", "test_b", "interpreter", "passed", "in part", "", ("Add", "Mul"), 0.1),
    ]
    lines = list(page(outcomes, ["cpu", "interpreter"]))

    assert "| single nodes | 2 | 1 | 2 | 1 | 0 | 0 |" in lines
    assert "- `test_b` (cpu): values differ" in lines
    assert "- cpu: 1 of 2" in lines and "- interpreter: 0 of 2" in lines
    assert "\nIt fails what passes here: `test_a`, `test_b`." in lines
    assert lines[-2:] == ["| `Add` | 2 | 1 | 2 | 1 | 0 | 0 |", "| `Mul` | 1 | 0 | 1 | 0 | 0 | 0 |"]
    assert len(list(table("suite", {"none": []}, ["cpu"]))) == 2
