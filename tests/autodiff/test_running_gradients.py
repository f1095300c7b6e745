"""Gradients of what goes along an axis step by step: running products, recurrences, states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import alpenglow as ag
import loop_forms
from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, type_of
from alpenglow.ops.reduction.scan import CumProd, LinearScan
from alpenglow.ops.sequence.linear_attention import LinearAttention, LinearAttentionGradient

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
@pytest.mark.sampled(6)
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


def attending(steps: int, heads: int, decay: int, beta: int) -> list[Array | None]:
    """Return operands of linear attention for two states; decay and beta have so many elements."""
    random = np.random.default_rng(3)
    q, k = random.uniform(-1, 1, (2, steps, heads, 5)), random.uniform(-0.5, 0.5, (2, steps, 2, 5))
    v, state = random.uniform(-1, 1, (2, steps, 2, 19)), random.uniform(-1, 1, (2, 2, 5, 19))
    return [
        q, k, v, state, -random.random((2, steps, 2, decay)) if decay else None,
        random.random((2, steps, beta)) if beta else None,
    ]  # fmt: skip


def derived(op: LinearAttention, xs: list[Array | None], which: tuple[int, ...]) -> Graph:
    """Return a graph of some results, of what they are weighted by, and of the gradients."""
    g, random = Graph("attending"), np.random.default_rng(4)
    values = [None if x is None else g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
    results = g.add(op, values).results
    given = [v for v in values if v is not None]
    for i in which:
        y = results[i]
        weights = g.constant(random.uniform(-1, 1, y.type.extents).astype(y.type.numpy))
        g.output(f"y{i}", y)
        g.output(f"weights{i}", weights)
        for v, dv in zip(given, gradients(g, y, given, dy=weights), strict=True):
            g.output(f"d{v.name}_{i}", dv)
    g.prune()
    return g


@pytest.mark.sampled(3)
@pytest.mark.parametrize("decay", [0, 1, 5])
@pytest.mark.parametrize("beta", [0, 1, 2])
@pytest.mark.parametrize(("steps", "heads"), [(3, 2), (70, 4), (64, 2)])
def test_linear_attention_has_the_gradients_that_differences_say(
    steps: int, heads: int, beta: int, decay: int
) -> None:
    xs = attending(steps, heads, decay, beta)
    feeds = {f"x{i}": x for i, x in enumerate(xs) if x is not None}
    g, random = derived(LinearAttention(0.5), xs, (0, 1)), np.random.default_rng(5)
    found, exe = evaluate(g, feeds), ag.compile(g, threads=2)
    compiled = exe.run(feeds)

    assert all(entry.kernel for entry in exe.artifact.table)
    for name, x in feeds.items():
        way = random.standard_normal(x.shape)
        ends = [evaluate(g, feeds | {name: x + s * way}) for s in (1e-6, -1e-6)]
        for i in (0, 1):
            change = (ends[0][f"y{i}"] - ends[1][f"y{i}"]) * found[f"weights{i}"]
            slope = found[f"d{name}_{i}"]

            np.testing.assert_allclose((slope * way).sum(), change.sum() / 2e-6, 1e-5, 1e-6)
            np.testing.assert_allclose(compiled[f"d{name}_{i}"], slope, 1e-9, 1e-9)


def test_linear_attention_of_halves_has_gradients_of_halves() -> None:
    xs = [None if x is None else x.astype(np.float16) for x in attending(9, 4, 5, 2)]
    assert xs[3] is not None
    xs[3] = xs[3].astype(np.float32)
    g = derived(LinearAttention(0.5), xs, (0,))
    feeds = {f"x{i}": x for i, x in enumerate(xs) if x is not None}
    expected, actual = evaluate(g, feeds), ag.compile(g, threads=1).run(feeds)
    for name, x in feeds.items():
        dx = actual[f"d{name}_0"]

        assert dx.dtype == x.dtype and np.isfinite(dx).all()
        np.testing.assert_allclose(dx, expected[f"d{name}_0"], 1e-2, 1e-2)


def test_linear_attention_of_open_length_is_differentiated() -> None:
    g = Graph("open")
    q, k = g.input("q", "f32[1,T,2,3]"), g.input("k", "f32[1,T,1,3]")
    v, state = g.input("v", "f32[1,T,1,17]"), g.input("state", "f32[1,1,3,17]")
    beta = g.input("beta", "f32[1,T,1]")
    y = g.add(LinearAttention(0.5), [q, k, v, state, None, beta]).results[0]
    for name, dx in zip("qkvsb", gradients(g, y, [q, k, v, state, beta]), strict=True):
        g.output(f"d{name}", dx)
    g.prune()
    exe, random = ag.compile(g, threads=1), np.random.default_rng(6)
    for steps in (1, 31, 32, 75):
        shapes = {n: x.type.bind({"T": steps}).extents for n, x in g.inputs.items()}
        feeds = {n: random.uniform(-0.5, 0.5, s).astype(np.float32) for n, s in shapes.items()}
        expected = evaluate(g.bind({"T": steps}), feeds)
        for name, dx in exe.run(feeds).items():
            np.testing.assert_allclose(dx, expected[name], 1e-3, 1e-4)


@pytest.mark.rest
def test_steps_back_through_any_extents_agree_with_the_reference() -> None:
    for op, *given in LinearAttentionGradient.examples():
        loop_forms.check(op, *given, tolerance=1e-4)
