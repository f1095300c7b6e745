"""Loops that no graph holds run turn by turn, with the results of ONNX Runtime."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from alpenglow.base.errors import FeedError
from loop_cases import check, compiled, looping
from staged_cases import (
    BOOL,
    F32,
    I64,
    Array,
    count,
    graph,
    info,
    model,
    node,
    numbers,
)

F64, F16 = TensorProto.DOUBLE, TensorProto.FLOAT16

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")


def test_what_is_carried_keeps_its_shape() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Tanh", ["p"], ["x2"])]
    made = looping(nodes, [info("x", [2, 8])], ["x2"], {"w": numbers(8, 8)})
    check(made, [{"n": count(n), "a0": numbers(2, 8)} for n in (500, 7, 2, 1, 0, 100)])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", [["x", "row"], ["row", "x"], ["x", "row", "x0"]])
@pytest.mark.sampled(3)
def test_what_is_carried_grows(order: list[str], threads: int) -> None:
    nodes = [
        node("Slice", ["x", "last", "end", "axis"], ["end_row"]),
        node("Tanh", ["end_row"], ["row"]),
        node("Concat", order, ["x2"], axis=0),
    ]
    constants = {"last": np.array([-1]), "end": np.array([1 << 40]), "axis": np.array([0])}
    made = looping(nodes, [info("x", ["K", 4])], ["x2"], constants, inputs=[info("x0", ["J", 4])])
    calls = [
        {"n": count(n), "a0": numbers(k, 4), "x0": numbers(j, 4)}
        for n, k, j in ((300, 1, 2), (300, 5, 1), (40, 2, 3), (1, 1, 1), (300, 7, 0))
    ]
    check(made, calls, threads)


def test_what_is_carried_shrinks_until_the_code_is_no_longer_right() -> None:
    """Of an empty axis, of one row, and of more there are codes of their own."""
    nodes = [
        node("Slice", ["x", "one", "end", "zero"], ["x2"]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
    ]
    constants = {"one": np.array([1]), "end": np.array([1 << 40]), "zero": np.array([0])}
    made = looping(nodes, [info("x", ["K", 3])], ["x2", "sum"], constants, collected=1)
    check(made, [{"n": count(k), "a0": numbers(k, 3)} for k in (60, 9)])


def test_what_is_carried_grows_by_more_each_turn() -> None:
    nodes = [node("Concat", ["x", "x"], ["x2"], axis=0)]
    check(looping(nodes, [info("x", ["K"])], ["x2"]),
                 [{"n": count(8), "a0": numbers(k)} for k in (1, 2, 3)])  # fmt: skip


def test_what_is_carried_changes_places() -> None:
    nodes = [node("Add", ["x", "y"], ["sum"]), node("Identity", ["x"], ["y2"])]
    made = looping(nodes, [info("x", ["K"]), info("y", ["K"])], ["sum", "y2"])
    feeds = {"n": count(20), "a0": np.ones(3, np.float32), "a1": np.zeros(3, np.float32)}
    check(made, [feeds, {**feeds, "n": count(19)}])

    assert compiled(made).run(feeds)["y0"][0] == 10946


def test_values_that_grow_are_swapped() -> None:
    nodes = [
        node("Concat", ["x", "r"], ["y2"], axis=0), node("Concat", ["y", "r"], ["x2"], axis=0),
    ]  # fmt: skip
    made = looping(nodes, [info("x", ["K"]), info("y", ["L"])], ["x2", "y2"],
                   inputs=[info("r", [1])])  # fmt: skip
    feeds = {"n": count(33), "a0": numbers(5), "a1": numbers(9), "r": numbers(1, seed=2)}

    check(made, [feeds])


def test_one_that_extends_another_is_right_for_both() -> None:
    """The result of y begins with x, which goes on by itself."""
    nodes = [
        node("Concat", ["x", "r"], ["y2"], axis=0), node("Neg", ["x"], ["x2"]),
    ]  # fmt: skip
    made = looping(nodes, [info("x", ["K"]), info("y", ["L"])], ["x2", "y2"],
                   inputs=[info("r", [1])])  # fmt: skip
    calls = [{"n": count(k), "a0": numbers(5), "a1": numbers(6), "r": numbers(1, seed=2)}
             for k in (33, 34)]  # fmt: skip

    check(made, calls)


def test_values_that_are_handed_on_and_values_that_are_not_read() -> None:
    nodes = [node("Identity", ["x"], ["x2"]), node("Cast", ["i"], ["y2"], to=F32),
             node("Add", ["z", "c"], ["z2"])]  # fmt: skip
    made = looping(nodes, [info("x", ["K"]), info("y", ()), info("z", ())], ["x2", "y2", "z2"],
                   {"c": np.float32(1)})  # fmt: skip
    feeds = {"n": count(50), "a0": numbers(4), "a1": np.float32(3), "a2": np.float32(0)}
    feeds = {name: np.asarray(v) for name, v in feeds.items()}
    check(made, [feeds, {**feeds, "n": count(3)}])

    assert compiled(made).run(feeds)["y1"] == 49


@pytest.mark.parametrize("code", [F64, F16, I64, TensorProto.INT32])
def test_numbers_of_turns_and_results_of_any_type_are_collected(code: int) -> None:
    nodes = [
        node("Cast", ["i"], ["step"], to=code), node("Add", ["x", "step"], ["x2"]),
        node("Identity", ["x2"], ["kept"]), node("Mul", ["i", "i"], ["squares"]),
    ]  # fmt: skip
    results = [info("x2", None, code), info("kept", None, code), info("squares", None, I64)]
    made = looping(nodes, [info("x", ["K"], code)], results, collected=2)
    start = np.arange(3).astype(onnx.helper.tensor_dtype_to_np_dtype(code))
    check(made, [{"n": count(n), "a0": start} for n in (90, 2, 5, 0, 1)])
    squares = compiled(made).run({"n": count(90), "a0": start})["s1"]

    np.testing.assert_array_equal(squares, np.arange(90) ** 2)


@pytest.mark.parametrize("trips", ["n", ""])
def test_a_computed_condition_ends_the_loop_where_it_should(trips: str) -> None:
    nodes = [node("Add", ["x", "one"], ["x2"]), node("Neg", ["x2"], ["kept"])]
    less = node("Less", ["x2", "limit"], ["goes"])
    made = looping(nodes, [info("x", ())], ["x2", "kept"], {"one": np.float32(1)}, 1,
                   [info("limit", ())], less, trips)  # fmt: skip
    limits = (1, 2, 31, 32, 33, 34, 160, 161, 700, 6000)
    calls = [{"a0": np.array(0, np.float32), "limit": np.array(k, np.float32)} for k in limits]
    calls = [{"n": count(5000), **f} if trips else f for f in calls]
    check(made, calls)
    exe = compiled(made)
    for feeds, limit in zip(calls, limits, strict=True):
        turns = min(limit, 5000) if trips else limit

        assert exe.run(feeds)["y0"] == turns
        assert exe.run(feeds)["s0"].shape == (turns,)


def test_what_is_collected_must_have_one_shape() -> None:
    nodes = [node("Concat", ["x", "r"], ["x2"], axis=0), node("Neg", ["x2"], ["kept"])]
    made = looping(nodes, [info("x", ["K"])], ["x2", "kept"], collected=1,
                   inputs=[info("r", [1])])  # fmt: skip
    feeds = {"n": count(3), "a0": numbers(2), "r": numbers(1)}
    with pytest.raises(FeedError, match=r"shapes \[\(3,\), \(4,\), \(5,\)\]"):
        compiled(made).run(feeds)


def scanning(axis: int, backwards: int) -> onnx.ModelProto:
    body = graph(
        [node("Mul", ["e", "f"], ["p"]), node("Add", ["s", "p"], ["s2"]),
         node("Sub", ["s2", "c"], ["o"]), node("Identity", ["e"], ["q"])],
        [info("s"), info("e"), info("f")],
        ["s2", "o", "q"],
    )  # fmt: skip
    nodes = [
        node("Scan", ["s0", "x", "z"], ["last", "ys", "qs"], body=body, num_scan_inputs=2,
             scan_input_axes=[axis, 0], scan_output_axes=[axis, -1],
             scan_input_directions=[backwards, 1 - backwards],
             scan_output_directions=[backwards, 0])
    ]  # fmt: skip
    x = ["K", "L"] if axis else ["L", "K"]
    inputs = [info("s0", ["K"]), info("x", x), info("z", ["L", "K"]), info("c", ["K"])]
    return model(nodes, inputs, ["last", "ys", "qs"])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backwards", [0, 1])
def test_slices_come_and_go_along_any_axis_in_any_direction(axis: int, backwards: int) -> None:
    calls = []
    for k, n in ((3, 200), (8, 50), (1, 9), (3, 2), (3, 1)):
        x = numbers(k, n) if axis else numbers(n, k)
        calls.append({"s0": numbers(k), "x": x, "z": numbers(n, k, seed=1), "c": numbers(k)})
    check(scanning(axis, backwards), calls)


def test_inputs_that_are_not_dense_are_read_as_they_are() -> None:
    made = scanning(0, 0)
    k, n = 4, 30
    x, z = numbers(k, n).T, numbers(2 * n, k)[::2]
    feeds = {"s0": numbers(2 * k)[::2], "x": x, "z": z, "c": numbers(k)[::-1]}

    check(made, [feeds, feeds])


def test_loops_in_loops_capture_what_changes() -> None:
    inner = graph(
        [node("Mul", ["v", "u"], ["p"]), node("Tanh", ["p"], ["v2"]),
         node("Identity", ["g"], ["g2"]), node("Add", ["v2", "w"], ["kept"])],
        [info("j", (), I64), info("g", (), BOOL), info("v")],
        [info("g2", (), BOOL), "v2", "kept"],
    )  # fmt: skip
    nodes = [
        node("Add", ["x", "w"], ["u"]),
        node("Loop", ["m", "", "u"], ["x2", "stack"], body=inner),
        node("ReduceSum", ["stack"], ["sum"], keepdims=0),
    ]
    made = looping(nodes, [info("x", ["K"])], ["x2", "sum"], collected=1,
                   inputs=[info("m", (), I64), info("w", ["K"])])  # fmt: skip
    calls = [{"n": count(n), "m": count(m), "a0": numbers(k), "w": numbers(k, seed=3)}
             for n, m, k in ((6, 25, 4), (3, 40, 1), (4, 2, 4), (3, 1, 4))]  # fmt: skip
    check(made, calls)


def test_loops_serve_callers_from_many_threads() -> None:
    nodes = [node("Mul", ["x", "c"], ["p"]), node("Sub", ["p", "one"], ["x2"]),
             node("Identity", ["x2"], ["kept"])]  # fmt: skip
    made = looping(nodes, [info("x", ["K"])], ["x2", "kept"], {"one": np.float32(1)}, 1,
                   [info("c", ["K"])])  # fmt: skip
    exe = compiled(made, threads=1)
    calls = [{"n": count(n), "a0": numbers(k), "c": numbers(k, seed=1)}
             for n, k in ((90, 3), (33, 64), (90, 64), (7, 3))]  # fmt: skip
    expected = [exe.run(f) for f in calls]
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(120):
            k = (number + i) % len(calls)
            actual: dict[str, Array] = exe.run(calls[k])
            wrong.extend(n for n, y in expected[k].items() if not np.array_equal(y, actual[n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert not wrong
