"""Depthwise convolutions by large windows: their taps are not all written out."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.vector.making import kernel
from alpenglow.ops.product.contraction import Conv
from alpenglow.program.instr import Program

RNG = np.random.default_rng(0)


def depthwise(*window: int) -> Graph:
    spatial, g = len(window), Graph("depthwise")
    w = g.constant(RNG.standard_normal((16, 1, *window)).astype(np.float32))
    extents = ",".join(str(d + 9) for d in window)
    ones = (1,) * spatial
    op = Conv(ones, tuple(d // 2 for d in window) * 2, ones, 16)
    g.output("y", g(op, g.input("x", f"f32[1,16,{extents}]"), w))
    return g


def length(g: Graph) -> int:
    """Return how many lines the kernels of a graph have."""
    target = Target.parse("x86-64-v3")
    *_, (_, program) = run_stages(g, target, ag.Options(check=False))
    assert isinstance(program, Program)
    kernels = [kernel(instr, target) for instr in program.instrs()]
    return sum(print_kernel(k).count("\n") for k in kernels if k is not None)


def test_the_code_of_a_large_window_is_little_longer() -> None:
    assert length(depthwise(31, 31)) < length(depthwise(9, 9))


@pytest.mark.parametrize("window", [(11, 13), (3, 5, 7), (90,)])
def test_large_windows_are_summed_as_small_ones(window: tuple[int, ...]) -> None:
    g = depthwise(*window)
    x = RNG.standard_normal((1, 16, *(d + 9 for d in window))).astype(np.float32)
    (expected,) = evaluate(g, {"x": x}).values()

    np.testing.assert_allclose(ag.compile(g)(x), expected, rtol=0, atol=1e-4)
