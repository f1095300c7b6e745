"""Loops and branches as models of ONNX: checked, run in ONNX Runtime, and imported again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.fused import Fused
from alpenglow.ops.random.random import RandomNormal
from alpenglow.ops.tensor.movement import Pad
from onnx_runs import as_exported, in_runtime, session
from region_cases import branch, choosing, countdown, feeds, nested, rnn, stretched, swapped

DTYPES = ("bool", "i32", "u8", "f32", "f16", "f64", "c64")

GRAPHS: Mapping[str, Callable[[], Graph]] = {
    "rnn": rnn,
    "reversed": lambda: rnn(reverse=True),
    "own weight": lambda: rnn(inside=True),
    "no turns": lambda: rnn(0),
    "no turns back": lambda: rnn(0, reverse=True),
    "while": countdown,
    "if in scan": choosing,
    "nested": nested,
    "stretched": stretched,
    **{f"swapped {d}": partial(swapped, d) for d in DTYPES},
}


def assert_equal(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(actual) == list(expected)
    for name, y in expected.items():
        assert actual[name].dtype == y.dtype
        assert actual[name].shape == y.shape
        np.testing.assert_allclose(actual[name], y, 1e-6, 1e-6, err_msg=name)


def assert_exported(g: Graph, given: Mapping[str, Any]) -> onnx.ModelProto:
    """Assert that the model of a graph computes the same in both runtimes; return it."""
    model = ag.export_onnx(g)
    expected, inputs = as_exported(evaluate(g, given)), as_exported(given)
    types = {n: v.type for n, v in g.outputs.items()}
    actual = in_runtime(model, inputs, types)
    assert actual is not None, "ONNX Runtime has all kernels"
    assert_equal(actual, expected)
    assert_equal(ag.compile(ag.load(model.SerializeToString())).run(inputs), expected)
    return model


@pytest.mark.parametrize("name", GRAPHS)
def test_control_flow_is_exported(name: str) -> None:
    g = GRAPHS[name]()

    assert_exported(g, feeds(g))


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_loop_takes_as_many_turns_as_data_say(turns: int) -> None:
    g = countdown()

    assert_exported(g, feeds(g) | {"limit": np.array(turns)})


@pytest.mark.parametrize("flag", [False, True])
def test_a_branch_makes_what_it_is_given(flag: bool) -> None:
    g = Graph("choice")
    x, condition = g.input("x", "f32[3]"), g.input("condition", "bool[]")
    regions = branch("f32[3]", lambda b, v: v, lambda b, v: b.constant(np.ones(3, np.float32)))
    g.output("y", g.add(If(), [condition, x], regions).output)

    assert_exported(g, {"x": np.arange(3, dtype=np.float32), "condition": np.array(flag)})


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_open_count_is_read_from_shapes(rows: int, reverse: bool) -> None:
    symbol = Graph("shape").input("x", "f32[T]").type.shape[0]
    g = rnn(symbol, reverse=reverse)
    given = feeds(g.bind({"T": rows}))
    model = ag.export_onnx(g)
    run = session(model)

    expected = evaluate(g.bind({"T": rows}), given)
    assert_equal(dict(zip(expected, run.run(list(expected), given), strict=True)), expected)


def test_a_known_count_is_a_scan_and_others_are_loops() -> None:
    operators = [
        [n.op_type for n in ag.export_onnx(g).graph.node]
        for g in (rnn(), rnn(0), countdown(), nested())
    ]

    assert operators == [["Scan"], ["Loop"], ["Less", "Loop"], ["Scan"]]


def names_made(graph: onnx.GraphProto) -> list[str]:
    """Return the names of all tensors of a graph and of the graphs inside of it."""
    made = [x.name for x in (*graph.input, *graph.initializer)]
    for node in graph.node:
        made += node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                made += names_made(attribute.g)
    return made


def test_no_two_tensors_of_a_file_have_one_name() -> None:
    for make in GRAPHS.values():
        names = names_made(ag.export_onnx(make()).graph)

        assert len(set(names)) == len(names)


def test_the_outputs_of_a_region_have_types() -> None:
    (node,) = ag.export_onnx(rnn()).graph.node
    body = next(a.g for a in node.attribute if a.name == "body")

    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in body.output]
    assert shapes == [[2, 8], [2, 8]]


def test_complex_numbers_are_pairs_within_regions() -> None:
    body = Graph("turn")
    body.input("i", "i64[]")
    pair = body(ViewAsReal(), body.input("z", "c64[3]"))
    body.output("z", body(ViewAsComplex(), body(Add(), pair, pair)))
    g = Graph("doubled")
    z = g(ViewAsComplex(), g.input("x", "f32[3,2]"))
    node = g.add(Scan(3, 1), [z], [body])
    g.output("y", g(ViewAsReal(), node.output))

    assert_exported(g, feeds(g))


def test_a_region_that_has_complex_arithmetic_is_refused_by_name() -> None:
    body = Graph("turn")
    body.input("i", "i64[]")
    z = body.input("z", "c64[3]")
    body.output("z", body(Pad((0,), (0,), "constant", 1.0), z, name="padded"))
    g = Graph("edges")
    g.output("y", g.add(Scan(3, 1), [g.input("x", "c64[3]")], [body]).output)

    with pytest.raises(UnsupportedError, match=r"pad \('padded'\): ONNX computes with no complex"):
        ag.export_onnx(g)


def test_fused_nodes_of_a_region_are_written_as_their_parts() -> None:
    g = rnn()
    (node,) = g.nodes
    (body,) = node.regions
    inner = Graph("fused")
    x = inner.input("x", "f32[2,8]")
    inner.output("y", inner(Add(), x, x))
    ended = body.outputs["softmax"]
    body.outputs["softmax"] = body.add(Fused(), [ended], [inner]).output

    assert_exported(g, feeds(g))


def test_draws_under_a_hidden_key_are_refused_within_a_region() -> None:
    body = Graph("turn")
    going, key = body.input("x", "f32[3]"), body.input("key", "u32[2]")
    body.output("going", body(Less(), body.constant(np.int64(0)), body.constant(np.int64(0))))
    body.output("x", body(Add(), going, body(RandomNormal((3,)), key)))
    g = Graph("walk")
    x, flag = g.input("x", "f32[3]"), g.input("flag", "bool[]")
    g.output("y", g.add(While(1), [flag, x, g.random_key()], [body]).output)

    with pytest.raises(UnsupportedError, match="a hidden random input is not supported"):
        ag.export_onnx(g)
