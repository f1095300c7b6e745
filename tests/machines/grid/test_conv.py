"""Convolutions on a grid: products whose right operand is the windows of images."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from test_matmul import DTYPES

from alpenglow.ir.graph import Graph
from alpenglow.machines.grid.templates.matmul import SHORT
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from grid_epilogues import EXACT, FOLLOWING, followed
from grid_programs import GRID, SMALL, feeds_of, run
from grid_runs import assert_alike


def drawn(seed: int) -> tuple[Callable[[], Graph], str]:
    """Return what builds a convolution of 1 to 3 axes, and what follows it."""
    numbers = random.Random(seed)
    spatial = numbers.choice([1, 2, 2, 2, 3])
    taps = [numbers.randint(1, 4 - spatial // 2 - spatial // 3) for _ in range(spatial)]
    if numbers.random() < 0.25:
        taps = [1] * spatial
    strides = tuple(numbers.choice([1, 1, 2]) for _ in taps)
    dilations = tuple(numbers.choice([1, 1, 2]) for _ in taps)
    pads = tuple(numbers.choice([0, 0, 1, 2]) for _ in range(2 * spatial))
    group = numbers.choice([1, 1, 2])
    per_in, per_out = numbers.choice([3, 8, 16, 17]), numbers.choice([9, 12, 17])
    if per_in * math.prod(taps) < SHORT:
        per_in = SHORT
    least = {1: 11, 2: 4, 3: 3}[spatial]
    out = [numbers.randint(least, least + 2) for _ in taps]
    extents = [
        max(1, (y - 1) * s + (t - 1) * d + 1 - a - b)
        for y, s, t, d, a, b in zip(
            out, strides, taps, dilations, pads[:spatial], pads[spatial:], strict=True
        )
    ]
    n = numbers.choice([1, 1, 2])
    left, right = numbers.choice(DTYPES)
    how = numbers.choice(FOLLOWING if left == "f32" else ("none", "relu"))
    op = Conv(strides, pads, dilations, group)

    def build() -> Graph:
        rng = random.Random(seed)
        g = Graph("convolution")
        shape = (n, group * per_in, *extents)
        match rng.choice(["plain", "plain", "channels last", "sliced"]):
            case "channels last":
                last = ",".join(map(str, (n, *extents, group * per_in)))
                perm = (0, 1 + spatial, *range(1, 1 + spatial))
                x = g(Transpose(perm), g.input("x", f"{left}[{last}]"))
            case "sliced":
                whole = ",".join(map(str, (n, *[d + 1 for d in shape[1:]])))
                x = g.input("x", f"{left}[{whole}]")
                x = g(Slice((0,) * len(shape), shape, (1,) * len(shape)), x)
            case _:
                x = g.input("x", f"{left}[{','.join(map(str, shape))}]")
        w = g.input("w", f"{right}[{','.join(map(str, (group * per_out, per_in, *taps)))}]")
        bias = []
        if rng.random() < 0.4:
            dtype = "i32" if left in ("u8", "i8") else left
            bias = [g.input("b", f"{dtype}[{group * per_out}]")]
        g.output("y", followed(g, g(op, x, w, *bias), how, rng))
        return g

    return build, how


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(6)
def test_convolutions_of_any_shape(seed: int) -> None:
    build, how = drawn(seed)
    ran = run(build, feeds_of(build, seed), SMALL if seed % 3 == 0 else GRID)

    assert len(ran.cases) == 1
    assert_alike(ran, exact=how in EXACT and how != "bias")


@pytest.mark.parametrize("op, x, w", [
    (Conv(group=16), "f32[1,16,5,5]", "f32[16,1,3,3]"),
    (Conv(), "f32[1,4,5,5]", "f32[4,4,3,3]"),
    (Conv(), "f32[1,16,5,5]", "f32[16,16,4,5]"),
    (Conv(), "f32[1,0,5,5]", "f32[16,0,3,3]"),
])  # fmt: skip
def test_what_leaves_a_tile_mostly_empty_is_a_loop(op: Conv, x: str, w: str) -> None:
    def build() -> Graph:
        g = Graph("convolution")
        g.output("y", g(op, g.input("x", x), g.input("w", w)))
        return g

    assert run(build, feeds_of(build, 0)).cases == []


def test_a_stretched_image_is_read_once() -> None:
    def build() -> Graph:
        g = Graph("convolution")
        x = g(Broadcast((1, 16, 6, 6)), g.input("x", "f32[1,16,1,6]"))
        g.output("y", g(Conv(pads=(1, 1, 1, 1)), x, g.input("w", "f32[16,16,3,3]")))
        return g

    ran = run(build, feeds_of(build, 0))

    assert len(ran.cases) == 1
    assert ran.cases[0].operands["x0"].size == 16 * 6
    assert_alike(ran, exact=True)


def test_sums_of_random_numbers_are_near() -> None:
    def build() -> Graph:
        g = Graph("convolution")
        x, w = g.input("x", "f32[1,32,6,6]"), g.input("w", "f32[16,32,3,3]")
        g.output("y", g(Conv(pads=(1, 1, 1, 1)), x, w))
        return g

    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(x.shape, np.float32)
             for name, x in feeds_of(build, 0).items()}  # fmt: skip

    # Products are added in another order: 288 roundings of sums of about 17.
    assert_alike(run(build, feeds), exact=False)
