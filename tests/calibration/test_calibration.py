"""Profiling, tuning, explaining and exporting: what runs a model to quantize it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, OptionError, UnsupportedError
from alpenglow.calibration import Dataset, tune
from alpenglow.calibration.metrics import METRICS, Metric, decibels, loss
from alpenglow.calibration.tune import taking_halves
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx.export import export
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.quant.convert import convert
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import plan
from alpenglow.report.explain import explain
from peer_bytes import saturates
from residual_model import SHAPES, inputs, small


@pytest.fixture(scope="module")
def graph() -> Graph:
    return ag.load(small(), {"x": (1, 3, 8, 8)})


@pytest.fixture(scope="module")
def profile(graph: Graph) -> ag.Profile:
    return ag.profile_ranges(graph, inputs())


@pytest.fixture(scope="module")
def data(graph: Graph) -> Dataset:
    types = {n: v.type for n, v in graph.inputs.items()}
    answers = [int(evaluate(graph, {"x": x})["scores"].argmax()) for x in inputs()]
    return Dataset.of(inputs(), types, answers)


# ── profiles ──


def test_ranges_are_those_of_the_interpreter(graph: Graph, profile: ag.Profile) -> None:
    wide = graph.copy()
    for node in wide.nodes:
        for v in node.results:
            if v.name and v.name not in wide.outputs:
                wide.output(v.name, v)
    found = [evaluate(wide, {"x": x}) for x in inputs()]

    # What only an activation reads is never stored, so nobody asks.
    assert "c" not in profile.ranges
    for name in ("r", "p", "d", "e", "scores"):
        values = np.stack([f[name] for f in found])
        r = profile.ranges[name]
        np.testing.assert_allclose([r.low, r.high], [values.min(), values.max()], rtol=1e-4)
        assert r.total == values.size


def test_samples_are_taken_one_at_a_time(graph: Graph, profile: ag.Profile) -> None:
    told: list[tuple[str, int, int]] = []
    found = ag.profile_ranges(graph, iter(inputs()), progress=lambda *a: told.append(a))

    assert found.ranges["e"].counts.tolist() == profile.ranges["e"].counts.tolist()
    assert told[-1] == ("profiling", 12, 12) and len(told) == 12


def test_values_too_large_for_one_run_are_seen_in_several(
    graph: Graph, profile: ag.Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alpenglow.calibration.ranges.MOST_NBYTES", 1000)
    found = ag.profile_ranges(graph, inputs())

    assert list(found.ranges) == list(profile.ranges)
    assert found.ranges["scores"].total == profile.ranges["scores"].total


def test_an_empty_data_set_is_refused(graph: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 3, 8, 8), np.float32))
    types = {n: v.type for n, v in graph.inputs.items()}

    with pytest.raises(FeedError, match="the data set is empty"):
        ag.profile_ranges(graph, [])
    for place in (tmp_path / "none.npz", tmp_path / "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(FeedError, match="the data set is empty"):
            Dataset.read(place, types)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_not_finite_is_refused_by_its_number(graph: Graph, wrong: float) -> None:
    xs = inputs(3)
    xs[1][0, 0, 0, 0] = wrong

    with pytest.raises(FeedError, match="sample 1: input 'x' holds NaN or infinities"):
        ag.profile_ranges(graph, xs)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"y": np.zeros(3)}, "sample 0 has y, expected inputs: x"),
        ((np.zeros(3), np.zeros(3)), "sample 0 has 2 arrays, expected inputs: x"),
        (np.zeros((1, 3, 9, 9), np.float32), r"sample 0: input 'x' has shape \(1, 3, 9, 9\)"),
        (np.full((1, 3, 8, 8), "a"), "sample 0: input 'x' is <U1, expected float32"),
    ],
    ids=["name", "count", "shape", "type"],
)
def test_a_sample_that_does_not_fit_is_refused(graph: Graph, sample: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        ag.profile_ranges(graph, [sample])


def test_a_sample_that_is_not_finite_is_named_with_its_file(graph: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "nan.npz", x=np.full((2, 3, 8, 8), np.nan, np.float32))
    types = {n: v.type for n, v in graph.inputs.items()}

    with pytest.raises(FeedError, match="sample 0: input 'x' holds NaN or infinities") as caught:
        list(Dataset.read(tmp_path / "nan.npz", types))
    assert caught.value.file.endswith("nan.npz")


def test_a_path_is_no_graph(profile: ag.Profile) -> None:
    path: Any = "model.onnx"

    for wrong in (lambda: ag.profile_ranges(path, inputs()), lambda: ag.quantize(path, profile)):
        with pytest.raises(OptionError, match=r"\(str\), expected a Graph\n  try: alpenglow.load"):
            wrong()


def test_infinities_inside_of_a_model_are_counted() -> None:
    g = Graph("log")
    g.output("y", g(Log(), g.input("x", "f32[4]"), name="y"))
    found = ag.profile_ranges(g, [np.array([0, 1, 2, 0], np.float32)]).ranges["y"]

    assert (found.infinite, found.total, found.low) == (2, 2, 0.0)


# ── data sets ──


def files(folder: Path) -> Iterator[Path]:
    """The same four samples with labels: in one file, in a folder of each kind."""
    xs, labels = np.concatenate(inputs(4)), np.arange(4)
    np.savez(folder / "all.npz", x=xs, labels=labels)
    yield folder / "all.npz"
    np.savez(folder / "apart.npz", x=xs[:, None], labels=labels)
    yield folder / "apart.npz"
    (folder / "npy").mkdir()
    (folder / "npz").mkdir()
    for i, x in enumerate(xs):
        np.save(folder / "npy" / f"{i}.npy", x[None])
        np.savez(folder / "npz" / f"{i}.npz", x=x[None], labels=i)
    np.save(folder / "npy" / "labels.npy", labels)
    yield folder / "npy"
    yield folder / "npz"


def test_samples_are_read_from_files_and_folders(graph: Graph, tmp_path: Path) -> None:
    types = {n: v.type for n, v in graph.inputs.items()}
    expected = np.concatenate(inputs(4))
    for place in files(tmp_path):
        found = Dataset.read(place, types)
        actual = np.concatenate([s["x"] for s in found])

        np.testing.assert_array_equal(expected, actual)
        assert found.labels is not None and found.labels.reshape(-1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 8, 8))}, r"array 'x' has shape \(3, 8, 8\), expected samples of"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, "the arrays are a, b, expected inputs: x"),
        ({"x": np.zeros((2, 3, 8, 8)), "labels": np.zeros(2)}, "2 labels of float64"),
        ({"x": np.zeros((2, 3, 8, 8)), "labels": np.zeros(3, int)}, "3 labels of int64 do not fit"),
    ],
    ids=["shape", "names", "kind", "count"],
)
def test_a_file_that_does_not_fit_is_refused(
    graph: Graph, tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)

    with pytest.raises(FeedError, match=message):
        Dataset.read(tmp_path / "d.npz", {n: v.type for n, v in graph.inputs.items()})


def test_a_file_of_something_else_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"this is no archive")
    types = {n: v.type for n, v in graph.inputs.items()}

    with pytest.raises(FeedError, match=r"expected a .npy or .npz file"):
        Dataset.read(tmp_path / "d.npz", types)
    with pytest.raises(FeedError, match="expected a folder or file of samples"):
        Dataset.read(tmp_path / "none", types)


def test_parts_of_a_data_set_are_all_of_it(data: Dataset) -> None:
    some, others = data.parted(5)
    firsts = [float(s["x"].flat[0]) for part in (some, others) for s in part]

    assert (len(some), len(others)) == (5, 7)
    assert sorted(firsts) == sorted(float(x.flat[0]) for x in inputs())
    with pytest.raises(FeedError, match="count is 12, expected 1 to 11 of 12 samples"):
        data.parted(12)


# ── metrics and tuning ──


def test_labels_that_the_output_has_no_place_for_are_refused() -> None:
    scores = [{"y": np.zeros((1, 5), np.float32)}]

    for wrong in (5, -1):
        with pytest.raises(FeedError, match=rf"labels are {wrong} to {wrong}, but .* 0 to 4"):
            loss("top1", scores, scores, np.array([[wrong]]))


def test_metrics_say_what_share_is_lost() -> None:
    reference = [{"y": np.array([[1.0, 2.0, 3.0]])}, {"y": np.array([[3.0, 0.0, 0.0]])}]
    outputs = [{"y": np.array([[1.0, 3.0, 2.0]])}, {"y": np.array([[3.0, 0.0, 0.0]])}]
    labels = np.array([[2], [0]])
    found = {m: loss(m, outputs, reference, labels) for m in METRICS}

    assert (found["top1"], found["top5"], found["agreement"]) == (0.5, 0.0, 0.5)
    assert found["sqnr"] == pytest.approx(2 / 23)
    assert found["cosine"] == pytest.approx((1 - 13 / 14) / 2)
    assert (decibels(0.01), decibels(0.0)) == (20.0, np.inf)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.sampled(3)
def test_tuning_quantises_all_where_that_loses_little(
    graph: Graph, profile: ag.Profile, data: Dataset, metric: Metric
) -> None:
    found = tune(graph, profile, data, metric=metric, max_drop=0.2)

    assert found.drop <= 0.2 and found.plan.layers == ("c", "d", "mat_mul:0")


def test_tuning_keeps_the_layers_that_lose_too_much(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    everything = tune(graph, profile, data, metric="sqnr", max_drop=1.0)
    found = tune(graph, profile, data, metric="sqnr", max_drop=0.8 * everything.after)
    kept = {d.name: d.why for d in found.plan.decisions if d.why}

    assert found.after <= 0.8 * everything.after
    assert 0 < len(kept) < 3
    assert all("and too much would be lost" in why for why in kept.values())
    assert found.noise.keys() == {"c", "d", "mat_mul:0"}


def test_tuning_for_no_loss_at_all_keeps_everything(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    found = tune(graph, profile, data, metric="sqnr", max_drop=0.0)

    assert found.plan.layers == () and found.after == 0.0


@pytest.mark.rest
def test_tuning_gives_halves_to_what_is_not_quantised(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    options = QuantOptions(keep=frozenset({"c"}))
    everything = tune(graph, profile, data, options, metric="sqnr", max_drop=1.0)
    most = 0.5 * everything.after
    found = tune(graph, profile, data, options, metric="sqnr", max_drop=most, precision="bf16")
    exe = ag.compile(convert(found.plan), taking_halves(), precision="bf16", keep=found.wide)
    outputs = [exe.run(feeds) for feeds in data]
    reference = [ag.compile(graph).run(feeds) for feeds in data]

    assert found.plan.layers != everything.plan.layers
    assert found.wide == ("c",)
    assert 0 < loss("sqnr", outputs, reference, None) == found.after <= most


@pytest.mark.rest
def test_tuning_keeps_layers_in_f32_that_lose_too_much_in_halves(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    found = tune(graph, profile, data, metric="sqnr", max_drop=0.0, precision="bf16")

    assert found.plan.layers == () and found.after == 0.0
    assert {"c", "d"} <= set(found.wide)


def test_top1_needs_labels(graph: Graph, profile: ag.Profile, data: Dataset) -> None:
    unlabelled = Dataset(len(data), data.at)

    with pytest.raises(FeedError, match="top1 compares with labels, but the data set has none"):
        tune(graph, profile, unlabelled, metric="top1")
    with pytest.raises(OptionError, match="max_drop is 2, expected a share"):
        tune(graph, profile, data, max_drop=2)


# ── explanations ──


def test_an_explanation_tells_of_every_layer(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    made = plan(graph, profile, QuantOptions(keep=frozenset({"d"})))
    found = explain(made, profile, data)
    kinds = [(x.name, x.kind, bool(x.why)) for x in found.layers]

    assert kinds == [("c", "conv", False), ("d", "conv", True), ("mat_mul:0", "mat_mul", False)]
    assert all(25 < x.sqnr < 80 for x in found.layers)
    assert (found.layers[0].low, found.layers[0].high) == (
        profile.ranges["x"].low, profile.ranges["x"].high)  # fmt: skip
    assert "d stays in f32: it is kept as it is, as asked." in found.sentences()
    assert found.markdown().count("\n| ") == 4
    assert all(x.sparkline for x in found.layers)


def test_an_explanation_tells_between_what_conversions_did_not_fuse(
    graph: Graph, profile: ag.Profile, data: Dataset
) -> None:
    found = explain(plan(graph, profile, QuantOptions(keep=frozenset({"d"}))), profile, data)

    # What comes behind it depends on how wide the vectors are here.
    assert any(re.search(r"at the edge: .*\(between max_pool and \w+", s)
               for s in found.sentences())  # fmt: skip


# ── export ──

EXPORTED = [
    {}, {"schema": "symmetric"}, {"schema": "symmetric_uint8"}, {"schema": "symmetric_power2"},
    {"granularity": "tensor"}, {"bias": "int8"}, {"bias": "float"}, {"precision": "int16"},
    {"weights_only": "int8"}, {"weights_only": "int4"}, {"weights_only": "int4", "group": 32},
    {"keep": frozenset({"d"})},
]  # fmt: skip


SATURATED: list[dict[str, Any]] = [
    {"schema": "symmetric_uint8"}, {"bias": "float"}, {"keep": frozenset({"d"})},
]  # fmt: skip
"""What, beside the default, is exported to products of u8 by weights of all i8."""


@pytest.mark.parametrize("options", EXPORTED, ids=str)
@pytest.mark.sampled(5)
def test_onnx_runtime_answers_like_us(
    graph: Graph, profile: ag.Profile, options: dict[str, Any]
) -> None:
    made = plan(graph, profile, QuantOptions(**options))
    exported = export(small(), made)
    onnx.checker.check_model(exported.model, full_check=True)
    session = onnxruntime.InferenceSession(exported.model.SerializeToString())
    quantised = ag.quantize(graph, profile, QuantOptions(**options))
    exe = ag.compile(quantised)
    # Without VNNI ONNX Runtime adds products of bytes in 16 bits: then the interpreter is asked.
    misadds = saturates() and options in ({}, *SATURATED)

    assert exported.notes == ()
    for x in inputs():
        (expected,) = (
            evaluate(quantised, {"x": x}).values() if misadds else session.run(None, {"x": x})
        )
        actual = exe(x)
        assert expected.argmax() == actual.argmax()
        # A step of what the last layer reads may fall the other way.
        np.testing.assert_allclose(actual, expected, atol=0.03 * np.abs(expected).max())


def test_what_is_exported_reads_back_as_what_was_quantised(
    graph: Graph, profile: ag.Profile
) -> None:
    made = plan(graph, profile, QuantOptions())
    back = ag.load(export(small(), made).model, {"x": (1, 3, 8, 8)})
    quantised = ag.quantize(graph, profile)
    for x in inputs(3):
        expected = evaluate(quantised, {"x": x})["scores"]
        actual = evaluate(back, {"x": x})["scores"]

        np.testing.assert_array_equal(expected, actual)


def test_what_is_not_read_any_more_is_left_out(graph: Graph, profile: ag.Profile) -> None:
    exported = export(small(), plan(graph, profile, QuantOptions()))
    names = {t.name for t in exported.model.graph.initializer}

    assert exported.stored == 10
    assert "w_quantized" in names and not names & SHAPES.keys()


def test_weights_that_are_nodes_are_exported_too() -> None:
    model = small()
    tensors = list(model.graph.initializer)
    del model.graph.initializer[:]
    for t in reversed(tensors):
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], [t.name], value=t))
    graph = ag.load(model, {"x": (1, 3, 8, 8)})
    exported = export(model, plan(graph, ag.profile_ranges(graph, inputs()), QuantOptions()))

    assert (exported.stored, exported.notes) == (10, ())
    assert not any(n.op_type == "Constant" for n in exported.model.graph.node)


def test_placeholders_are_exported_as_they_are_stored(graph: Graph, profile: ag.Profile) -> None:
    options = QuantOptions(convert_placeholders=True)
    made = plan(graph, profile, options)
    model = export(small(), made).model
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (p,) = (a.parameters for a in made.activations if a.name == "x")
    x = p.stored(inputs(1)[0])
    (expected,) = session.run(None, {"x": x})
    actual = evaluate(ag.quantize(graph, profile, options), {"x": x})["scores"]

    assert expected.dtype == actual.dtype == np.uint8
    assert np.abs(expected.astype(int) - actual.astype(int)).max() <= 1


def test_old_models_are_taken_to_an_opset_that_has_scales(profile: ag.Profile) -> None:
    old = small(11)
    graph = ag.load(old, {"x": (1, 3, 8, 8)})
    made = plan(graph, ag.profile_ranges(graph, inputs()), QuantOptions())
    model = export(old, made).model

    assert model.opset_import[0].version == 13
    onnxruntime.InferenceSession(model.SerializeToString())


def test_a_model_that_onnx_cannot_convert_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no adapter for Odd")

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    made = plan(graph, None, QuantOptions(weights_only="int4"))

    with pytest.raises(UnsupportedError, match=r"opset 17, expected 21 .*no adapter for Odd"):
        export(small(), made)


def test_a_plan_for_another_model_is_refused(graph: Graph, profile: ag.Profile) -> None:
    other = small()
    for node in other.graph.node:
        node.output[:] = ["other" if o == "d" else o for o in node.output]
        node.input[:] = ["other" if o == "d" else o for o in node.input]

    with pytest.raises(ModelError, match=r"the plan is for another model: this one has no .*'d'"):
        export(other, plan(graph, profile, QuantOptions()))
