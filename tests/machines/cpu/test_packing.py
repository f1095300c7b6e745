"""Weights as panels and back, by squares turned over in registers where they lie in rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array
from alpenglow.machines.vector.operators.filters import UnpackConv
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.tensor.movement import Slice, Transpose
from alpenglow.ops.tensor.packing import PackConv

LANES = {"cpu": ag.Target.parse("cpu").facts.lanes, "x86-64-v3": 8}
TARGETS = tuple(LANES)
TAPS = [(1, 1), (3, 3), (5,), (2, 3, 3)]
EXTENTS = [(1, 3), (20, 37), (48, 32), (64, 16), (70, 20)]
"""Outputs and inputs."""

Seen = Callable[[Graph, Value, tuple[int, ...]], Value]
"""Reads weights as others of a shape."""


def plain(g: Graph, w: Value, shape: tuple[int, ...]) -> Value:
    return w


def turned(g: Graph, w: Value, shape: tuple[int, ...]) -> Value:
    """Outputs and inputs in each other's place."""
    return g(Transpose((1, 0, *range(2, len(shape)))), w)


def backwards(g: Graph, w: Value, shape: tuple[int, ...]) -> Value:
    """The last tap first."""
    starts = (0, 0, *(d - 1 for d in shape[2:]))
    return g(Slice(starts, shape, (1, 1, *[-1] * len(starts[2:]))), w)


def back_and_turned(g: Graph, w: Value, shape: tuple[int, ...]) -> Value:
    """As the gradient of what is convolved reads weights."""
    return backwards(g, turned(g, w, shape), shape)


def two_apart(g: Graph, w: Value, shape: tuple[int, ...]) -> Value:
    """Every other tap, the last one first, of a window that has one more in between."""
    wide = (*shape[:2], *(2 * d - 1 for d in shape[2:]))
    starts = (0, 0, *(d - 1 for d in wide[2:]))
    return g(Slice(starts, shape, (1, 1, *[-2] * len(starts[2:]))), turned(g, w, wide))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("taps", TAPS, ids=str)
@pytest.mark.parametrize("seen", [plain, turned, backwards, back_and_turned, two_apart])
@pytest.mark.sampled(16)
def test_weights_are_packed_as_they_are_seen(
    seen: Seen, taps: tuple[int, ...], target: str
) -> None:
    for k, (outputs, inputs) in enumerate(EXTENTS):
        shape = (outputs, inputs, *taps)
        stored = shape if seen in (plain, backwards) else (inputs, outputs, *taps)
        if seen is two_apart:
            stored = (*stored[:2], *(2 * d - 1 for d in taps))
        pack = PackConv((1, 8, 16)[k % 3], LANES[target] * (1 + k % 2))
        g = Graph("pack")
        w = g.input("w", ag.TensorType("f32" if k % 2 else "i32", stored))
        g.output("y", g(pack, seen(g, w, shape)))
        agrees(g, numbers(w), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("taps", TAPS, ids=str)
@pytest.mark.sampled(4)
def test_panels_become_rows(taps: tuple[int, ...], target: str) -> None:
    for k, (outputs, inputs) in enumerate(EXTENTS):
        pack = PackConv((1, 8, 16)[k % 3], LANES[target] * (1 + k % 2))
        g = Graph("unpack")
        packed = pack.infer(ag.TensorType("f32", (outputs, inputs, *taps)))
        rows = g(UnpackConv(outputs, inputs), g.input("w", packed))
        g.output("y", g(Neg(), rows) if k % 2 else rows)
        agrees(g, numbers(g.inputs["w"]), target)


def numbers(v: Value) -> Array:
    """Return what differs from place to place."""
    return np.arange(v.type.size).reshape(v.type.extents).astype(v.type.numpy)


def agrees(g: Graph, w: Array, target: str) -> None:
    (expected,) = evaluate(g, {"w": w}).values()
    np.testing.assert_array_equal(ag.compile(g, target=target)(w), expected)
