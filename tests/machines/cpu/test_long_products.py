"""Products of two computed matrices whose inner extent is long: panels no longer fit the stack."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.machines.vector.templates.matmul import LONGEST
from alpenglow.ops.contraction import MatMul
from alpenglow.ops.movement import Transpose
from fuzz import guard


def product(inner: int | str, columns: int, turned: bool) -> ag.Graph:
    g = ag.Graph("product")
    x = g.input("x", f"f32[5,{inner}]")
    if turned:
        y = g(Transpose((1, 0)), g.input("y", f"f32[{columns},{inner}]"))
    else:
        y = g.input("y", f"f32[{inner},{columns}]")
    g.output("z", g(MatMul(), x, y))
    return g


def feeds(inner: int, columns: int, turned: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(inner)
    shape = (columns, inner) if turned else (inner, columns)
    return {"x": rng.standard_normal((5, inner), np.float32),
            "y": rng.standard_normal(shape, np.float32)}  # fmt: skip


def assert_right(exe: ag.Executable, given: dict[str, np.ndarray], turned: bool) -> None:
    x, y = (array.astype(np.float64) for array in given.values())
    expected = x @ (y.T if turned else y)
    (z,) = guard.run(exe, given).values()
    np.testing.assert_allclose(z, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("columns", [3, 37])
@pytest.mark.sampled(2)
def test_products_around_the_longest_panels(columns: int, turned: bool) -> None:
    for inner in (LONGEST // 2, LONGEST // 2 + 1, LONGEST, LONGEST + 1):
        exe = ag.compile(product(inner, columns, turned), threads=1)
        assert_right(exe, feeds(inner, columns, turned), turned)


@pytest.mark.parametrize("turned", [False, True])
def test_an_open_inner_extent_may_be_long(turned: bool) -> None:
    exe = ag.compile(product("K", 20, turned), threads=1)
    for inner in (3, LONGEST // 2, LONGEST // 2 + 1, LONGEST + 1, 100):
        assert_right(exe, feeds(inner, 20, turned), turned)
