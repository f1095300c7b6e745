"""Convolutions of upsampled images, computed from the small ones."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.machines.vector.passes.fold_upsample import fold_upsample
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.gather import Gather

RNG = np.random.default_rng(0)
CPU = ag.Target.parse("cpu")


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def upsampled(
    x: tuple[int, ...], outputs: int, window: tuple[int, ...], steps: tuple[int, ...],
    pads: tuple[int, ...],
) -> Graph:  # fmt: skip
    g = ag.Graph("f")
    y = g.input("x", f"f32[{','.join(map(str, x))}]")
    for i, step in enumerate(steps):
        if step > 1:
            y = g(Gather(2 + i), y, g.constant(np.repeat(np.arange(x[2 + i]), step)))
    w, bias = numbers(outputs, x[1], *window), numbers(outputs)
    g.output("y", g(Conv(pads=pads), y, g.constant(w), g.constant(bias)))
    return g


def is_condensed(g: Graph) -> bool:
    return not any(isinstance(n.op, Gather) for n in fold_upsample(g.copy(), CPU).nodes)


@pytest.mark.parametrize(
    "g",
    [
        upsampled((2, 3, 6, 7), 16, (3, 3), (2, 2), (1, 1, 1, 1)),
        upsampled((1, 16, 5, 9), 3, (5, 4), (2, 3), (2, 0, 1, 4)),
        upsampled((1, 4, 11), 16, (3,), (2,), (0, 2)),
        upsampled((1, 20, 4, 4), 16, (2, 7), (1, 4), (5, 3, 0, 3)),
        upsampled((1, 2, 3, 4, 3), 16, (3, 1, 2), (2, 2, 1), (1, 0, 0, 1, 0, 1)),
    ],
    ids=str,
)
def test_weights_of_taps_that_meet_are_added_up(g: Graph) -> None:
    feed = numbers(*g.inputs["x"].type.extents)
    (want,) = evaluate(g, {"x": feed}).values()

    assert is_condensed(g)
    np.testing.assert_allclose(ag.compile(g)(feed), want, atol=1e-5 * np.abs(want).max(), rtol=0)


def test_winograd_is_left_where_it_takes_fewer_products() -> None:
    assert not is_condensed(upsampled((1, 128, 32, 32), 64, (3, 3), (2, 2), (1, 1, 1, 1)))


def test_pixels_that_are_not_repeated_alike_stay() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[1,3,4,4]")
    y = g(Gather(3), x, g.constant(np.array([0, 0, 0, 1, 2, 2, 3, 3])))
    g.output("y", g(Conv(), y, g.constant(numbers(16, 3, 3, 3))))

    assert not is_condensed(g)


def test_sums_of_weights_do_not_overflow() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[1,1,4]")
    y = g(Gather(2), x, g.constant(np.repeat(np.arange(4), 2)))
    g.output("y", g(Conv(), y, g.constant(np.full((16, 1, 3), 3e38, np.float32))))

    assert not is_condensed(g)
