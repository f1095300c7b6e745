"""Rows that are interpolated are transposed in groups: each group and square may be a short one."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import DTYPES, Array
from alpenglow.machines.vector.select import kernel_for
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.image.resize import Interpolate
from alpenglow.program import Instr

RNG = np.random.default_rng(0)
TARGET = ag.Target.parse("x86-64-v3")


def interpolated(shape: tuple[int, ...], width: int, dtype: str, axis: int = -1) -> Graph:
    """Return a graph of one interpolation by three taps, some from the end or out of range."""
    g, last = ag.Graph("rows"), shape[axis]
    x = g.input("x", f"{dtype}[{','.join(map(str, shape))}]")
    indices = RNG.integers(-last - 2, last + 2, (3, width)).astype(np.int32)
    weights = RNG.standard_normal((3, width), np.float32)
    g.output("y", g(Interpolate(axis, dtype), x, g.constant(indices), g.constant(weights)))
    return g


def gathers(g: Graph) -> bool:
    """Return True if the kernel of the interpolation uses no scratch memory."""
    *_, (_, program) = run_stages(g, TARGET, ag.Options())
    (instr,) = (
        i for i in program.body
        if isinstance(i, Instr) and any(isinstance(op, Interpolate) for op in i.operators())
    )  # fmt: skip
    return not kernel_for(instr, TARGET).arrays


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("width", [1, 3, 7, 8, 9, 21])
@pytest.mark.parametrize("shape", [(8, 1), (3, 5, 6), (2, 8, 8), (19, 13), (4, 3, 33), (16, 9, 1)])
@pytest.mark.sampled(24)
def test_rows_are_interpolated_as_the_reference_does(
    shape: tuple[int, ...], width: int, dtype: str
) -> None:
    g = interpolated(shape, width, dtype, 1 if shape[-1] == 1 and len(shape) > 2 else -1)
    x = RNG.standard_normal(shape).astype(DTYPES[dtype])
    expected = evaluate(g, {"x": x})["y"]

    np.testing.assert_allclose(ag.compile(g)(x), expected, rtol=1e-5, atol=1e-5)
    assert not gathers(g)


def test_what_is_added_is_read_before_it_is_written_over() -> None:
    """The last group of 19 rows begins within the group before."""
    g = ag.Graph("sum")
    x, z = g.input("x", "f32[19,13]"), g.input("z", "f32[19,21]")
    indices = g.constant(RNG.integers(0, 13, (2, 21)).astype(np.int32))
    weights = g.constant(RNG.standard_normal((2, 21), np.float32))
    row = g(Interpolate(1, "f32"), x, indices, weights)
    g.output("y", g(Add(), row, g(Exp(), z)))
    feeds = {"x": RNG.standard_normal((19, 13), np.float32),
             "z": RNG.standard_normal((19, 21), np.float32)}  # fmt: skip
    expected = evaluate(g, feeds)["y"]

    np.testing.assert_allclose(ag.compile(g).run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), [((7, 9), -1), ((8, 9), 0), ((8, 100_000), -1)])
def test_few_rows_other_axes_and_long_rows_are_left_to_loops(
    shape: tuple[int, ...], axis: int
) -> None:
    g = interpolated(shape, 4, "f32", axis)
    x = RNG.standard_normal(shape, np.float32)
    expected: Array = evaluate(g, {"x": x})["y"]

    np.testing.assert_allclose(ag.compile(g)(x), expected, rtol=1e-5, atol=1e-5)
    assert gathers(g)
