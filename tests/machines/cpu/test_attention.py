"""Attention in one kernel: equal to the interpreter for all sizes, masks and positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.kernel.evaluate import evaluate as run_kernel
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.templates import templates
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.attention import Attention
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Transpose

Array = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
TARGETS = ("cpu", "x86-64-v3", "x86-64-v2")


@dataclass(frozen=True)
class Case:
    """An application of attention, and what it is fed."""

    op: Attention
    feeds: dict[str, Array]

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """Draw sizes around those of panels, blocks and tiles, and all that may hide a key."""
        rng = np.random.default_rng(seed)
        batch, groups, each = (int(rng.integers(1, 4)) for _ in range(3))
        rows = int(rng.choice([1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 49, 70]))
        keys = int(rng.choice([1, 2, 7, 13, 16, 29, 64, 112, 127, 128, 129, 225, 300, 530]))
        inner, features = (int(rng.choice([1, 3, 8, 16, 24, 40, 64])) for _ in range(2))
        heads = groups * each
        feeds = {
            "q": rng.standard_normal((batch, heads, rows, inner)),
            "k": rng.standard_normal((batch, groups, keys, inner)),
            "v": rng.standard_normal((batch, groups, keys, features)),
        }
        feeds = {name: x.astype(np.float32) for name, x in feeds.items()}
        shape = (batch, heads, rows, keys)
        shape = tuple(1 if rng.random() < 0.4 else d for d in shape)
        if (kind := rng.integers(4)) == 1:
            feeds["mask"] = rng.random(shape) < 0.5
        elif kind == 2:
            feeds["mask"] = rng.standard_normal(shape).astype(np.float32)
        elif kind == 3:
            feeds["mask"] = np.where(rng.random(shape) < 0.3, -np.inf, 0).astype(np.float32)
        if rng.random() < 0.4:
            feeds["lengths"] = rng.integers(0, keys + 1, batch)
        op = Attention(
            inner**-0.5,
            softcap=float(rng.choice([0, 0, 3])),
            causal=bool(rng.random() < 0.5),
            left=int(rng.choice([-1, -1, 0, 5, 140])),
            right=int(rng.choice([-1, -1, 0, 3])),
            offset=0 if "lengths" in feeds else int(rng.choice([0, keys - rows, 7, -4])),
        )
        return cls(op, feeds)

    def graph(self) -> ag.Graph:
        g = ag.Graph("attention")
        kinds = {"f": "f32", "b": "bool", "i": "i64"}
        given = {
            name: g.input(name, f"{kinds[x.dtype.kind]}[{','.join(map(str, x.shape))}]")
            for name, x in self.feeds.items()
        }
        operands = [given.get(name) for name in ("q", "k", "v", "mask", "lengths")]
        while operands[-1] is None:
            operands.pop()
        g.output("y", g.add(self.op, operands).results[0])
        return g


def fused(exe: ag.Executable) -> bool:
    """Whether scores are never in memory."""
    instrs = list(exe.artifact.program.instrs())
    return any(sum(isinstance(op, MatMul) for op in i.operators()) == 2 for i in instrs)


@pytest.mark.parametrize("seed", range(45))
@pytest.mark.sampled(3)
def test_it_answers_like_the_interpreter(seed: int) -> None:
    case = Case.drawn(seed)
    g = case.graph()
    exe = ag.compile(g, target=TARGETS[seed % 3])

    expected = evaluate(g, case.feeds)["y"]
    assert fused(exe)
    np.testing.assert_allclose(exe.run(case.feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_positions_are_computed_by_each_of_several() -> None:
    g = ag.Graph("layers")
    q, k, v = (g.input(n, "f32[1,2,48,16]") for n in "qkv")
    op = Attention(0.25, causal=True)
    first = g.add(op, [q, k, v]).results[0]
    g.output("y", g.add(op, [first, k, v]).results[0])
    exe = ag.compile(g)
    feeds = {n: np.random.default_rng(i).standard_normal((1, 2, 48, 16)).astype(np.float32)
             for i, n in enumerate("qkv")}  # fmt: skip

    assert all(len(i.outs) == 1 for i in exe.artifact.program.instrs()) and fused(exe)
    np.testing.assert_allclose(exe.run(feeds)["y"], evaluate(g, feeds)["y"], rtol=1e-4, atol=1e-5)


def written_out(rows: str, keys: str, bias: bool = False) -> ag.Graph:
    """Return attention as exporters write it."""
    g = ag.Graph("written")
    q = g.input("q", f"f32[2,{rows},24]")
    k = g.input("k", f"f32[2,{keys},24]")
    v = g.input("v", f"f32[2,{keys},40]")
    x = g(MatMul(), q, g(Transpose((0, 2, 1)), k))
    x = g(Mul(), x, g(Broadcast(x.type.shape), g.constant(np.float32(0.2))))
    if bias:
        x = g(Add(), x, g(Broadcast(x.type.shape), g.input("bias", f"f32[{rows},{keys}]")))
    g.output("y", g(MatMul(), g(Softmax(-1), x), v))
    return g


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.rest
def test_open_extents_have_one_kernel_for_prompts_and_one_for_steps(
    bias: bool, target: str
) -> None:  # fmt: skip
    g = written_out("rows", "keys", bias)
    exe = ag.compile(g, target)
    rng = np.random.default_rng(0)
    for rows, keys in [(40, 40), (1, 41), (2, 300), (33, 112), (70, 113), (5, 1), (12, 650)]:
        shapes = {"q": (2, rows, 24), "k": (2, keys, 24), "v": (2, keys, 40), "bias": (rows, keys)}
        feeds = {n: rng.standard_normal(shapes[n]).astype(np.float32) for n in g.inputs}

        expected = evaluate(g.bind({"rows": rows, "keys": keys}), feeds)["y"]
        np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_scores_are_not_in_memory() -> None:
    exe = ag.compile(written_out("2048", "4096"))

    assert fused(exe)
    assert exe.artifact.program.arena < 1 << 20


@pytest.mark.rest
def test_many_scores_are_not_in_memory_for_the_sake_of_halves() -> None:
    many, few = (written_out("40", keys) for keys in ("400", "40"))
    plain = "x86-64-v4"

    assert fused(ag.compile(many, precision="bf16", target=plain))
    assert not fused(ag.compile(few, precision="bf16", target=plain))
    assert fused(ag.compile(few, precision="bf16", target=f"{plain}+avx512bf16"))


def test_scores_that_somebody_reads_are_kept() -> None:
    g = written_out("20", "30")
    softmax = g.outputs["y"].producer
    assert softmax is not None
    g.output("shares", softmax.inputs[0])
    exe = ag.compile(g)

    assert not fused(exe)


def test_nan_infinity_and_what_sees_nothing_are_as_written() -> None:
    g = written_out("20", "300", bias=True)
    exe = ag.compile(g)
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(v.type.extents).astype(np.float32) for n, v in g.inputs.items()}
    feeds["bias"][3] = -np.inf
    feeds["bias"][4, :200] = -np.inf
    feeds["bias"][5, 130] = np.nan
    feeds["bias"][6, 7] = np.inf

    expected = evaluate(g, feeds)["y"]
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("zeros", ["masked", "undefined"])
def test_rows_without_shares_are_zeros_where_the_softmax_says_so(rows: int, zeros: str) -> None:
    g = ag.Graph("zeros")
    q, k, v = (g.input(n, f"f32[2,{d},8]") for n, d in (("q", rows), ("k", 150), ("v", 150)))
    x = g(MatMul(), q, g(Transpose((0, 2, 1)), k))
    x = g(Add(), x, g.input("mask", x.type))
    g.output("y", g(MatMul(), g(Softmax(-1, zeros), x), v))
    exe = ag.compile(g)
    rng = np.random.default_rng(3)
    feeds = {n: rng.standard_normal(v.type.extents).astype(np.float32) for n, v in g.inputs.items()}
    feeds["mask"][0] = -np.inf
    feeds["mask"][1, :, 140] = np.nan

    expected = evaluate(g, feeds)["y"]
    assert fused(exe)
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("features", [3, 16, 40])
@pytest.mark.sampled(3)
def test_shares_that_are_undefined_hide_no_nan_of_values(rows: int, features: int) -> None:
    g = ag.Graph("undefined")
    q, k = g.input("q", f"f32[{rows},8]"), g.input("k", "f32[21,8]")
    v = g.input("v", f"f32[21,{features}]")
    shares = g(Softmax(-1, "undefined"), g(MatMul(), q, g(Transpose((1, 0)), k)))
    g.output("y", g(MatMul(), shares, v))
    exe = ag.compile(g)
    rng = np.random.default_rng(rows)
    feeds = {n: rng.standard_normal(x.type.extents).astype(np.float32) for n, x in g.inputs.items()}
    feeds["q"][-1, 3] = np.nan
    feeds["v"][5, 1], feeds["v"][20, -1] = np.nan, np.inf

    assert fused(exe)
    expected = evaluate(g, feeds)["y"]
    assert np.isnan(expected[-1]).sum() == 2
    np.testing.assert_allclose(exe.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_it_is_at_most_four_times_as_far_from_the_truth_as_scores_in_memory() -> None:
    """The product with scores in memory is summed in chunks of 256 keys, attention in one sum."""
    g = written_out("64", "3000")
    rng = np.random.default_rng(2)
    feeds = {n: rng.standard_normal(v.type.extents).astype(np.float32) for n, v in g.inputs.items()}
    wide = {n: x.astype(np.float64) for n, x in feeds.items()}
    scores = wide["q"] @ wide["k"].swapaxes(1, 2) * np.float32(0.2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    truth = shares / shares.sum(-1, keepdims=True) @ wide["v"]
    kept = written_out("64", "3000")
    product = kept.outputs["y"].producer
    assert product is not None
    kept.output("shares", product.inputs[0])

    ours = np.abs(ag.compile(g).run(feeds)["y"] - truth)
    theirs = np.abs(ag.compile(kept).run(feeds)["y"] - truth)
    assert np.sqrt((ours**2).mean()) <= 4 * np.sqrt((theirs**2).mean())


def test_one_template_fits_attention_whatever_was_imported_first() -> None:
    exe = ag.compile(written_out("20", "30"))
    (instr,) = (i for i in exe.artifact.program.instrs() if i.body is not None)
    anchor = instr.anchor()
    assert anchor is not None

    fitting = [t for t in templates._of[MatMul] if t.fits(anchor.op, anchor, instr, exe.target)]
    assert [t.build.__name__ for t in fitting] == ["attention"]


def of_halves(rows: int, keys: int, inner: int, features: int) -> ag.Graph:
    """Return attention whose products take bf16."""
    g = ag.Graph("halves")
    q = g.input("q", f"bf16[{rows},{inner}]")
    k = g.input("k", f"bf16[{keys},{inner}]")
    v = g.input("v", f"bf16[{keys},{features}]")
    shares = g(Softmax(-1), g(MatMul(wide=True), q, g(Transpose((1, 0)), k)))
    g.output("y", g(MatMul(wide=True), g(Cast("bf16"), shares), v))
    return g


@pytest.mark.parametrize(
    "sizes", [(16, 32, 32, 16), (19, 7, 5, 3), (33, 130, 64, 24), (9, 1, 1, 40), (40, 257, 33, 17)]
)
@pytest.mark.sampled(2)
def test_halves_are_multiplied_in_pairs(sizes: tuple[int, ...]) -> None:
    g = of_halves(*sizes)
    exe = ag.compile(g, target="x86-64-v4+avx512bf16")
    rng = np.random.default_rng(sum(sizes))
    feeds = {n: rng.standard_normal(x.type.extents).astype(BF16) for n, x in g.inputs.items()}

    ((_, kernel),) = kernels(exe.artifact.program, exe.target)
    result = np.zeros(g.outputs["y"].type.extents, np.float32)
    arrays = [x.reshape(-1) for x in (result, *feeds.values())]
    operands = {b.name: x for b, x in zip(kernel.buffers, arrays, strict=True)}
    run_kernel(kernel, operands)

    expected = evaluate(g, feeds)["y"]
    limit = 2**-8 * np.abs(feeds["v"].astype(np.float32)).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=limit)


@pytest.mark.parametrize("seed", range(100, 115))
@pytest.mark.sampled(3)
def test_in_halves_it_answers_like_the_interpreter_of_rounded_operands(seed: int) -> None:
    case = Case.drawn(seed)
    case = Case(replace(case.op, scale=0.25), case.feeds)
    g, exe = case.graph(), ag.compile(case.graph(), precision="bf16")
    rounded = {n: x.astype(BF16).astype(np.float32) for n, x in case.feeds.items() if n in "qkv"}

    expected = evaluate(g, case.feeds | rounded)["y"]
    limit = 2**-8 * np.abs(case.feeds["v"]).max()
    np.testing.assert_allclose(exe.run(case.feeds)["y"], expected, rtol=0, atol=limit)
