"""Compiled recurrent layers, where their operands are stretched or not a whole vector wide."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import DTYPES, TensorType, type_of
from alpenglow.ops.sequence.recurrent import ACTIVATIONS, Gru, Lstm, Rnn
from fuzz import guard
from loop_forms import drawn
from loops.recurrent_reference import results as by_formula
from onnx_node import single


@pytest.mark.parametrize("units", [1, 2, 3, 5, 9])
@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.sampled(6)
def test_a_state_of_zeros_is_stretched_over_all_units(op: str, gates: int, units: int) -> None:
    rng = np.random.default_rng(units)
    x, w, r = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((3, 2, 4), (1, gates * units, 4), (1, gates * units, units))
    )
    model = single(op, [x, w, r], 14, 2, constants=(1, 2), hidden_size=units)
    g = load(model)
    expected = evaluate(g, {"x0": x})

    for name, y in guard.run(ag.compile(g, threads=1), {"x0": x}).items():
        np.testing.assert_allclose(y, expected[name], 1e-5, 1e-6)


KINDS = {
    "rnn": ("RNN", 1, {}),
    "gru": ("GRU", 3, {}),
    "gru_after": ("GRU", 3, {"linear_before_reset": 1}),
    "lstm": ("LSTM", 4, {}),
}


def recurrent(
    kind: str, units: int, batch: int | str, lengths: bool, dtype: str = "float32"
) -> onnx.ModelProto:
    """Return a layer of both directions whose input is added to its gates as it is."""
    op, gates, attributes = KINDS[kind]
    rng = np.random.default_rng(units)
    rows = gates * units
    shapes = {"w": (2, rows, 1), "r": (2, rows, units), "b": (2, 2 * rows)}
    weights = {k: rng.uniform(-0.5, 0.5, s).astype(dtype) for k, s in shapes.items()}
    names = ["x", "w", "r", "b", *["lengths"] * lengths]
    kind_of_x = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("x", kind_of_x, [4, batch, 1])]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [batch]))
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    node = helper.make_node(
        op, names, outputs, hidden_size=units, direction="bidirectional", **attributes
    )
    graph = helper.make_graph(
        [node],
        kind,
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def sequences(batch: int, lengths: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    feeds = {"x": rng.uniform(-1, 1, (4, batch, 1)).astype(np.float32)}
    if lengths:
        feeds["lengths"] = rng.integers(0, 5, batch).astype(np.int32)
    return feeds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("target", "units", "lengths"), [("x86-64-v4", 37, True), ("x86-64-v2", 9, False)]
)
@pytest.mark.sampled(1)
def test_groups_of_sequences_of_every_size(
    target: str, units: int, lengths: bool, kind: str
) -> None:
    if not ag.Target.parse(target).is_host_compatible():
        pytest.skip(f"this machine is no {target}")
    many = ag.compile(recurrent(kind, units, "batch", lengths), target, 2)
    for batch in (1, 2, 3, 4, 5, 8, 17):
        feeds = sequences(batch, lengths)
        expected = evaluate(load(recurrent(kind, units, batch, lengths)), feeds)
        for name, y in guard.run(many, feeds).items():
            np.testing.assert_allclose(y, expected[name], 1e-5, 1e-6)
    assert len(many.artifacts) <= 2
    for batch in (3, 9, 32):
        feeds = sequences(batch, lengths)
        got = guard.run(ag.compile(recurrent(kind, units, batch, lengths), target, 2), feeds)
        for name, y in many.run(feeds).items():
            np.testing.assert_array_equal(y, got[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_has_the_same_bits_in_any_group(kind: str) -> None:
    feeds = sequences(17, True)
    together = ag.compile(recurrent(kind, 24, 17, True), threads=1).run(feeds)
    alone = ag.compile(recurrent(kind, 24, 1, True), threads=1)
    for s in range(17):
        one = alone.run({"x": feeds["x"][:, s : s + 1], "lengths": feeds["lengths"][s : s + 1]})
        for name, y in together.items():
            axis = y.ndim - 2
            np.testing.assert_array_equal(np.take(y, [s], axis), one[name])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 4e-3), ("float64", 1e-12)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(4)
def test_groups_of_half_and_double_precision(kind: str, dtype: str, tolerance: float) -> None:
    model = recurrent(kind, 21, 9, True, dtype)
    feeds = sequences(9, True)
    feeds["x"] = feeds["x"].astype(dtype)
    expected = evaluate(load(model), feeds)
    for name, y in guard.run(ag.compile(model, threads=1), feeds).items():
        np.testing.assert_allclose(y, expected[name], tolerance, tolerance)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_an_activation_of_a_layer_is_the_operator_of_that_name(dtype: str) -> None:
    x = np.array([-87, -20, -3, -0.7, -1e-6, 0, 0.3, 1.4, 2.6, 9, 90], DTYPES[dtype])
    n, g = x.size, Graph("activations")
    sums = g.input("x", f"{dtype}[1,1,{n}]")
    weights = g.constant(np.zeros((n, n), x.dtype))
    for name, operator in ACTIVATIONS.items():
        none = g.constant(np.zeros((1, n), x.dtype))
        layer = g.add(Rnn(activations=((name, 0.3, 0.6),)), [sums, weights, none])
        g.output(name, layer.results[0])
        g.output(f"{name} operator", g(operator(0.3, 0.6), sums))
    feeds = {"x": x.reshape(1, 1, n)}
    for results in (evaluate(g, feeds), ag.compile(g, threads=1).run(feeds)):
        for name in ACTIVATIONS:
            np.testing.assert_array_equal(results[name], results[f"{name} operator"], name)


LARGER: list[tuple[Any, ...]] = [
    (Lstm(), "f32[4,3,280]", "f32[70,280]", "f32[3,70]", "f32[3,70]", "f32[3,70]"),
    (Gru(True), "f32[4,3,210]", "f32[70,210]", "f32[3,70]", "f32[70]", np.int32([4, 0, 9])),
    (Gru(), "f32[4,9,210]", "f32[70,210]", "f32[9,70]"),
    (Rnn(), "f32[4,3,70]", "f32[70,70]", "f32[3,70]"),
]


@pytest.mark.parametrize("cls", [Lstm, Gru, Rnn], ids=lambda c: c.name)
def test_layers_are_what_their_formulas_say(cls: type[Lstm | Gru | Rnn]) -> None:
    larger = [case for case in LARGER if isinstance(case[0], cls)]
    for op, *given in (*cls.examples(), *larger):
        xs = [drawn(TensorType.parse(x)) if isinstance(x, str) else x for x in given]
        g = Graph("layer")
        values = [None if x is None else g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
        for i, v in enumerate(g.add(op, values).results):
            g.output(f"y{i}", v)
        feeds = {f"x{i}": x for i, x in enumerate(xs) if x is not None}
        rough = 2e-2 if xs[0].dtype.itemsize == 2 else 2e-5
        exe = ag.compile(g, threads=1)

        assert not any(i.op.name == "jump" for i in exe.artifact.program.instrs())
        for i, expected in enumerate(by_formula(op, *xs)):
            for found in (evaluate(g, feeds), guard.run(exe, feeds)):
                np.testing.assert_allclose(found[f"y{i}"], expected, rough, rough, err_msg=str(op))
