"""Losses of classes: along which axis these lie, beside their formula and differences in f64."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.base.errors import AlpenglowError, OptionError, TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph

Array = NDArray[Any]

CASES = [((5, 4), 1), ((5, 4), -1), ((5, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((2, 3, 4), 2),
         ((2, 3, 4), 0), ((2, 3, 4, 5), -2), ((2, 3, 4, 5), 3), ((4,), 0)]  # fmt: skip


def judged(shape: tuple[int, ...], axis: int, **more: Any) -> Graph:
    rest = [d for a, d in enumerate(shape) if a != axis % len(shape)]
    g = ag.Graph("judged")
    x = g.input("x", f"f64[{','.join(map(str, shape))}]")
    labels = g.input("labels", f"i64[{','.join(map(str, rest))}]")
    if "weight" in more:
        more["weight"] = g.constant(more["weight"])
    g.output("loss", train.cross_entropy(g, x, labels, axis=axis, **more))
    g.output("accuracy", train.accuracy(g, x, labels, axis=axis))
    g.output("dx", gradients(g, g.outputs["loss"], [x])[0])
    return g


def drawn(shape: tuple[int, ...], axis: int) -> tuple[Array, Array, Array]:
    """Return logits, labels, and the logits as rows."""
    random = np.random.default_rng(3)
    x = random.standard_normal(shape)
    rows = np.moveaxis(x, axis, -1)
    labels = random.integers(0, shape[axis], rows.shape[:-1])
    return x, labels, rows.reshape(-1, shape[axis])


@pytest.mark.parametrize("how", ["plain", "weighted", "ignored"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_classes_may_lie_along_any_axis(shape: tuple[int, ...], axis: int, how: str) -> None:
    x, labels, rows = drawn(shape, axis)
    weight, more = np.ones(shape[axis]), {}
    if how == "weighted":
        more["weight"] = weight = np.arange(1.0, shape[axis] + 1)
    counts = np.ones(labels.size, bool)
    if how == "ignored" and labels.size > 1:
        labels.reshape(-1)[0] = -100
        more["ignore"], counts[0] = -100, False
    flat = np.where(counts, labels.reshape(-1), 0)
    shares = weight[flat] * counts

    def loss(rows: Array) -> float:
        each = np.log(np.exp(rows).sum(1)) - rows[np.arange(len(rows)), flat]
        return float((each * shares).sum() / shares.sum())

    outs = evaluate(judged(shape, axis, **more), {"x": x, "labels": labels})
    np.testing.assert_allclose(outs["loss"], loss(rows), 1e-12)
    assert outs["accuracy"] == np.float32(np.mean(rows.argmax(1) == labels.reshape(-1)))
    dx = np.moveaxis(np.asarray(outs["dx"]), axis, -1).reshape(rows.shape)
    for place in np.ndindex(rows.shape):
        step: Array = np.zeros_like(rows)
        step[place] = 1e-6
        slope = (loss(rows + step) - loss(rows - step)) / 2e-6
        np.testing.assert_allclose(dx[place], slope, 1e-6, 1e-8)


def test_a_model_of_language_is_supervised_along_its_last_axis() -> None:
    g = ag.Graph("language")
    tokens = g.input("tokens", "i64[N,T]")
    h = train.embedding(g, tokens, 6, 8, "letters")
    g.output("scores", train.dense(g, h, 6, "head"))
    supervised = train.supervise(g, "cross-entropy", axis=-1)
    t = train.Trainer(supervised, "loss", train.Adam(0.1), target="interpreter")
    tokens_of = np.random.default_rng(0).integers(0, 6, (64, 10))
    data = {"tokens": tokens_of, "labels": (tokens_of + 1) % 6}
    t.fit(data, epochs=10, batch=16)

    assert t.graph.inputs["labels"].type == t.graph.inputs["tokens"].type
    assert t.evaluate(data)["accuracy"] == 1


def supervised(axis: int) -> Graph:
    g = ag.Graph("language")
    g.output("scores", train.embedding(g, g.input("tokens", "i64[N,T]"), 6, 8, "letters"))
    return train.supervise(g, "cross-entropy", axis=axis)


WRONG: dict[str, tuple[Callable[[], Any], type[AlpenglowError], str]] = {
    "labels of another axis": (
        lambda: train.cross_entropy(*_given("f32[2,3,4]", "i64[2,3]")), TypeRuleError,
        "the labels are i64[2,3], but the logits f32[2,3,4] with classes along axis 1"),
    "an axis that is not there": (
        lambda: train.accuracy(*_given("f32[2,3]", "i64[2]"), 2), TypeRuleError,
        "axis is 2, expected an axis of f32[2,3]"),
    "an axis that an output has not": (
        lambda: supervised(3), OptionError, "axis is 3, expected an axis of output scores f32["),
}  # fmt: skip


def _given(logits: str, labels: str) -> tuple[Any, ...]:
    g = ag.Graph("given")
    return g, g.input("x", logits), g.input("labels", labels)


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_told(what: str) -> None:
    wrong, error, text = WRONG[what]
    with pytest.raises(error, match=re.escape(text)):
        wrong()
