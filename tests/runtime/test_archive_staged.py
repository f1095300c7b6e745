"""Archives of models whose graph depends on their data: they hold what calls have led to."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import alpenglow as ag
from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.extras.strings.strings import StringSplit
from alpenglow.ir.staged import Apply
from alpenglow.ir.staged_text import Continuation
from alpenglow.runtime.archive import archive
from alpenglow.runtime.archive import staged as archive_staged
from alpenglow.runtime.staged.kept import KeptModel, KeptStage, Outline, StagedArchive
from alpenglow.runtime.staged.staged import StagedExecutable
from staged_cases import (
    BOOL,
    CASES,
    F32,
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Case,
    Feeds,
    count,
    graph,
    info,
    model,
    node,
    numbers,
    sequence,
)

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.ago"


def called(made: Any, calls: Sequence[Feeds], **chosen: Any) -> StagedExecutable:
    """Return a model compiled, after calls."""
    exe = ag.compile(made, **chosen)
    assert isinstance(exe, StagedExecutable)
    for feeds in calls:
        exe.run(feeds)
    return exe


def opened(exe: ag.Executable, path: Path) -> StagedExecutable:
    exe.save(path)
    again = ag.open(path)
    assert isinstance(again, StagedExecutable)
    return again


def stages(exe: StagedExecutable) -> int:
    """Return how many stages there are, those of bodies included."""
    return sum(len([*m.every_stage()]) for m in exe.archived().model.every_model())


def assert_equal(expected: Any, actual: Any) -> None:
    """Compare values of any kind, bit by bit."""
    assert type(expected) is type(actual)
    match expected:
        case dict():
            assert list(expected) == list(actual)
            assert_equal(list(expected.values()), list(actual.values()))
        case list():
            assert len(expected) == len(actual)
            for want, got in zip(expected, actual, strict=True):
                assert_equal(want, got)
        case np.ndarray():
            assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
            np.testing.assert_array_equal(expected, actual)
        case _:
            assert expected == actual


# ── every case ──


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("case", CASES.values(), ids=str)
@pytest.mark.sampled(5)
def test_what_is_opened_computes_what_was_saved(case: Case, target: str, path: Path) -> None:
    calls = list(case.calls())
    exe = called(case.model(), calls, target=target)
    expected = [exe.run(feeds) for feeds in calls]
    again = opened(exe, path)
    again.save(path.with_name("again.ago"))

    assert (again.inputs, again.outputs, again.name) == (exe.inputs, exe.outputs, exe.name)
    assert repr(again) == repr(exe) and again.metadata == exe.metadata
    for feeds, want in zip(calls, expected, strict=True):
        assert_equal(want, again.run(feeds))
    assert len(again.artifacts) == len(exe.artifacts), "nothing is compiled again"
    assert again.report() == exe.report()
    assert path.read_bytes() == path.with_name("again.ago").read_bytes()


@pytest.mark.parametrize("case", CASES.values(), ids=str)
@pytest.mark.sampled(3)
def test_an_archive_serves_what_would_have_been_imported_no_more(case: Case, path: Path) -> None:
    """Other calls run where the saved one would have gone through the stages that it had."""
    first, *others = case.calls()
    halved = {n: a * np.float32(0.5) if a.dtype == np.float32 else a for n, a in first.items()}
    again = opened(called(case.model(), [first]), path)
    served = 0
    for feeds in [halved, *others]:
        exe = called(case.model(), [first])
        before = stages(exe)
        expected = exe.run(feeds)
        if stages(exe) == before:
            assert_equal(expected, again.run(feeds))
            served += 1
        else:
            with pytest.raises(UnsupportedError, match="that is not in the archive"):
                again.run(feeds)

    assert served


def test_data_that_lead_elsewhere_are_refused_and_do_no_harm(path: Path) -> None:
    case = CASES["branches"]
    positive, negative, *_ = case.calls()
    exe = called(case.model(), [positive])
    again = opened(exe, path)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="not in the archive") as caught:
            again.run(negative)
        assert_equal(exe.run(positive), again.run(positive))

    assert "call the model with such data before saving it" in caught.value.hint
    with pytest.raises(FeedError, match="input 'x'"):
        again.run({"x": np.zeros(3, np.int64)})


# ── where there is no onnx ──


@pytest.mark.parametrize("name", ["branches", "loop", "scan", "sequences", "text_between"])
@pytest.mark.sampled(2)
def test_it_runs_where_onnx_cannot_be_imported(name: str, path: Path) -> None:
    """At the extents that were met, and at others, for which parts are compiled."""
    case = CASES[name]
    calls = list(case.calls())
    exe = called(case.model(), calls)
    exe.save(path)
    for i, feeds in enumerate(calls):
        np.savez(path.with_name(f"in{i}.npz"), **feeds)
        np.savez(path.with_name(f"expected{i}.npz"), **exe.run(feeds))
    source = f"""
import sys
sys.modules["onnx"] = None
import numpy as np, alpenglow as ag
exe = ag.open("model.ago")
for i in range({len(calls)}):
    results = exe.run(dict(np.load(f"in{{i}}.npz")))
    expected = np.load(f"expected{{i}}.npz")
    for name, y in results.items():
        np.testing.assert_array_equal(expected[name], y)
assert not [m for m in sys.modules if m.startswith("alpenglow.frontends.onnx.")]
"""
    subprocess.run([sys.executable, "-c", source], cwd=path.parent, check=True)


def test_an_opened_model_compiles_parts_for_extents_that_are_new(path: Path) -> None:
    case = CASES["nested_branches"]
    x = np.full(4, 1, np.float32)
    exe = called(case.model(), [{"x": x, "c": np.array(True)}])
    again = opened(exe, path)
    compiled = len(again.artifacts)
    (y,) = again.run({"x": np.full(1, 1, np.float32), "c": np.array(True)}).values()

    np.testing.assert_array_equal(y, [10])
    assert len(again.artifacts) > compiled


# ── what is not a tensor of numbers ──


def test_strings_of_the_model_are_kept(path: Path) -> None:
    names = np.array(["a", "b  #", "ü", ""], object)
    text = TensorProto.STRING
    nodes = [
        node("Equal", ["s", "names"], ["e"]), node("Concat", ["s", "names"], ["both"], axis=0),
        node("NonZero", ["e"], ["at"]), node("StringConcat", ["both", "mark"], ["marked"]),
    ]  # fmt: skip
    made = model(nodes, [info("s", [4], text)],
                 [info("at", None, I64), info("marked", None, text)],
                 {"mark": np.array(["  #"], object), "names": names})  # fmt: skip
    feeds = {"s": np.array(["x", "b  #", "ü", "\n"], object)}
    exe = called(made, [feeds])
    again = opened(exe, path)

    assert_equal(exe.run(feeds), again.run(feeds))
    assert again.run(feeds)["marked"].tolist()[-3] == "b  #  #"


def test_sequences_and_optionals_come_in_and_go_out(path: Path) -> None:
    maybe = onnx.helper.make_value_info("o", onnx.helper.make_optional_type_proto(
        onnx.helper.make_tensor_type_proto(F32, [None])))  # fmt: skip
    nodes = [
        node("OptionalHasElement", ["o"], ["has"]),
        node("SequenceInsert", ["s", "x"], ["t"]),
    ]
    made = model(nodes, [sequence("s"), info("x", ["N"]), maybe],
                 [sequence("t"), info("has", (), BOOL)])  # fmt: skip
    for o in (None, numbers(2)):
        feeds = {"s": [numbers(2)], "x": numbers(3), "o": o}
        exe = called(made, [feeds])
        again = opened(exe, path)

        assert repr(again) == repr(exe)
        assert_equal(exe.run(feeds), again.run(feeds))
        with pytest.raises(FeedError, match="expected a sequence"):
            again.run({**feeds, "s": numbers(2)})


def test_fractions_that_decide_are_kept_exactly(path: Path) -> None:
    nodes = [node("Resize", ["x", "", "f"], ["y"], mode="nearest"), node("Neg", ["y"], ["z"])]
    made = model(nodes, [info("x", [1, 1, 4, 4]), info("f", [4])], ["z"])

    def feeds(scale: float) -> Feeds:
        return {"x": numbers(1, 1, 4, 4), "f": np.array([1, 1, scale, scale], np.float32)}

    exe = called(made, [feeds(1.7), feeds(2.0)])
    again = opened(exe, path)
    for scale in (1.7, 2.0):
        assert_equal(exe.run(feeds(scale)), again.run(feeds(scale)))
    with pytest.raises(UnsupportedError, match="not in the archive"):
        again.run(feeds(float(np.nextafter(np.float32(1.7), np.float32(2)))))


# ── loops ──


def test_a_body_stands_once_however_often_its_loop_was_met(path: Path) -> None:
    body = graph(
        [node("Mul", ["acc", "x"], ["acc2"]), GOES_ON], [*ITERATION, info("acc")], [GOES, "acc2"]
    )
    nodes = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=1),
        node("Loop", ["n", "", "s"], ["y"], body=body),
    ]
    inputs = [info("x", [2, 3]), info("axes", ["A"], I64), info("n", (), I64)]
    x = numbers(2, 3)
    calls = [{"x": x, "axes": np.array(a), "n": count(2)} for a in ([0], [1], [0, 1])]
    exe = called(model(nodes, inputs, ["y"]), calls)
    again = opened(exe, path)

    assert len(again.archived().model.every_model()) == 2
    for feeds in calls:
        assert_equal(exe.run(feeds), again.run(feeds))


def test_a_loop_that_runs_no_turn_gives_what_it_gave_before(path: Path) -> None:
    """Its body cannot be imported for rows that are not there; another shape was not seen."""
    body = graph(
        [node("Gather", ["x", "i"], ["row"], axis=0), node("Add", ["acc", "row"], ["acc2"]),
         GOES_ON, node("Neg", ["row"], ["kept"])],
        [*ITERATION, info("acc")],
        [GOES, "acc2", info("kept", ["M"])],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["s"], end=1),
        node("Squeeze", ["s"], ["n"]),
        node("Loop", ["n", "", "a"], ["y", "ys"], body=body),
    ]
    made = model(nodes, [info("x", ["N", "M"]), info("a", ["M"])], ["y", "ys"])
    feeds = {"x": numbers(0, 2), "a": numbers(2)}
    exe = called(made, [feeds])
    again = opened(exe, path)

    assert_equal(exe.run(feeds), again.run(feeds))
    with pytest.raises(UnsupportedError, match="not in the archive"):
        again.run({"x": numbers(0, 3), "a": numbers(3)})


def test_extents_of_values_that_a_part_does_not_read_are_known_in_it(path: Path) -> None:
    nodes = [
        node("NonZero", ["x"], ["at"]), node("Squeeze", ["at", "zero"], ["rows"]),
        node("Gather", ["x", "rows"], ["v"]), node("TopK", ["v", "k"], ["best", "order"]),
        node("Shape", ["x"], ["s"]), node("Concat", ["s", "one"], ["s1"], axis=0),
        node("Expand", ["best", "s1"], ["y"]),
    ]  # fmt: skip
    made = model(nodes, [info("x", ["N"]), info("k", [1], I64)], ["y"],
                 {"zero": np.array([0]), "one": np.array([1])})  # fmt: skip
    calls = [{"x": numbers(n), "k": np.array([k])} for n, k in ((5, 2), (7, 3), (9, 2))]
    exe = called(made, calls[:2])
    again = opened(exe, path)
    for feeds in calls:
        assert_equal(exe.run(feeds), again.run(feeds))


# ── saving ──


def test_weights_stand_once_and_are_views_of_the_file(path: Path) -> None:
    w = numbers(64, 512)
    nodes = [
        node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]),
        node("NonZero", ["r"], ["at"]), node("Shape", ["at"], ["n"]),
    ]  # fmt: skip
    feeds = {"x": numbers(2, 64)}
    exe = called(model(nodes, [info("x", [2, 64])], [info("n", None, I64)], {"w": w}), [feeds])
    again = opened(exe, path)

    assert path.stat().st_size < 1.5 * w.nbytes
    assert_equal(exe.run(feeds), again.run(feeds))


def test_a_model_that_was_not_called_is_not_saved(tmp_path: Path) -> None:
    exe = ag.compile(CASES["branches"].model())
    with pytest.raises(UnsupportedError, match="has not been called") as caught:
        exe.save(tmp_path / "x.ago")

    assert "call it with arrays" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_passes_of_the_caller_are_in_no_archive(tmp_path: Path) -> None:
    mine = ag.Pass("mine", lambda g, target: g, "does nothing", after="fuse")
    case = CASES["branches"]
    exe = called(case.model(), case.calls()[:1], options=ag.Options(passes=(mine,)))
    with pytest.raises(UnsupportedError, match="compiled with passes=… cannot be saved"):
        exe.save(tmp_path / "x.ago")

    assert not list(tmp_path.iterdir())


def test_what_no_text_holds_is_refused_by_name() -> None:
    for value in ({"a": 1}, np.array([b"bytes"], object), np.zeros(2, "M8[s]"), [numbers(2)]):
        m = KeptModel("m", "m.onnx", {}, {}, {}, {"the constant": value})
        with pytest.raises(UnsupportedError, match="value 'the constant': saving a"):
            archive_staged.print_staged(m)


def test_attributes_that_no_text_holds_are_refused_by_operator() -> None:
    op = StringSplit(" ", 1)
    op.__dict__["delimiter"] = {1}
    then = Continuation((Apply("StringSplit 's'", op, ("s",), ("t",)),), (), 0)
    m = KeptModel("m", "m.onnx", {"s": None}, {}, {}, {})
    m.stages.append(KeptStage(Outline({}, {}, {}, then, (), {}, {"s": True}, {}), None, ()))
    with pytest.raises(UnsupportedError, match="string_split: saving its attributes") as caught:
        archive_staged.print_staged(m)

    assert caught.value.node == "StringSplit 's'"


def test_attributes_that_begin_a_comment_read_back() -> None:
    nodes = [node("StringSplit", ["s"], ["parts", "n"], delimiter="  # ", maxsplit=1)]
    made = model(nodes, [info("s", ["N"], TensorProto.STRING)],
                 [info("parts", None, TensorProto.STRING), info("n", None, I64)])  # fmt: skip
    feeds = {"s": np.array(["a  # b", "c#d"], object)}
    exe = called(made, [feeds])
    again = copy.deepcopy(exe)

    assert_equal(exe.run(feeds), again.run(feeds))
    assert again.run(feeds)["parts"].tolist() == [["a", "b"], ["c#d", ""]]
    assert StringSplit("  # ", 1) in [
        a.op for m in again.archived().model.every_model() for s, _ in m.every_stage()
        for a in s.outline.then.actions if hasattr(a, "op")
    ]  # fmt: skip


@pytest.mark.parametrize("numerics", ["fast", "strict"])
def test_the_settings_of_the_compiler_go_along(numerics: Any, path: Path) -> None:
    case = CASES["nonzero"]
    exe = called(case.model(), case.calls()[:1], options=ag.Options(numerics=numerics))
    archived = archive.read(_saved(exe, path))

    assert isinstance(archived, StagedArchive)
    assert archived.settings["numerics"] == numerics


def _saved(exe: ag.Executable, path: Path) -> Path:
    exe.save(path)
    return path


def test_copies_and_pickles_run() -> None:
    case = CASES["sequences"]
    feeds = case.calls()[0]
    exe = called(case.model(), [feeds], threads=1)
    for again in (copy.deepcopy(exe), pickle.loads(pickle.dumps(exe))):
        assert again.threads == 1
        assert_equal(exe.run(feeds), again.run(feeds))
