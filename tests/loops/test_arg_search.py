"""ArgMax and ArgMin of rows and columns with ties, NaN and infinity, compared with NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS
from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.reduction.reduction import ArgMax, ArgMin

EXTENTS = (1, 7, 8, 24, 33, 255, 513, 2048, 2049, 5001)
DTYPE_NAMES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "u64")
OPERATORS = [cls(1, False, last) for cls in (ArgMax, ArgMin) for last in (False, True)]


def operands(dtype: str, rows: int, extent: int) -> list[Array]:
    """Return numbers without order, few different ones, the least or largest alone, and NaN."""
    random, t = np.random.default_rng(extent), DTYPES[dtype]
    shape = (rows, extent)
    few = random.integers(0, 4, shape).astype(t)
    if t.kind in "iu":
        limits = np.iinfo(t)
        many = random.integers(limits.min, limits.max, shape, t, endpoint=True)
        return [many, few, np.full(shape, limits.min, t), np.full(shape, limits.max, t)]
    many = random.standard_normal(shape).astype(t)
    holes = np.where(random.random(shape) < 2 / extent, np.nan, many.astype(np.float64)).astype(t)
    return [many, few, holes, np.full(shape, -np.inf, t), np.full(shape, np.inf, t)]


def assert_found(exe: Any, op: ArgMax, x: Array) -> None:
    (expected,) = apply(op, [x])
    np.testing.assert_array_equal(exe(x), expected, str(op))


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.sampled(3)
def test_rows_and_columns_are_searched(dtype: str, target: ag.Target) -> None:
    assert DTYPES["bf16"] == ml_dtypes.bfloat16
    for n, extent in enumerate(EXTENTS):
        for op in OPERATORS:
            g = Graph("f")
            rows = (1, 3, 10)[n % 3]
            g.output("y", g(op, g.input("x", f"{dtype}[{rows},{extent}]")))
            down = Graph("f")
            column = type(op)(0, False, op.last)
            down.output("y", down(column, down.input("x", f"{dtype}[{extent},{rows}]")))
            exe, of_columns = ag.compile(g, target), ag.compile(down, target)
            for x in operands(dtype, rows, extent):
                assert_found(exe, op, x)
                assert_found(of_columns, column, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_dynamic_rows_are_searched(op: ArgMax) -> None:
    g = Graph("f")
    g.output("y", g(op, g.input("x", "f32[A,B]")))
    exe = ag.compile(g)
    for extent in (40, 5001, 7, 1):
        for x in operands("f32", 3, extent):
            assert_found(exe, op, x)


@pytest.mark.parametrize("where", [0, 31, 255, 256, 700, 1023, 1024, 4999])
def test_the_first_and_the_last_of_two_are_found_in_any_block(where: int) -> None:
    for op in OPERATORS:
        g = Graph("f")
        g.output("y", g(op, g.input("x", "f32[1,5000]")))
        exe = ag.compile(g)
        for other in (0, 1, 256, 2500, 4990, 4999):
            for value in (np.nan, 9 if isinstance(op, ArgMax) else -9):
                x = np.zeros((1, 5000), np.float32)
                x[0, [where, other]] = value
                assert_found(exe, op, x)
