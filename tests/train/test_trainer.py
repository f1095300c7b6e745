"""Training: what a step changes, what goes wrong, and what a run goes on from."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
import staged_cases
from alpenglow import train
from alpenglow.base.errors import (
    FeedError,
    ModelError,
    OptionError,
    SessionError,
    TrainingError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.transcendental import Log, Sqrt
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMean
from train_cases import CLASSES, convolutional, perceptron, samples


def trainer(graph: Graph | None = None, **more: Any) -> train.Trainer:
    more = {"optimizer": train.SGD(0.05, momentum=0.9), "threads": 1, **more}
    return train.Trainer(graph or perceptron(), "loss", **more)


def assert_same(a: train.Trainer, b: train.Trainer) -> None:
    for name, x in dict(a.session.variables).items():
        np.testing.assert_array_equal(x, b.session.variables[name], err_msg=name)


# ── what is learned ──


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_classes_that_can_be_told_apart_are_learned(target: str) -> None:
    t = trainer(target=target)
    data, held = samples(320), samples(64, seed=2)
    before = t.evaluate(held)
    epochs = t.fit(data, epochs=4, batch=16, held=held)

    assert [e.steps for e in epochs] == [20] * 4
    assert before["accuracy"] < 0.5 and epochs[-1].held["accuracy"] > 0.95
    assert epochs[-1].means["loss"] < epochs[0].means["loss"] / 3


def test_the_best_epoch_is_kept() -> None:
    """Labels of the validation data are wrong, so that learning makes their loss larger."""
    t, first = trainer(), trainer()
    data, held = samples(320), samples(64, seed=2)
    wrong = {**held, "labels": (held["labels"] + 1) % 5}
    epochs = t.fit(data, epochs=6, batch=16, held=wrong, keep_best=True, patience=2)
    losses = [e.held["loss"] for e in epochs]
    best = int(np.argmin(losses))
    first.fit(data, epochs=best + 1, batch=16)

    assert len(epochs) == best + 3 < 6
    assert t.steps == first.steps == 20 * (best + 1)
    assert_same(t, first)


def test_convolutions_and_their_norms_are_learned() -> None:
    t = trainer(convolutional())
    data, held = samples(160, (3, 12, 12)), samples(40, (3, 12, 12), seed=2)
    t.fit(data, epochs=3, batch=8)

    assert t.evaluate(held, batch=8)["accuracy"] > 0.95
    assert np.abs(t.values()["first.mean"]).max() > 0.05


def test_what_is_trained_is_used_with_running_statistics() -> None:
    t = trainer(convolutional())
    t.fit(samples(80, (3, 12, 12)), batch=8)
    g = t.trained()
    feeds = samples(8, (3, 12, 12), seed=3)
    ops = {n.op.name for n in g.nodes}

    assert list(g.inputs) == ["x"] and list(g.outputs) == ["scores"] and not g.initial
    assert "batch_norm" in ops and "batch_norm_training" not in ops
    scores = ag.compile(g)(feeds["x"])
    found = t.evaluate(feeds, batch=8)["accuracy"]
    assert found == np.mean(scores.argmax(1) == feeds["labels"])


def test_what_is_trained_can_be_written_as_onnx(tmp_path: Path) -> None:
    t = trainer()
    t.fit(samples(32), batch=16)
    ag.export_onnx(t.trained(), tmp_path / "trained.onnx")
    x = samples(16)["x"]

    np.testing.assert_allclose(
        ag.compile(tmp_path / "trained.onnx")(x), ag.compile(t.trained())(x), 1e-5
    )


@pytest.mark.rest
def test_a_batch_may_be_open() -> None:
    t, fixed = trainer(perceptron("N")), trainer()
    data = samples(64)
    t.fit(data, batch=16)
    fixed.fit(data, batch=16)

    for name, x in t.values().items():
        np.testing.assert_allclose(x, fixed.values()[name], 1e-4, 1e-6)
    assert set(t.evaluate(samples(50), batch=16)) == {"loss", "accuracy"}


def test_products_may_be_of_halves() -> None:
    t = trainer(options=ag.Options(precision="bf16"))
    t.fit(samples(320), epochs=3)

    assert {x.dtype for x in t.values().values()} == {np.dtype(np.float32)}
    assert t.evaluate(samples(64, seed=2))["accuracy"] > 0.95


# ── rules ──


def test_gradients_of_small_batches_are_those_of_a_large_one() -> None:
    small, large = trainer(perceptron(8), accumulate=2), trainer()
    for k in range(5):
        batch = samples(16, seed=k)
        large.step(batch)
        for half in (slice(0, 8), slice(8, 16)):
            small.step({name: x[half] for name, x in batch.items()})

    for name, x in large.values().items():
        np.testing.assert_allclose(small.values()[name], x, 1e-4, 1e-6)


def test_a_long_gradient_is_cut() -> None:
    t = trainer(optimizer=train.SGD(1.0), clip=1e-3)
    before = t.values()
    outs = t.step(samples(16))
    moved = np.sqrt(sum(np.sum((x - before[n]) ** 2.0) for n, x in t.values().items()))

    assert outs["gradient norm"] > 1e-2
    np.testing.assert_allclose(moved, 1e-3, 1e-3)


def test_the_rate_follows_a_schedule() -> None:
    plan = train.warmup(2, then=train.steps({2: 0.5, 3: 0.1}))
    t, alone = (trainer(optimizer=train.SGD(0.1), schedule=s) for s in (plan, None))
    shares = []
    for _ in range(6):
        before = t.values()
        alone.session.variables.update(before)
        for one in (t, alone):
            one.step(samples(16))
        moved, whole = (one.values()["first.w"] - before["first.w"] for one in (t, alone))
        shares.append(np.vdot(moved, whole) / np.vdot(whole, whole))

    np.testing.assert_allclose(shares, [0.5, 1, 1, 1, 0.5, 0.05], 1e-2)


def test_half_a_cosine_goes_down() -> None:
    share = train.cosine(10, least=0.1)

    assert [share(0), share(10), share(11)] == pytest.approx([1, 0.1, 0.1])
    assert sorted(map(share, range(11)), reverse=True) == [*map(share, range(11))]


def test_dropout_is_the_same_at_any_number_of_threads_and_gone_in_use() -> None:
    one, two = (trainer(perceptron(dropout=0.5), threads=n) for n in (1, 2))
    for k in range(3):
        a, b = (t.step(samples(16, seed=k))["loss"] for t in (one, two))
        assert a == b
    assert_same(one, two)
    losses = {float(one.evaluate(samples(16))["loss"]) for _ in range(3)}
    assert len(losses) == 1
    assert not any(n.op.name == "dropout" for n in one.trained().nodes)


def test_each_step_drops_others() -> None:
    t = trainer(perceptron(dropout=0.5), optimizer=train.SGD(0.0))
    assert len({float(t.step(samples(16))["loss"]) for _ in range(4)}) == 4


# ── going on ──


def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    data, path = samples(160), tmp_path / "run.npz"
    optimizer = train.AdamW(1e-2)
    whole = trainer(perceptron(dropout=0.2), optimizer=optimizer)
    whole.fit(data, epochs=3, batch=16, seed=4)
    first = trainer(perceptron(dropout=0.2), optimizer=optimizer)
    with pytest.raises(KeyboardInterrupt):
        first.fit(data, epochs=3, batch=16, seed=4, checkpoint=path, every=4, progress=after(17))
    second = trainer(perceptron(dropout=0.2), optimizer=optimizer)
    second.load(path)
    assert second.steps == 16
    second.fit(data, epochs=3, batch=16, seed=4)

    assert second.steps == 30
    assert_same(whole, second)


def after(steps: int) -> Callable[..., None]:
    def interrupt(done: int, *_: object) -> None:
        if done == steps:
            raise KeyboardInterrupt

    return interrupt


RUN = """
import sys, train_cases
from alpenglow import train
t = train.Trainer(train_cases.perceptron(dropout=0.2), "loss", train.Adam(1e-2), threads=1)
if sys.argv[2] == "on":
    t.load(sys.argv[1])
print("begins", flush=True)
t.fit(train_cases.samples(800), 2, 16, checkpoint=sys.argv[1], every=1)
t.save(sys.argv[1])
"""


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run.npz"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def begun(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-B", "-c", RUN, str(path), how]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        return process

    first = begun("anew")
    while not path.exists():
        time.sleep(0.001)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    first.kill()
    first.communicate()
    assert begun("on").wait(120) == 0
    whole = train.Trainer(perceptron(dropout=0.2), "loss", train.Adam(1e-2), threads=1)
    whole.fit(samples(800), 2, 16)
    second = train.Trainer(perceptron(dropout=0.2), "loss", train.Adam(1e-2), threads=1)
    second.load(path)

    assert second.steps == 100
    assert_same(whole, second)


def test_a_checkpoint_of_another_graph_or_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    t = trainer()
    t.step(samples(16))
    t.save(path)
    with pytest.raises(SessionError):
        trainer(optimizer=train.Adam()).load(path)
    path.write_bytes(path.read_bytes()[:-100])
    other = trainer()
    with pytest.raises(ModelError):
        other.load(path)
    assert other.steps == 0
    assert_same(other, trainer())


# ── what goes wrong ──


def test_a_step_to_infinity_changes_nothing_and_says_where() -> None:
    g = ag.Graph("logarithm")
    x = g.input("x", "f32[4]")
    w = g.variable("w", np.ones(4, np.float32))
    y = g(Log(), g(Mul(), x, w), name="logarithms")
    g.output("loss", g(ReduceMean((0,), False), y))
    t = train.Trainer(g, "loss", train.SGD(0.1, momentum=0.9), threads=1)
    t.step({"x": np.ones(4, np.float32)})
    before = dict(t.session.variables)
    with pytest.raises(
        TrainingError, match=r"in step 1, the loss is -inf, first in log 'logarithms'"
    ):
        t.step({"x": np.array([1, 0, 2, 3], np.float32)})
    for name, value in before.items():
        np.testing.assert_array_equal(t.session.variables[name], value)
    t.step({"x": np.ones(4, np.float32)})
    assert t.steps == 2


@pytest.mark.parametrize(
    ("batch", "cause"),
    [(np.ones((0, 2), np.float32), r"input 'x' of shape \[0, 2\] is empty"),
     (np.array([[1, -1]], np.float32), "first in log")],
    ids=["no samples", "a logarithm of 0"],
)  # fmt: skip
def test_what_went_wrong_in_a_dynamic_batch_is_told(batch: Any, cause: str) -> None:
    g = ag.Graph("root")
    x = g.input("x", "f32[N,2]")
    w = g.variable("w", np.ones((2, 1), np.float32))
    y = g(Log(), g(MatMul(), x, w))
    g.output("loss", g(ReduceMean((0, 1), False), y))
    t = train.Trainer(g, "loss", train.SGD(0.1), threads=1)
    with pytest.raises(TrainingError, match=cause):
        t.step({"x": batch})
    np.testing.assert_array_equal(t.values()["w"], [[1], [1]])


def test_a_gradient_of_infinity_is_told_too() -> None:
    g = ag.Graph("root")
    x = g.input("x", "f32[2]")
    w = g.variable("w", np.ones(2, np.float32))
    y = g(Sqrt(), g(Mul(), x, w))
    g.output("loss", g(ReduceMean((0,), False), y))
    t = train.Trainer(g, "loss", train.SGD(0.1), threads=1)
    with pytest.raises(TrainingError, match="in step 0, the gradient is nan, first in div"):
        t.step({"x": np.array([1, 0], np.float32)})
    np.testing.assert_array_equal(t.values()["w"], [1, 1])


def test_running_statistics_stay_as_they_were_too() -> None:
    t = trainer(convolutional())
    t.step(samples(8, (3, 12, 12)))
    before = dict(t.session.variables)
    broken = samples(8, (3, 12, 12))
    broken["x"][0] = np.nan
    with pytest.raises(TrainingError, match="input 'x' is not finite"):
        t.step(broken)

    assert any("mean" in name for name in before)
    for name, value in before.items():
        np.testing.assert_array_equal(t.session.variables[name], value, err_msg=name)


def test_labels_that_are_no_class_are_refused_before_anything_changes() -> None:
    t = trainer()
    batch = samples(16)
    with pytest.raises(FeedError, match=f"label is {CLASSES}, expected 0 to {CLASSES - 1}"):
        t.step({**batch, "labels": batch["labels"] * 0 + CLASSES})
    t.step(batch)
    assert t.steps == 1


def made(loss: str = "loss", used: bool = True) -> Graph:
    g = ag.Graph("made")
    x, w = g.input("x", "f32[3]"), g.variable("w", np.ones(3, np.float32))
    y = g(Add(), x, w) if used else x
    g.output("rows", y)
    g.output("loss", g(ReduceMean((0,), False), y))
    return g


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a loss that is no scalar": (
        lambda: train.Trainer(made(), "rows", train.SGD(1)), TypeRuleError, "expected a scalar"),
    "a loss that is not there": (
        lambda: train.Trainer(made(), "cost", train.SGD(1)), OptionError,
        "expected one of rows, loss"),
    "a parameter that nothing uses": (
        lambda: train.Trainer(made(used=False), "loss", train.SGD(1)), OptionError,
        "does not depend on w"),
    "no parameters": (
        lambda: train.Trainer(ag.Graph("empty"), "loss", train.SGD(1)), OptionError, "output is "),
    "a rate below 0": (lambda: train.SGD(-1), OptionError, "rate is -1"),
    "a momentum of 1": (lambda: train.SGD(1, momentum=1), OptionError, "less than 1"),
    "a rate of NaN": (lambda: train.Adam(float("nan")), OptionError, "rate is nan"),
    "no gradient at all": (lambda: trainer(clip=0), OptionError, "clip is 0"),
    "no calls": (lambda: trainer(accumulate=0), OptionError, "accumulate is 0"),
    "no epochs": (lambda: trainer().fit(samples(16), 0), OptionError, "epochs is 0"),
    "no samples": (lambda: trainer().fit(samples(0), batch=16), FeedError, "0 samples"),
    "too few": (lambda: trainer().fit(samples(15), batch=16), FeedError, "at least a batch"),
    "ragged arrays": (
        lambda: trainer().fit({**samples(32), "labels": np.zeros(31, np.int64)}, batch=16),
        FeedError, "32 samples of x, 31 samples of labels"),
    "too few held back for a whole batch": (
        lambda: trainer().fit(samples(32), held=samples(20)), FeedError, "a multiple of 16"),
    "a checkpoint in no folder": (
        lambda: trainer().fit(samples(32), checkpoint="nowhere/run.npz"), OptionError,
        "checkpoint is nowhere/run.npz, expected a file in a folder"),
    "a model that depends on its data": (
        lambda: ag.trainable(ag.load(staged_cases.CASES["nonzero"].model())), UnsupportedError,
        "depends on its data, so it cannot be trained"),
    "a batch of nothing": (
        lambda: trainer().fit(samples(32), batch=0), OptionError, "batch is 0"),
    "a seed below 0": (lambda: trainer().fit(samples(32), seed=-1), OptionError, "seed is -1"),
    "no patience": (
        lambda: trainer().fit(samples(32), held=samples(32), patience=0), OptionError,
        "patience is 0, expected 1 or more"),
    "the best of nothing": (
        lambda: trainer().fit(samples(32), keep_best=True), OptionError, "held is None"),
    "an iterator": (lambda: trainer().fit(iter([samples(16)])), FeedError, "gone through once"),
    "what is no batch": (
        lambda: trainer().fit([np.zeros(3)]), FeedError, "batch 0 is ndarray"),
    "batches of other shapes": (
        lambda: trainer().fit([samples(15)]), FeedError, r"expected \(16, 20\)"),
    "a pattern without a constant": (
        lambda: ag.trainable(made(), "v*"), OptionError, "no constant is called v*"),
    "an output that is not there": (
        lambda: trainer().trained(["y"]), OptionError, "output is y, expected one of"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.sampled(4)
def test_mistakes_are_told(what: str) -> None:
    wrong, error, text = WRONG[what]
    with pytest.raises(error, match=text if "\\" in text else re.escape(text)):
        wrong()


def test_an_error_of_the_data_comes_out() -> None:
    def failing(epoch: int) -> Any:
        yield samples(16)
        raise RuntimeError("the disk is gone")

    t = trainer()
    with pytest.raises(RuntimeError, match="the disk is gone"):
        t.fit(failing)
    assert t.steps == 1
