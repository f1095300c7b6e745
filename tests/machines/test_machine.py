"""The conformance kit for makers of machines, and devices with memory of their own."""

from __future__ import annotations

import gc
import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import alpenglow as ag
from alpenglow.cli import cli
from alpenglow.evaluate import evaluate
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Concat
from alpenglow.report import conformance
from alpenglow.runtime.call.calls import StopWord
from alpenglow.runtime.device.remote import Constants, Remote
from devices import Chip, for_chip


def run(arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, arguments.split())
    assert done.exit_code == code, done.output
    return done.stdout


# ── the kit ──


def test_the_kit_counts_the_cases_of_each_operator() -> None:
    told = json.loads(run("test-machine cpu --operators --only ^(relu|softmax|split_axis)$ --json"))
    rows = {row["operator"]: row for row in told["operators"]}

    assert told["ok"] and told["target"] == "cpu" and not told["failures"]
    assert rows["relu"]["equal"] > 0 and rows["relu"]["interpreted"] == 0
    assert rows["softmax"]["equal"] + rows["softmax"]["near"] > 0


def test_the_kit_sees_what_is_interpreted() -> None:
    lines = run("test-machine interpreter --operators --only ^relu$").splitlines()

    assert lines[1].split() == ["relu", *lines[1].split()[1:]]
    assert lines[1].split()[1] == lines[1].split()[-1]  # all are equal, and interpreted
    assert "0 wrong" in lines[-1]


def test_the_kit_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = conformance.compile

    class Off:
        def __init__(self, *given: Any, **named: Any) -> None:
            self._exe = compiled(*given, **named)
            self.artifacts = self._exe.artifacts

        def run(self, feeds: Any) -> dict[str, Any]:
            return {name: y + 1 for name, y in self._exe.run(feeds).items()}

    monkeypatch.setattr(conformance, "compile", Off)
    told = run("test-machine cpu --operators --only ^relu$", 1)

    assert "wrong: relu 0: y0:" in told


def test_the_kit_finds_a_machine_that_raises_what_is_no_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("by the maker")

    monkeypatch.setattr(conformance, "compile", broken)

    assert "ZeroDivisionError: by the maker" in run(
        "test-machine cpu --operators --only ^relu$", 1)  # fmt: skip


def test_a_sample_of_all_operators_is_right_on_this_machine() -> None:
    assert "0 refused, 0 wrong" in run("test-machine cpu --operators --every 80").splitlines()[-1]


@pytest.mark.slow
def test_all_operators_and_node_tests_are_right_on_this_machine() -> None:
    told = json.loads(run("test-machine cpu --json"))

    assert told["ok"], told["failures"]


def test_an_unknown_machine_is_refused() -> None:
    done = CliRunner().invoke(cli, ["test-machine", "npu"])

    assert isinstance(done.exception, ag.errors.OptionError) or done.exit_code == 2


# ── devices ──


def remote_on(chip: Chip, g: ag.Graph, *ops: type) -> Remote:
    """Return a graph on a chip that runs some operators."""
    made = for_chip(g, *ops)
    constants = Constants(made, chip)
    return Remote(made.program, made.table, chip, chip.install(made), constants, {})


def network() -> ag.Graph:
    """Two chains that meet: the chip has no softmax and no concat."""
    g = ag.Graph("network")
    x, c = g.input("x", "f32[4,8]"), g.constant(np.full((4, 8), 2, np.float32))
    a = g(Mul(), g(Add(), x, c), c)
    b = g(Softmax(axis=1), a)
    g.output("y", g(Concat(0), g(Add(), b, a), g(Mul(), b, x)))
    g.output("z", g(Relu(), a))
    return g


def values(remote: Remote, x: Any, stop: StopWord | None = None) -> dict[str, Any]:
    program = remote.program
    types = {n: program.buffers[n].type for n in program.outputs}
    results = {n: np.empty(t.extents, t.numpy) for n, t in types.items() if t is not None}
    remote.run({"x": x}, results, stop or StopWord())
    return results


@pytest.mark.parametrize("ops", [(), (Add,), (Add, Mul, Clip), (Softmax,), (Softmax, Copy)])
def test_a_chip_that_runs_some_operators_gives_the_same_bits(ops: tuple[type, ...]) -> None:
    g, x = network(), np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    remote = remote_on(Chip(), g, *ops)
    expected = evaluate(g, {"x": x})

    for _ in range(2):
        for name, y in values(remote, x).items():
            np.testing.assert_array_equal(y, expected[name], name)


def test_what_stays_on_one_side_is_not_copied() -> None:
    g = ag.Graph("chain")
    x = g.input("x", "f32[4,8]")
    for axis in (0, 1, 0, 1):
        x = g(Softmax(axis), x)
    g.output("y", x)
    chip = Chip()
    remote = remote_on(chip, g, Softmax)
    values(remote, np.ones((4, 8), np.float32))

    assert chip.copied == [("up", 128), ("down", 128)]


def test_memory_of_a_chip_is_given_back() -> None:
    chip = Chip()
    remote = remote_on(chip, network(), Add)
    assert chip.held > 0
    del remote
    gc.collect()

    assert chip.held == 0


def test_a_call_on_a_chip_ends_when_it_is_told_to() -> None:
    chip = Chip()
    remote = remote_on(chip, network(), Add)
    chip.copied.clear()
    stop = StopWord()
    stop.stop(1)
    values(remote, np.ones((4, 8), np.float32), stop)

    assert chip.copied == []
