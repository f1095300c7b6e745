"""Row pitches: operands whose rows would fall into one cache set are spread, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Reshape, Transpose
from alpenglow.program import Region

ROWS, COLUMNS = 20, 12


def network(inner: int, rows: int | str = ROWS, reshaped: bool = False) -> ag.Graph:
    """Two operators and a product by constants; with `reshaped`, rows are also read as one."""
    g = ag.Graph("f")
    x = g.input("x", f"f32[{rows},{inner}]")
    h = g(Relu(), x)
    w = integers(inner, COLUMNS)
    g.output("y", g(MatMul(), h, g.constant(w)))
    if reshaped:
        g.output("z", g(Neg(), g(Reshape((ROWS * 2 // 5, inner * 5 // 2)), h)))
    return g


def integers(*shape: int) -> np.ndarray:
    """Return small numbers, so that every order of summation gives the same bits."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)


def operand(exe: ag.Executable) -> Region:
    """Return what the matrix product reads."""
    (artifact,) = exe.artifacts
    (instr,) = (i for i in artifact.program.instrs() if i.op.name == "mat_mul_packed")
    assert instr.ins[0] is not None
    return instr.ins[0]


@pytest.mark.parametrize("inner", [1024, 2048, 3072])
def test_rows_a_multiple_of_a_page_apart_are_spread(inner: int) -> None:
    exe = ag.compile(network(inner), threads=1)
    x = integers(ROWS, inner)

    assert operand(exe).strides == (inner + 16, 1)
    np.testing.assert_array_equal(exe(x), ag.compile(network(inner), "interpreter")(x))


@pytest.mark.parametrize("inner", [768, 1040])
def test_other_rows_stay_dense(inner: int) -> None:
    assert operand(ag.compile(network(inner), threads=1)).strides == (inner, 1)


def test_rows_that_are_also_read_across_stay_dense() -> None:
    exe = ag.compile(network(2048, reshaped=True), threads=1)

    assert operand(exe).strides == (2048, 1)


def test_rows_are_spread_where_their_number_is_open() -> None:
    exe = ag.compile(network(1024, "N"), threads=1)
    for n in (20, 33, 47):
        x = integers(n, 1024)
        closed = ag.compile(network(1024, n), threads=1)

        np.testing.assert_array_equal(exe(x), closed(x))
    assert operand(exe).strides == (1040, 1)


@pytest.mark.parametrize("extent", [16, 12])
def test_planes_of_patches_lie_an_odd_number_of_lines_apart(extent: int) -> None:
    g = ag.Graph("f")
    x, w = g.input("x", f"f32[1,32,{extent},{extent}]"), integers(32, 32, 3, 3)
    g.output("y", g(Conv((1, 1), (1,) * 4), x, g.constant(w)))
    exe = ag.compile(g, threads=1)
    (product,) = (i for i in exe.artifact.program.instrs() if i.op.name == "winograd_product")

    planes = [r for r in (*product.outs, product.ins[0]) if r is not None]
    assert [r.strides[0] * 4 // ag.Target.parse("cpu").facts.line % 2 for r in planes] == [1, 1]


@pytest.mark.parametrize(("columns", "wider"), [(512, 528), (256, 256), (528, 528)])
def test_rows_half_a_page_apart_are_spread_where_columns_are_walked(
    columns: int, wider: int
) -> None:
    g = ag.Graph("f")
    x, y = g.input("x", f"f32[{ROWS},{columns}]"), g.input("y", f"f32[{ROWS},{COLUMNS}]")
    turned = g(Transpose((1, 0)), g(Relu(), x))
    g.output("z", g(MatMul(), turned, y))
    exe = ag.compile(g, target="x86-64-v3", threads=1)
    (artifact,) = exe.artifacts
    (instr,) = (i for i in artifact.program.instrs() if i.op.name == "mat_mul")

    assert instr.ins[0] is not None and instr.ins[0].strides == (1, wider)
