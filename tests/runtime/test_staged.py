"""Models whose graph depends on their data: imported and compiled in parts, as they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.ir.staged import StagedModel
from alpenglow.ir.text import print_graph
from alpenglow.runtime.staged.staged import StagedExecutable
from staged_cases import (
    BOOL,
    CASES,
    GOES,
    GOES_ON,
    I64,
    ITERATION,
    Array,
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


def compiled(made: Any, target: str = "cpu", **chosen: Any) -> StagedExecutable:
    exe = ag.compile(made, target=target, **chosen)
    assert isinstance(exe, StagedExecutable)
    return exe


def peer(made: onnx.ModelProto) -> Callable[[Feeds], list[Array]]:
    """Return what runs a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return lambda feeds: list(session.run(None, feeds))


def assert_same(expected: Sequence[Array], actual: Sequence[Array]) -> None:
    assert [(y.dtype, y.shape) for y in expected] == [(y.dtype, y.shape) for y in actual]
    for want, got in zip(expected, actual, strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)


# ── every case ──


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("case", CASES.values(), ids=str)
@pytest.mark.sampled(11)
def test_staged_models_agree_with_a_peer_and_compile_parts_once(case: Case, target: str) -> None:
    made = case.model()
    exe, run = compiled(made, target), peer(made)
    assert exe.artifacts == [], "nothing is compiled before the first call"
    first = []
    for feeds in case.calls():
        first.append(list(exe.run(feeds).values()))
        assert_same(run(feeds), first[-1])
    artifacts = len(exe.artifacts)
    for feeds, expected in zip(case.calls(), first, strict=True):
        for want, got in zip(expected, exe.run(feeds).values(), strict=True):
            np.testing.assert_array_equal(want, got)

    assert artifacts <= case.parts
    assert len(exe.artifacts) == artifacts, "a second run compiles nothing"
    if target == "cpu":
        assert all(entry.kernel for a in exe.artifacts for entry in a.table)


@pytest.mark.parametrize("name", ["branches", "nonzero", "loop"])
def test_calls_in_another_order_give_the_same(name: str) -> None:
    case = CASES[name]
    calls = list(case.calls())
    exe, again = compiled(case.model()), compiled(case.model())
    expected = [list(exe.run(f).values()) for f in calls]
    actual = [list(again.run(f).values()) for f in reversed(calls)]

    for want, got in zip(expected, reversed(actual), strict=True):
        assert_same(want, got)


def test_strict_numerics_and_checks_work_on_parts() -> None:
    case = CASES["nonzero"]
    exe = compiled(case.model(), options=ag.Options(numerics="strict", check=True))
    for feeds in case.calls()[:2]:
        assert_same(peer(case.model())(feeds), list(exe.run(feeds).values()))


# ── what an executable tells ──


def test_the_report_names_parts_and_what_the_host_did() -> None:
    case = CASES["sequences"]
    exe = compiled(case.model())
    assert exe.report() == []
    exe.run(case.calls()[0])
    report = exe.report()

    hosts = [r.host for r in report if r.host]
    assert hosts[:3] == ["split_to_sequence", "sequence_length", "sequence_empty"]
    assert "ConcatFromSequence 'joined'" in [r.what for r in report]
    assert sum(r.compiled for r in report) >= 3
    assert not any(r.interpreted for r in report)


def test_the_interpreter_reports_interpreted_instructions() -> None:
    case = CASES["branches"]
    exe = compiled(case.model(), "interpreter")
    exe.run(case.calls()[0])

    assert [r.compiled for r in exe.report()] == [0] * len(exe.report())
    assert {name for r in exe.report() for name in r.interpreted} == {
        "reduce_sum", "greater", "fused"}  # fmt: skip


def test_the_first_part_of_a_model_is_a_graph() -> None:
    staged = ag.load(CASES["branches"].model())
    assert isinstance(staged, StagedModel) and staged.first is not None
    first = print_graph(staged.first.graph)

    assert list(staged.first.graph.inputs) == ["x"]
    assert "greater" in first and "mul" not in first


def test_types_that_a_model_leaves_open_are_none() -> None:
    exe = compiled(CASES["branches"].model())

    assert [str(t) for t in exe.inputs.values()] == ["f32[N]"]
    assert list(exe.outputs) == ["z"]


def test_shapes_bind_extents_of_staged_models() -> None:
    case = CASES["branches"]
    exe = compiled(case.model(), shapes={"x": (3,)})
    feeds = case.calls()[0]

    assert exe.inputs["x"].shape == (3,)
    assert_same(peer(case.model())(feeds), [exe(feeds["x"])])
    with pytest.raises(FeedError, match="input 'x'"):
        exe(np.zeros(4, np.float32))


def test_a_model_of_host_values_alone_runs() -> None:
    nodes = [node("SequenceConstruct", ["x", "y"], ["s"]), node("SequenceAt", ["s", "n"], ["z"])]
    made = model(nodes, [info("x", ["N"]), info("y", ["M"]), info("n", (), I64)], ["z"])
    exe = compiled(made)
    for n in (0, 1, -1):
        actual = exe.run({"x": numbers(2), "y": numbers(5), "n": count(n)})["z"]

        np.testing.assert_array_equal(actual, (numbers(2), numbers(5))[n])


def test_sequences_come_in_and_go_out_as_lists() -> None:
    nodes = [node("SequenceInsert", ["s", "x"], ["t"])]
    made = model(nodes, [sequence("s"), info("x", ["N"])], [sequence("t")])
    exe = compiled(made)
    actual = exe.run({"s": [numbers(2)], "x": numbers(3)})["t"]

    assert exe.inputs["s"] is None
    assert [y.shape for y in actual] == [(2,), (3,)]


# ── branches and loops that are special ──


def test_branches_may_hand_on_what_they_capture() -> None:
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Neg", ["x"], ["b"]),
        node("Concat", ["b", "b"], ["d"], axis=0),
        node("If", ["c"], ["y"], then_branch=graph([], (), ["a"]),
             else_branch=graph([], (), ["d"])),
    ]  # fmt: skip
    exe = compiled(model(nodes, [info("x", ["N"]), info("c", [1], BOOL)], ["y"]))
    for n in (3, 1, 0):
        x = numbers(n)

        np.testing.assert_array_equal(exe(x, np.array([True])), np.abs(x))
        np.testing.assert_array_equal(exe(x, np.array([False])), np.tile(-x, 2))


def test_a_known_condition_leaves_one_graph() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Size", ["s"], ["rank"]),
        node("Equal", ["rank", "two"], ["c"]),
        node("If", ["c"], ["y"], then_branch=graph([node("Neg", ["x"], ["a"])], (), ["a"]),
             else_branch=graph([node("Abs", ["x"], ["a"])], (), ["a"])),
    ]  # fmt: skip
    g = ag.load(model(nodes, [info("x", ["N", "M"])], ["y"], {"two": 2}))

    assert isinstance(g, ag.Graph)
    assert [n.op.name for n in g.nodes] == ["neg"]


def looping(collected: Any, carried: Any = None) -> onnx.ModelProto:
    body = graph(
        [node("Add", ["acc", "x"], ["acc2"]), GOES_ON, node("Neg", ["acc2"], ["kept"])],
        [*ITERATION, carried or info("acc")],
        [GOES, "acc2", collected],
    )
    nodes = [node("Loop", ["n", "c", "a"], ["y", "ys"], body=body)]
    inputs = [info("n", (), I64), info("c", (), BOOL), info("a", ["K"]), info("x", ["K"])]
    return model(nodes, inputs, ["y", "ys"])


@pytest.mark.parametrize("collected", ["kept", info("kept", ["K"]), info("kept", [2])])
@pytest.mark.parametrize(("n", "going"), [(0, True), (5, False), (0, False)])
def test_a_loop_that_does_not_run_gives_what_it_was_given(
    collected: Any, n: int, going: bool
) -> None:
    exe = compiled(looping(collected))
    feeds = {"n": count(n), "c": np.array(going), "a": numbers(2), "x": numbers(2)}
    actual = exe.run(feeds)

    np.testing.assert_array_equal(actual["y"], numbers(2))
    assert (actual["ys"].shape, actual["ys"].dtype) == ((0, 2), np.float32)
    again = exe.run({**feeds, "n": count(3), "c": np.array(True)})
    assert again["ys"].shape == (3, 2)


def test_a_body_that_could_not_run_need_not() -> None:
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
    exe = compiled(model(nodes, [info("x", ["N", "M"]), info("a", ["M"])], ["y", "ys"]))
    for n in (0, 3, 0):
        x = numbers(n, 2)
        y, ys = exe(x, np.zeros(2, np.float32))

        np.testing.assert_allclose(y, x.sum(0), 1e-5)
        assert len(ys) == n and ys.ndim == 2


def test_a_scan_over_nothing_gives_what_it_was_given() -> None:
    exe = compiled(CASES["scan"].model())
    feeds = {"s0": numbers(3), "x": numbers(3, 0), "scale": numbers(3)}
    actual = exe.run(feeds)

    np.testing.assert_array_equal(actual["last"], numbers(3))
    assert actual["ys"].shape == (3, 0)


def test_a_loop_without_bounds_ends_by_its_condition() -> None:
    body = graph(
        [node("Add", ["acc", "acc"], ["acc2"]), node("Less", ["acc2", "limit"], ["goes"])],
        [*ITERATION, info("acc", ())],
        [GOES, "acc2"],
    )
    nodes = [node("Loop", ["", "", "a"], ["y"], body=body)]
    exe = compiled(model(nodes, [info("a", ())], ["y"], {"limit": np.float32(100)}))

    assert exe(np.float32(1)) == 128
    assert exe(np.float32(3)) == 192


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_body_declares_may_hold_in_the_first_turn_only(rank: int) -> None:
    """Exporters write the shapes that they saw, and give the count as a vector of one."""
    ones = [1] * rank
    body = graph(
        [node("Concat", ["acc", "x"], ["acc2"], axis=0), node("Cast", ["i"], ["f"], to=1),
         node("Reshape", ["f", "one"], ["step"]), node("Concat", ["b", "step"], ["b2"], axis=0),
         GOES_ON],
        [info("i", ones, I64), info("go", ones, BOOL), info("acc", [1]), info("b", ["D"]),
         info("x2", ["D"])],
        [GOES, info("acc2", [1]), info("b2", ["D"]), info("x2", ["D"])],
    )  # fmt: skip
    nodes = [node("Loop", ["n", "", "a", "a", "x"], ["y", "z", "w"], body=body)]
    inputs = [info("n", (), I64), info("a", ["K"]), info("x", ["J"])]
    exe = compiled(model(nodes, inputs, ["y", "z", "w"], {"one": np.array([1])}))
    for n, k, j in ((3, 1, 2), (2, 4, 1), (5, 1, 1)):
        a, x = numbers(k), numbers(j, seed=1)
        y, z, w = exe(count(n), a, x)

        np.testing.assert_array_equal(y, np.concatenate([a, *[x] * n]))
        np.testing.assert_array_equal(z, np.concatenate([a, np.arange(n)]))
        np.testing.assert_array_equal(w, x)


def test_a_loop_is_compiled_once_however_often_what_precedes_it_changes() -> None:
    body = graph(
        [node("Mul", ["acc", "x"], ["acc2"]), GOES_ON], [*ITERATION, info("acc")], [GOES, "acc2"]
    )
    nodes = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=1),
        node("Loop", ["n", "", "s"], ["y"], body=body),
    ]
    inputs = [info("x", [2, 3, 4, 5]), info("axes", ["A"], I64), info("n", (), I64)]
    exe = compiled(model(nodes, inputs, ["y"]))
    x = numbers(2, 3, 4, 5)
    bodies = set()
    for axes in ([0], [1], [2], [3], [0, 1], [1, 2], [2, 3], [0, 3], [0, 1, 2], [1, 2, 3]):
        for _ in range(2):
            actual = exe.run({"x": x, "axes": np.array(axes), "n": count(2)})["y"]
            expected = x.sum(tuple(axes), keepdims=True) * x * x

            np.testing.assert_allclose(actual, expected, 1e-4, 1e-5)
        bodies |= {id(b) for b in exe._runner._bodies.values()}

    assert len(bodies) == 1


def test_values_by_similar_names_are_kept_apart() -> None:
    """Extents are symbols named after values: one's must not be taken for another's."""
    names = ["a", "a_", "a__0", "a__e0", "_a", "ä", "1", "a.b", "a_b", "a-b", "lambda", "a__"]
    nodes = [node("NonZero", [n], [f"nz:{n}"]) for n in names]
    nodes += [node("Shape", [f"nz:{n}"], [f"{n}!"]) for n in names]
    nodes += [node("Expand", ["one", f"{n}!"], [f"y:{n}"]) for n in names]
    inputs = [info(n, [f"d{i}"]) for i, n in enumerate(names)]
    exe = compiled(model(nodes, inputs, [f"y:{n}" for n in names], {"one": np.float32(1)}))
    for seed in range(3):
        sizes = np.random.default_rng(seed).permutation(len(names))
        feeds = {n: np.ones(k, np.float32) for n, k in zip(names, sizes, strict=True)}
        actual = [y.shape for y in exe.run(feeds).values()]

        assert actual == [(1, k) for k in sizes]


def test_more_ways_to_go_on_than_are_kept_give_right_results() -> None:
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node("Resize", ["t", "", "f"], ["y"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
    ]  # fmt: skip
    exe = compiled(model(nodes, [info("x", [3, 4]), info("f", [2])], ["y"]))
    x = numbers(3, 4)
    for _ in range(2):
        for k in range(1, 24):
            actual = exe(x, np.array([1, k], np.float32))

            np.testing.assert_array_equal(actual, np.repeat(x.T, k, 1))


def test_float_elements_are_measured_exactly() -> None:
    """Contents that are no extents are compared as they are, small differences included."""
    nodes = [node("Resize", ["x", "", "f"], ["y"], mode="nearest"), node("Neg", ["y"], ["z"])]
    exe = compiled(model(nodes, [info("x", [1, 1, 4, 4]), info("f", [4])], ["z"]))
    for scale in (2.0, 1.75, 2.0, 1.5):
        actual = exe(numbers(1, 1, 4, 4), np.array([1, 1, scale, scale], np.float32))

        assert actual.shape == (1, 1, int(4 * scale), int(4 * scale))


# ── threads ──


def called_from_threads(
    exe: ag.Executable, calls: Sequence[Feeds], seconds: float
) -> tuple[int, list[str]]:
    """Call from eight threads, each in an order of its own; return how often, and what differed."""
    expected = [list(exe.run(f).values()) for f in calls]
    end = time.monotonic() + seconds
    wrong: list[str] = []
    total = [0] * 8

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        while time.monotonic() < end and not wrong:
            k = int(random.integers(len(calls)))
            try:
                actual = list(exe.run(calls[k]).values())
                if not all(map(np.array_equal, expected[k], actual)):
                    wrong.append(f"thread {number}: call {k} differs")
            except Exception as error:
                wrong.append(f"thread {number}: call {k}: {error!r}")
            total[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(total), wrong


@pytest.mark.parametrize("name", ["nonzero", "loop", "sequences", "branches"])
@pytest.mark.sampled(2)
def test_calls_from_many_threads_give_the_bits_of_one(name: str) -> None:
    case = CASES[name]
    calls = list(case.calls())
    exe = compiled(case.model(), threads=2)
    total, wrong = called_from_threads(exe, calls, 1.2)

    assert not wrong
    assert total > 50


def test_threads_that_meet_new_data_at_once_agree() -> None:
    case = CASES["suppression"]
    calls = list(case.calls())
    expected = [list(compiled(case.model()).run(f).values()) for f in calls]
    exe = compiled(case.model())
    found: list[Any] = [None] * 8
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        found[number] = list(exe.run(calls[number % len(calls)]).values())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    for number, actual in enumerate(found):
        assert_same(expected[number % len(calls)], actual)
    assert len(exe.artifacts) <= case.parts + 2
