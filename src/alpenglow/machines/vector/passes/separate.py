"""Pooling by large windows goes along one axis after the other.

A window of k × k elements costs k + k of them so, and each of the two shares what neighbouring
windows have in common (`templates/windows.py`).  The largest of the largest is exact; a mean of
means is rounded more often, so means are separated under numerics="fast" only.
"""

from __future__ import annotations

import math
from dataclasses import replace

from alpenglow.ir.dims import estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rules
from alpenglow.ir.target import Target
from alpenglow.ir.types import HALVES, TensorType
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.window.pooling import AveragePool, MaxPool

LARGE = 9
"""Elements of a window from which on it may be separated."""

TOGETHER = 8
"""So many neighbouring windows share what they load, at most."""

GATHERED = 4
"""Cost of loading elements with gaps between them, in loads of neighbours."""

largest = Rules()
means = Rules()


def separate(g: Graph, target: Target, fast: bool) -> Graph:
    """Separate the windows of pools along their axes, those of means only if `fast`."""
    if not target.facts.cache:  # memory is short there, and what lies between takes some
        return g
    largest.apply(g)
    if fast:
        means.apply(g)
    return g


@largest.on(MaxPool)
def separate_max(g: Graph, node: Node) -> Value | None:
    """max_pool(x, k×l)  =>  max_pool(max_pool(x, k×1), 1×l)"""
    match node:
        case Node(MaxPool() as op, [Value() as x]) if _pays(op, x.type):
            return _one_by_one(g, op, x)
    return None


@means.on(AveragePool)
def separate_mean(g: Graph, node: Node) -> Value | None:
    """average_pool(x, k×l)  =>  average_pool(average_pool(x, k×1), 1×l)

    How many elements of a window count is the product of how many do along each axis.
    """
    match node:
        case Node(AveragePool() as op, [Value() as x]) if _pays(op, x.type):
            dtype = x.type.dtype
            if dtype not in HALVES:
                return _one_by_one(g, op, x)
            return g(Cast(dtype, loose=True), _one_by_one(g, op, g(Cast("f32"), x)))
    return None


def _pays(op: MaxPool | AveragePool, x: TensorType) -> bool:
    """Return True if fewer elements are loaded and stored for each result, axis by axis."""
    if sum(taps > 1 for taps in op.kernel) < 2 or math.prod(op.kernel) < LARGE:
        return False
    spatial = len(op.kernel)
    out = op.infer(x).shape
    ratios = [estimate(a) / max(estimate(b), 1) for a, b in zip(x.shape[2:], out[2:], strict=False)]
    direct, separated = math.prod(op.kernel) + 1.0, 0.0
    if x.is_plain and op.strides[-1] > 1:
        direct *= GATHERED
    for i, (taps, stride) in enumerate(zip(op.kernel, op.strides, strict=True)):
        if taps > 1:
            shared = min(TOGETHER, (taps - 1) // stride + 1, max(estimate(out[2 + i]), 1))
            loaded = (taps + (shared - 1) * stride) / shared
            separated += math.prod(ratios[i + 1 : spatial]) * (loaded + 1)
    return separated < direct


def _one_by_one(g: Graph, op: MaxPool | AveragePool, x: Value) -> Value:
    """Return x pooled along each axis in turn."""
    spatial = len(op.kernel)
    ones, none = (1,) * spatial, (0,) * spatial
    for i in range(spatial):
        if op.kernel[i] == op.strides[i] == 1 and not op.pads[i] + op.pads[spatial + i]:
            continue

        def alone(numbers: tuple[int, ...], rest: tuple[int, ...], i: int = i) -> tuple[int, ...]:
            return (*rest[:i], numbers[i], *rest[i + 1 :])

        pads = (*alone(op.pads[:spatial], none), *alone(op.pads[spatial:], none))
        x = g(
            replace(
                op, kernel=alone(op.kernel, ones), strides=alone(op.strides, ones), pads=pads,
                dilations=alone(op.dilations, ones),
            ), x,
        )  # fmt: skip
    return x
