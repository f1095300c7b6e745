"""Random models give the same everywhere; damaged files and edited texts are refused or run.

    ALPENGLOW_FUZZ_SECONDS=3600 pytest tests/fuzz/test_fuzz.py -m slow

looks for longer.  Seeds are fixed, and so is how many there are at most unless a time is asked for:
a faster machine tries no others.  How many there was time for stands at the end of the report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.debug import probe as report_probe
from alpenglow.debug.probe import Lost, Probe
from alpenglow.debug.reduce import recorded, reduce
from alpenglow.frontends.onnx.cut import Case, exposed
from alpenglow.ops.elementwise.arithmetic import Add
from fuzz import callers, differential, guard, hostile, texts
from fuzz.draft import every
from fuzz.models import draft, sizes

ASKED = os.environ.get("ALPENGLOW_FUZZ_SECONDS", "")
SECONDS = float(ASKED or "180")

Record = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave validation of passes out: results are compared anyway, and there is time for more."""
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")


def seeds_from(first: int, most: int) -> range:
    return range(first, first + (10**9 if ASKED else most))


def agrees(first: int, most: int, seconds: float, record: Record) -> list[differential.Tried]:
    tried = differential.hunt(seeds_from(first, most), time.monotonic() + seconds)
    operators = {op for t in tried for op in t.operators}
    cases = sum(t.cases() for t in tried)
    record("tried", f"{cases} cases of {len(operators)} operators from seed {first}")

    findings = [t.finding for t in tried if t.verdict.problems]

    assert not findings, "\n".join(map(str, findings))
    return tried


@pytest.mark.parametrize("first", [0, 10, 20])
@pytest.mark.sampled(1)
def test_random_models_give_the_same_in_every_engine(first: int, record_property: Record) -> None:
    tried = agrees(first, 10, 10.0, record_property)

    assert tried


@pytest.mark.slow
def test_many_random_models_give_the_same_in_every_engine(record_property: Record) -> None:
    tried = agrees(1_000_000, 180, SECONDS, record_property)

    assert {"open", "staged", "plain"} <= {k for t in tried for k in t.kinds}


def received(first: int, most: int, seconds: float, record: Record, only: str = "") -> None:
    seeds = seeds_from(first, most)
    how, findings = hostile.hunt(seeds, time.monotonic() + seconds, only=only)
    record("tried", f"{how.total()} damaged files from seed {first}")

    assert not findings, "\n".join(findings)
    assert how["ModelError"] or how.total() < 20  # a busy machine tries few in that time


def computed(first: int, most: int, record: Record) -> None:
    tried = texts.hunt(first, most)
    record("tried", f"{len(tried.outcomes)} edited texts from seed {first}")

    assert not tried.problems(), "\n".join(map(str, tried.problems().values()))
    assert {o.how for o in tried.outcomes.values()} >= {"ran", "ProgramError at parse"}


@pytest.mark.parametrize("first", [0, 300])
@pytest.mark.sampled(1)
def test_edited_texts_are_refused_or_compute_what_they_say(
    first: int, record_property: Record
) -> None:
    computed(first, 300, record_property)


@pytest.mark.slow
def test_many_edited_texts_are_refused_or_compute_what_they_say(record_property: Record) -> None:
    computed(1_000_000, 3000, record_property)


@pytest.mark.parametrize("first", [0, 150])
@pytest.mark.sampled(1)
def test_damaged_files_of_exported_programs_are_refused_or_run(
    first: int, record_property: Record
) -> None:
    received(first, 150, 20.0, record_property, only="exported")


@pytest.mark.slow
def test_many_damaged_files_of_exported_programs_are_refused_or_run(
    record_property: Record,
) -> None:
    received(1_000_000, 3_000, 200.0, record_property, only="exported")


@pytest.mark.parametrize("first", [0, 850, 1700, 2550])
@pytest.mark.sampled(1)
def test_damaged_files_are_refused_or_run(first: int, record_property: Record) -> None:
    received(first, 850, 6.0, record_property)


@pytest.mark.slow
def test_many_damaged_files_are_refused_or_run(record_property: Record) -> None:
    received(1_000_000, 4700, SECONDS / 3, record_property)


@pytest.mark.slow
def test_threads_that_call_with_different_extents_get_the_bits_of_one(
    record_property: Record,
) -> None:
    """What `fuzz.callers` does with real networks for a minute, with a small one for a while."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 16])
    graph = helper.make_graph(nodes, "net", [x], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 21)]
    exe = ag.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10), threads=2)
    shapes = [(1, 1), (1, 19), (2, 50), (1, 33), (4, 7), (3, 64), (2, 2), (0, 5)]
    feeds = [callers.fed(exe.inputs, (*shape, 16), i) for i, shape in enumerate(shapes)]
    calls, problems = callers.disturbed(exe, feeds, 8, 10.0)
    record_property("tried", f"{calls.total()} calls from 8 threads")

    assert not problems, "\n".join(problems[:5])
    assert len(calls) == len(shapes)


@pytest.mark.rest
def test_a_seed_makes_the_same_model_again() -> None:
    """In every process: their strings have other hashes, and their sets another order."""
    text = (
        "from hashlib import md5; from fuzz.models import draft; drafts = map(draft, range(90));"
        "print([md5(d.model().SerializeToString() + repr(d.feeds()).encode()).hexdigest()"
        " for d in drafts])"
    )
    digests = set()
    for number in "12":
        env = {**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True,
                              check=True)  # fmt: skip
        digests.add(done.stdout)

    assert len(digests) == 1


def test_random_models_are_valid() -> None:
    for seed in range(120):
        d = draft(seed)
        schemas = [d.schema(n.op_type, n.domain) for n in every(d.nodes)]
        known = all(s is not None and not s.deprecated for s in schemas)
        # Sequences among the outputs have no type: whoever reads the model infers it.
        if d.nodes and not d.results and known:
            onnx.checker.check_model(d.model())


def test_a_draft_has_feeds_of_other_extents_and_decisions() -> None:
    d = next(d for d in map(draft, range(200)) if d.is_open and d.controls and len(sizes(d)) > 3)
    shapes = [{k: a.shape for k, a in feeds.items()} for feeds in (d.feeds(), *sizes(d))]

    assert all(s.keys() == shapes[0].keys() for s in shapes)
    assert any(s != shapes[0] for s in shapes)


def test_a_draft_can_do_without_a_node_and_what_depends_on_it() -> None:
    drafts = (d for d in map(draft, range(100)) if len(d.nodes) > 4 and not d.results)
    d = next(d for d in drafts if not any(n.domain for n in d.nodes))
    shorter = d.without(0)

    assert len(shorter.nodes) < len(d.nodes)
    onnx.checker.check_model(shorter.model())


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


def test_a_process_that_is_ready_late_answers_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with Probe(20) as probe:
        monkeypatch.setattr(report_probe, "STARTING", 0.0)
        assert probe(abs, -3) == Lost("hang", "not ready in 0 s")
        monkeypatch.undo()
        assert probe(abs, -3) == 3


def test_a_model_is_cut_down_to_the_node_that_matters() -> None:
    drafts = (d for d in map(draft, range(100)) if len(d.nodes) > 4 and not d.results)
    d = next(d for d in drafts if not any(n.domain for n in d.nodes))
    wanted = d.nodes[2].op_type
    case = Case(d.model(), d.feeds())
    small = reduce(
        case,
        lambda c: any(n.op_type == wanted for n in c.nodes),
        lambda c: recorded(exposed(c).model.SerializeToString(), dict(c.feeds)),
        20.0,
    )

    assert [n.op_type for n in small.nodes] == [wanted]
