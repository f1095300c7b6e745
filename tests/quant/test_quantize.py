"""`quantize`: what is stored in few bits, what is tied, what stays as it is, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import ModelError, OptionError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.quant.calibrate import CALIBRATIONS, Calibration
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import Plan, plan
from alpenglow.quant.schema import SCHEMAS, Schema

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test has the same random numbers, whichever ran before."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(g: Graph, x: Value, outputs: int, name: str, kernel: int = 1, bias: bool = True) -> Value:
    """A convolution that keeps the size, and its ReLU."""
    w = g.constant(random(outputs, int(x.type.extents[1]), kernel, kernel), f"{name}_w")
    b = g.constant(random(outputs), f"{name}_b") if bias else None
    y = g(Conv(pads=(kernel // 2,) * 4), x, w, b, name=name)
    return g(Relu(), y, name=f"{name}_relu")


def branched() -> Graph:
    """Two branches concatenated, pooled, a residual sum, and a fully connected layer."""
    g = Graph("branched")
    x = conv(g, g.input("x", "f32[1,3,8,8]"), 8, "first", 3)
    a, b = conv(g, x, 4, "left"), conv(g, x, 4, "right", 3)
    both = g(Concat(1), a, b, name="both")
    pooled = g(MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), both, name="pooled")
    inner = g(Conv(), conv(g, pooled, 8, "inner"), g.constant(random(8, 8, 1, 1)), name="outer")
    total = g(Relu(), g(Add(), pooled, inner, name="sum"), name="total")
    flat = g(Reshape((1, 128)), total, name="flat")
    w = g(Transpose((1, 0)), g.constant(random(10, 128), "w"))
    product = g(MatMul(), flat, w, name="product")
    bias = g(Broadcast((1, 10)), g.constant(random(10), "bias"))
    g.output("scores", g(Add(), product, bias, name="scores"))
    return g


def samples(g: Graph, count: int = 8) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{n: rng.standard_normal(v.type.extents).astype(np.float32)
             for n, v in g.inputs.items()} for _ in range(count)]  # fmt: skip


def profiled(g: Graph) -> ag.Profile:
    return ag.profile_ranges(g, samples(g))


def planned(g: Graph, **options: Any) -> Plan:
    return plan(g, profiled(g), QuantOptions(**options))


def noise(g: Graph, q: Graph) -> float:
    """The power of the difference between two graphs' outputs, as a share of the first's."""
    total = signal = 0.0
    for feeds in samples(g, 4):
        for a, b in zip(evaluate(g, feeds).values(), evaluate(q, feeds).values(), strict=True):
            total += float(((a - b) ** 2).sum())
            signal += float((a**2).sum())
    return total / signal


def ops(g: Graph, kind: type) -> Iterator[Any]:
    return (n for n in g.nodes if isinstance(n.op, kind))


# ── results ──


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.sampled(3)
def test_int8_is_near_the_original(schema: Schema, calibration: Calibration) -> None:
    g = branched()
    options = QuantOptions(schema=schema, calibration=calibration)

    # 20 dB: half of the steps are not used by the coarsest schema.
    assert noise(g, ag.quantize(g, profiled(g), options)) < 0.01


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"precision": "int16"}, 1e-6),
        ({"bias": "int8"}, 2e-3),
        ({"bias": "float"}, 2e-3),
        ({"granularity": "row"}, 2e-3),
        ({"granularity": "tensor"}, 3e-3),
        ({"weights_only": "int8"}, 2e-4),
        ({"weights_only": "int8", "compute": "bf16"}, 4e-4),
        ({"weights_only": "int4"}, 0.05),
        ({"weights_only": "int4", "group": 16}, 0.04),
        ({"weights_only": "int4", "group": 24}, 0.04),
    ],
    ids=str,
)
@pytest.mark.sampled(4)
def test_each_precision_is_as_near_as_its_bits_allow(options: dict[str, Any], most: float) -> None:
    g = branched()
    profile = None if "weights_only" in options else profiled(g)

    assert noise(g, ag.quantize(g, profile, QuantOptions(**options))) < most


def unlike(kind: str, ratio: float) -> Graph:
    """Two ranges that differ by `ratio`, met by one tied operator, where layers read each."""
    g = Graph("unlike")
    x, large = g.input("x", "f32[1,8,8,8]"), np.float32(ratio)
    w = g.constant(random(8, 8, 3, 3) * np.where(np.arange(8) < 4, 1, large)[:, None, None, None]
                   .astype(np.float32))  # fmt: skip
    y = g(Conv(pads=(1,) * 4), x, w)
    if kind == "concat":
        narrow = g(Conv(), x, g.constant(random(8, 8, 1, 1)))
        both = g(Concat(1), y, g(Concat(1), narrow, x))
        g.output("wide", g(Conv(), both, g.constant(random(4, 24, 1, 1))))
    else:
        narrow = g(Slice((0, 0, 0, 0), (1, 4, 8, 8), (1, 1, 1, 1)), y)
        if kind == "pool":
            narrow = g(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1)), narrow)
        g.output("wide", g(Conv(), y, g.constant(random(4, 8, 1, 1))))
    channels = int(narrow.type.extents[1])
    g.output("narrow", g(Conv(), narrow, g.constant(random(4, channels, 1, 1))))
    return g


@pytest.mark.parametrize("ratio", [1, 10, 1000])
@pytest.mark.parametrize("kind", ["concat", "slice", "pool"])
@pytest.mark.sampled(5)
def test_a_narrow_range_is_not_stored_in_the_steps_of_a_wide_one(kind: str, ratio: float) -> None:
    g = unlike(kind, ratio)
    q = ag.quantize(g, profiled(g))
    for feeds in samples(g, 2):
        expected, actual = evaluate(g, feeds), evaluate(q, feeds)
        for name, y in expected.items():
            assert np.linalg.norm(actual[name] - y) < 0.04 * np.linalg.norm(y), name


def test_compiled_it_answers_as_interpreted() -> None:
    g = branched()
    q = ag.quantize(g, profiled(g))
    feeds = samples(g, 1)[0]
    expected = evaluate(q, feeds)["scores"]
    actual = ag.compile(q).run(feeds)["scores"]

    # One step of one stored tensor may round the other way.
    assert np.abs(expected - actual).max() < 0.02 * np.abs(expected).max()


def test_the_original_graph_is_left_as_it_was() -> None:
    g = branched()
    profile = profiled(g)
    before = len(g.nodes)
    ag.quantize(g, profile)

    assert len(g.nodes) == before
    profile.check(g)


def test_a_graph_with_open_extents_is_quantised_as_it_is() -> None:
    g = Graph("open")
    x = g.input("x", "f32[N,16]")
    g.output("y", g(MatMul(), x, g.constant(random(16, 8)), name="y"))
    three = samples(g.bind({"N": 3}))
    profile = ag.profile_ranges(g, [random(1, 16), random(2, 16), *three])
    q = ag.quantize(g, profile)

    assert next(iter(q.inputs.values())).type.symbols() == {"N"}
    assert noise(g.bind({"N": 3}), q.bind({"N": 3})) < 1e-3
    assert ag.compile(q).run(three[0])["y"].shape == (3, 8)


# ── what is stored ──


def test_every_layer_reads_stored_operands() -> None:
    g = branched()
    q = ag.quantize(g, profiled(g))
    for kind in (Conv, MatMul):
        for node in ops(q, kind):
            x = node.inputs[0]
            assert x is not None and x.producer is not None
            assert isinstance(x.producer.op, Dequantize), node


def test_pooling_and_concatenation_share_a_scale_with_their_operands() -> None:
    found = {a.name: a.parameters for a in planned(branched()).activations}

    assert found["left_relu"] == found["right_relu"] == found["both"] == found["pooled"]
    assert found["total"] == found["flat"] != found["both"]


def test_a_sum_reads_one_branch_as_stored_and_the_layer_in_full() -> None:
    readers = {a.name: [n.results[0].name for n, _ in a.readers]
               for a in planned(branched()).activations}  # fmt: skip

    assert "sum" in readers["pooled"]
    assert "outer" not in readers


def test_biases_are_stored_in_steps_of_the_sums() -> None:
    made = planned(branched())
    stored = {s.name: s for s in made.constants}
    step = next(a for a in made.activations if a.name == "x").parameters.scale
    expected = stored["first_w"].scales.reshape(-1) * np.float32(step)

    np.testing.assert_array_equal(expected, stored["first_b"].scales)
    assert stored["first_b"].dtype == "i32"
    assert stored["bias"].dtype == "i32"


def test_a_bias_much_larger_than_its_sums_still_fits() -> None:
    g = Graph("large")
    w = g.constant(np.full((2, 4, 1, 1), 1e-9, np.float32))
    b = g.constant(np.array([1e6, 0], np.float32))
    g.output("y", g(Conv(), g.input("x", "f32[1,4,3,3]"), w, b, name="y"))
    q = ag.quantize(g, profiled(g))
    (found,) = evaluate(q, samples(g, 1)[0]).values()

    assert np.abs(found[0, 0] - 1e6).max() < 1


def test_granularity_says_what_has_a_scale() -> None:
    sizes = {}
    for granularity in ("channel", "row", "tensor"):
        made = planned(branched(), granularity=granularity)
        stored = {s.name: s.scales.size for s in made.constants}
        sizes[granularity] = stored["first_w"], stored["w"]

    assert sizes == {"channel": (8, 10), "row": (1, 10), "tensor": (1, 1)}


def test_weights_are_stored_before_they_are_moved() -> None:
    made = planned(branched())
    (w,) = (s for s in made.constants if s.name == "w")

    assert (w.data.shape, w.scales.shape) == ((10, 128), (10, 1))


def test_weights_that_are_computed_from_constants_are_stored_too() -> None:
    g = Graph("computed")
    w = g(Add(), g.constant(random(16, 8)), g.constant(random(16, 8)), name="w")
    g.output("y", g(MatMul(), g.input("x", "f32[2,16]"), w, name="y"))

    assert planned(g).layers == ("y",)
    assert noise(g, ag.quantize(g, profiled(g))) < 1e-3


def test_groups_of_inputs_have_a_scale_each() -> None:
    made = plan(branched(), None, QuantOptions(weights_only="int4", group=24))
    (w,) = (s for s in made.constants if s.name == "w")

    assert (w.dtype, w.block, w.scales.shape) == ("i4", 24, (10, 6))


def test_placeholders_are_given_and_returned_as_stored() -> None:
    g = branched()
    profile = profiled(g)
    options = QuantOptions(convert_placeholders=True)
    q = ag.quantize(g, profile, options)
    by_name = {a.name: a.parameters for a in plan(g, profile, options).activations}
    feeds = samples(g, 1)[0]
    stored = {"x": by_name["x"].stored(feeds["x"])}
    expected = evaluate(ag.quantize(g, profile), feeds)["scores"]
    actual = evaluate(q, stored)["scores"]
    p = by_name["scores"]

    assert (str(q.inputs["x"].type), actual.dtype) == ("u8[1,3,8,8]", np.uint8)
    # Half a step, and what lies outside of what was seen.
    error = np.abs((actual.astype(np.float64) - p.zero_point) * p.scale - expected)
    assert np.median(error) <= p.scale


# ── what stays as it is ──


@pytest.mark.parametrize("keep", ["inner", "conv"])
def test_what_is_to_be_kept_is_kept(keep: str) -> None:
    made = planned(branched(), keep=frozenset({keep}))
    kept = {d.name: d.why for d in made.decisions if d.why}

    assert set(kept.values()) == {"it is kept as it is, as asked"}
    assert kept.keys() == ({"inner"} if keep == "inner" else
                           {"first", "left", "right", "inner", "outer"})  # fmt: skip


def test_names_to_keep_may_stand_in_a_list_but_not_in_a_string() -> None:
    listed: Any = ["left"]
    text: Any = "left"

    assert QuantOptions(keep=listed).keep == {"left"}
    with pytest.raises(OptionError, match="keep is the string 'left', expected a set of names"):
        QuantOptions(keep=text)


def test_only_the_layers_asked_for_are_converted() -> None:
    assert planned(branched(), only=frozenset({"left"})).layers == ("left",)


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(OptionError, match="keep names nothing, which is no value and no operator"):
        planned(branched(), keep=frozenset({"nothing"}))


def reasons(g: Graph, given: list[Any]) -> dict[str, str]:
    made = plan(g, ag.profile_ranges(g, given), QuantOptions())
    return {d.name: d.why for d in made.decisions}


def test_a_layer_whose_operand_was_infinite_stays() -> None:
    g = Graph("infinite")
    x = g(Log(), g.input("x", "f32[4,8]"))
    g.output("y", g(MatMul(), x, g.constant(random(8, 8)), name="y"))

    assert reasons(g, [np.zeros((4, 8), np.float32)])["y"] == (
        "its operand was NaN or infinite 32 times"
    )


def test_a_weight_that_is_not_finite_stays() -> None:
    g = Graph("nan")
    w = random(8, 8)
    w[0, 0] = np.nan
    g.output("y", g(MatMul(), g.input("x", "f32[4,8]"), g.constant(w), name="y"))

    assert reasons(g, [random(4, 8)])["y"] == "its weight holds NaN or infinities"


def test_a_layer_that_does_too_little_stays() -> None:
    g = Graph("depthwise")
    w = g.constant(random(16, 1, 1, 1))
    g.output("y", g(Conv(group=16), g.input("x", "f32[1,16,8,8]"), w, name="y"))

    assert reasons(g, [random(1, 16, 8, 8)])["y"] == (
        "it multiplies 0.5 times for each element: converting would take longer"
    )


def test_half_precision_stays() -> None:
    g = Graph("half")
    w = g.constant(random(8, 8).astype(np.float16))
    g.output("y", g(MatMul(), g.input("x", "f16[4,8]"), w, name="y"))

    assert reasons(g, [random(4, 8).astype(np.float16)])["y"].startswith("it computes in f16")


def test_what_is_quantised_is_not_quantised_again() -> None:
    g = branched()
    q = ag.quantize(g, profiled(g))
    again = plan(q, profiled(q), QuantOptions())

    assert {d.why for d in again.decisions} == {"it is quantized already"}
    assert len(list(ops(ag.quantize(q, profiled(q)), Quantize))) == len(list(ops(q, Quantize)))


def test_weights_of_zeros_and_operands_of_zeros_give_zeros() -> None:
    g = Graph("zeros")
    w = g.constant(np.zeros((8, 8), np.float32))
    g.output("y", g(MatMul(), g.input("x", "f32[4,8]"), w, name="y"))
    q = ag.quantize(g, ag.profile_ranges(g, [np.zeros((4, 8), np.float32)]))

    assert not evaluate(q, {"x": random(4, 8)})["y"].any()


# ── what is refused ──


def test_a_profile_of_another_graph_is_refused() -> None:
    profile = profiled(branched())

    with pytest.raises(ModelError, match="the profile is of another graph"):
        ag.quantize(branched(), profile)  # its weights are others


def test_activations_need_a_profile() -> None:
    with pytest.raises(OptionError, match="activations are quantized by a profile"):
        ag.quantize(branched())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int3"}, "precision is 'int3', expected one of int8, int16"),
        ({"schema": "odd"}, "schema is 'odd'"),
        ({"calibration": "odd"}, "calibration is 'odd', expected one of minmax"),
        ({"granularity": "odd"}, "granularity is 'odd'"),
        ({"bias": "odd"}, "bias is 'odd'"),
        ({"group": 32}, "group is 32, expected 0, or a number of inputs with weights_only"),
        ({"compute": "bf16"}, "expected f32 without weights_only"),
        (
            {"weights_only": "int8", "convert_placeholders": True},
            "convert_placeholders is not supported with",
        ),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        QuantOptions(**options)
