"""Attention of quantized models in one kernel: shares are rounded to bytes before they are used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.target import Target
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Transpose
from machines.cpu.test_attention import fused

Array = NDArray[Any]
TARGETS = ("cpu", "x86-64-v3", "x86-64-v2")


class Case:
    """A graph of quantized attention as exporters write it, and what it is fed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.g = ag.Graph("attention")
        batch, heads = int(rng.integers(1, 3)), int(rng.integers(1, 4))
        self.rows = int(rng.choice([8, 15, 16, 17, 31, 33, 49, 70]))
        self.keys = int(rng.choice([2, 3, 7, 13, 16, 29, 64, 112, 127, 128, 129, 225, 300, 530]))
        inner, features = (int(rng.choice([1, 3, 4, 8, 17, 24, 40, 64, 80])) for _ in range(2))
        # Scores are quantized, too, as tools do that know no better.
        self.twice = bool(rng.random() < 0.4)
        self.dtype = str(rng.choice(["u8", "i8"]))
        self.feeds: dict[str, Array] = {}
        q = self.operand("q", (batch, heads, self.rows, inner))
        k = self.operand("k", (batch, heads, self.keys, inner))
        v = self.operand("v", (batch, heads, self.keys, features))
        x = self.g(MatMul(), q, self.g(Transpose((0, 1, 3, 2)), k))
        spread = float(rng.choice([0.3, 2, 8])) / inner**0.5
        if self.twice:
            x = self.rounded(x, inner**0.5 / 20)
        x = self.g(Mul(), x, self.number(spread, x))
        if rng.random() < 0.5:
            x = self.g(Add(), x, self.mask(x))
        shares = self.rounded(self.g(Softmax(3), x), 1 / 255, -128 if self.dtype == "i8" else 0)
        self.g.output("y", self.rounded(self.g(MatMul(), shares, v), self.step))

    step = 1 / 40

    def number(self, x: float, like: ag.Value, dtype: Any = np.float32) -> ag.Value:
        return self.g(Broadcast(like.type.shape), self.g.constant(dtype(x)))

    def rounded(self, x: ag.Value, step: float, zero: int | None = None) -> ag.Value:
        """Quantize and dequantize."""
        kind = np.uint8 if self.dtype == "u8" else np.int8
        if zero is None:
            zero = int(self.rng.integers(-9, 10)) + (128 if kind is np.uint8 else 0)
        scale = self.number(step, x)
        zeros = self.number(zero, x, kind)
        return self.g(Dequantize(), self.g(Quantize(self.dtype), x, scale, zeros), scale, zeros)

    def operand(self, name: str, shape: tuple[int, ...]) -> ag.Value:
        self.feeds[name] = self.rng.standard_normal(shape).astype(np.float32)
        x = self.g.input(name, f"f32[{','.join(map(str, shape))}]")
        return self.rounded(x, 1 / 35)

    def mask(self, like: ag.Value) -> ag.Value:
        shape = tuple(1 if self.rng.random() < 0.5 else int(d) for d in like.type.shape)
        low = float(self.rng.choice([-np.inf, -1e9, -2]))
        mask = np.where(self.rng.random(shape) < 0.3, low, 0).astype(np.float32)
        self.feeds["mask"] = mask
        x = self.g.input("mask", f"f32[{','.join(map(str, shape))}]")
        return self.g(Broadcast(like.type.shape), x)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(3)
def test_it_answers_like_the_interpreter(seed: int) -> None:
    case = Case(seed)
    target = Target.parse(TARGETS[seed % 3])
    if seed % 2:  # as of more keys than are kept
        target = replace(target, facts=replace(target.facts, scratch=0))
    exe = ag.compile(case.g, target=target)

    found = exe.run(case.feeds)["y"]
    expected = evaluate(case.g, case.feeds)["y"]
    assert fused(exe)
    steps = np.abs(np.rint((found - expected) / case.step))
    # A share of one step more or less, where it was half-way: that of a value is as much.
    assert steps.max() <= 1 and np.mean(steps > 0) < 0.01


def written(rows: int | str, keys: int | str) -> ag.Graph:
    """Return quantized attention of so many rows and keys."""
    g = ag.Graph("written")

    def rounded(x: ag.Value, step: float, zero: int) -> ag.Value:
        scale = g(Broadcast(x.type.shape), g.constant(np.float32(step)))
        zeros = g(Broadcast(x.type.shape), g.constant(np.uint8(zero)))
        return g(Dequantize(), g(Quantize("u8"), x, scale, zeros), scale, zeros)

    q = rounded(g.input("q", f"f32[{rows},24]"), 1 / 35, 120)
    k = rounded(g.input("k", f"f32[{keys},24]"), 1 / 35, 131)
    v = rounded(g.input("v", f"f32[{keys},40]"), 1 / 35, 124)
    shares = rounded(g(Softmax(1), g(MatMul(), q, g(Transpose((1, 0)), k))), 1 / 255, 0)
    g.output("y", rounded(g(MatMul(), shares, v), 1 / 40, 128))
    return g


def test_scores_of_open_extents_are_computed_twice() -> None:
    exe = ag.compile(written("rows", "keys"))
    rng = np.random.default_rng(0)
    for rows, keys in ((16, 5), (40, 111), (33, 113), (64, 500)):
        shapes = {"q": (rows, 24), "k": (keys, 24), "v": (keys, 40)}
        feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        expected = evaluate(written(rows, keys), feeds)["y"]
        steps = np.abs(np.rint((exe.run(feeds)["y"] - expected) * 40))
        assert steps.max() <= 1 and np.mean(steps > 0) < 0.01
    instrs = [i for artifact in exe.artifacts for i in artifact.program.instrs()]
    assert any(sum(isinstance(op, MatMul) for op in i.operators()) == 2 for i in instrs)
