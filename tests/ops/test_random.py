"""Random numbers: the generator, the distributions, and that no draw is merged or folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.types import Array
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.random.random import RandomNormal, RandomUniform, threefry
from onnx_node import node_model

MANY = 200_000
HALF = np.full(MANY, 0.5, np.float32)


def sample(op: RandomUniform | RandomNormal, key: tuple[int, int] = (1, 2)) -> Array:
    """Return what compiled code draws."""
    g = ag.Graph("draw")
    g.output("y", g(op, g.constant(np.array(key, np.uint32))))
    return np.asarray(ag.compile(g, threads=2)())


def made(op_type: str, opset: int, x: Array | None = None, **attributes: Any) -> Array:
    """Return what compiled code makes of a model of one random operator."""
    feeds = {} if x is None else {"x": x}
    exe = ag.compile(load(node_model(op_type, feeds, opset=opset, **attributes)))
    assert all(entry.kernel for entry in exe.artifact.table)
    return np.asarray(exe(*feeds.values()))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_generator_gives_the_published_words(
    key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]
) -> None:
    a, b, c, d = (np.array([word], np.uint32) for word in (*key, *counter))
    with np.errstate(over="ignore"):
        x, y = threefry(NUMPY, (a, b), (c, d))

    assert words == (int(x[0]), int(y[0]))


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_uniform_numbers_fill_their_range_evenly(dtype: str) -> None:
    y = sample(RandomUniform((MANY,), -1.0, 3.0, dtype)).astype(np.float64)
    shares = np.histogram(y, 16, (-1, 3))[0] / MANY

    assert y.min() >= -1
    assert y.max() <= 3
    np.testing.assert_allclose(shares, 1 / 16, atol=0.003)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_normal_numbers_have_their_moments(dtype: str) -> None:
    y = (sample(RandomNormal((MANY,), 5.0, 2.0, dtype)).astype(np.float64) - 5) / 2

    moments = [np.mean(y), np.mean(y**2), np.mean(y**3), np.mean(y**4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.06)
    np.testing.assert_allclose(np.mean(np.abs(y) > 2), 0.0455, atol=0.002)


def test_neighbours_and_keys_are_independent() -> None:
    a, b = sample(RandomNormal((MANY,)), (1, 2)), sample(RandomNormal((MANY,)), (1, 3))

    assert abs(np.corrcoef(a, b)[0, 1]) < 0.01
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.01


def test_draws_are_neither_folded_nor_merged() -> None:
    g = ag.Graph("twice")
    key = g.constant(np.array([1, 2], np.uint32))
    for name in "ab":
        g.output(name, g(RandomUniform((4,)), key))
    exe = ag.compile(g)

    assert len(exe.artifact.table) == 2


@pytest.mark.parametrize("op_type", ["RandomUniform", "RandomNormal"])
def test_a_seed_fixes_the_draw_and_no_seed_leaves_it_open(op_type: str) -> None:
    fixed = [made(op_type, 1, shape=[50], seed=3.0) for _ in range(2)]
    other = made(op_type, 1, shape=[50], seed=4.0)
    free = [made(op_type, 1, shape=[50]) for _ in range(2)]

    np.testing.assert_array_equal(fixed[0], fixed[1])
    assert (fixed[0] != other).all()
    assert (free[0] != free[1]).any()


@pytest.mark.parametrize(
    ("op_type", "attributes", "dtype"),
    [
        ("RandomUniformLike", {"low": 2.0, "high": 4.0}, "float16"),
        ("RandomNormalLike", {"mean": 3.0, "scale": 0.1, "dtype": 11}, "float64"),
    ],
)
def test_draws_take_shape_and_type_of_a_tensor(
    op_type: str, attributes: dict[str, Any], dtype: str
) -> None:
    y = made(op_type, 1, np.zeros((30, 40), np.float16), seed=1.0, **attributes)

    assert (y.dtype, y.shape) == (np.dtype(dtype), (30, 40))
    np.testing.assert_allclose(y.astype(np.float64).mean(), 3, atol=0.1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bernoulli_draws_ones_with_the_given_probability(dtype: str) -> None:
    p = np.repeat(np.array([0, 0.1, 0.5, 1], dtype), MANY // 4)
    y = made("Bernoulli", 15, p, seed=1.0)

    assert y.dtype == p.dtype
    assert set(np.unique(y)) == {0, 1}
    shares = y.astype(np.float64).reshape(4, -1).mean(axis=1)
    np.testing.assert_allclose(shares, [0, 0.1, 0.5, 1], atol=0.01)


@pytest.mark.parametrize(("code", "dtype"), [(6, "int32"), (7, "int64")])
def test_multinomial_draws_classes_as_often_as_their_weights_say(code: int, dtype: str) -> None:
    weights = np.array([[1, 2, 0, 5], [3, 0, 0, 1]], np.float32)
    with np.errstate(divide="ignore"):
        x = np.log(weights) + 7
    y = made("Multinomial", 7, x, sample_size=MANY, dtype=code, seed=1.0)
    shares = np.stack([np.bincount(row, minlength=4) for row in y]) / MANY

    assert (y.dtype, y.shape) == (np.dtype(dtype), (2, MANY))
    np.testing.assert_allclose(shares, weights / weights.sum(axis=1, keepdims=True), atol=0.005)


NAMES = ("~key0", "random_key0")


def drawing(extent: int | str) -> onnx.ModelProto:
    """Return a model that draws numbers, and then adds two inputs to them."""
    x, y = (helper.make_tensor_value_info(n, 1, [extent]) for n in NAMES)
    nodes = [
        helper.make_node("RandomUniform", [], ["drawn"], shape=[1]),
        helper.make_node("Add", NAMES, ["sum"]),
        helper.make_node("Add", ["drawn", "sum"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "drawing", [x, y], [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("extent", [4, "N"])
def test_callers_fill_inputs_whatever_their_names_begin_with(
    extent: int | str, tmp_path: Path
) -> None:
    feeds = {"~key0": np.float32([1, 2, 3, 4]), "random_key0": np.float32([10, 20, 30, 40])}
    exe = ag.compile(load(drawing(extent)))
    exe.run(feeds)
    exe.save(tmp_path / "drawing.ago")

    for each in (exe, ag.open(tmp_path / "drawing.ago")):
        first, second = each.run(feeds)["y"], each.run(feeds)["y"]
        drawn = first - np.float32([11, 22, 33, 44])
        assert tuple(each.inputs) == NAMES
        assert ((drawn >= 0) & (drawn <= 1)).all()
        assert (first != second).any()


def test_the_interpreter_draws_the_same_numbers() -> None:
    model = node_model("Bernoulli", {"x": HALF}, opset=15, seed=9.0, dtype=9)

    np.testing.assert_array_equal(
        evaluate(load(model), {"x": HALF})["y"], made("Bernoulli", 15, HALF, seed=9.0, dtype=9)
    )
