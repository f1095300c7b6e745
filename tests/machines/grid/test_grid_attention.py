"""Attention on a grid: two products with a softmax between, whose scores are never in memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from alpenglow.ir.graph import Graph, Value
from alpenglow.machines.grid.templates import attention
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Transpose
from grid_epilogues import FOLLOWING, followed
from grid_programs import GRID, SMALL, feeds_of, run
from grid_runs import assert_alike


@pytest.fixture(autouse=True)
def few_keys_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the template take small cases."""
    monkeypatch.setattr(attention, "LEAST", 3)


def drawn(seed: int) -> tuple[Callable[[], Graph], str]:
    """Return what builds attention of any extents, and what follows it."""
    numbers = random.Random(seed)
    batch = numbers.choice([(), (2,), (1, 2)])
    rows, inner = numbers.choice([16, 17, 33]), numbers.choice([8, 9, 20])
    count, features = numbers.choice([3, 64, 70, 130]), numbers.choice([1, 9, 16, 24, 40, 100])
    zeros = numbers.choice(["", "masked", "undefined"])
    scaled, masked, turned = (numbers.random() < 0.5 for _ in range(3))
    how = numbers.choice(FOLLOWING)

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("attention")

        def given(name: str, *shape: int) -> Value:
            return g.input(name, f"f32[{','.join(map(str, shape))}]")

        keys = given("k", *batch, count, inner) if turned else given("k", *batch, inner, count)
        if turned:
            rank = len(batch)
            keys = g(Transpose((*range(rank), rank + 1, rank)), keys)
        scores = g(MatMul(), given("q", *batch, rows, inner), keys)
        shape = (*batch, rows, count)
        if scaled:
            scores = g(Mul(), scores, g(Broadcast(shape), g.constant(np.float32(0.125))))
        if masked:
            mask = given("m", *[1] * len(batch), rows, count)
            scores = g(Add(), scores, g(Broadcast(shape), mask))
        shares = g(Softmax(-1, zeros), scores)
        y = g(MatMul(), shares, given("v", *batch, count, features))
        g.output("y", followed(g, y, how, rng))
        return g

    return build, how


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(4)
def test_attention_of_any_shape(seed: int) -> None:
    build, _ = drawn(seed)
    feeds = feeds_of(build, seed)
    if "m" in feeds:
        hidden = np.random.default_rng(seed).random(feeds["m"].shape) < 0.3
        feeds["m"] = np.where(hidden, np.float32(-np.inf), feeds["m"])
        feeds["m"][..., 0] = 0  # no row is hidden
    ran = run(build, feeds)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=False)


@pytest.mark.parametrize("zeros", ["", "masked", "undefined"])
def test_rows_that_see_nothing_are_as_asked(zeros: str) -> None:
    def build() -> Graph:
        g = Graph("attention")
        q, k, v = g.input("q", "f32[17,8]"), g.input("k", "f32[8,70]"), g.input("v", "f32[70,8]")
        scores = g(Add(), g(MatMul(), q, k), g.input("m", "f32[17,70]"))
        g.output("y", g(MatMul(), g(Softmax(1, zeros), scores), v))
        return g

    feeds = feeds_of(build, 0)
    feeds["m"] = feeds["m"].copy()
    feeds["m"][0], feeds["m"][1, :66], feeds["m"][2, 5] = -np.inf, -np.inf, np.nan
    ran = run(build, feeds)

    assert len(ran.cases) == 1
    np.testing.assert_allclose(ran.outputs["y"], ran.expected["y"], atol=1e-5)


def test_what_is_not_taken_is_several_kernels() -> None:
    build, _ = drawn(0)

    assert len(run(build, feeds_of(build, 0), SMALL).cases) > 1


def test_few_keys_have_their_scores_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LEAST", 512)
    build, _ = drawn(0)

    assert len(run(build, feeds_of(build, 0), GRID).cases) > 1
