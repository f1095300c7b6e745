"""Graphs with caches that grow, as decoders have them, and rows to feed them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Shape
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Concat, Slice, Transpose

Array = NDArray[Any]


def decoder(last: bool = False) -> ag.Graph:
    """Attention of new rows over all rows so far, as exporters write it, with two caches.

    If `last`, what is kept of the keys is other than what was kept and what is new behind it.
    """
    g = ag.Graph("decoder")
    x = g.input("x", "f32[B,S,8]")
    before = {n: g.input(n, "f32[B,P,8]") for n in ("past.0.key", "past.0.value")}
    keys, values = (g(Concat(1), cache, x) for cache in before.values())
    scores = g(MatMul(), x, g(Transpose((0, 2, 1)), keys))
    length = g(Cast("f32"), g(Shape(1, 2), keys))
    y = g(MatMul(), g(Softmax(2), scores), values)
    g.output("y", g(Add(), y, g(Broadcast(y.type.shape), length)))
    if last:
        size = keys.type.shape
        keys = g(Concat(1), g(Slice((0, size[1] - 1, 0), (size[0], 1, 8), (1, 1, 1)), keys),
                 g(Slice((0, 0, 0), (size[0], size[1] - 1, 8), (1, 1, 1)), keys))  # fmt: skip
    g.output("present.0.key", keys)
    g.output("present.0.value", values)
    return g


def rows(count: int, batch: int = 1, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((batch, count, 8)).astype(np.float32)


def ragged() -> ag.Graph:
    """A cache whose samples have lengths of their own, as GroupQueryAttention writes it."""
    g = ag.Graph("ragged")
    x, start = g.input("x", "f32[2,S,8]"), g.input("start", "i64[2]")
    cache = g.input("past.0.key", "f32[2,P,8]")
    room = g(Broadcast(x.type.shape), g.constant(np.float32(0)))
    keys = g(UpdateCache(1), g(Concat(1), cache, room), x, start)
    g.output("y", g(MatMul(), x, g(Transpose((0, 2, 1)), keys)))
    g.output("present.0.key", keys)
    return g


def stopped(g: ag.Graph) -> ag.Graph:
    """Return a graph that ends with an error where its input `row` is past 0."""
    row = g.input("row", "i64[1]")
    g.output("told", g(Gather(0), g.constant(np.ones((1, 2), np.float32)), g(InRange(0, 0), row)))
    return g
