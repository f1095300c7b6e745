"""Checks of indices: what they find wherever they stand, what they cost, how to leave them out."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, OptionError
from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.frontends.onnx import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.kernel.evaluate import evaluate as run_kernel
from alpenglow.kernel.faults import FAULT, OUT_OF_RANGE
from alpenglow.kernel.stoppable import STOP
from alpenglow.machines.registry import kernels
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.program.interpret import interpret
from onnx_node import single
from range_cases import LEVELS, Array, compiled, floats, outcome, session, zeros

# ── where in a kernel ──


def gathered(width: int, dtype: str = "int64", **more: Any) -> onnx.ModelProto:
    """Return GatherElements of [2, 9] at [2, width]."""
    return single("GatherElements", [floats(2, 9), np.zeros((2, width), dtype)], 21, axis=1, **more)


@pytest.mark.parametrize("target", [t for t in LEVELS if Target.parse(t).is_host_compatible()])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.sampled(3)
def test_every_lane_is_looked_at(target: str, dtype: str) -> None:
    x = floats(2, 9)
    for width in (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33):
        exe = ag.compile(load(gathered(width, dtype)), target, threads=1)
        at = np.random.default_rng(0).integers(-9, 9, (2, width)).astype(dtype)
        assert np.array_equal(exe(x, at), np.take_along_axis(x, at, 1))
        for place in np.ndindex(2, width):
            for index in (-10, 9, np.iinfo(dtype).min):
                wrong = at.copy()
                wrong[place] = index
                with pytest.raises(FeedError, match=f" {index},"):
                    exe(x, wrong)
        assert np.array_equal(exe(x, at), np.take_along_axis(x, at, 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", [0, 4999, 9999])
def test_any_thread_may_find_it(threads: int, place: int) -> None:
    model = single("GatherElements", [floats(4, 10000), zeros(2, 10000)], 21, axis=0)
    exe = ag.compile(load(model), threads=threads)
    x, at = floats(4, 10000), zeros(2, 10000)
    at[1, place] = 4

    with pytest.raises(FeedError, match="is 4, expected -4 to 3"):
        exe(x, at)


def graph_of(
    nodes: Sequence[onnx.NodeProto], ins: Mapping[str, Any], outs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """Return a model; `ins` holds (element type, shape) by name."""
    inputs = [helper.make_tensor_value_info(n, *t) for n, t in ins.items()]
    tensors = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    results = [onnx.ValueInfoProto(name=n) for n in outs]
    g = helper.make_graph(nodes, "g", inputs, results, tensors)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


TABLE = (TensorProto.FLOAT, [5, 3])
FOUR = (TensorProto.INT64, [4])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_the_error_names_operator_index_and_extent(target: str) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="tokens", axis=1)
    exe = ag.compile(load(graph_of([node], {"x": TABLE, "i": FOUR}, ["y"])), target)

    with pytest.raises(FeedError) as caught:
        exe(floats(5, 3), np.array([0, 1, 3, 2]))

    said = "Gather 'tokens': an index on axis 1 is 3, expected -3 to 2 (extent 3)"
    assert str(caught.value) == said


FUSED = {
    "computed": [("Add", ["i", "one"], "j"), ("GatherElements", ["x", "j"], "y")],
    "read twice": [("GatherElements", ["x", "i"], "a"), ("GatherElements", ["z", "i"], "b"),
                   ("Add", ["a", "b"], "y")],
    "gone on with": [("GatherElements", ["x", "i"], "a"), ("Exp", ["a"], "y")],
    "between": [("Mul", ["i", "one"], "j"), ("GatherElements", ["x", "j"], "a"),
                ("Sqrt", ["a"], "b"), ("Neg", ["b"], "y")],
    "scattered": [("Sub", ["i", "one"], "j"), ("ScatterElements", ["x", "j", "z"], "a"),
                  ("Neg", ["a"], "y")],
}  # fmt: skip


@pytest.mark.parametrize("how", FUSED)
def test_fused_with_what_is_around(how: str) -> None:
    nodes = [helper.make_node(op, ins, [out]) for op, ins, out in FUSED[how]]
    kind, index = (TensorProto.FLOAT, [7]), (TensorProto.INT64, [7])
    model = graph_of(nodes, {"x": kind, "z": kind, "i": index}, ["y"], {"one": np.array([1])})
    peer, ours = session(model), compiled(model, "cpu")
    for number in (-10, -8, -7, -6, -1, 0, 5, 6, 7, 8, (1 << 63) - 1, -(1 << 63)):
        feeds = {"x": abs(floats(7)), "z": floats(7), "i": np.array([0, 1, 2, 3, 4, 5, number])}
        expected, actual = outcome(peer, feeds), outcome(ours, feeds)

        assert (actual is None) == (expected is None), number
        for e, a in zip(expected or [], actual or [], strict=True):
            np.testing.assert_allclose(a, e, 1e-5, 1e-5)


def test_open_extents_are_those_of_the_call() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="G")
    ins = {"x": (TensorProto.FLOAT, ["n", 3]), "i": (TensorProto.INT64, ["k"])}
    exe = ag.compile(load(graph_of([node], ins, ["y"])))
    for n in (3, 8, 5):
        x = floats(n, 3)
        assert np.array_equal(exe(x, np.array([n - 1, -n])), x[[n - 1, 0]])
        with pytest.raises(FeedError, match=f"is {n}, expected -{n} to {n - 1} .extent {n}."):
            exe(x, np.array([0, 1, n]))


def looped() -> onnx.ModelProto:
    """Return the sum of rows 0, 1, … of a table, as many as are asked for, by a loop."""
    info = helper.make_tensor_value_info
    row = (TensorProto.FLOAT, [3])
    nodes = [helper.make_node("Gather", ["t", "it"], ["r"], name="row"),
             helper.make_node("Add", ["acc", "r"], ["more"]),
             helper.make_node("Identity", ["go"], ["on"])]  # fmt: skip
    ins = [info("it", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("acc", *row)]
    body = helper.make_graph(
        nodes, "b", ins, [info("on", TensorProto.BOOL, []), info("more", *row)]
    )
    loop = helper.make_node("Loop", ["n", "", "z"], ["y"], body=body)
    return graph_of([loop], {"n": (TensorProto.INT64, []), "z": row, "t": TABLE}, ["y"])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_in_a_loop(target: str) -> None:
    exe = ag.compile(load(looped()), target)
    for n in (3, 5, 6, 40, 5):
        feeds = {"n": np.array(n), "z": np.zeros(3, np.float32), "t": floats(5, 3)}
        if n <= 5:
            assert np.allclose(exe.run(feeds)["y"], floats(5, 3)[:n].sum(0))
            continue
        with pytest.raises(FeedError, match="Gather 'row': an index on axis 0 is 5, expected -5"):
            exe.run(feeds)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_is_not_taken_fails_at_nothing(taken: bool) -> None:
    a, b = onnx.ValueInfoProto(name="a"), onnx.ValueInfoProto(name="b")
    yes = helper.make_graph([helper.make_node("Gather", ["x", "i"], ["a"])], "t", [], [a])
    no = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "e", [], [b])
    node = helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    ins = {"c": (TensorProto.BOOL, []), "x": TABLE, "i": FOUR}
    exe = ag.compile(load(graph_of([node], ins, ["y"])))
    feeds = {"c": np.array(taken), "x": floats(5, 3), "i": np.array([0, 9, 0, 0])}

    if not taken:
        assert np.array_equal(exe.run(feeds)["y"], feeds["x"])
        return
    with pytest.raises(FeedError, match="is 9"):
        exe.run(feeds)


def test_calls_side_by_side_fail_each_by_itself() -> None:
    exe = ag.compile(load(gathered(17)), threads=1)
    x, right = floats(2, 9), zeros(2, 17)

    def call(number: int) -> bool:
        at = right.copy()
        at[1, 16] = 9 if number % 3 == 0 else 8
        try:
            return bool(exe(x, at)[1, 16] == x[1, 8])
        except FeedError:
            return number % 3 == 0

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(300)))


def test_arrays_that_are_given_are_written_or_not() -> None:
    exe = ag.compile(load(gathered(3)))
    out = {"y0": np.zeros((2, 3), np.float32)}
    with pytest.raises(FeedError):
        exe.run({"x0": floats(2, 9), "x1": zeros(2, 3) + 9}, out=out)
    exe.run({"x0": floats(2, 9), "x1": zeros(2, 3) + 8}, out=out)

    assert np.array_equal(out["y0"], floats(2, 9)[:, [8, 8, 8]])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_arrays_of_a_call_that_failed_are_let_go(target: str) -> None:
    exe = ag.compile(load(gathered(3)), target)
    x = floats(2, 9)
    gone = weakref.ref(x)
    with pytest.raises(FeedError):
        exe(x, zeros(2, 3) + 9)
    del x
    gc.collect()  # an error holds the frames through which it came

    assert gone() is None


def test_an_archive_checks_as_what_it_was_made_of(tmp_path: Any) -> None:
    ag.compile(load(gathered(17))).save(tmp_path / "a.ago")
    exe = ag.open(tmp_path / "a.ago")

    with pytest.raises(FeedError, match="GatherElements 'it': an index on axis 1 is -10"):
        exe(floats(2, 9), zeros(2, 17) - 10)


# ── what checks cost, and how to leave them out ──


def checks(model: onnx.ModelProto, options: Options | None = None) -> int:
    """Return how many checks are left in the program of a model."""
    program: Any = None
    for _, made in run_stages(load(model), Target.parse("cpu"), options or Options()):
        program = made
    instrs = list(program.instrs())
    ops = [
        op for i in instrs for op in ([i.op] if i.body is None else [n.op for n in i.body.nodes])
    ]
    return sum(isinstance(op, InRange) for op in ops)


def constant(number: int) -> onnx.ModelProto:
    return single("Gather", [floats(5, 3), np.array([0, number])], 21, constants=(1,))


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_constant_indices_are_an_error_of_the_model(target: str) -> None:
    assert checks(constant(-5)) == 0
    with pytest.raises(ModelError, match="Gather 'it': an index on axis 0 is 5, expected -5 to 4"):
        ag.compile(load(constant(5)), target)
    clamped = ag.compile(load(constant(5)), target, options=Options(indices="clamp"))
    assert np.array_equal(clamped(floats(5, 3)), floats(5, 3)[[0, 4]])


PROVED = {
    "the largest": [("ArgMax", ["t"], {"axis": 0, "keepdims": 0}, "i")],
    "the smallest": [("ArgMin", ["x"], {"axis": 0, "keepdims": 1}, "i")],
    "limited": [("Clip", ["n", "zero", "four"], {}, "i")],
    "a remainder": [("Mod", ["n", "five"], {}, "i")],
    "within both": [("Max", ["n", "least"], {}, "a"), ("Min", ["a", "four"], {}, "i")],
    "a flag": [("Cast", ["f"], {"to": TensorProto.BOOL}, "c"),
               ("Cast", ["c"], {"to": TensorProto.INT64}, "i")],
    "chosen": [("Cast", ["f"], {"to": TensorProto.BOOL}, "c"),
               ("Where", ["c", "four", "least"], {}, "i")],
    "moved": [("ArgMax", ["t"], {"axis": 0, "keepdims": 0}, "a"), ("Sub", ["a", "five"], {}, "i")],
}  # fmt: skip


@pytest.mark.parametrize("how", PROVED)
@pytest.mark.sampled(4)
def test_what_is_in_range_by_how_it_is_made_is_not_checked(how: str) -> None:
    nodes = [helper.make_node(op, ins, [out], **more) for op, ins, more, out in PROVED[how]]
    nodes.append(helper.make_node("Gather", ["x", "i"], ["y"]))
    ins = {"x": TABLE, "t": TABLE, "n": FOUR, "f": (TensorProto.FLOAT, [4])}
    numbers = {"zero": 0, "four": 4, "five": 5, "least": -5}
    model = graph_of(nodes, ins, ["y"], {n: np.array(v) for n, v in numbers.items()})
    values = (-(1 << 63), -6, -5, 0, 4, 5, (1 << 63) - 1)
    feeds = {"x": floats(5, 3), "t": floats(5, 3)[::-1].copy(), "f": np.array([0, 1, 2, 0.5], "f4")}

    assert checks(model) == 0
    for value in values:
        given = {**feeds, "n": np.array([value, 1, 2, 3])}
        expected, actual = outcome(session(model), given), outcome(compiled(model, "cpu"), given)
        assert expected is not None and actual is not None
        assert np.array_equal(expected[0], actual[0])


def test_what_may_be_out_of_range_is_checked() -> None:
    nodes = [helper.make_node("ArgMax", ["t"], ["a"], axis=0, keepdims=0),
             helper.make_node("Add", ["a", "one"], ["i"]),
             helper.make_node("Gather", ["x", "i"], ["y"])]  # fmt: skip
    model = graph_of(nodes, {"x": TABLE, "t": TABLE}, ["y"], {"one": np.array(1)})

    assert checks(model) == 1


def test_the_largest_of_nothing_is_no_index() -> None:
    nodes = [helper.make_node("Clip", ["n", "zero", "two"], ["c"]),
             helper.make_node("ReduceMax", ["c", "axes"], ["i"], keepdims=0),
             helper.make_node("Gather", ["x", "i"], ["y"])]  # fmt: skip
    numbers = {"zero": np.array(0), "two": np.array(2), "axes": np.array([1])}
    ins = {"x": TABLE, "n": (TensorProto.INT64, [2, "k"])}
    exe = ag.compile(load(graph_of(nodes, ins, ["y"], numbers)))

    assert exe(floats(5, 3), zeros(2, 3)).shape == (2, 3)
    with pytest.raises(FeedError, match="an index on axis 0 is -92233"):
        exe(floats(5, 3), zeros(2, 0))


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_no_indices_may_choose_of_nothing(target: str) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        f (float[N, 2] x, int64[N] i, bool[N] kept) => (float[M, 2] y) {
            some = Compress<axis = 0>(x, kept)
            at = Compress<axis = 0>(i, kept)
            y = Gather(some, at) }""")
    exe = ag.compile(model, target)
    x, at = floats(2, 2), np.zeros(2, np.int64)
    for kept in ([False, False], [False, True], [True, True]):
        rows = x[np.array(kept)]

        np.testing.assert_array_equal(exe(x, at, np.array(kept)), rows[[0] * len(rows)])


def test_indices_are_clamped_on_demand() -> None:
    model = gathered(4)
    exe = ag.compile(load(model), options=Options(indices="clamp"))
    at = np.array([[0, 9, -10, 1 << 62]] * 2)

    assert checks(model) == 1 and checks(model, Options(indices="clamp")) == 0
    assert np.array_equal(exe(floats(2, 9), at), floats(2, 9)[:, [0, 8, 0, 8]])
    with pytest.raises(OptionError, match="indices is 'skip'"):
        Options(indices="skip")  # type: ignore[arg-type]


def test_equal_checks_are_made_once() -> None:
    nodes = [helper.make_node("Gather", [t, "i"], [f"{t}y"], name=t) for t in ("x", "t")]
    model = graph_of(nodes, {"x": TABLE, "t": TABLE, "i": FOUR}, ["xy", "ty"])

    assert checks(model) == 1


# ── the same in every language ──


def small() -> Graph:
    g = Graph("small")
    x, i = g.input("x", "f32[2,9]"), g.input("i", "i64[2,17]")
    g.output("y", g(GatherElements(1), x, g(InRange(-9, 8, "index"), i)))
    return g


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v2"])
def test_kernels_say_what_they_find(target: str) -> None:
    program: Any = None
    for _, made in run_stages(small(), Target.parse(target), Options()):
        program = made
    ((_, kernel),) = kernels(program, Target.parse(target))
    at = zeros(2, 17)
    for index in (0, 8, -9, 9, -10, -(1 << 63)):
        at[1, 16] = index
        given = {"x0": floats(2, 9).reshape(-1), "x1": at.reshape(-1),
                 "y0": np.zeros(34, np.float32)}  # fmt: skip
        names = {b.name for b in kernel.buffers} - {STOP.name, FAULT.name}
        assert names == set(given)
        stop, fault = zeros(1), zeros(1)
        run_kernel(kernel, {**given, STOP.name: stop, FAULT.name: fault})
        good = -9 <= index <= 8

        assert (stop[0], fault[0]) == ((0, 0) if good else (OUT_OF_RANGE, index))


def test_programs_say_it_too() -> None:
    program: Any = None
    for _, made in run_stages(small(), Target.parse("cpu"), Options()):
        program = made
    with pytest.raises(FeedError, match="index is 9, expected -9 to 8"):
        interpret(program, {"x": floats(2, 9), "i": zeros(2, 17) + 9})
