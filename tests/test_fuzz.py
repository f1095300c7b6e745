"""Random models give the same everywhere, and damaged files are refused or run.

    ALPENGLOW_FUZZ_SECONDS=360 pytest tests/test_fuzz.py -m slow

looks for longer, from a seed that changes every day.
"""

from __future__ import annotations

import os
import time

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.ops.arithmetic import Add
from alpenglow.report.cut import Case
from alpenglow.report.probe import Lost, Probe
from alpenglow.report.reduce import reduce
from fuzz import differential, guard, hostile
from fuzz.models import draft

SECONDS = float(os.environ.get("ALPENGLOW_FUZZ_SECONDS", "60"))


def test_random_models_give_the_same_in_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    state, findings = differential.hunt(range(150), time.monotonic() + 50)
    with capsys.disabled():
        print(f"[{state.models} models of {len(state.operators)} operators] ", end="")

    assert not findings, "\n".join(map(str, findings))
    assert state.ran["fast"] > 20 and state.ran["onnxruntime"] > 5


@pytest.mark.slow
def test_many_random_models_give_the_same_in_every_engine() -> None:
    begin = 1000 * (1 + int(time.time() // 86400))
    _, findings = differential.hunt(range(begin, begin + 100_000), time.monotonic() + SECONDS)

    assert not findings, "\n".join(map(str, findings))


def test_damaged_files_are_refused_or_run() -> None:
    how, findings = hostile.hunt(range(400), time.monotonic() + 25)

    assert not findings, "\n".join(findings)
    assert how["ModelError"] and how["ran"]


@pytest.mark.slow
def test_many_damaged_files_are_refused_or_run() -> None:
    begin = 1000 * (1 + int(time.time() // 86400))
    _, findings = hostile.hunt(range(begin, begin + 100_000), time.monotonic() + SECONDS / 2)

    assert not findings, "\n".join(findings)


def test_a_seed_makes_the_same_model_again() -> None:
    first, second = draft(7), draft(7)

    assert first.model().SerializeToString() == second.model().SerializeToString()
    assert all(np.array_equal(a, second.feeds()[k]) for k, a in first.feeds().items())


def test_random_models_are_valid() -> None:
    for seed in range(60):
        d = draft(seed)
        if d.nodes and not any(n.domain for n in d.nodes):
            onnx.checker.check_model(d.model())


def test_a_write_outside_of_an_output_is_noticed() -> None:
    guards = guard.Guards()
    place = guards.bytes(100)
    guards.check()
    behind = np.ndarray(1, np.uint8, guards.held[0][1].data, guards.held[0][2] + 100)
    behind[0] = 0

    assert place.size == 100
    with pytest.raises(guard.Trespass, match="1 bytes behind the arena"):
        guards.check()


def test_what_is_right_passes_the_guard() -> None:
    g = ag.Graph("sum")
    x = g.input("x", "f32[37]")
    g.output("y", g(Add(), x, x))
    exe = ag.compile(g, threads=1)

    np.testing.assert_array_equal(guard.run(exe, {"x": np.ones(37, np.float32)})["y"], 2)


# ── the process that may crash, and making models small ──


def test_a_crash_is_an_answer() -> None:
    with Probe(20) as probe:
        assert probe(abs, -3) == 3
        assert probe(os._exit, 3) == Lost("crash", "exit status 3")
        assert probe(abs, -4) == 4


def test_a_hang_is_an_answer() -> None:
    with Probe(0.5) as probe:
        found = probe(time.sleep, 30)

        assert isinstance(found, Lost) and found.kind == "hang"


def test_a_model_is_cut_down_to_the_node_that_matters() -> None:
    d = next(d for d in map(draft, range(100)) if len(d.nodes) > 4)
    wanted = d.nodes[2].op_type
    case = Case(d.model(), d.feeds())
    small = reduce(
        case,
        lambda c: any(n.op_type == wanted for n in c.nodes),
        lambda c: differential.recorded(
            differential.exposed(c).model.SerializeToString(), dict(c.feeds)
        ),
        20.0,
    )

    assert [n.op_type for n in small.nodes] == [wanted]
