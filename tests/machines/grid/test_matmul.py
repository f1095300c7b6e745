"""Matrix products on a grid: tiles in shared memory, beside what the interpreter makes."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.target import Target
from alpenglow.machines.grid.templates.tile import SHAPES, shape_for
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from grid_epilogues import EXACT, FOLLOWING, followed
from grid_programs import GRID, SMALL, feeds_of, run
from grid_runs import assert_alike

DTYPES = [("f32", "f32")] * 4 + [
    ("f16", "f16"), ("bf16", "bf16"), ("u8", "i8"), ("i8", "i8"),
]  # fmt: skip
"""Of doubles the evaluator has no fast multiply-add: they have tests of their own."""


def operand(g: Graph, name: str, dtype: str, shape: tuple[int, ...], rng: random.Random) -> Value:
    """Return an operand as it is, turned over, stretched along its batch, or of every other row."""
    *batch, rows, columns = shape
    match rng.choice(["plain", "plain", "turned", "stretched", "sliced"]):
        case "turned":
            rank = len(shape)
            x = g.input(name, f"{dtype}[{','.join(map(str, (*batch, columns, rows)))}]")
            return g(Transpose((*range(rank - 2), rank - 1, rank - 2)), x)
        case "stretched" if batch:
            return g(Broadcast(shape), g.input(name, f"{dtype}[{rows},{columns}]"))
        case "sliced":
            whole = (*batch, 2 * rows, columns + 1)
            x = g.input(name, f"{dtype}[{','.join(map(str, whole))}]")
            return g(Slice((*[0] * len(batch), 1, 1), shape, (*[1] * len(batch), 2, 1)), x)
    return g.input(name, f"{dtype}[{','.join(map(str, shape))}]")


def drawn(seed: int) -> tuple[Callable[[], Graph], str]:
    """Return what builds a product, and what follows it."""
    numbers = random.Random(seed)
    rows, inner, columns = (numbers.choice([9, 16, 17, 20, 33]) for _ in range(3))
    return product(seed, numbers, rows, inner, columns)


def drawn_skinny(seed: int) -> tuple[Callable[[], Graph], str]:
    """Return what builds a product with few rows or columns, and what follows it."""
    numbers = random.Random(seed)
    inner, few, many = numbers.randint(32, 99), numbers.randint(1, 8), [1, 7, 33, 70]
    rows, columns = numbers.sample([few, numbers.choice(many)], 2)
    return product(seed, numbers, rows, inner, columns)


def product(
    seed: int, numbers: random.Random, rows: int, inner: int, columns: int
) -> tuple[Callable[[], Graph], str]:
    batch = numbers.choice([(), (), (2,), (2, 1)])
    left, right = numbers.choice(DTYPES)
    how = numbers.choice(FOLLOWING if left == "f32" else ("none", "relu"))

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("product")
        x = operand(g, "x", left, (*batch, rows, inner), rng)
        y = operand(g, "y", right, (*batch, inner, columns), rng)
        g.output("z", followed(g, g(MatMul(), x, y), how, rng))
        return g

    return build, how


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(6)
def test_products_of_any_shape(seed: int) -> None:
    build, how = drawn(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=how in EXACT)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(7)
def test_products_with_few_rows_or_columns(seed: int) -> None:
    build, how = drawn_skinny(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=how in EXACT)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sampled(2)
def test_each_tile_computes_products_that_it_does_not_divide(
    shape: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alpenglow.machines.grid.templates.tile.SHAPES", (shape,))

    def build() -> Graph:
        g = Graph("product")
        x, y = g.input("x", "f32[2,37,21]"), g.input("y", "f32[2,21,52]")
        g.output("z", followed(g, g(MatMul(), x, y), "gelu", random.Random(0)))
        g.output("u", followed(g, g(MatMul(), x, y), "bias", random.Random(0)))
        return g

    ran = run(build, feeds_of(build, 0))

    assert len(ran.cases) == 2
    assert_alike(ran, exact=False)


def test_doubles_are_multiplied_in_smaller_tiles() -> None:
    def build() -> Graph:
        g = Graph("product")
        g.output("z", g(MatMul(), g.input("x", "f64[9,8]"), g.input("y", "f64[8,9]")))
        return g

    ran = run(build, feeds_of(build, 0))
    shape = shape_for(1024, 1024, 1, "f64", GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=True)
    assert shape is not None and shape.wide == 4


def test_sums_of_random_numbers_are_as_good_as_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((20, 700), np.float32),
             "y": rng.standard_normal((700, 30), np.float32)}  # fmt: skip

    def build() -> Graph:
        g = Graph("product")
        g.output("z", g(MatMul(), g.input("x", "f32[20,700]"), g.input("y", "f32[700,30]")))
        return g

    exact = feeds["x"].astype(np.float64) @ feeds["y"].astype(np.float64)
    (z,) = run(build, feeds).outputs.values()

    # 700 roundings of sums of about 26, half a unit each, most of which cancel.
    np.testing.assert_allclose(z, exact, atol=1e-4)


def test_larger_products_have_larger_tiles() -> None:
    def rows(m: int, n: int, units: int = 1) -> int:
        facts = GRID.facts.__class__(group=256, units=units)
        shape = shape_for(m, n, 1, "f32", Target("t", "interpreter", facts))
        assert shape is not None
        return shape.rows

    assert rows(1024, 1024) == 128
    assert rows(1024, 1024, units=128) < 128
    assert rows(16, 1024) == 16
