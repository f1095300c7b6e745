"""Layers of graphs that are built by hand: what they compute and begin with."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow import train
from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.gather import Gather

Array = NDArray[Any]
Layer = Callable[[Graph, Value], Value]


def layered(layer: Layer, type_: str) -> Graph:
    g = ag.Graph("layered")
    g.output("y", layer(g, g.input("x", type_)))
    return g


def called(g: Graph, x: Array, **others: Array) -> dict[str, Array]:
    """Return the outputs of a graph, in which variables hold others than they begin with."""
    held = {name: begun(g, name) for name in g.initial}
    return dict(evaluate(g, {"x": x, **held, **others}))


def begun(g: Graph, name: str) -> Array:
    """Return what a variable holds at first."""
    array = g.initial[name].array
    assert array is not None
    return array


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 7), (2, 1, 5, 7), (7,)])
@pytest.mark.parametrize("bias", [True, False])
def test_dense_is_a_product_by_the_last_axis(shape: tuple[int, ...], bias: bool) -> None:
    extents = ",".join(map(str, shape))
    g = layered(lambda g, x: train.dense(g, x, 4, "d", bias=bias), f"f64[{extents}]")
    w, b, x = drawn(7, 4), drawn(4, seed=1), drawn(*shape, seed=2)
    others = {"d.weight": w, **({"d.bias": b} if bias else {})}

    assert list(g.initial) == list(others)
    np.testing.assert_allclose(called(g, x, **others)["y"], x @ w + (b if bias else 0), 1e-12)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", [None, 0, 2])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("axes", [1, 2])
def test_conv_is_a_sum_over_windows(axes: int, kernel: int, pad: int | None, stride: int) -> None:
    g = layered(
        lambda g, x: train.conv(g, x, 4, kernel, "c", stride, pad),
        f"f64[2,3,{','.join(['9'] * axes)}]",
    )
    w, b = drawn(4, 3, *[kernel] * axes), drawn(4, seed=1)
    x = drawn(2, 3, *[9] * axes, seed=2)
    margin = kernel // 2 if pad is None else pad
    padded = np.pad(x, [(0, 0), (0, 0), *[(margin, margin)] * axes])
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, [kernel] * axes, tuple(range(2, 2 + axes))
    )
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * axes)]
    k = "uv"[:axes]
    expected = np.einsum(f"nc...{k},oc{k}->no...", windows, w) + b.reshape(4, *[1] * axes)
    y = called(g, x, **{"c.weight": w, "c.bias": b})["y"]

    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, 1e-10, 1e-10)


def test_batch_norm_takes_the_batch_and_keeps_what_is_used_later() -> None:
    g = layered(lambda g, x: train.batch_norm(g, x, "n", momentum=0.8), "f64[6,3,4]")
    x, scale, bias = drawn(6, 3, 4) * 2 + 1, drawn(3, seed=1), drawn(3, seed=2)
    outs = called(g, x, **{"n.weight": scale, "n.bias": bias})
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    expected = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-5)

    np.testing.assert_allclose(outs["y"], expected * scale[:, None] + bias[:, None], 1e-9, 1e-9)
    np.testing.assert_allclose(outs["n.running_mean"], 0.2 * mean, 1e-12)
    np.testing.assert_allclose(outs["n.running_var"], 0.8 + 0.2 * variance, 1e-12)


def test_layer_norm_is_along_the_last_axis() -> None:
    g = layered(lambda g, x: train.layer_norm(g, x, "n"), "f64[2,3,8]")
    x, scale, bias = drawn(2, 3, 8) + 1, drawn(8, seed=1), drawn(8, seed=2)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    outs = called(g, x, **{"n.weight": scale, "n.bias": bias})

    np.testing.assert_allclose(outs["y"], expected * scale + bias, 1e-9, 1e-9)


def test_an_embedding_is_rows_of_a_table() -> None:
    g = layered(lambda g, x: train.embedding(g, x, 5, 3, "e"), "i64[2,4]")
    rows, table = np.array([[0, 4, 1, 1], [2, 3, 0, 4]]), drawn(5, 3).astype(np.float32)

    np.testing.assert_array_equal(called(g, rows, **{"e.weight": table})["y"], table[rows])
    assert isinstance(next(iter(g.nodes)).op, Gather)


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, None, 0), (3, 2, 1), (2, 1, 0)])
def test_max_pool_takes_the_largest(kernel: int, stride: int | None, pad: int) -> None:
    g = layered(lambda g, x: train.max_pool(g, x, kernel, stride, pad), "f64[2,3,8,8]")
    x, step = drawn(2, 3, 8, 8) - 9, kernel if stride is None else stride
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
    expected = windows[:, :, ::step, ::step].max((4, 5))

    np.testing.assert_array_equal(called(g, x)["y"], expected)


def test_weights_begin_with_the_spread_that_is_asked_for() -> None:
    g = ag.Graph("wide")
    x, y = g.input("x", "f32[2,400]"), g.input("y", "f32[2,40,6,6]")
    i = g.input("i", "i64[2]")
    layers: dict[str, Layer] = {
        "d": lambda g, _: train.dense(g, x, 300, "d", gain=2.0),
        "c": lambda g, _: train.conv(g, y, 300, 3, "c"),
        "e": lambda g, _: train.embedding(g, i, 300, 200, "e", spread=0.5),
    }
    for name, layer in layers.items():
        g.output(name, layer(g, x))
    spread = {name: float(begun(g, f"{name}.weight").std()) for name in layers}

    assert spread == pytest.approx({"d": 2 / 20, "c": 1 / np.sqrt(360), "e": 0.5}, rel=0.02)
    assert all(abs(begun(g, f"{name}.weight").mean()) < 0.003 for name in layers)


def test_weights_are_drawn_by_name_and_seed_alone() -> None:
    def weight(name: str, seed: int, others: int) -> Array:
        g = ag.Graph("some")
        x = g.input("x", "f32[2,8]")
        for k in range(others):
            train.dense(g, x, 3, f"other{k}", seed)
        train.dense(g, x, 8, name, seed)
        return begun(g, f"{name}.weight")

    np.testing.assert_array_equal(weight("a", 1, 0), weight("a", 1, 3))
    assert not np.array_equal(weight("a", 1, 0), weight("b", 1, 0))
    assert not np.array_equal(weight("a", 1, 0), weight("a", 2, 0))


WRONG: dict[str, tuple[Layer, str, str]] = {
    "an open width": (
        lambda g, x: train.dense(g, x, 3, "d"), "f32[2,K]", "a fixed dimension of at least 1"),
    "integers": (lambda g, x: train.dense(g, x, 3, "d"), "i64[2,4]", "dense 'd': x is i64[2,4]"),
    "a scalar": (lambda g, x: train.dense(g, x, 3, "d"), "f32[]", "axis -1"),
    "no outputs": (lambda g, x: train.dense(g, x, 0, "d"), "f32[2,4]", "is 0, expected 1 or more"),
    "no spatial axis": (
        lambda g, x: train.conv(g, x, 3, 3, "c"), "f32[2,4]", "expected [N, C, …]"),
    "no pixels": (lambda g, x: train.conv(g, x, 3, 0, "c"), "f32[2,4,5]", "is 0, expected"),
    "channels that are open": (
        lambda g, x: train.conv(g, x, 3, 3, "c"), "f32[2,C,5]", "a fixed dimension of at least 1"),
    "no channels": (lambda g, x: train.batch_norm(g, x, "n"), "f32[4]", "axis 1"),
    "nothing to normalise": (lambda g, x: train.layer_norm(g, x, "n"), "f32[2,0]", "axis -1"),
    "no window": (lambda g, x: train.max_pool(g, x, 2), "f32[2,4]", "expected [N, C, …]"),
    "an empty table": (lambda g, x: train.embedding(g, x, 0, 3, "e"), "i64[2]", "is 0, expected"),
    "a name that is taken": (
        lambda g, x: train.dense(g, train.dense(g, x, 3, "d"), 3, "d"), "f32[2,3]", "already has"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_told(what: str) -> None:
    layer, type_, text = WRONG[what]
    with pytest.raises(TypeRuleError, match=re.escape(text)):
        layered(layer, type_)
