"""Pooling by large windows: along one axis after the other, sharing what windows have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.types import Array
from alpenglow.ops.window.pooling import AveragePool, MaxPool

RNG = np.random.default_rng(0)

POOLS: list[tuple[Any, ...]] = [
    ((13, 13), (1, 1), (6, 6, 6, 6), (1, 1), False),
    ((5, 9), (2, 1), (0, 4, 3, 1), (1, 2), False),
    ((31, 4), (1, 3), (15, 0, 15, 2), (1, 1), True),
    ((3, 7), (3, 5), (1, 6, 2, 0), (3, 1), True),
]
"""Windows, steps, padding, dilations, and whether windows hang over the end."""


NUMPY = {"f32": "f4", "f64": "f8", "f16": "f2", "i8": "i1", "u8": "u1"}


def numbers(dtype: str, *shape: int) -> Array:
    return (RNG.standard_normal(shape) * 30).astype(dtype)


CASES = [
    *((pool, "f32", i % 2 == 0) for i, pool in enumerate(POOLS)),
    (POOLS[1], "f16", True),
    (POOLS[2], "i8", False),
    (POOLS[3], "u8", True),
    (POOLS[3], "f64", False),
]


@pytest.mark.parametrize(("pool", "dtype", "open_"), CASES)
@pytest.mark.sampled(4)
def test_pools_of_large_windows_are_what_the_reference_says(
    pool: tuple[Any, ...], dtype: str, open_: bool
) -> None:
    x = numbers(NUMPY[dtype], 2, 3, 33, 37)
    ops: list[MaxPool | AveragePool] = [MaxPool(*pool)]
    if dtype[0] == "f":
        x[0, 1, 8, 9], x[1, 0, 3] = np.nan, np.inf
        ops.append(replace(AveragePool(*pool), count_pads=pool[2][0] > 1))
    for op in ops:
        g = ag.Graph("pool")
        g.output("y", g(op, g.input("x", f"{dtype}[2,3,{'h,w' if open_ else '33,37'}]")))
        exe = ag.compile(g)
        for image in [x, x[:, :, 2:, 5:]] if open_ else [x]:
            # Means are rounded once along each axis, and few of as many elements.
            tolerance = 0 if isinstance(op, MaxPool) else 4 * float(np.finfo(x.dtype).eps)
            expected = op.reference(image)

            np.testing.assert_allclose(exe(image), expected, tolerance, 30 * tolerance)


@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.parametrize("blocked", [False, True])
def test_the_largest_of_three_axes_or_of_one(dtype: str, blocked: bool) -> None:
    for spatial, kernel in [((9, 8, 21), (3, 5, 4)), ((1500,), (101,))]:
        pads = tuple(k // 2 for k in kernel) * 2
        ones = (1,) * len(kernel)
        shape = (1, 2, *spatial, 16) if blocked else (1, 32, *spatial)
        type_ = f"{dtype}[{','.join(map(str, shape))}]"
        if blocked:
            type_ = type_.replace("[1,2,", "[1,32/16,")
        g = ag.Graph("pool")
        g.output("y", g(MaxPool(kernel, ones, pads, ones), g.input("x", type_)))
        x = numbers(NUMPY[dtype], *shape)
        (expected,) = evaluate(g, {"x": x}).values()

        np.testing.assert_array_equal(ag.compile(g)(x), expected)


def test_strict_means_are_summed_from_first_to_last() -> None:
    g = ag.Graph("pool")
    g.output("y", g(AveragePool((4, 10), (1, 1), (0,) * 4, (1, 1)), g.input("x", "f32[1,1,4,10]")))
    x = numbers("f4", 1, 1, 4, 10)
    total = np.float32(0)
    for number in x.ravel():
        total += number

    assert ag.compile(g, options=ag.Options(numerics="strict"))(x).item() == total / np.float32(40)
