"""Padding with what is inside is written as strips beside it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import alpenglow as ag
from agreement import disagreements
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.machines.vector.passes.expand_padding import expand_padding
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Pad

MODES = pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])


@MODES
@pytest.mark.parametrize(
    ("before", "after"),
    [((0, 0, 2, 3), (0, 0, 1, 4)), ((0, 0, 0, 1), (0, 0, 0, 0)), ((1, 2, 0, 0), (0, 1, 0, 3))],
)
def test_strips_are_what_the_pad_was(
    mode: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    g = Graph("f")
    x = g.input("x", "f32[2,3,5,6]")
    g.output("y", g(Pad(before, after, mode), g(Relu(), x)))
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)}
    want = evaluate(g, feeds)["y"]
    changed = expand_padding(g.copy())

    assert not any(isinstance(n.op, Pad) for n in changed.nodes)
    np.testing.assert_array_equal(evaluate(changed, feeds)["y"], want)
    np.testing.assert_array_equal(ag.compile(g).run(feeds)["y"], want)


def test_a_pad_of_a_constant_stays() -> None:
    g = Graph("f")
    g.output("y", g(Pad((0, 1), (1, 0), value=2.0), g.input("x", "f32[3,4]")))

    assert [type(n.op) for n in expand_padding(g).nodes] == [Pad]


@MODES
def test_between_convolutions_nothing_leaves_its_blocks(mode: str) -> None:
    g = Graph("f")
    rng = np.random.default_rng(0)
    w = g.constant(rng.standard_normal((32, 32, 3, 3)).astype(np.float32))
    y = g(Relu(), g(Conv(), g.input("x", "f32[1,32,9,18]"), w))
    g.output("y", g(Conv(), g(Pad((0, 0, 1, 2), (0, 0, 1, 1), mode), y), w))
    feeds = {"x": rng.standard_normal((1, 32, 9, 18)).astype(np.float32)}
    exe = ag.compile(g)
    got, want = exe.run(feeds)["y"], evaluate(g, feeds)["y"]
    kernels = [entry.kernel.rsplit("_", 1)[0] for entry in exe.artifact.table]

    assert kernels.count("unpack") == kernels.count("pack") == 1
    np.testing.assert_allclose(got, want, atol=2e-5 * float(np.abs(want).max()), rtol=0)


@pytest.mark.rest
def test_wrapping_goes_round_as_often_as_it_takes() -> None:
    g = Graph("f")
    tried = 0
    for extent, before, after in product((1, 2, 3, 17), (0, 1, 5, 40), (0, 2, 23, 150)):
        for axis in range(3):
            shape = [2, 3, 4]
            shape[axis] = extent
            x = g.input(f"x{tried}", f"f32[{','.join(map(str, shape))}]")
            ends = (tuple(n if i == axis else 0 for i in range(3)) for n in (before, after))
            g.output(f"y{tried}", g(Pad(*ends, "wrap"), x))
            tried += 1

    assert disagreements(g, tolerance=0) == []


@MODES
@pytest.mark.parametrize("amounts", [(0, 1), (2, 2), (7, 5)])
@pytest.mark.sampled(5)
def test_what_is_padded_may_be_open(mode: str, amounts: tuple[int, int]) -> None:
    before, after = amounts
    g = Graph("f")
    g.output("y", g(Pad((0, before), (0, after), mode), g.input("x", "f32[2,n]")))
    exe = ag.compile(g)
    for extent in range(max(amounts) + 1 if mode == "reflect" else 1, 18):
        x = np.arange(2 * extent, dtype=np.float32).reshape(2, extent)

        np.testing.assert_array_equal(exe(x), np.pad(x, ((0, 0), amounts), mode))  # type: ignore[call-overload]
