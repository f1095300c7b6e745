"""Products of computed matrices around the borders of tiles, and of a matrix by few vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, Array
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.templates.tile import UNROLL
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.tensor.movement import Broadcast
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
@pytest.mark.sampled(3)
def test_products_of_open_extents_are_exact(dtype: str, turn_x: bool, turn_y: bool) -> None:
    x, y = ("K", "M") if turn_x else ("M", "K"), ("N", "K") if turn_y else ("K", "N")
    exe = ag.compile(product(dtype, x, y, turn_x, turn_y), threads=1)

    for m, k, n in SHAPES:
        a, b = whole_numbers((m, k), dtype), whole_numbers((k, n), dtype)
        feeds = {"x": a.T.copy() if turn_x else a, "y": b.T.copy() if turn_y else b}
        (z,) = guard.run(exe, feeds).values()
        np.testing.assert_array_equal(z, a @ b)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(("dtype", "m", "k", "n"), [("f64", 190, 200, 70), ("f32", 301, 400, 133)])
def test_rows_of_a_large_turned_operand_are_packed_in_groups(
    dtype: str, batch: tuple[int, ...], m: int, k: int, n: int
) -> None:
    exe = ag.compile(product(dtype, (*batch, k, m), (*batch, k, n), True, False), threads=1)
    a, b = whole_numbers((*batch, k, m), dtype), whole_numbers((*batch, k, n), dtype)

    (z,) = guard.run(exe, {"x": a, "y": b}).values()
    np.testing.assert_array_equal(z, a.swapaxes(-1, -2) @ b)


@pytest.mark.parametrize(
    ("dtype", "batch", "m", "k", "n"),
    [("f32", "", 9, 41, 1), ("f64", "", 1100, 33, 1), ("f32", "2,", 21, 64, 3),
     ("bf16", "", 13, 50, 2), ("f32", "", "M", 35, 7), ("f32", "B,", "M", "K", 2)],
)  # fmt: skip
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("few_first", [False, True])
@pytest.mark.sampled(10)
def test_few_vectors_are_multiplied_exactly_by_a_matrix_that_is_not_packed(
    dtype: str, batch: str, m: int | str, k: int | str, n: int, turn: bool, few_first: bool
) -> None:
    """`turn`: the matrix lies turned in memory; `few_first`: it is the right operand."""
    matrix, few = [m, k], [k, n]
    if few_first:
        matrix, few = matrix[::-1], few[::-1]
    if turn:
        matrix = matrix[::-1]
    g = ag.Graph("few")
    left = g.input("a", f"{dtype}[{batch}{','.join(map(str, matrix))}]")
    right = g.input("b", f"{dtype}[{batch}{','.join(map(str, few))}]")
    x, y = turned(g, left) if turn else left, right
    product = g(MatMul(), y, x) if few_first else g(MatMul(), x, y)
    g.output("z", g(Relu(), product))
    exe = ag.compile(g, threads=1)

    sizes = {"B": 3, "M": 30, "K": 37}
    feeds = {
        name: whole_numbers(tuple(sizes.get(str(d), d) for d in v.type.shape), dtype)
        for name, v in g.inputs.items()
    }
    (z,) = guard.run(exe, feeds).values()
    a, b = (v.astype(np.float64) for v in feeds.values())
    a = a.swapaxes(-1, -2) if turn else a
    expected = np.maximum(b @ a if few_first else a @ b, 0).astype(DTYPES[dtype])
    np.testing.assert_array_equal(z, expected)


@pytest.mark.parametrize("x", ["f32[2,3,40]", "f32[5,1,40]", "f32[4,9,40]", "f32[2,2,2,40]"])
@pytest.mark.parametrize("columns", [1, 30, 160])
def test_a_batch_times_one_matrix_is_exact(x: str, columns: int) -> None:
    g = ag.Graph("shared")
    left, right = g.input("x", x), g.input("y", f"f32[40,{columns}]")
    batch = left.type.extents[:-2]
    g.output("z", g(MatMul(), left, g(Broadcast((*batch, 40, columns)), right)))
    a = whole_numbers(left.type.extents, "f32")
    b = whole_numbers(right.type.extents, "f32")

    (z,) = guard.run(ag.compile(g, threads=1), {"x": a, "y": b}).values()
    np.testing.assert_array_equal(z, a @ b)


@pytest.mark.parametrize("batch", ["3", "n"])
def test_what_is_added_to_a_batch_times_one_matrix_may_differ_by_sample(batch: str) -> None:
    g = ag.Graph("shared")
    left, right = g.input("x", f"f32[{batch},9,40]"), g.input("y", "f32[40,160]")
    bias = g.input("b", f"f32[{batch},1,160]")
    extents = left.type.shape[0], 9, 160
    product = g(MatMul(), left, g(Broadcast((left.type.shape[0], 40, 160)), right))
    g.output("z", g(Add(), product, g(Broadcast(extents), bias)))
    feeds = {
        "x": whole_numbers((3, 9, 40), "f32"),
        "y": whole_numbers((40, 160), "f32"),
        "b": whole_numbers((3, 1, 160), "f32"),
    }

    (z,) = guard.run(ag.compile(g, threads=1), feeds).values()
    np.testing.assert_array_equal(z, feeds["x"] @ feeds["y"] + feeds["b"])


def test_a_matrix_that_a_batch_shares_is_packed_once_for_all_rows() -> None:
    g = ag.Graph("shared")
    left, right = g.input("x", "f32[4,9,40]"), g.input("y", "f32[40,160]")
    g.output("z", g(MatMul(), left, g(Broadcast((4, 40, 160)), right)))
    exe = ag.compile(g, "x86-64-v3", threads=1)

    ((_, kernel),) = kernels(exe.artifact.program, exe.target)
    loops = [int(n) for n in re.findall(r"in (\d+) \{", print_kernel(kernel))]

    panels, rows = 160 // 16, 4 * 9
    # Panels of two vectors; of each the inner extent is packed, then tiles of six rows run.
    assert sorted(loops) == sorted([panels, 40, rows // 6, 40 // UNROLL])


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f64", 4)])
def test_vectors_hold_as_many_sums_as_fit(dtype: str, lanes: int) -> None:
    assert Target.parse("x86-64-v3").facts.lanes_for(dtype) == lanes


@pytest.mark.parametrize(("inner", "order"), [(3, "i0/33"), (40, "i0/167")])
def test_short_sums_are_stored_row_by_row(inner: int, order: str) -> None:
    g = ag.Graph("short")
    y = whole_numbers((inner, 517), "f32")
    bias = whole_numbers((517,), "f32")
    product = g(MatMul(), g.input("x", f"f32[1001,{inner}]"), g.constant(y))
    g.output("z", g(Add(), product, g(Broadcast((1001, 517)), g.constant(bias))))
    x = whole_numbers((1001, inner), "f32")
    exe = ag.compile(g, "x86-64-v3", threads=1)

    (z,) = guard.run(exe, {"x": x}).values()
    ((_, kernel),) = kernels(exe.artifact.program, exe.target)

    np.testing.assert_array_equal(z, x @ y + bias)
    # There are 33 panels of two vectors and 167 tiles of six rows; the second number is the inner.
    assert order in print_kernel(kernel)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("columns", [13, 23, 40, 243])
def test_only_the_last_panel_is_stored_by_a_mask(columns: int, constant: bool) -> None:
    g = ag.Graph("ragged")
    x, y = whole_numbers((70, 30), "f32"), whole_numbers((30, columns), "f32")
    right = g.constant(y) if constant else g.input("y", f"f32[30,{columns}]")
    g.output("z", g(MatMul(), g.input("x", "f32[70,30]"), right))
    exe = ag.compile(g, "x86-64-v3", threads=1)

    (z,) = guard.run(exe, {"x": x} if constant else {"x": x, "y": y}).values()
    ((_, kernel),) = kernels(exe.artifact.program, exe.target)

    np.testing.assert_array_equal(z, x @ y)
    stores = re.findall(r"y0\[(.*)\] = ", print_kernel(kernel))
    assert any("if" not in store for store in stores)
