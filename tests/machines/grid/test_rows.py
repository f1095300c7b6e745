"""Softmax, norms and reductions on a grid: threads that share a line, and meet in shared memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import TensorType
from alpenglow.machines.grid.templates.team import split_for
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    SumBytes,
)
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from grid_epilogues import FOLLOWING, followed
from grid_programs import GRID, SMALL, feeds_of, run
from grid_runs import assert_alike

Drawn = tuple[Callable[[], Graph], str]

LONG = [8, 9, 31, 40, 64, 100, 300]
"""Extents of lines; the last leaves a thread of 64 with several elements."""


def operand(g: Graph, dtype: str, shape: tuple[int, ...], rng: random.Random) -> Value:
    """Return x as it is, with its axes in another order, stretched, or a part of a larger one."""
    rank = len(shape)
    match rng.choice(["plain", "plain", "turned", "stretched", "sliced"]):
        case "turned":
            perm = rng.sample(range(rank), rank)
            back = tuple(perm.index(a) for a in range(rank))
            extents = [shape[a] for a in perm]
            return g(Transpose(back), g.input("x", TensorType(dtype, tuple(extents))))
        case "stretched":
            axis = rng.randrange(rank)
            thin = tuple(1 if a == axis else d for a, d in enumerate(shape))
            return g(Broadcast(shape), g.input("x", TensorType(dtype, thin)))
        case "sliced":
            whole = tuple(2 * d for d in shape)
            x = g.input("x", TensorType(dtype, whole))
            return g(Slice((0,) * rank, shape, (2,) * rank), x)
    return g.input("x", TensorType(dtype, shape))


def shape_of(numbers: random.Random, axis: int, rank: int) -> tuple[int, ...]:
    """Return extents, of which that of an axis is long."""
    return tuple(numbers.choice(LONG) if a == axis else numbers.randint(1, 5) for a in range(rank))


def drawn_softmax(seed: int) -> Drawn:
    numbers = random.Random(seed)
    rank = numbers.randint(1, 3)
    axis = numbers.randrange(rank)
    shape = shape_of(numbers, axis, rank)
    if numbers.random() < 0.3:
        shape = tuple(numbers.randint(1, 6) for _ in shape)
    dtype = numbers.choice(["f32", "f32", "f32", "f16", "bf16"])
    op = Softmax(axis, numbers.choice(["", "", "masked", "undefined"]))
    how = numbers.choice(FOLLOWING if dtype[-2:] != "16" else ("none", "relu"))

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("softmax")
        g.output("y", followed(g, g(op, operand(g, dtype, shape, rng)), how, rng))
        return g

    return build, how


def drawn_norm(seed: int) -> Drawn:
    numbers = random.Random(seed)
    rank = numbers.randint(1, 3)
    axis = numbers.randrange(rank)
    shape = shape_of(numbers, rank - 1, rank)
    dtype = numbers.choice(["f32", "f32", "f32", "f16", "bf16"])
    op = numbers.choice([LayerNorm, RMSNorm])(axis, 1e-2)
    count = numbers.randint(0, 2 if isinstance(op, LayerNorm) else 1)
    how = numbers.choice(FOLLOWING if dtype[-2:] != "16" else ("none", "relu"))

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("norm")
        x = operand(g, dtype, shape, rng)
        more = [g.input(f"s{i}", TensorType(dtype, shape[axis:])) for i in range(count)]
        g.output("y", followed(g, g(op, x, *more), how, rng))
        return g

    return build, how


def drawn_reduction(seed: int) -> Drawn:
    numbers = random.Random(seed)
    rank = numbers.randint(1, 4)
    axes = tuple(sorted(numbers.sample(range(rank), numbers.randint(1, min(rank, 3)))))
    shape = shape_of(numbers, numbers.choice(axes), rank)
    cls = numbers.choice([ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, SumBytes])
    dtypes = ["f32", "f32", "f64", "f16", "bf16", "i32", "i64", "u32", "i8", "u8"]
    if cls in (ReduceMax, ReduceMin):
        dtypes.append("bool")
    dtype = numbers.choice(["i8", "u8"] if cls is SumBytes else dtypes)
    op = cls(axes, numbers.random() < 0.5)
    how = numbers.choice(["none", "relu"] if cls is not ReduceProd else ["none"])

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("reduction")
        y = g(op, operand(g, dtype, shape, rng))
        g.output("y", followed(g, y, how if dtype in ("f32", "f64") else "none", rng))
        return g

    return build, how


def drawn_arg(seed: int) -> Drawn:
    numbers = random.Random(seed)
    rank = numbers.randint(1, 3)
    axis = numbers.randrange(rank)
    shape = shape_of(numbers, axis, rank)
    cls = numbers.choice([ArgMax, ArgMin])
    dtype = numbers.choice(["f32", "f32", "f64", "f16", "bf16", "i32", "i64", "u8"])
    op = cls(axis, numbers.random() < 0.5, numbers.random() < 0.5)

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("arg")
        g.output("y", g(op, operand(g, dtype, shape, rng)))
        return g

    return build, "none"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("drawn", [drawn_softmax, drawn_norm])
@pytest.mark.sampled(30)
def test_rows_of_any_shape(drawn: Callable[[int], Drawn], seed: int) -> None:
    build, _ = drawn(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=False)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(20)
def test_reductions_of_any_shape(seed: int) -> None:
    build, _ = drawn_reduction(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    # Sums of whole numbers are exact; products and quotients are rounded.
    assert_alike(ran, exact=False)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(14)
def test_places_of_extremes_of_any_shape(seed: int) -> None:
    build, _ = drawn_arg(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=True)


@pytest.mark.parametrize("op", [ArgMax(1), ArgMax(1, last=True), ArgMin(1), ArgMin(1, last=True)])
def test_the_first_and_the_last_nan_are_found(op: ArgMax) -> None:
    x = np.random.default_rng(0).integers(0, 3, (40, 70)).astype(np.float32)
    x[np.random.default_rng(1).random(x.shape) < 0.02] = np.nan
    x[:20][np.isnan(x[:20])] = -0.0

    def build() -> Graph:
        g = Graph("arg")
        g.output("y", g(op, g.input("x", "f32[40,70]")))
        return g

    ran = run(build, {"x": x})

    assert len(ran.cases) == 1
    assert_alike(ran, exact=True)


@pytest.mark.parametrize("zeros", ["", "masked", "undefined"])
def test_rows_without_shares_are_as_asked(zeros: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    x[0], x[1, 7], x[2, 3], x[3, 9] = -np.inf, np.nan, np.inf, -np.inf

    def build() -> Graph:
        g = Graph("softmax")
        g.output("y", g(Softmax(1, zeros), g.input("x", "f32[6,50]")))
        return g

    assert_alike(run(build, {"x": x}), exact=False)


def test_doubles_are_computed_as_such() -> None:
    def build() -> Graph:
        g = Graph("doubles")
        x = g.input("x", "f64[2,17]")
        g.output("y", g(Softmax(1), x))
        g.output("z", g(LayerNorm(1), x))
        return g

    ran = run(build, feeds_of(build, 0))

    assert len(ran.cases) == 2
    assert_alike(ran, exact=False)


def test_long_sums_are_accurate() -> None:
    x = np.random.default_rng(0).random((2, 100_000), np.float32)

    def build() -> Graph:
        g = Graph("sum")
        g.output("y", g(ReduceSum((1,), False), g.input("x", "f32[2,100000]")))
        return g

    (y,) = run(build, {"x": x}).outputs.values()

    # A few roundings of totals, however long the row is: tiers, and a tree of 256.
    np.testing.assert_allclose(y, x.astype(np.float64).sum(1), rtol=3e-7)


def test_short_lines_are_loops() -> None:
    def build() -> Graph:
        g = Graph("short")
        g.output("y", g(ReduceSum((1,)), g.input("x", "f32[40,7]")))
        g.output("z", g(ArgMax(0), g.input("z", "f32[4,40]")))
        return g

    assert run(build, feeds_of(build, 0)).cases == []


def test_groups_are_shared_by_as_many_threads_as_have_work() -> None:
    for count in (1, 5, 1000):
        for extent in (1, 7, 64, 5000):
            for along in (False, True):
                for threads in (64, 192, 256):
                    split = split_for(count, extent, along, threads)

                    assert split.threads <= threads
                    assert split.slices <= max(1, extent)
                    assert math.log2(split.threads).is_integer()
