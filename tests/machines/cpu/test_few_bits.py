"""Weights that stay in few bits: what is kept, how large it is, and that it computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.machines.vector.operators.few_bits import (
    MatMulFewBits,
    PackNibbles,
    bytes_of_columns,
    nibbles_of_columns,
    words_of_columns,
)
from alpenglow.machines.vector.operators.quantized import MatMulGroups, QuantizeGroups
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.groups import RoundGroups
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.tensor.packing import PackMatrix

F32 = np.float32

TOLERANCE = 4e-6
"""Relative to the largest element: sums of some hundred products, each in an order of its own."""


def stored(
    g: Graph, dtype: str, shape: tuple[int, int], group: int = 0, zeros: bool = False
) -> Value:
    """Return w[K, N] of few bits, a scale for each column and group of K."""
    rng, size = np.random.default_rng(0), group or shape[0]
    limits = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16)}[dtype]
    groups = -(-shape[0] // size)
    q = g.constant(rng.integers(*limits, shape).astype(DTYPES[dtype]))
    scale = rng.uniform(0.01, 0.02, (groups, shape[1])).astype(F32)
    least = rng.integers(0, 4, (groups, shape[1])) if zeros else np.full((groups, shape[1]), 3)

    def spread(v: Array) -> Value:
        apart = g(Reshape((groups, 1, shape[1])), g.constant(v))
        whole = g(Reshape((groups * size, shape[1])), g(Broadcast((groups, size, shape[1])), apart))
        kept = g.constant(np.arange(shape[0]))
        return g(Gather(0), whole, kept)

    zero = spread(least.astype(q.type.numpy))
    return g(Dequantize(), q, spread(scale), zero)


def product(rows: int, dtype: str, group: int = 0, zeros: bool = False, inner: int = 200) -> Graph:
    g = Graph("product")
    x = g.input("x", f"f32[{rows},{inner}]")
    g.output("y", g(MatMul(), x, stored(g, dtype, (inner, 150), group, zeros)))
    return g


def rounded(
    rows: int | str, dtype: str, group: int, zeros: bool = False, inner: int = 100, size: int = 0
) -> Graph:
    """Return a product of what is rounded by groups of `size`, of as many as weights if 0."""
    g = Graph("rounded")
    x = g(RoundGroups(size or group), g.input("x", f"f32[{rows},{inner}]"))
    g.output("y", g(MatMul(), x, stored(g, dtype, (inner, 37), group, zeros)))
    return g


def stage(g: Graph, target: str, name: str) -> Graph:
    """Return a graph after the pass of this name."""
    for p, made in run_stages(g.copy(), ag.Target.parse(target), ag.Options()):
        if p.name == name:
            assert isinstance(made, Graph)
            return made
    raise AssertionError(f"there is no stage called {name}")


def kept(g: Graph, target: str = "x86-64-v4") -> list[MatMulFewBits]:
    """Return the products of weights that stay in few bits."""
    made = stage(g, target, "dequantize_rest")
    return [n.op for n in made.nodes if isinstance(n.op, MatMulFewBits)]


@pytest.mark.parametrize("rows", [1, 2, 5, 60])
@pytest.mark.parametrize(
    ("dtype", "group", "zeros"),
    [("i8", 0, False), ("u8", 32, True), ("i4", 32, False), ("u4", 0, True), ("u4", 32, True)],
)
@pytest.mark.sampled(7)
def test_a_product_of_few_bits_is_that_of_the_floats_they_stand_for(
    rows: int, dtype: str, group: int, zeros: bool
) -> None:
    g = product(rows, dtype, group, zeros)
    x = np.random.default_rng(1).standard_normal((rows, 200)).astype(F32)
    expected = evaluate(g, {"x": x})["y"]
    actual = ag.compile(g)(x)

    assert np.abs(actual - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("group", [16, 32, 256])
@pytest.mark.parametrize("dtype", ["u4", "i8", "u8"])
@pytest.mark.sampled(3)
def test_a_product_of_rounded_rows_is_that_of_the_reals(
    dtype: str, group: int, zeros: bool
) -> None:
    exe = ag.compile(rounded("N", dtype, group, zeros))
    for rows in (1, 2, 3, 7, 8, 13, 40):
        x = np.random.default_rng(rows).standard_normal((rows, 100)).astype(F32)
        expected = evaluate(rounded(rows, dtype, group, zeros), {"x": x})["y"]

        assert np.abs(exe(x) - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_products_of_the_same_rounded_rows_quantise_them_once() -> None:
    g = rounded(3, "u4", 32)
    (x,) = (n.output for n in g.nodes if isinstance(n.op, RoundGroups))
    g.output("z", g(MatMul(), x, stored(g, "i4", (100, 20), 32, True)))
    g.output("k", g(MatMul(), x, stored(g, "u4", (100, 20), 32)))
    ops = [type(n.op) for n in stage(g, "x86-64-v4", "merge").nodes]

    assert ops.count(MatMulGroups) == 3
    assert ops.count(QuantizeGroups) == 2, "zero points want sums, a middle wants them times it"


@pytest.mark.parametrize(
    ("target", "group", "size"),
    [("x86-64-v4", 32, 24), ("x86-64-v4", 32, 64), ("armv7-a", 32, 32)],
)
def test_groups_that_do_not_fit_are_rounded_and_multiplied_in_floats(
    target: str, group: int, size: int
) -> None:
    g = rounded(2, "u4", group, size=size)
    ops = {type(n.op) for n in stage(g, target, "dequantize_rest").nodes}

    assert RoundGroups in ops and MatMulGroups not in ops


def test_a_scale_for_all_of_an_output_meets_any_groups() -> None:
    g = rounded(5, "i8", 0, size=24)
    x = np.random.default_rng(1).standard_normal((5, 100)).astype(F32)
    expected = evaluate(g, {"x": x})["y"]
    exe = ag.compile(g)

    assert any("mat_mul_groups" in e.kernel for e in exe.artifact.table)
    assert np.abs(exe(x) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(
    ("activations", "free", "allowed"),
    [("model", False, True), ("f32", False, False), ("int8", True, True)],
)
def test_a_caller_chooses_what_activations_are(
    activations: Literal["model", "f32", "int8"], free: bool, allowed: bool
) -> None:
    options = ag.Options(activations=activations)

    for g, expected in ((product(2, "u4", 32), free), (rounded(2, "u4", 32), allowed)):
        table = ag.compile(g, options=options).artifact.table
        assert any("mat_mul_groups" in e.kernel for e in table) == expected


def test_what_is_no_number_makes_its_own_row_none() -> None:
    x = np.ones((4, 100), F32)
    x[1, 50], x[2, 99] = np.nan, -np.inf
    y = ag.compile(rounded(4, "u4", 32, True))(x)

    assert np.isnan(y).all(1).tolist() == [False, True, True, False]
    assert np.isfinite(y[[0, 3]]).all()


@pytest.mark.parametrize(("dtype", "share"), [("i8", 4), ("i4", 8)])
def test_an_archive_holds_the_few_bits(tmp_path: Path, dtype: str, share: int) -> None:
    exe = ag.compile(product(1, dtype, inner=2000), "x86-64-v3")  # others may hold floats
    exe.save(tmp_path / "small.ago")
    size = (tmp_path / "small.ago").stat().st_size

    # 160 columns fill the panels; code and text take no more than 30 KB.
    assert size < 2000 * 160 * 4 / share + 30_000


def test_numbers_of_a_byte_that_range_over_sixteen_take_four_bits() -> None:
    g = Graph("narrow")
    x, q = g.input("x", "f32[1,64]"), np.arange(64 * 32).reshape(64, 32) % 16 - 20
    zero = g(Broadcast((64, 32)), g.constant(np.int8(-12)))
    scale = g(Broadcast((64, 32)), g.constant(F32(0.5)))
    g.output("y", g(MatMul(), x, g(Dequantize(), g.constant(q.astype(np.int8)), scale, zero)))

    (op,) = kept(g)
    assert op == MatMulFewBits(32, 64, 8)


def test_scales_of_a_transposed_weight_are_found() -> None:
    g = Graph("turned")
    x, w = g.input("x", "f32[1,96]"), stored(g, "i8", (40, 96))
    g.output("y", g(MatMul(), x, g(Transpose((1, 0)), w)))

    assert kept(g) == [], "each input has a scale of its own"
    assert len(kept(product(1, "i8"))) == 1


def test_weights_written_out_as_arithmetic_stay_in_few_bits() -> None:
    g = Graph("written out")
    x, rng = g.input("x", "f32[1,64]"), np.random.default_rng(0)
    q = g(Cast("f32"), g.constant(rng.integers(-128, 128, (64, 48)).astype(np.int8)))
    zero = g(Broadcast((64, 48)), g(Cast("f32"), g.constant(np.int8(3))))
    scale = g(Broadcast((64, 48)), g.constant(rng.uniform(0.01, 0.02, 48).astype(F32)))
    g.output("y", g(MatMul(), x, g(Mul(), g(Sub(), q, zero), scale)))

    assert kept(g) == [MatMulFewBits(48, 64, 3)]


def test_rows_of_a_table_are_gathered_before_they_become_floats() -> None:
    g = Graph("embedding")
    q = np.random.default_rng(0).integers(-128, 128, (50, 24)).astype(np.int8)
    scales = g.constant(np.linspace(0.1, 0.2, 50, dtype=F32).reshape(50, 1))
    zero = g(Broadcast((50, 24)), g.constant(np.int8(0)))
    table = g(Dequantize(), g.constant(q), g(Broadcast((50, 24)), scales), zero)
    g.output("y", g(Gather(0), table, g.input("i", "i64[2,3]")))
    i = np.array([[0, 49, -1], [7, 7, 20]])
    exe = ag.compile(g)

    assert np.array_equal(exe(i), evaluate(g, {"i": i})["y"])
    held = [b for b in exe.artifact.program.buffers.values() if b.array is not None]
    assert sum(b.nbytes for b in held) < 2 * q.nbytes


def test_a_number_that_scales_the_result_joins_the_scales() -> None:
    g = product(1, "i4", 32, zeros=True)
    y = g.outputs.pop("y")
    g.output("y", g(Mul(), y, g(Broadcast(y.type.shape), g.constant(F32(0.25)))))
    x = np.random.default_rng(1).standard_normal((1, 200)).astype(F32)
    exe = ag.compile(g)
    expected = evaluate(g, {"x": x})["y"]

    assert len(exe.artifact.table) == 1
    assert np.abs(exe(x) - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_what_does_not_pay_becomes_floats() -> None:
    conv = Graph("conv")
    w = conv(Reshape((20, 10, 5, 5)), stored(conv, "i8", (20, 250)))
    conv.output("y", conv(Conv(), conv.input("x", "f32[1,10,30,30]"), w))

    assert kept(conv) == []
    assert kept(product(1, "i8", group=8)) == [], "scales would be half of what is read"
    assert kept(product(40, "i4"), target="x86-64-v2") == [], "there are no registers for it"
    assert kept(product(1, "i8"), target="x86-64-v2") != []


def test_strict_numerics_multiply_by_the_floats() -> None:
    g = product(1, "i8")
    x = np.ones((1, 200), F32)
    exe = ag.compile(g, options=ag.Options(numerics="strict"))

    assert not any("few_bits" in e.kernel for e in exe.artifact.table)
    assert np.isfinite(exe(x)).all()


@pytest.mark.parametrize(("rows", "few"), [(4, True), (64, False)])
def test_in_bf16_a_product_of_many_rows_reads_bf16(rows: int, few: bool) -> None:
    target, options = ag.Target.parse("x86-64-v4+avx512bf16"), ag.Options(precision="bf16")
    stages = run_stages(product(rows, "i8"), target, options)
    g = next(made for p, made in stages if p.name == "precision")

    assert any(isinstance(n.op, MatMulFewBits) for n in g.nodes) == few
    assert any(isinstance(n.op, MatMul) for n in g.nodes) != few


@pytest.mark.parametrize("columns", [64, 70, 5])
def test_what_a_file_stores_by_column_is_packed_as_if_it_were_spelled_out(columns: int) -> None:
    rng, inner, width = np.random.default_rng(0), 44, 32
    halves = rng.integers(0, 256, (columns, 24), np.uint8)
    numbers = np.stack([halves & 15, halves >> 4], -1).reshape(columns, 48)[:, :inner].T
    whole = rng.integers(0, 256, (columns, 48), np.uint8)
    signed = (whole - np.uint8(128)).view(np.int8)[:, :inner].T

    np.testing.assert_array_equal(
        nibbles_of_columns(halves, inner, width), PackNibbles(width).reference(numbers)
    )
    np.testing.assert_array_equal(
        bytes_of_columns(whole, inner, width), PackMatrix(width).reference(signed)
    )
    np.testing.assert_array_equal(
        words_of_columns(whole, inner, width), PackMatrix(width, 4).reference(whole[:, :inner].T)
    )
