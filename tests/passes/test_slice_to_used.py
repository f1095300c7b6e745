"""What nobody reads is not computed, and nothing is put in memory to take a part of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.arithmetic import Add, Maximum
from alpenglow.ops.elementwise.comparison import GreaterOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from alpenglow.passes.slice_to_used import slice_to_used

ROWS, FEATURES = 6, 8


def causal() -> Graph:
    """Two layers of attention by one mask, of whose result the last row is read."""
    g = Graph("causal")
    x, seen = g.input("x", f"f32[{ROWS},{FEATURES}]"), g.input("seen", f"bool[{ROWS}]")
    square = (ROWS, ROWS)
    later = g(GreaterOrEqual(), g(Iota(square, 0)), g(Iota(square, 1)))
    mask = g(BitAnd(), later, g(Broadcast(square), seen))
    nothing = g(Broadcast(square), g.constant(np.float32(-np.inf)))

    def attention(x: Value, seed: int) -> Value:
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=(3, FEATURES, FEATURES)).astype(np.float32)
        q, k, v = (g(MatMul(), x, g.constant(w)) for w in weights)
        scores = g(Where(), mask, g(MatMul(), q, g(Transpose((1, 0)), k)), nothing)
        return g(Add(), x, g(MatMul(), g(Softmax(-1), scores), v))

    y = attention(attention(x, 0), 1)
    g.output("y", g(Slice((ROWS - 1, 0), (1, FEATURES), (1, 1)), y))
    return g


def test_a_part_of_a_mask_is_computed_anew() -> None:
    feeds = {
        "x": np.random.default_rng(2).normal(size=(ROWS, FEATURES)).astype(np.float32),
        "seen": np.array([True, False, True, True, True, True]),
    }
    (expected,) = evaluate(causal(), feeds).values()
    g = slice_to_used(causal())
    sliced = [n.inputs[0] for n in g.nodes if isinstance(n.op, Slice)]
    (actual,) = evaluate(g, feeds).values()

    assert sliced and not [v for v in sliced if v is not None and v.type.shape == (ROWS, ROWS)]
    assert [n for n in g.nodes if isinstance(n.op, Softmax) and n.output.type.shape == (1, ROWS)]
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    np.testing.assert_allclose(ag.compile(causal())(**feeds), expected, rtol=1e-5)


def halved(depth: int, by: Callable[[Graph, Value], Value]) -> Graph:
    """A product of the last row of positions that went through `depth` steps, and their sum."""
    g = Graph("deep")
    x = g(Cast("f32"), g(Iota((ROWS, FEATURES), 0)))
    for _ in range(depth):
        x = by(g, x)
    w = np.ones((FEATURES, 2), np.float32)
    last = g(Slice((ROWS - 1, 0), (1, 2), (1, 1)), g(MatMul(), x, g.constant(w)))
    g.output("last", last)
    g.output("all", g(ReduceSum((0, 1), keepdims=False), x))
    return g


@pytest.mark.parametrize("depth", [40, 3000])
def test_what_shares_values_or_is_long_takes_no_time_and_no_stack(depth: int) -> None:
    g = halved(depth, lambda g, x: g(Maximum(), x, x))
    (expected, total) = evaluate(g, {}).values()
    made = evaluate(slice_to_used(g), {})

    np.testing.assert_array_equal(made["last"], expected)
    np.testing.assert_array_equal(made["all"], total)
