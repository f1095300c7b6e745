"""Training for few bits: what is rounded, what is learned, and what is stored then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.base.errors import ModelError, OptionError, TrainingError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.fake_quantize import FakeQuantize, SymmetricScale
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.passes.fold import fold
from alpenglow.passes.quantized import integers
from alpenglow.passes.simplify import simplify
from alpenglow.quant.aware import stored
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.profile import Profile
from alpenglow.quant.schema import SCHEMAS, limits
from alpenglow.train.parameters import fixed, inference
from aware_cases import IMAGE, NETS, Array, batches, blocks, pooled, profiled, with_outliers
from differences import check
from train_cases import samples

OPTIONS: list[dict[str, Any]] = [
    *({"schema": schema} for schema in SCHEMAS),
    *({"granularity": granularity, "schema": "symmetric"} for granularity in ("row", "tensor")),
    {"bias": "int8"}, {"bias": "float"}, {"precision": "int16"},
    {"granularity": "tensor", "schema": "symmetric_power2"},
    {"weights_only": "int8"}, {"weights_only": "int4", "group": 24},
    {"weights_only": "int4", "granularity": "tensor"},
]  # fmt: skip


def words(options: dict[str, Any]) -> str:
    return "-".join(map(str, options.values()))


def aware(g: Graph, **options: Any) -> Graph:
    return train.quantization_aware(g, profiled(g), QuantOptions(**options))


def trainer(g: Graph, statistics: Any = "batch", **options: Any) -> train.Trainer:
    tuned = train.supervise(ag.trainable(aware(g, **options), "*", statistics), "cross-entropy")
    return train.Trainer(tuned, "loss", train.SGD(0.02, momentum=0.9), threads=1)


def trained(g: Graph, **options: Any) -> train.Trainer:
    t = trainer(g, **options)
    for batch in batches(6):
        t.step(batch)
    return t


def used(t: train.Trainer) -> Graph:
    """Return what a trainer evaluates, with what was learned as constants: rounded in floats."""
    g = inference(t.model, ["scores"])
    return fixed(g, {name: t.values()[name] for name in g.initial})


def held(g: Graph) -> dict[str, Array]:
    return {v.name: v.array.reshape(-1) for v in g.constants() if v.name and v.array is not None}


# ── what is rounded ──


@pytest.mark.parametrize("options", OPTIONS, ids=words)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.sampled(3)
def test_training_begins_with_the_bits_of_the_quantised_graph(
    name: str, options: dict[str, Any]
) -> None:
    g = NETS[name]()
    whole = ag.quantize(g, profiled(g), QuantOptions(**options))
    rounded = aware(g, **options)
    small = stored(rounded)
    feeds = {"x": batches(1, seed=9)[0]["x"]}
    expected = evaluate(whole, feeds)["scores"]
    once = name != "shared" or options.get("bias") == "float" or "weights_only" in options

    assert any(isinstance(n.op, FakeQuantize) for n in rounded.nodes)
    assert not any(isinstance(n.op, FakeQuantize) for n in small.nodes)
    if once:  # a bias of two layers cannot take back what rounding makes of either
        np.testing.assert_array_equal(evaluate(rounded, feeds)["scores"], expected)
        assert {n: x.dtype for n, x in held(small).items()} == {
            n: x.dtype for n, x in held(whole).items()
        }
        for constant, x in held(whole).items():
            np.testing.assert_array_equal(held(small)[constant], x, err_msg=constant)
    np.testing.assert_array_equal(
        evaluate(small, feeds)["scores"], evaluate(rounded, feeds)["scores"]
    )


@pytest.mark.parametrize("options", OPTIONS, ids=words)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.rest
def test_what_is_trained_stores_the_bits_that_were_evaluated(
    name: str, options: dict[str, Any]
) -> None:
    t = trained(NETS[name](), **options)
    small, feeds = t.trained(), {"x": batches(1, seed=9)[0]["x"]}
    moved = t.values()

    assert any((moved[n] != v.array).any() for n, v in t.model.initial.items() if n[-1] == "w")
    np.testing.assert_array_equal(
        evaluate(small, feeds)["scores"], evaluate(used(t), feeds)["scores"]
    )
    kept = {n.op.name for n in small.nodes}
    assert "dequantize" in kept and "fake_quantize" not in kept


@pytest.mark.parametrize("name", ["pooled", "blocks", "widened"])
@pytest.mark.sampled(0, "pooled")
def test_compiled_integers_are_the_bits_of_the_trained_floats(name: str) -> None:
    """Sums of products of powers of two are exact in floats, too, so nothing may differ."""
    t = trained(NETS[name](), schema="symmetric_power2")
    small = t.trained()
    exe = ag.compile(small, threads=1)
    floats = ag.compile(inference(t.model, ["scores"]), threads=1).session()
    floats.variables.update({k: x for k, x in t.values().items() if k in floats.variables})
    kinds = {type(n.op) for n in integers(simplify(fold(small.copy(), but=(Dequantize,)))).nodes}

    assert not kinds & {Conv, MatMul, ConvTranspose}
    for batch in batches(4, seed=9):
        feeds = {"x": batch["x"]}
        np.testing.assert_array_equal(exe.run(feeds)["scores"], floats.run(feeds)["scores"])


@pytest.mark.parametrize("schema", ["asymmetric", "symmetric", "symmetric_uint8"])
@pytest.mark.parametrize("name", ["pooled", "normed", "attentive"])
@pytest.mark.rest
def test_compiled_integers_are_near_the_trained_floats(name: str, schema: str) -> None:
    """Sums of floats may round to the next step: of the largest score that is a percent."""
    t = trained(NETS[name](), schema=schema)
    exe, floats = ag.compile(t.trained(), threads=1), used(t)
    for batch in batches(4, seed=9):
        actual, expected = exe(batch["x"]), evaluate(floats, {"x": batch["x"]})["scores"]

        assert np.abs(actual - expected).max() <= 0.01 * np.abs(expected).max()
        assert np.abs(actual - expected).mean() <= 0.001 * np.abs(expected).max()


@pytest.mark.rest
def test_norms_keep_running_statistics_and_are_not_folded() -> None:
    t = trained(NETS["normed"]())
    small = t.trained()

    assert sum(isinstance(n.op, BatchNorm) for n in small.nodes) == 7
    assert (t.values()["stem.mean"] != t.model.initial["stem.mean"].array).any()
    exe, feeds = ag.compile(small, threads=1), batches(1, seed=9)[0]
    found = t.evaluate(feeds)["accuracy"]
    assert abs(found - np.mean(exe(feeds["x"]).argmax(1) == feeds["labels"])) <= 1 / 8


@pytest.mark.rest
def test_a_batch_may_be_open() -> None:
    t = trained(pooled("N"), schema="symmetric_power2")
    exe, data = ag.compile(t.trained(), threads=1), samples(21, IMAGE, 9)

    found = t.evaluate(data, batch=21)["accuracy"]
    assert round(21 * found) == (exe(data["x"]).argmax(1) == data["labels"]).sum()


# ── gradients ──


@pytest.mark.rest
def test_gradients_go_straight_through() -> None:
    """They are those, by differences in f64, of the graph in which what is rounded moves with what
    it was before, and what is limited stays."""
    g = train.supervise(aware(NETS["attentive"](), schema="symmetric"), "cross-entropy")
    batch = batches(1, seed=9)[0]
    constants = {v.name: v for v in g.constants() if v.name}
    straight, limited = moving_straight(g, list(constants.values()), batch)
    feeds = {"x": batch["x"], "labels": batch["labels"]}
    feeds |= {n: np.float64(v.array) for n, v in constants.items()}
    feeds["x"] = np.float64(feeds["x"])
    loss = straight.outputs["loss"]
    check(straight, loss, feeds)
    expected = evaluate(straight, feeds)
    trainable = ag.trainable(g)
    ws = [trainable.inputs[n] for n in constants]
    for n, dw in zip(constants, gradients(trainable, trainable.outputs["loss"], ws), strict=True):
        trainable.output(f"d{n}", dw)
    actual = ag.compile(trainable, threads=1).session().run(batch)

    steepest = max(np.abs(expected[f"d{n}"]).max() for n in constants)

    assert limited > 0
    np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-5)
    for n in constants:
        slope = expected[f"d{n}"]
        off = 1e-4 * np.abs(slope).max() + 1e-6 * steepest  # keys' bias has no part in a softmax
        np.testing.assert_allclose(actual[f"d{n}"], slope, 1e-3, off, err_msg=n)


def moving_straight(g: Graph, constants: list[Value], batch: dict[str, Array]) -> tuple[Graph, int]:
    """Return a graph in f64, whose inputs are constants, too, in which what is rounded moves with
    what it was before, and how many elements do not, since they are limited."""
    seen: dict[Node, tuple[Array, Array]] = {}

    def look(node: Node, operands: Any, results: Any) -> None:
        if isinstance(node.op, FakeQuantize):
            x, scale, zero = (np.float64(v) for v in operands)
            low, high = limits(node.op.dtype)
            steps = np.rint(x / scale) + zero
            inside = np.float64((steps >= low) & (steps <= high))
            seen[node] = inside, results[0] - x * inside

    evaluate(g, batch, look)
    new = Graph("straight")
    env = {v: new.input(n, wide(v)) for n, v in g.inputs.items()}
    env |= {v: new.input(v.name, wide(v)) for v in constants}
    for node in g.nodes:
        if node in seen:
            inside, rest = (new.constant(x) for x in seen[node])
            env[node.output] = new(Add(), new(Mul(), env[node.inputs[0]], inside), rest)
            continue
        if isinstance(node.op, SymmetricScale):
            continue  # and what is computed of it: scales count as constant
        operands = []
        for v in node.inputs:
            if v is not None and v.array is not None and v not in env:
                env[v] = new.constant(v.array.astype(wide(v).numpy))
            operands.append(None if v is None else env.get(v))
        if all(v is None or w is not None for v, w in zip(node.inputs, operands, strict=True)):
            copy = new.add(node.op, operands)
            env.update(zip(node.results, copy.results, strict=True))
    new.output("loss", env[g.outputs["loss"]])
    new.prune()
    return new, sum(int((inside == 0).sum()) for inside, _ in seen.values())


def wide(v: Value) -> TensorType:
    return v.type.with_dtype("f64") if v.type.dtype == "f32" else v.type


# ── what is learned ──


@pytest.mark.parametrize("schema", ["symmetric", "symmetric_power2"])
@pytest.mark.rest
def test_training_wins_back_what_outliers_cost(schema: str) -> None:
    """Channels whose sizes differ leave one scale for all few steps for the small ones."""
    data, others = samples(640, IMAGE), samples(160, IMAGE, seed=2)
    t = train.Trainer(
        train.supervise(ag.trainable(pooled()), "cross-entropy"), "loss", train.AdamW(3e-3)
    )
    t.fit(data, epochs=2, batch=8)
    g = with_outliers(t.trained(), "first", "second", 20.0)
    tuned = train.supervise(aware(g, granularity="tensor", schema=schema), "cross-entropy")
    again = train.Trainer(ag.trainable(tuned), "loss", train.AdamW(2e-3))
    floats, before = (one.evaluate(others, batch=8)["accuracy"] for one in (t, again))
    again.fit(data, epochs=2, batch=8)
    exe = ag.compile(again.trained())
    right = [(exe(x).argmax(1) == y).mean() for x, y in (
        (others["x"][i : i + 8], others["labels"][i : i + 8]) for i in range(0, 160, 8)
    )]  # fmt: skip

    assert floats > 0.95
    assert before < floats - 0.3
    assert np.mean(right) > before + 0.7 * (floats - before)


# ── what is refused ──


def test_what_cannot_be_rounded_is_refused() -> None:
    g = pooled()
    profile = profiled(g)
    emptied = Profile(profile.graph, profile.samples, {})
    once = train.quantization_aware(g, profile)
    quantised = ag.quantize(g, profile)

    with pytest.raises(OptionError, match="first: its operand is not in the profile"):
        train.quantization_aware(g, emptied)
    with pytest.raises(ModelError, match="another graph"):
        train.quantization_aware(blocks(), profile)
    with pytest.raises(OptionError, match="activations are quantized by a profile"):
        train.quantization_aware(g)
    for twice in (once, quantised):
        with pytest.raises(OptionError, match="first: it is quantized already"):
            train.quantization_aware(twice, profiled(twice))
    with pytest.raises(OptionError, match="first: it is kept as it is, as asked"):
        train.quantization_aware(g, profile, QuantOptions(keep=frozenset({"conv", "mat_mul"})))
    with pytest.raises(OptionError, match="convert_placeholders is not supported for training"):
        train.quantization_aware(g, profile, QuantOptions(convert_placeholders=True))
    with pytest.raises(OptionError, match="compute is bf16"):
        options = QuantOptions(weights_only="int8", compute="bf16")
        train.quantization_aware(g, None, options)
    with pytest.raises(UnsupportedError, match="parameters, which training changes") as caught:
        train.quantization_aware(ag.trainable(g), profile)
    assert "Trainer.trained" in str(caught.value.hint)


def test_a_weight_that_became_no_number_is_not_stored() -> None:
    g = aware(pooled())
    for v in g.constants():
        if v.name == "first.w" and v.array is not None:
            v.array = np.full_like(v.array, np.nan)

    with pytest.raises(TrainingError, match=r"first.w_quantized.* has NaN, expected"):
        stored(g)


@pytest.mark.rest
def test_an_input_that_is_no_number_stops_a_step() -> None:
    t = trainer(pooled())
    broken = batches(1)[0]
    broken["x"][0, 0, 0, 0] = np.nan

    with pytest.raises(TrainingError, match="input 'x' is not finite"):
        t.step(broken)
