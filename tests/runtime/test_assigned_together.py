"""Variables that are assigned what elementwise operators make of the same: one kernel, in place."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub

SHAPES = [(), (1,), (7,), (8,), (33,), (5, 13), (300, 300)]


def crossing(dtype: str, shape: tuple[int, ...]) -> ag.Graph:
    """Three variables, each of which becomes what others were."""
    g = ag.Graph("crossing")
    t = ag.TensorType(dtype, shape)
    rng = np.random.default_rng(0)
    a, b, c = (g.variable(n, rng.integers(-9, 9, shape).astype(t.numpy)) for n in "abc")
    x = g.input("x", t)
    g.assign("a", g(Add(), b, x))
    g.assign("b", g(Sub(), a, b))
    g.assign("c", g(Mul(), g(Add(), a, c), x))
    g.output("y", g(Mul(), x, x))
    return g


@pytest.mark.sampled(14)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_results_are_computed_before_one_is_stored(
    shape: tuple[int, ...], dtype: str, threads: int
) -> None:
    g = crossing(dtype, shape)
    exe = ag.compile(g, threads=threads)
    compiled, wanted = exe.session(), ag.compile(g, "interpreter").session()
    rng = np.random.default_rng(1)

    for _ in range(3):
        x = rng.integers(-3, 3, shape).astype(g.inputs["x"].type.numpy)
        compiled.run({"x": x})
        wanted.run({"x": x})
        for name in "abc":
            np.testing.assert_array_equal(compiled.variables[name], wanted.variables[name])

    (artifact,) = exe.artifacts
    assert sorted(len(i.outs) for i in artifact.program.instrs()) == [1, 3]
    assert all(cell.exit == name for name, cell in artifact.program.variables.items())
