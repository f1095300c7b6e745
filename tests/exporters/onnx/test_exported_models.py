"""Whole graphs as ONNX: with open extents, quantized, after passes, and fetched models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
import models
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.compiler import every_pass
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.exporters.onnx.pairs import pair
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ops.product.contraction import MatMul
from fuzz.models import draft
from onnx_runs import Array, Runtime, as_exported, imported, options, session
from open_cases import CASES, Case, feeds, symbols
from operator_cases import assert_agree
from residual_model import inputs, small

SIZES = (2, 5)
"""The extents that open ones get, a number more for each further one."""


def assert_close(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape), name
        scale = np.abs(array.astype(np.float64)).max(initial=0) or 1
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5 * scale)


def run(model: onnxruntime.InferenceSession, arrays: Mapping[str, Array]) -> dict[str, Array]:
    names = [o.name for o in model.get_outputs()]
    return dict(zip(names, model.run(names, dict(arrays)), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(26)
def test_a_model_of_open_extents_serves_all(case: Case) -> None:
    g = case.make()
    model = ag.export_onnx(g)
    runs = session(model)
    for size in SIZES:
        extents = {s: max(size + i, (case.least or {}).get(s, 0)) for i, s in enumerate(symbols(g))}
        arrays = feeds(g, extents)
        expected = evaluate(g.bind(extents), arrays)
        assert_close(expected, run(runs, arrays))
    again = ag.load(model)

    assert isinstance(again, Graph)
    assert [str(v.type) for v in again.inputs.values()] == [str(v.type) for v in g.inputs.values()]


# ── quantized ──


def quantized_conv() -> onnx.ModelProto:
    """One QLinearConv with weights of a scale for each channel, and what comes before and after."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "one": np.float32(0.02), "zero": np.uint8(120), "wide": np.float32(0.3),
        "w": rng.integers(-64, 64, (4, 3, 3, 3)).astype(np.int8),
        "s": np.array([0.01, 0.02, 0.005, 0.01], np.float32), "z": np.zeros(4, np.int8),
        "b": rng.integers(-999, 999, 4).astype(np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearConv", ["x", "one", "zero", "w", "s", "z", "wide", "zero", "b"],
                         ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("DequantizeLinear", ["c", "wide", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, ["N", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 8, 8])
    initial = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "quantized", [x], [y], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_quantised_graph_stays_quantised() -> None:
    """Scales are found again that the graph has stretched to what they belong to."""
    g = ag.load(small(), shapes={"x": (1, 3, 8, 8)})
    assert isinstance(g, Graph)
    arrays = [{"x": x} for x in inputs(4)]
    quantized = ag.quantize(g, ag.profile_ranges(g, arrays))
    model = ag.export_onnx(quantized)
    kinds = [n.op_type for n in model.graph.node]
    stored = {t.data_type for t in model.graph.initializer}

    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= set(kinds)
    assert TensorProto.INT8 in stored
    for feeds_ in arrays:
        assert_close(evaluate(quantized, feeds_), run(session(model), feeds_))


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_in_few_bits_stay_so(weights: Any) -> None:
    rng = np.random.default_rng(0)
    g = Graph("weights")
    x = g.input("x", "f32[2,64]")
    w = g.constant(rng.standard_normal((64, 32)).astype(np.float32), "w")
    g.output("y", g(MatMul(), x, w))
    small_ = ag.quantize(g, options=ag.QuantOptions(weights_only=weights, group=16))
    model = ag.export_onnx(small_)
    arrays = {"x": rng.standard_normal((2, 64)).astype(np.float32)}
    (pair,) = (n for n in model.graph.node if n.op_type == "DequantizeLinear")

    assert {a.name: a.i for a in pair.attribute} == {"axis": 0, "block_size": 16}
    assert_close(evaluate(small_, arrays), run(session(model), arrays))


def test_products_in_integers_are_one_operator_with_their_rounding() -> None:
    """A quantized layer after passes is QLinearConv, or ConvInteger and its rounding."""
    g = ag.load(quantized_conv(), shapes={"x": (1, 3, 8, 8)})
    assert isinstance(g, Graph)
    arrays = {"x": np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8)).astype(np.uint8)}
    model = ag.export_onnx(g)

    assert [n.op_type for n in model.graph.node if n.op_type.startswith("QLinear")] == [
        "QLinearConv"
    ]
    assert_close(evaluate(g, arrays), run(session(model), arrays))


# ── after passes ──


def stages(g: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph after each pass that is written for all machines."""
    own = {p.name for p in every_pass()}
    for p, ir in run_stages(g.copy(), ag.Target.parse("interpreter"), ag.Options()):
        if isinstance(ir, Graph) and p.name in own:
            yield p.name, ir


@pytest.mark.parametrize("source", ["residual", "quantized"])
def test_what_passes_make_of_a_graph_is_exported(source: str) -> None:
    model = small() if source == "residual" else quantized_conv()
    g = ag.load(model, shapes={"x": (1, 3, 8, 8)})
    assert isinstance(g, Graph)
    arrays = feeds(g, {})
    expected, seen = evaluate(g, arrays), []
    for name, ir in stages(g):
        seen.append(name)
        assert_close(expected, run(session(ag.export_onnx(ir)), arrays))

    assert {"simplify", "lower", "fuse"} <= set(seen)


# ── fetched models ──

QUICK = ("mnist8", "squeezenet11", "minilm_l6_int8w", "squeezenet11_qdq", "style26",
         "silero_vad_openvino_16k", "mtcnn_pnet")  # fmt: skip
"""The models of the usual run: of floats and of integers, of open extents, recurrent."""

STAGED = frozenset({"silero_vad"})
"""The models whose graph depends on their data whatever their extents are."""


def round_trip(name: str) -> None:
    """Export a model, run it beside the original, and read it again."""
    path, arrays = str(models.model_path(name)), models.inputs(name)
    g = ag.load(path)
    if not isinstance(g, Graph):
        g = ag.load(path, {n: a.shape for n, a in arrays.items()})
    assert isinstance(g, Graph)
    model = ag.export_onnx(g)
    original, exported = Runtime(path, options()), session(model)
    named = {i.name for i in exported.get_inputs()}
    assert_close(
        run(original, arrays), run(exported, {n: a for n, a in arrays.items() if n in named})
    )
    again = ag.load(model)

    assert isinstance(again, Graph)
    assert [str(v.type) for v in again.outputs.values()] == [
        str(v.type) for v in g.outputs.values()
    ]


@pytest.mark.models
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.sampled(3)
def test_a_fetched_model_is_the_same_again(name: str) -> None:
    round_trip(name)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(models.names()) - set(QUICK) - STAGED))
def test_every_fetched_model_is_the_same_again(name: str) -> None:
    round_trip(name)


@pytest.mark.models
@pytest.mark.parametrize("name", sorted(STAGED))
def test_a_model_that_depends_on_data_is_refused(name: str) -> None:
    g = ag.load(str(models.model_path(name)))

    with pytest.raises(UnsupportedError, match="depends on its data"):
        ag.export_onnx(g)  # type: ignore[arg-type]


# ── random models ──

SEEDS = range(60)
"""The random models of the usual run: some of every kind."""

MORE_SEEDS = range(60, 1260)


def fuzzed(seed: int) -> str:
    """Export a random model and compare; return what became of it."""
    d = draft(seed)
    try:
        g = ag.load(d.model())
        if not isinstance(g, Graph):
            return "staged"
        if any(v.hidden for v in g.inputs.values()):
            return "random"
        arrays = {n: a for n, a in d.feeds().items() if n in g.inputs}
        bound = bind_shapes(g, {n: a.shape for n, a in arrays.items()})
    except AlpenglowError:
        return "not imported, or not for such arrays"
    types = {n: v.type for n, v in bound.outputs.items()}
    try:
        model = ag.export_onnx(g)
    except UnsupportedError:
        return "refused"
    onnx.checker.check_model(model, full_check=True)
    given, expected = as_exported(arrays), as_exported(evaluate(bound, arrays))
    results = imported(model, given)
    for name, array in expected.items():
        assert_agree(f"seed {seed}, {name}", array, results[name], pair(types[name]))
    return "same"


def test_random_models_are_the_same_again() -> None:
    outcomes = Counter(map(fuzzed, SEEDS))

    assert outcomes["same"] >= 45
    assert outcomes["refused"] <= 1


@pytest.mark.slow
def test_many_random_models_are_the_same_again() -> None:
    outcomes = Counter(map(fuzzed, MORE_SEEDS))

    assert outcomes["same"] >= 900
    assert outcomes["refused"] <= 12
