"""Products of computed matrices around the borders of tiles and vectors, in f32 and f64."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.contraction import MatMul, turned
from fuzz import guard

SHAPES = ((1, 1, 1), (7, 9, 17), (13, 33, 8), (2, 64, 31), (29, 5, 65), (3, 70, 2), (40, 16, 5))
"""Rows, inner extents and columns."""


def product(
    dtype: str, x: tuple[object, ...], y: tuple[object, ...], turn_x: bool, turn_y: bool
) -> ag.Graph:
    g = ag.Graph("product")
    left = g.input("x", f"{dtype}[{','.join(map(str, x))}]")
    right = g.input("y", f"{dtype}[{','.join(map(str, y))}]")
    g.output(
        "z", g(MatMul(), turned(g, left) if turn_x else left, turned(g, right) if turn_y else right)
    )
    return g


def whole_numbers(shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("turn_x", "turn_y"), [(False, False), (True, False), (False, True)])
def test_products_of_open_extents_are_exact(dtype: str, turn_x: bool, turn_y: bool) -> None:
    x, y = ("K", "M") if turn_x else ("M", "K"), ("N", "K") if turn_y else ("K", "N")
    exe = ag.compile(product(dtype, x, y, turn_x, turn_y), threads=1)

    for m, k, n in SHAPES:
        a, b = whole_numbers((m, k), dtype), whole_numbers((k, n), dtype)
        feeds = {"x": a.T.copy() if turn_x else a, "y": b.T.copy() if turn_y else b}
        (z,) = guard.run(exe, feeds).values()
        np.testing.assert_array_equal(z, a @ b)


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f64", 4)])
def test_vectors_hold_as_many_sums_as_fit(dtype: str, lanes: int) -> None:
    assert Target.parse("x86-64-v3").facts.lanes_for(dtype) == lanes
