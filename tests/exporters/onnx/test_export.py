"""`export_onnx` as such: names, files, opsets, open extents, variables, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.exporters.onnx import files
from alpenglow.extras.linalg.factorization import Eigh
from alpenglow.extras.ml.probability import Couple
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import DTYPES, NAMES
from alpenglow.machines.vector.operators.few_bits import PackNibbles
from alpenglow.ops.elementwise.activation import Relu, Swish
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul
from alpenglow.ops.fused import Fused
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.random.random import RandomNormal, RandomUniform
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Reshape
from onnx_runs import imported, in_runtime, session


def perceptron(batch: str = "2") -> Graph:
    g = Graph("perceptron")
    x = g.input("x", f"f32[{batch},3]")
    w = g.constant(np.arange(12, dtype=np.float32).reshape(3, 4) - 5, "weights")
    bias = g.constant(np.ones(4, np.float32), "bias")
    y = g(MatMul(), x, w, name="product")
    stretched = g(Broadcast(y.type.shape), bias)
    g.output("y", g(Relu(), g(Add(), y, stretched)))
    return g


def test_names_are_kept_and_operands_stretch_by_themselves() -> None:
    model = ag.export_onnx(perceptron())

    assert [i.name for i in model.graph.input] == ["x"]
    assert [o.name for o in model.graph.output] == ["y"]
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Add", "Relu"]
    assert model.graph.node[0].output == ["product"]
    assert {t.name for t in model.graph.initializer} == {"weights", "bias"}
    assert model.graph.name == "perceptron"


def test_an_open_extent_stays_open() -> None:
    model = ag.export_onnx(perceptron("N"))
    run = session(model)

    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["N", ""]
    for n in (1, 5):
        x = {"x": np.ones((n, 3), np.float32)}
        np.testing.assert_array_equal(run.run(None, x)[0], evaluate(perceptron(str(n)), x)["y"])


def test_extents_are_computed_where_an_operator_needs_them() -> None:
    g = Graph("extents")
    x = g.input("x", "f32[N,2*M+1]")
    n, m = (ag.ir.dims.symbol(s) for s in "NM")
    flat = g(Reshape((n * (2 * m + 1),)), x)
    g.output("y", g(Broadcast((3, n * (2 * m + 1))), flat))
    g.output("halves", g(Broadcast((n // 2, (m - 2) // 3 + 1)), g.constant(np.float32(1))))
    model = ag.export_onnx(g)
    run = session(model)

    for shape in ((2, 5), (3, 1), (1, 7)):
        x_ = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        y, halves = run.run(None, {"x": x_})
        half = (shape[1] - 1) // 2
        np.testing.assert_array_equal(y, np.stack([x_.reshape(-1)] * 3))
        assert halves.shape == (shape[0] // 2, (half - 2) // 3 + 1)


def test_inputs_and_constants_that_are_outputs_keep_their_names() -> None:
    g = Graph("passed")
    x = g.input("x", "f32[2]")
    g.output("y", x)
    g.output("z", g(Copy(), x))
    g.output("one", g.constant(np.float32(1)))
    g.output("again", g.outputs["one"])
    results = session(ag.export_onnx(g)).run(None, {"x": np.array([1, 2], np.float32)})

    assert [r.tolist() for r in results] == [[1, 2], [1, 2], 1, 1]


def test_fused_nodes_are_written_by_their_parts() -> None:
    body = Graph("body")
    a = body.input("a", "f32[3]")
    body.output("b", body(Mul(), body(Relu(), a), a))
    g = Graph("fused")
    x = g.input("x", "f32[3]")
    g.output("y", g.add(Fused(), [x], [body]).output)
    model = ag.export_onnx(g)

    assert [n.op_type for n in model.graph.node] == ["Relu", "Mul"]


def test_integers_are_divided_as_the_graph_divides() -> None:
    g = Graph("division")
    x, y = (g.input(n, "i32[6]") for n in "xy")
    g.output("q", g(Div(), x, y))
    feeds = {"x": np.array([7, -7, 7, -7, 5, -(2**31)], np.int32),
             "y": np.array([2, 2, -2, -2, 0, -1], np.int32)}  # fmt: skip
    (q,) = session(ag.export_onnx(g)).run(None, feeds)

    assert q.tolist() == [3, -3, -3, 3, 0, -(2**31)]


def test_a_variable_is_an_input_with_an_initial_value_and_an_output() -> None:
    g = Graph("total")
    x = g.input("x", "f32[2]")
    before = g.variable("total", np.array([1, 2], np.float32))
    after = g(Add(), before, x)
    g.assign("total", after)
    g.output("y", after)
    model = ag.export_onnx(g)
    run = session(model)
    x_ = np.array([1, 1], np.float32)

    assert [i.name for i in model.graph.input] == ["x", "total"]
    assert [o.name for o in model.graph.output] == ["total_next", "y"]
    assert run.run(["y"], {"x": x_})[0].tolist() == [2, 3]
    assert run.run(["total_next"], {"x": x_, "total": 10 * x_})[0].tolist() == [11, 11]


def test_the_opset_is_the_first_that_has_all() -> None:
    g = Graph("swish")
    x = g.input("x", "f32[3]")
    g.output("y", g(Swish(1.5), x))
    plain, new = (ag.export_onnx(g, opset=n) for n in (None, 24))

    assert plain.opset_import[0].version == 21
    assert {n.op_type for n in plain.graph.node} == {"Mul", "Exp", "Add", "Div"}
    assert [n.op_type for n in new.graph.node] == ["Swish"]


@pytest.mark.parametrize("opset", [17, 1000, "21"])
def test_an_opset_that_is_none_is_refused(opset: object) -> None:
    with pytest.raises(OptionError, match="expected a number from 18"):
        ag.export_onnx(perceptron(), opset=opset)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", sorted(DTYPES.keys() - {"c64", "c128"}))
def test_constants_of_every_type_are_read_back(dtype: str) -> None:
    codes = np.arange(7) % 2 if dtype == "bool" else np.arange(7) % 4 - (dtype in ("i2", "i4")) * 2
    array = codes.astype(DTYPES[dtype])
    g = Graph("constant")
    g.output("y", g.constant(array))
    model = ag.export_onnx(g)
    (y,) = imported(model, {}).values()

    onnx.checker.check_model(model, full_check=True)
    assert NAMES[y.dtype] == dtype
    np.testing.assert_array_equal(y.astype(np.float64), array.astype(np.float64))


def test_all_operators_that_cannot_be_written_are_named() -> None:
    g = Graph("packed")
    x, r = g.input("x", "u8[5,7]"), g.input("wins", "f32[1,C,C]")
    g.output("p", g(PackNibbles(32), x, name="first"))
    g.output("q", g(PackNibbles(64), x, name="second"))
    g.output("r", g(Couple(), r, name="coupled"))

    with pytest.raises(UnsupportedError, match=r"pack_nibbles, 2 times \('first', 'second'\)") as e:
        ag.export_onnx(g)
    assert "couple ('coupled'): the number of classes is dynamic" in str(e.value)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(OptionError, match="expected a Graph"):
        ag.export_onnx("model.onnx")  # type: ignore[arg-type]


def test_a_model_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.onnx"
    model = ag.export_onnx(perceptron(), path)

    assert [p.name for p in tmp_path.iterdir()] == ["p.onnx"]
    assert onnx.load(path) == model


def test_a_large_model_has_its_constants_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 16)
    monkeypatch.setattr(files, "LARGE", 32)  # bytes: the weights have 48, the bias 16
    path = tmp_path / "p.onnx"
    model = ag.export_onnx(perceptron(), path)
    onnx.checker.check_model(path, full_check=True)
    g = ag.load(path)
    x = {"x": np.ones((2, 3), np.float32)}

    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.onnx", "p.onnx.data"]
    assert [bool(t.raw_data) for t in model.graph.initializer] == [False, True]
    assert onnx.load(path, load_external_data=False) == model
    assert isinstance(g, Graph)
    np.testing.assert_array_equal(evaluate(g, x)["y"], evaluate(perceptron(), x)["y"])


def test_the_model_runs_in_onnx_runtime() -> None:
    g = perceptron()
    x = {"x": np.ones((2, 3), np.float32)}
    results = in_runtime(ag.export_onnx(g), x, {"y": g.outputs["y"].type})

    assert results is not None
    np.testing.assert_array_equal(results["y"], evaluate(g, x)["y"])


def test_what_a_graph_takes_for_granted_is_checked() -> None:
    g = Graph("guarded")
    x = g.input("x", "f32[N,M]")
    g.output("y", g(Relu(), x))
    g.output("x again", x)
    n, m = (ag.ir.dims.symbol(s) for s in "NM")
    g.guards = ((n - 3, ">="), (n - 2, ">="), (2 * n - 9, "!="), (m - 4, "<"), (n - m, "!="),
                (2**40 - n, ">="))  # fmt: skip
    run = session(ag.export_onnx(g))

    for shape in ((3, 1), (9, 2)):
        assert [y.shape for y in run.run(None, {"x": np.ones(shape, np.float32)})] == [shape] * 2
    for shape in ((2, 1), (9, 4), (3, 3)):
        for name in ("y", "x again"):
            with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
                run.run([name], {"x": np.ones(shape, np.float32)})


@pytest.mark.parametrize("bounds", [(-3, 2), (0, 2), (-1, 1)])
def test_an_index_out_of_range_is_an_error_as_in_the_graph(bounds: tuple[int, int]) -> None:
    g = Graph("checked")
    data, index = g.input("data", "f32[3]"), g.input("i", "i64[2]")
    g.output("y", g(Gather(), data, g(InRange(*bounds), index)))
    run = session(ag.export_onnx(g))
    low, high = bounds
    array = np.arange(3, dtype=np.float32)

    feeds = {"data": array, "i": np.array([low, high])}
    np.testing.assert_array_equal(run.run(None, feeds)[0], evaluate(g, feeds)["y"])
    for at in (low - 1, high + 1):
        with pytest.raises(Exception, match=r"[Gg]ather"):
            run.run(None, {"data": array, "i": np.array([low, at])})


def test_an_index_that_is_not_checked_is_limited() -> None:
    g = Graph("clamped")
    data, index = g.input("data", "f32[3]"), g.input("i", "i64[4]")
    g.output("y", g(Gather(), data, index))
    feeds = {"data": np.arange(3, dtype=np.float32), "i": np.array([-9, -1, 1, 9])}

    assert session(ag.export_onnx(g)).run(None, feeds)[0].tolist() == [0, 2, 1, 2]


def test_what_has_no_writer_is_computed_where_it_can_be() -> None:
    g = Graph("factors")
    a = np.array([[4, 2], [2, 3]], np.float32)
    values, _ = g.add(Eigh(), [g.constant(a)]).results
    g.output("y", values)

    np.testing.assert_allclose(
        session(ag.export_onnx(g)).run(None, {})[0], np.linalg.eigvalsh(a), rtol=1e-6
    )


# ── random numbers ──


def drawing(g: Graph, key: Value, shape: tuple[Any, ...] = (4, 500)) -> None:
    g.output("uniform", g(RandomUniform(shape, -1.0, 3.0), key))


def test_a_seed_draws_the_same_numbers() -> None:
    g = Graph("seeded")
    drawing(g, g.constant(np.array([7, 0], np.uint32)))

    np.testing.assert_array_equal(
        session(ag.export_onnx(g)).run(None, {})[0], evaluate(g, {})["uniform"]
    )


def test_a_key_that_is_given_draws_the_same_numbers() -> None:
    g = Graph("keyed")
    drawing(g, g.input("key", "u32[2]"), (3, 5))
    feeds = {"key": np.array([1, 2], np.uint32)}

    np.testing.assert_array_equal(
        session(ag.export_onnx(g)).run(None, feeds)[0], evaluate(g, feeds)["uniform"]
    )


@pytest.mark.parametrize("shape", [(4, 500), (ag.ir.dims.symbol("N"), 500)], ids=str)
def test_a_hidden_key_lets_the_runtime_draw(shape: tuple[Any, ...]) -> None:
    g = Graph("anew")
    x = g.input("x", "f32[N]")
    drawing(g, g.random_key(), shape)
    g.output("normal", g(RandomNormal(shape, 5.0, 2.0), g.random_key()))
    model = ag.export_onnx(g)
    run = session(model)
    feeds = {"x": np.zeros(4, x.type.numpy)}
    uniform, normal = run.run(None, feeds)
    again, _ = run.run(None, feeds)

    assert [i.name for i in model.graph.input] == ["x"]
    assert uniform.shape == normal.shape == (4, 500)
    assert -1 <= uniform.min() < -0.9 and 2.9 < uniform.max() <= 3
    assert abs(normal.mean() - 5) < 0.3 and abs(normal.std() - 2) < 0.3
    assert (uniform != again).any()


def test_two_draws_of_one_hidden_key_are_refused() -> None:
    g = Graph("twice")
    key = g.random_key()
    drawing(g, key)
    g.output("again", g(RandomUniform((2,)), key))

    with pytest.raises(UnsupportedError, match="random_uniform, 2 times: several random operators"):
        ag.export_onnx(g)


def test_a_hidden_key_is_nothing_else() -> None:
    g = Graph("read")
    g.output("y", g(Copy(), g.random_key()))

    with pytest.raises(UnsupportedError, match="hidden random input"):
        ag.export_onnx(g)


def test_what_is_passed_on_keeps_the_name_that_others_read() -> None:
    g = Graph("passed on")
    x = g.input("x", "f32[1]")
    wide = g(Broadcast((3,)), x, name="wide")
    copied = g(Copy(), wide, name="copied")
    g.output("y", g(Reshape((3, 1)), copied))
    g.output("z", g(Reshape((1, 3)), wide))
    results = session(ag.export_onnx(g)).run(None, {"x": np.ones(1, np.float32)})

    assert [r.shape for r in results] == [(3, 1), (1, 3)]
