"""Quantization inside of loops and branches: ranges over all turns, and layers of regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.calibration import profile_ranges
from alpenglow.calibration.samples import Dataset
from alpenglow.calibration.tune import tune
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx.export import export
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.region import deep
from alpenglow.ops.control.branch import If
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.quant import Profile, QuantOptions, quantize
from alpenglow.quant.aware import quantization_aware
from alpenglow.quant.plan import INSIDE, plan
from alpenglow.report.explain import explain
from region_cases import Array, branch, choosing, countdown, feeds, rnn, weights

LOOPS: dict[str, Callable[[], Graph]] = {
    "captured": rnn,
    "own": lambda: rnn(inside=True),
    "while": countdown,
}


def profiled(g: Graph) -> Profile:
    return profile_ranges(g, [feeds(g, seed) for seed in range(8)], threads=1)


def nodes(g: Graph, kind: type) -> list[Node]:
    """Return the nodes of an operator in regions."""
    _, *regions = deep(g)
    return [n for r in regions for n in r.nodes if isinstance(n.op, kind)]


def test_a_range_is_of_all_turns() -> None:
    g = rnn(6)
    seen: dict[str, list[Array]] = {}

    def after(node: Node, operands: object, results: tuple[Array, ...]) -> None:
        seen.setdefault(node.results[0].name, []).append(results[0])

    given = feeds(g)
    evaluate(g, given, after)
    ranges = profile_ranges(g, [given]).ranges

    assert len(seen["new"]) == 6
    assert ranges["new"].total == 6 * 16
    assert ranges["new"].low == pytest.approx(min(x.min() for x in seen["new"]), rel=1e-5)
    assert ranges["new"].high == pytest.approx(max(x.max() for x in seen["new"]), rel=1e-5)
    assert ranges["x"].total == 6 * 16
    assert ranges["x"].high == pytest.approx(given["xs"].max())


def test_ranges_in_a_branch_in_a_loop_are_of_the_turns_that_run_it() -> None:
    g = choosing()
    ranges = profile_ranges(g, [feeds(g)]).ranges

    assert ranges["neg:0"].total == 3 * 4
    assert ranges["tanh:0"].total == 3 * 4
    assert ranges["total"].total == 6 * 4


def test_a_profile_is_read_back_and_is_of_its_graph_alone() -> None:
    g = rnn()
    profile = profiled(g)

    assert Profile.parse(profile.text()).ranges.keys() == profile.ranges.keys()
    quantize(rnn(), Profile.parse(profile.text()))


@pytest.mark.parametrize("name", LOOPS)
def test_a_layer_in_a_loop_is_stored_in_int8(name: str) -> None:
    g = LOOPS[name]()
    made = quantize(g, profiled(g))

    given = feeds(g, 100)
    exact, rounded = evaluate(g, given), evaluate(made, given)
    compiled = ag.compile(made, threads=1).run(given)
    (product,) = nodes(made, MatMul)
    assert nodes(made, Quantize)
    assert all(v.producer and isinstance(v.producer.op, Dequantize) for v in product.inputs if v)
    for key, y in exact.items():
        assert np.abs(rounded[key] - y).max() < 0.05
        np.testing.assert_allclose(compiled[key], rounded[key], atol=0.02)
    assert any(np.abs(rounded[key] - y).max() > 0 for key, y in exact.items())


@pytest.mark.parametrize("name", LOOPS)
def test_weights_of_a_loop_are_stored_alone(name: str) -> None:
    g = LOOPS[name]()
    made = quantize(g, None, QuantOptions(weights_only="int4"))

    given = feeds(g)
    exact, rounded = evaluate(g, given), evaluate(made, given)
    (weight,) = nodes(made, Dequantize)
    assert weight.inputs[0] is not None
    assert weight.inputs[0].type.dtype == "i4"
    assert not nodes(made, Quantize)
    compiled = ag.compile(made, threads=1).run(given)
    for key, y in exact.items():
        np.testing.assert_allclose(compiled[key], rounded[key], 1e-5, 1e-5)
        assert np.abs(rounded[key] - y).max() < 0.5


def chosen() -> Graph:
    """Return a product in one of two branches."""
    g = Graph("chosen")
    x, flag = g.input("x", "f32[2,8]"), g.input("flag", "bool[]")
    regions = branch(
        "f32[2,8]",
        lambda b, v: b(MatMul(), v, b.constant(weights(8, 8)), name="first"),
        lambda b, v: b(MatMul(), v, b.constant(weights(8, 8, 1)), name="second"),
    )
    g.output("y", g.add(If(), [flag, x], regions).output)
    return g


def test_a_branch_that_no_sample_takes_stays_in_floats_and_that_is_told() -> None:
    g = chosen()
    profile = profile_ranges(g, [{"x": np.ones((2, 8), np.float32), "flag": np.array(True)}])
    made = plan(g, profile, QuantOptions())

    assert [(d.name, d.why) for d in made.decisions] == [
        ("first", ""),
        ("second", "its operand is not in the profile"),
    ]


def test_a_layer_of_a_loop_is_kept_by_its_name() -> None:
    g = rnn()
    options = QuantOptions(keep=frozenset({"product"}))
    made = plan(g, profiled(g), options)

    assert [(d.name, d.why) for d in made.decisions] == [
        ("product", "it is kept as it is, as asked")
    ]
    assert not nodes(quantize(g, profiled(g), options), Quantize)


def test_training_for_few_bits_leaves_loops_in_floats_and_says_so() -> None:
    g = rnn()

    with pytest.raises(OptionError, match=f"product: {INSIDE}"):
        quantization_aware(g, profiled(g))


def test_training_for_few_bits_rounds_what_is_around_a_loop() -> None:
    g = rnn()
    y = g(MatMul(), g.outputs.pop("h"), g.constant(weights(8, 8, 1), "last"), name="end")
    g.output("h", y)
    made = quantization_aware(g, profiled(g))

    assert "fake_quantize" in {n.op.name for n in made.nodes}
    assert not nodes(made, Quantize)
    given = feeds(g)
    for key, expected in evaluate(g, given).items():
        np.testing.assert_allclose(evaluate(made, given)[key], expected, atol=0.1)


def with_an_end() -> Graph:
    """Return a loop, and a product of what it ends with."""
    g = rnn(6, 16)
    matrix = g.constant(weights(16, 16, 1), "matrix")
    g.output("last", g(MatMul(), g.outputs["h"], matrix, name="last"))
    return g


def test_tuning_counts_what_a_layer_in_a_loop_loses() -> None:
    g = with_an_end()
    samples = [feeds(g, seed) for seed in range(4)]
    data, profile = Dataset(4, samples.__getitem__), profile_ranges(g, samples, threads=1)
    tuning = tune(g, profile, data, metric="sqnr", max_drop=0.0, threads=1)

    assert tuning.noise.keys() == {"last", "product"}
    assert min(tuning.noise.values()) > 0
    assert all(d.why for d in tuning.plan.decisions)
    again = tune(g, profile, data, metric="sqnr", max_drop=0.1, threads=1)
    assert again.after > 0


def test_a_report_tells_of_layers_in_loops() -> None:
    g = with_an_end()
    samples = [feeds(g, seed) for seed in range(4)]
    profile = profile_ranges(g, samples, threads=1)
    made = plan(g, profile, QuantOptions(keep=frozenset({"product"})))
    told = explain(made, profile, Dataset(4, samples.__getitem__), threads=1)

    _, last, product = told.rows()
    assert (last[0], last[2]) == ("last", "quantized")
    assert (product[0], product[2], product[3]) == ("product", "f32", "")
    assert "product stays in f32: it is kept as it is, as asked." in told.sentences()


def test_pairs_in_a_file_are_put_around_a_loop_and_that_is_told() -> None:
    g = with_an_end()
    g.outputs["h"].name = "h"
    profile = profile_ranges(g, [feeds(g, seed) for seed in range(4)], threads=1)
    made = export(ag.export_onnx(g), plan(g, profile, QuantOptions()))

    operators = Counter(n.op_type for n in made.model.graph.node)
    assert operators["Scan"] == 1
    assert operators["QuantizeLinear"] == 1
    assert made.notes == ("product: inside of a loop or a branch, where no pairs are put",)
