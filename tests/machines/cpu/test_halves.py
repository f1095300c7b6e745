"""Convolutions and matrix products of bf16 and f16: summed in f32 and rounded once, packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpenglow as ag
from alpenglow import loops
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Splat
from alpenglow.machines.cpu import emit
from alpenglow.machines.cpu.assemble import assembly
from alpenglow.machines.cpu.legal import legal
from alpenglow.machines.vector.select import kernel_for
from alpenglow.machines.vector.templates.products import products
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Ceil, Floor, Round
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.render.llvm.render import render

HALVES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-10}
"""One unit in the last place, of the largest element: sums that are rounded differently."""

RNG = np.random.default_rng(0)


def drawn(dtype: str, shape: tuple[int, ...]) -> Array:
    return RNG.standard_normal(shape).astype(HALVES[dtype])


def cases() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Conv | MatMul]]:
    yield (1, 32, 9, 11), (40, 32, 3, 3), Conv(pads=(1, 1, 1, 1))
    yield (2, 3, 17, 19), (20, 3, 7, 7), Conv((2, 2), (3, 3, 3, 3))
    yield (1, 21, 8, 9), (20, 21, 3, 3), Conv()
    yield (1, 20, 12, 13), (20, 1, 3, 3), Conv(pads=(1, 1, 1, 1), group=20)
    yield (1, 24, 6, 6), (48, 6, 3, 3), Conv(pads=(1, 1, 1, 1), group=4)
    yield (5, 37), (37, 50), MatMul()
    yield (2, 3, 64), (2, 64, 33), MatMul()


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.sampled(2)
def test_sums_are_rounded_once(dtype: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not ag.Target.parse(target).is_host_compatible():
        pytest.skip(f"this machine is no {target}")
    looped: list[str] = []
    build = loops.build

    def built(name: str, *given: Any) -> Builder:
        looped.append(name)
        return build(name, *given)

    monkeypatch.setattr(loops, "build", built)
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    g, feeds = Graph("halves"), {}
    for n, (shape, weights, op) in enumerate(cases()):
        x = g.input(f"x{n}", TensorType(dtype, shape))
        feeds[x.name] = drawn(dtype, shape)
        w = g.constant(drawn(dtype, weights))
        bias = [g.constant(drawn(dtype, weights[:1]))] if isinstance(op, Conv) else []
        g.output(f"y{n}", g(Relu(), g(op, x, w, *bias)))
    exe = ag.compile(g, target=ag.Target.parse(target))
    got, want = exe.run(feeds), evaluate(g, feeds)

    assert not {"conv", "mat_mul"} & set(looped), "these have templates"
    for name, y in want.items():
        assert got[name].dtype == y.dtype
        wide = y.astype(np.float32)
        limit = 2 * ROUNDING[dtype] * float(np.abs(wide).max())
        np.testing.assert_allclose(got[name].astype(np.float32), wide, atol=limit, rtol=0)


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_products_of_computed_bf16(target: str) -> None:
    g, feeds = Graph("products"), {}
    for n, (left, right) in enumerate(
        [((5, 37), (37, 50)), ((2, 33, 64), (2, 64, 16)), ((1, 1), (1, 3))]
    ):
        x, y = (
            g.input(f"x{n}", TensorType("bf16", left)),
            g.input(f"w{n}", TensorType("bf16", right)),
        )
        feeds |= {x.name: drawn("bf16", left), y.name: drawn("bf16", right)}
        g.output(f"y{n}", g(MatMul(), x, y))
    got = ag.compile(g, target=ag.Target.parse(target)).run(feeds)

    for name, y in evaluate(g, feeds).items():
        wide = y.astype(np.float32)
        limit = 2 * ROUNDING["bf16"] * float(np.abs(wide).max())
        np.testing.assert_allclose(got[name].astype(np.float32), wide, atol=limit, rtol=0)


def test_what_is_not_there_reaches_no_sum() -> None:
    """Of 3 channels the fourth lane is unspecified: nor does an infinity in one pixel spread."""
    g = Graph("f")
    x = np.ones((1, 3, 4, 20), HALVES["bf16"])
    x[0, 1, 2, 7] = np.inf
    w = np.ones((16, 3, 1, 1), HALVES["bf16"])
    g.output("y", g(Conv(), g.input("x", TensorType("bf16", x.shape)), g.constant(w)))
    y = ag.compile(g).run({"x": x})["y"].astype(np.float32)
    expected = np.full((1, 16, 4, 20), 3, np.float32)
    expected[:, :, 2, 7] = np.inf

    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("target", "machine", "count"),
    [
        ("x86-64-v4+avx512bf16", "vdpbf16ps", 1),
        ("x86-64-v4", "vfmadd", 2),
        ("x86-64-v3", "vfmadd", 2),
    ],
)
def test_two_products_take_one_instruction_or_two(target: str, machine: str, count: int) -> None:
    parsed = ag.Target.parse(target)
    lanes = parsed.facts.lanes
    kind = products("bf16", lanes, parsed)
    b = Builder("dot")
    x, w, y = b.buffer("x", "bf16"), b.buffer("w", "bf16"), b.buffer("y", "f32", True)
    acc = b.var(Const(1.0, "f32", lanes))
    word = b.let(Splat(kind.word(b, x, Const(0), 1, 2), lanes))
    weights = kind.weights(b.let(kind.vector(w, Const(0), lanes)))
    for factor, weight in zip(kind.factors(word), weights, strict=True):
        b.set(acc, kind.add(factor, weight, acc))
    b.store(y, 0, acc)

    assert assembly(render(legal(b.done(), parsed)), parsed).count(machine) == kind.count == count


@pytest.mark.parametrize("numerics", ["fast", "strict"])
def test_denormal_numbers_and_nans_are_rounded_to_bf16_like_all_others(
    numerics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on AVX512-BF16, whose own conversion makes denormal numbers 0."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 4096, np.uint32)
    bits[:1024] &= np.uint32(0x807FFFFF)
    bits[1024:1040] = 0x7F800000 | rng.integers(0, 1 << 32, 16, np.uint32)
    x = bits.view(np.float32)
    g = Graph("cast")
    short = g(Cast("bf16"), g.input("x", "f32[4096]"))
    g.output("y", short)
    g.output("sum", g(Add(), short, short))
    options = ag.Options(numerics=numerics)
    with np.errstate(all="ignore"):
        expected = evaluate(g, {"x": x})
    actual = ag.compile(g, options=options).run({"x": x})
    texts: list[str] = []
    level = Target.parse("x86-64-v4+avx512bf16+avxneconvert")

    def kept(*args: Any, **kwargs: Any) -> str:
        texts.append(render(*args, **kwargs))
        return texts[-1]

    monkeypatch.setattr(emit, "render", kept)
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    ag.compile(g, level, options=options)

    for name, y in expected.items():
        nan = np.isnan(y)
        np.testing.assert_array_equal(np.isnan(actual[name]), nan)
        np.testing.assert_array_equal(actual[name].view(np.uint16)[~nan], y.view(np.uint16)[~nan])
    assert texts
    assert not any("bf16" in assembly(text, level) for text in texts)


def test_halves_that_are_multiplied_slowly_stay_f32_where_weights_are_read_often() -> None:
    level = Target.parse("x86-64-v4+avx512bf16")
    slow = replace(level, facts=replace(level.facts, slower=("bf16",)))

    def dtypes(target: Target, rows: int) -> set[str]:
        g = ag.Graph("product")
        x = g.input("x", f"f32[{rows},32]")
        g.output("y", g(MatMul(), x, g.constant(np.ones((32, 32), np.float32))))
        *_, (_, program) = run_stages(g, target, ag.Options(precision="bf16"))
        return {r.type.dtype for i in program.instrs() for r in i.reads()}

    assert "bf16" in dtypes(level, 64) and "bf16" in dtypes(slow, 4)
    assert dtypes(slow, 64) == {"f32"}


ROUNDINGS = {"floor": (Floor, np.floor), "ceil": (Ceil, np.ceil), "round": (Round, np.rint)}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_every_half_is_rounded_to_a_whole_number(name: str) -> None:
    op, reference = ROUNDINGS[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    g = Graph("rounded")
    g.output("y", g(op(), g.input("x", "f16[65536]")))

    with np.errstate(all="ignore"):
        expected = reference(x)

    y = ag.compile(g, threads=1).run({"x": x})["y"]

    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y), np.signbit(expected))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_halves_are_rounded_in_vectors(name: str) -> None:
    op, _ = ROUNDINGS[name]
    g = Graph("rounded")
    g.output("y", g(op(), g.input("x", "f16[4096]")))
    target = Target.parse("x86-64-v3")
    *_, (_, program) = run_stages(g, target, ag.Options(check=False))
    (instr,) = program.instrs()

    text = assembly(render(legal(kernel_for(instr, target), target)), target)

    assert "vroundps" in text
    assert "vroundss" not in text
