"""Products of two computed matrices whose inner extent is long: panels no longer fit the stack."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.machines.vector.operators.blocked import LONGEST
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Transpose
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


DTYPES = {"f32": "f32", "f64": "f64", "i32": "i32", "u8": "i8", "i8": "u8", "bf16": "bf16"}
"""Element types of the left operands and of the right ones."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 21])
@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.sampled(4)
def test_products_in_parts(dtype: str, rows: int, columns: int) -> None:
    inner = 2 * LONGEST + 71
    g = ag.Graph("parts")
    x = g.input("x", f"{dtype}[2,{rows},{inner}]")
    y = g.input("y", f"{DTYPES[dtype]}[2,{inner},{columns}]")
    g.output("z", g(MatMul(), x, y))
    rng = np.random.default_rng(0)
    given = {}
    for name, v in g.inputs.items():
        low = 0 if v.type.dtype == "u8" else -9
        given[name] = rng.integers(low, 9, v.type.extents).astype(v.type.numpy)
    (expected,) = evaluate(g, given).values()
    exe = ag.compile(g, threads=1)
    (artifact,) = exe.artifacts

    assert len([*artifact.program.instrs()]) >= 3
    np.testing.assert_array_equal(exe.run(given)["z"], expected)


def test_the_shares_of_an_attention_stay_whole() -> None:
    g = ag.Graph("attention")
    q = g.input("q", "f32[1,16,8]")
    k, v = g.input("k", f"f32[1,8,{LONGEST + 9}]"), g.input("v", f"f32[1,{LONGEST + 9},8]")
    g.output("y", g(MatMul(), g(Softmax(-1), g(MatMul(), q, k)), v))
    (artifact,) = ag.compile(g, threads=1).artifacts

    assert len([*artifact.program.instrs()]) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_an_open_inner_extent_may_be_long(turned: bool) -> None:
    exe = ag.compile(product("K", 20, turned), threads=1)
    for inner in (3, LONGEST // 2, LONGEST // 2 + 1, LONGEST + 1, 100):
        assert_right(exe, feeds(inner, 20, turned), turned)
