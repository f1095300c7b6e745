"""Connectionist temporal classification: probabilities of labels against those of all paths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.base.errors import FeedError, TypeRuleError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.ops.sequence.ctc import Ctc
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.train.blame import first_infinite
from differences import check, total_of
from train_cases import dense, sequences

Array = NDArray[Any]
INF = float("inf")


def by_steps(scores: Array, labels: list[list[int]], inputs: Any, counts: Any) -> Any:
    """Return losses and the gradient of their sum, by log-probabilities as they are."""
    g = Graph("ctc")
    of = [np.array(x) for x in (labels, inputs, counts)]
    x = g.input("x", f"f64[{','.join(map(str, scores.shape))}]")
    loss = g.add(Ctc(), [x, *map(g.constant, of)]).results[0]
    g.output("loss", loss)
    g.output("gradient", gradients(g, loss, [x])[0])
    exe = ag.compile(g)
    results = exe.run({"x": scores})

    assert all(entry.kernel for entry in exe.artifact.table)
    for name, y in evaluate(g, {"x": scores}).items():
        np.testing.assert_allclose(results[name], y, 1e-12, 1e-12, err_msg=name)
    return results["loss"], results["gradient"]


def probability(scores: Array, labels: list[int], blank: int) -> float:
    """Return the probability of labels by scores[T, C]: that of all paths that read so."""
    total = 0.0
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        kept = [c for i, c in enumerate(path) if not i or c != path[i - 1]]
        if [c for c in kept if c != blank] == labels:
            total += float(np.prod([p[c] for p, c in zip(np.exp(scores), path, strict=True)]))
    return total


@pytest.mark.parametrize("blank", [0, 2])
def test_labels_are_as_probable_as_all_paths_that_read_so(blank: int) -> None:
    random, steps, classes = np.random.default_rng(0), 5, 3
    scores = np.log(random.dirichlet(np.ones(classes), (steps, 1)))
    others = [c for c in range(classes) if c != blank]
    every = [list(x) for n in range(4) for x in itertools.product(others, repeat=n)]
    batch = len(every)
    labels = np.array([[*x, *[-7] * (3 - len(x))] for x in every])
    g = Graph("ctc")
    constants = labels, np.full(batch, steps), np.array([len(x) for x in every])
    x = g.input("x", f"f64[{steps},{batch},{classes}]")
    g.output("loss", g.add(Ctc(blank), [x, *map(g.constant, constants)]).results[0])
    actual = np.exp(-ag.compile(g).run({"x": np.repeat(scores, batch, 1)})["loss"])

    expected = [probability(scores[:, 0], x, blank) for x in every]
    np.testing.assert_allclose(actual, expected, 1e-12)


@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("most", [0, 1, 4])
def test_the_gradient_is_what_differences_say(most: int, blank: int) -> None:
    random = np.random.default_rng(most)
    g, batch = Graph("ctc"), 4
    logits = g.input("logits", f"f64[6,{batch},4]")
    labels = random.integers(1, 3, (batch, most))
    lengths = np.array([6, 5, 4, 0]), np.minimum([4, 2, 0, 0], most)
    loss = train.ctc(g, logits, *map(g.constant, (labels, *lengths)), blank, zero_infinity=True)

    check(g, total_of(g, [loss]), {"logits": 2 * random.standard_normal((6, batch, 4))})


def test_scores_of_minus_infinity_have_finite_gradients() -> None:
    scores = np.log(np.full((3, 1, 3), 1 / 3))
    scores[0, 0, 0] = scores[1, 0, 1] = -INF
    loss, slope = by_steps(scores, [[1, 2]], [3], [2])
    # 1 2 2, 1 2 0 and 1 0 2 are left.
    np.testing.assert_allclose(loss, -np.log(3 / 27))
    np.testing.assert_allclose(
        slope[:, 0], -np.array([[0, 1, 0], [1 / 3, 0, 2 / 3], [1 / 3, 0, 2 / 3]]), 1e-12
    )


def test_edges() -> None:
    full = 3 * np.log(3)
    cases: list[tuple[list[int], int, int, float]] = [
        ([1, 1], 2, 2, INF),  # a blank has no room
        ([1, 1], 3, 2, full),
        ([1, 2], 1, 2, INF),
        ([1, 2], 0, 1, INF),
        ([1, 2], 0, 0, 0.0),
        ([9, -9], 3, 0, full),
    ]
    labels, inputs, counts, losses = map(list, zip(*cases, strict=True))
    scores = np.log(np.full((4, len(cases), 3), 1 / 3))
    for n, steps in enumerate(inputs):
        scores[steps:, n] = np.nan  # nobody looks there
    actual, slope = by_steps(scores, labels, inputs, counts)

    np.testing.assert_allclose(actual, losses)
    for n, (_, steps, _, loss) in enumerate(cases):
        total = -1.0 if np.isfinite(loss) else 0.0
        assert not slope[steps:, n].any()
        np.testing.assert_allclose(slope[:steps, n].sum(1), np.full(steps, total))


def test_what_is_no_number_is_not_hidden() -> None:
    scores = np.log(np.full((4, 2, 3), 1 / 3))
    scores[1, 0] = np.nan
    loss, slope = by_steps(scores, [[1], [1]], [4, 4], [1, 1])

    assert np.isnan(loss[0]) and np.isfinite(loss[1])
    assert np.isnan(slope[1, 0, :2]).all() and np.isfinite(slope[:, 1]).all()


@pytest.mark.rest
def test_long_sequences_keep_their_digits() -> None:
    """Logarithms of thousands would leave gradients three digits."""
    random, sizes = np.random.default_rng(0), (1500, 2, 32, 120)
    feeds = {
        "logits": random.standard_normal((1500, 2, 32)),
        "labels": random.integers(1, 32, (2, 120)),
        "inputs": np.array([1500, 900]),
        "counts": np.array([120, 77]),
    }
    expected = ag.compile(sequences(sizes)).run(feeds)
    narrow = feeds | {"logits": feeds["logits"].astype(np.float32)}
    actual = ag.compile(sequences(sizes, dtype="f32")).run(narrow)
    scale = float(np.abs(expected["gradient"]).max())

    np.testing.assert_allclose(actual["loss"], expected["loss"], 1e-6)
    np.testing.assert_allclose(actual["gradient"], expected["gradient"], 0, 2e-5 * scale)


@pytest.mark.rest
def test_extents_may_be_open() -> None:
    exe = ag.compile(sequences(("T", "N", 5, "S"), dtype="f32"))
    for steps, batch, most in ((30, 3, 11), (4, 2, 2), (3, 2, 0)):
        random = np.random.default_rng(steps)
        feeds = {
            "logits": random.standard_normal((steps, batch, 5)).astype(np.float32),
            "labels": random.integers(1, 5, (batch, most)),
            "inputs": np.full(batch, steps),
            "counts": np.full(batch, most // 2),
        }
        expected = ag.compile(sequences((steps, batch, 5, most)), target="interpreter").run(
            feeds | {"logits": feeds["logits"].astype(np.float64)}
        )
        for name, y in exe.run(feeds).items():
            np.testing.assert_allclose(y, expected[name], 1e-4, 1e-6, err_msg=name)


def test_halves_are_computed_in_f32() -> None:
    random, sizes = np.random.default_rng(0), (20, 2, 5, 4)
    logits = random.standard_normal((20, 2, 5)).astype(np.float16)
    feeds = {"logits": logits, "labels": random.integers(1, 5, (2, 4)),
             "inputs": np.array([20, 15]), "counts": np.array([4, 3])}  # fmt: skip
    actual = ag.compile(sequences(sizes, dtype="f16")).run(feeds)
    wide = feeds | {"logits": logits.astype(np.float64)}

    for name, y in evaluate(sequences(sizes), wide).items():
        assert actual[name].dtype == np.float16
        np.testing.assert_allclose(actual[name], y, 2e-3, 1e-4, err_msg=name)


WRONG = {
    "label is 4, expected 0 to 3": {"labels": np.array([[1, 4]])},
    "label is -1, expected 0 to 3": {"labels": np.array([[-1, 1]])},
    "number of blanks (0) among the labels of a sequence is 1, expected 0 to 0": {
        "labels": np.array([[1, 0]])},
    "input length is 7, expected 0 to 6": {"inputs": np.array([7])},
    "input length is -1, expected 0 to 6": {"inputs": np.array([-1])},
    "label length is 3, expected 0 to 2": {"counts": np.array([3])},
    "label length is -1, expected 0 to 2": {"counts": np.array([-1])},
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_labels_and_lengths_out_of_range_are_refused(target: str) -> None:
    exe = ag.compile(sequences((6, 1, 4, 2)), target=target)
    feeds = {"logits": np.zeros((6, 1, 4)), "labels": np.array([[1, 2]]), "inputs": np.array([6]),
             "counts": np.array([2])}  # fmt: skip
    exe.run(feeds)
    exe.run(feeds | {"labels": np.array([[1, 99]]), "counts": np.array([1])})
    for message, wrong in WRONG.items():
        with pytest.raises(FeedError) as error:
            exe.run(feeds | wrong)
        assert message in str(error.value)


def test_an_axis_in_the_wrong_place_is_told() -> None:
    g = Graph("ctc")
    x, labels = g.input("x", "f32[2,9,5]"), g.input("labels", "i64[2,3]")
    lengths = [g.input(n, "i64[2]") for n in "ab"]
    with pytest.raises(TypeRuleError, match=r"expected 9 rows for logits.*\n.*steps first"):
        train.ctc(g, x, labels, *lengths)
    with pytest.raises(TypeRuleError, match=r"expected \[T,N,C\] and \[N,S\]"):
        train.ctc(g, x, lengths[0], *lengths)
    with pytest.raises(TypeRuleError, match="blank is 5, expected one of 5 classes"):
        train.ctc(g, g.input("y", "f32[9,2,5]"), labels, *lengths, blank=5)


def test_alphas_have_no_gradient() -> None:
    g = Graph("ctc")
    x = g.input("x", "f64[4,1,3]")
    node = g.add(Ctc(), [x, *map(g.constant, (np.array([[1]]), np.array([4]), np.array([1])))])
    with pytest.raises(UnsupportedError, match="alphas of ctc are not supported"):
        gradients(g, node.results[1], [x])


def reader(steps: int, batch: int) -> Graph:
    """Return a network that reads a class, or none, from each step, and its loss."""
    g, random = Graph("reader"), np.random.default_rng(0)
    x = g.input("x", f"f32[{steps},{batch},6]")
    labels, counts = g.input("labels", f"i64[{batch},4]"), g.input("counts", f"i64[{batch}]")
    h = g(Tanh(), dense(g, g(Reshape((steps * batch, 6)), x), "first", 16, random))
    scores = g(Reshape((steps, batch, 5)), dense(g, h, "last", 5, random))
    g.output("scores", scores)
    g.output("loss", train.ctc(g, scores, labels, g.constant(np.full(batch, steps)), counts))
    return g


def spoken(steps: int, batch: int, seed: int) -> dict[str, Array]:
    """Return labels 1 to 4, each heard for two steps somewhere, in order, and noise."""
    random = np.random.default_rng(seed)
    x = 0.1 * random.standard_normal((steps, batch, 6))
    labels, counts = np.zeros((batch, 4), np.int64), random.integers(1, 5, batch)
    for n, count in enumerate(counts):
        labels[n, :count] = random.integers(1, 5, count)
        at = 3 * np.sort(random.permutation(steps // 3)[:count])
        for t, label in zip(at, labels[n], strict=False):
            x[t : t + 2, n, label] += 1
    return {"x": x.astype(np.float32), "labels": labels, "counts": counts}


def read(scores: Array) -> list[list[int]]:
    """Return what the best class of each step reads as."""
    return [
        [int(c) for i, c in enumerate(p) if c and (not i or c != p[i - 1])]
        for p in scores.argmax(2).T
    ]


def test_labels_are_learned_without_a_word_on_when_each_comes() -> None:
    t = train.Trainer(reader(15, 16), "loss", train.Adam(2e-2), threads=1)
    t.fit([spoken(15, 16, seed) for seed in range(30)], epochs=5)
    held = spoken(15, 16, 99)

    expected = [list(x[:n]) for x, n in zip(held["labels"], held["counts"], strict=True)]
    assert read(t.session.run(held | {"learning rate": np.array(0.0)})["scores"]) == expected


def test_what_went_wrong_is_said_of_the_labels_not_of_states_that_no_path_reaches() -> None:
    g = sequences((4, 1, 3, 2))
    w = g.input("w", "f64[]")
    g.output("other", g(Log(), w))
    feeds = {"logits": np.zeros((4, 1, 3)), "labels": np.array([[2, 2]]), "w": np.array(-1.0)}
    some, none = ({"inputs": np.array([n]), "counts": np.array([2])} for n in (4, 2))

    assert first_infinite(g, feeds | some) == ", first in log"
    assert first_infinite(g, feeds | none) == ", first in ctc"
