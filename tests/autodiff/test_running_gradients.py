"""Gradients of what goes along an axis element by element: running products, recurrences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, type_of
from alpenglow.ops.scan import CumProd, LinearScan

WAYS = list(product((False, True), repeat=2))
"""exclusive and reverse."""


def slopes(make: Callable[..., Value], weights: Array, *xs: Array) -> dict[str, Array]:
    """Return the gradients of a weighted result by all operands, evaluated and compiled alike."""
    g = Graph("slopes")
    values = [g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
    y = make(g, *values)
    for v, dv in zip(values, gradients(g, y, values, dy=g.constant(weights)), strict=True):
        g.output(f"d{v.name}", dv)
    g.prune()
    feeds = {f"x{i}": x for i, x in enumerate(xs)}
    expected, exe = evaluate(g, feeds), ag.compile(g, threads=1)
    actual = exe.run(feeds)
    assert all(entry.kernel for entry in exe.artifact.table)
    for name, value in expected.items():
        rough = 2e-3 if value.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(actual[name], value, rough, rough / 10)
    return expected


def factors_around(x: Array, k: int, exclusive: bool, reverse: bool) -> Array:
    """Return the slopes of all running products of x by element k, each product written out."""
    order = range(len(x))[::-1] if reverse else range(len(x))
    slope = np.zeros_like(x)
    for place, i in enumerate(order):
        among = list(order)[: place + (not exclusive)]
        slope[i] = np.prod([x[j] for j in among if j != k]) if k in among else 0
    return slope


@pytest.mark.parametrize(("exclusive", "reverse"), WAYS)
@pytest.mark.parametrize("zeros", [[], [2], [0, 3], [0, 1, 2, 3, 4]])
def test_zeros_do_no_harm_to_running_products(
    exclusive: bool, reverse: bool, zeros: list[int]
) -> None:
    x = np.array([3, -2, 0.5, 4, -1], np.float32)
    x[zeros] = 0
    weights = np.array([1, -1, 2, 3, -2], np.float32)
    op = CumProd(0, exclusive, reverse)
    actual = slopes(lambda g, v: g(op, v), weights, x)["dx0"]
    expected = [weights @ factors_around(x, k, exclusive, reverse) for k in range(5)]

    np.testing.assert_allclose(actual, expected, 1e-6)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (2, 5, 19)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_running_products_of_any_shape_and_type_have_gradients(
    shape: tuple[int, ...], dtype: str
) -> None:
    x = np.random.default_rng(0).uniform(-2, 2, shape).astype(dtype)
    for axis in range(len(shape)):
        for exclusive, reverse in WAYS:
            op = CumProd(axis, exclusive, reverse)
            found = slopes(lambda g, v, op=op: g(op, v), np.ones_like(x), x)

            assert found["dx0"].dtype == x.dtype and found["dx0"].shape == shape


@pytest.mark.parametrize(("exclusive", "reverse"), WAYS)
def test_compiled_gradients_of_recurrences_agree_with_evaluated_ones(
    exclusive: bool, reverse: bool
) -> None:
    random = np.random.default_rng(1)
    a, b, weights = (random.uniform(-1, 1, (3, 7, 21)).astype(np.float32) for _ in range(3))
    for axis in range(3):
        op = LinearScan(axis, exclusive, reverse)
        slopes(lambda g, x, y, op=op: g(op, x, y), weights, a, b)


@pytest.mark.parametrize("op", [CumProd(1, *way) for way in WAYS], ids=repr)
def test_running_products_are_differentiated_twice(op: CumProd) -> None:
    random = np.random.default_rng(2)
    x = random.uniform(-2, 2, (2, 5)).astype(np.float64)
    x[0, 1] = 0
    weights = random.uniform(-1, 1, (2, 5))
    way, step = random.standard_normal((2, 5)), 1e-5

    def slope(g: Graph, v: Value) -> Value:
        return gradients(g, g(op, v), [v], dy=g.constant(weights))[0]

    def value(at: Array) -> Array:
        return slopes(lambda g, v: g(op, v), weights, at)["dx0"]

    expected = ((value(x + step * way) - value(x - step * way)) * weights).sum() / (2 * step)
    actual = (slopes(slope, weights, x)["dx0"] * way).sum()

    np.testing.assert_allclose(actual, expected, 1e-6)
