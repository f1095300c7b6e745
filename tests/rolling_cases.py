"""Drawn networks of images, for what computes them a few rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu, Tanh
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Concat, Pad
from alpenglow.ops.window.pooling import AveragePool, MaxPool

Rng = np.random.Generator


def network(seed: int, tall: int = 24) -> Graph:
    """Return a network of convolutions, pools, padding, branches and what is elementwise."""
    rng = np.random.default_rng(seed)
    g = Graph(f"network{seed}")
    shape = (int(rng.integers(1, 3)), int(rng.choice([1, 3, 4, 6])),
             int(rng.integers(7, tall)), int(rng.integers(5, 17)))  # fmt: skip
    x = g.input("x", f"f32[{','.join(map(str, shape))}]")
    for _ in range(int(rng.integers(3, 8))):
        x = _step(g, rng, x)
    if rng.random() < 0.3:
        g.output("mean", g(ReduceMean((2, 3), True), x))
    if rng.random() < 0.8 or not g.outputs:
        g.output("y", x)
    return g


def _step(g: Graph, rng: Rng, x: Value) -> Value:
    match int(rng.integers(0, 9)):
        case 0 | 1 | 2:
            x = _conv(g, rng, x)
        case 3:
            x = _depthwise(g, rng, x)
        case 4:
            x = _pool(g, rng, x)
        case 5:
            x = _residual(g, rng, x)
        case 6:
            x = g(Concat(1), *[_same(g, rng, x) for _ in range(int(rng.integers(2, 4)))])
        case 7:
            before, after = ((0, 0, *map(int, rng.integers(0, 3, 2))) for _ in range(2))
            x = g(Pad(before, after, "constant", float(rng.choice([0.0, 1.5]))), x)
        case 8:
            x = g(Tanh(), x)
    return g(Relu(), x) if rng.random() < 0.5 else x


def _window(rng: Rng, x: Value, most: int = 5) -> tuple[Any, ...]:
    """Return a kernel, strides, pads and dilations that fit into an image."""
    kernel = tuple(int(rng.integers(1, most + 1)) for _ in range(2))
    dilations = tuple(int(rng.choice([1, 1, 1, 2])) for _ in range(2))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(s > n for s, n in zip(spans, x.type.extents[2:], strict=True)):
        return (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)
    strides = tuple(int(rng.choice([1, 1, 2, 3])) for _ in range(2))
    if min(x.type.extents[2:]) < 6:
        strides = (1, 1)
    pads = tuple(int(rng.integers(0, s)) for s in (*spans, *spans))
    return kernel, strides, pads, dilations


def _weights(g: Graph, rng: Rng, *shape: int) -> Value:
    return g.constant(rng.standard_normal(shape).astype(np.float32))


def _conv(g: Graph, rng: Rng, x: Value) -> Value:
    kernel, strides, pads, dilations = _window(rng, x)
    channels = x.type.extents[1]
    group = int(rng.choice([d for d in (1, 1, 2, 3) if channels % d == 0]))
    outputs = group * int(rng.integers(1, 6))
    w = _weights(g, rng, outputs, channels // group, *kernel)
    bias = _weights(g, rng, outputs) if rng.random() < 0.5 else None
    return g(Conv(strides, pads, dilations, group), x, w, bias)


def _depthwise(g: Graph, rng: Rng, x: Value) -> Value:
    kernel, strides, pads, dilations = _window(rng, x)
    channels = x.type.extents[1]
    return g(Conv(strides, pads, dilations, channels), x, _weights(g, rng, channels, 1, *kernel))


def _pool(g: Graph, rng: Rng, x: Value) -> Value:
    kernel, strides, pads, dilations = _window(rng, x, 3)
    pads = tuple(min(p, k - 1) for p, k in zip(pads, (*kernel, *kernel), strict=True))
    ceil = bool(rng.random() < 0.3)
    if rng.random() < 0.5:
        return g(MaxPool(kernel, strides, pads, dilations, ceil), x)
    return g(AveragePool(kernel, strides, pads, dilations, ceil, bool(rng.random() < 0.5)), x)


def _same(g: Graph, rng: Rng, x: Value) -> Value:
    """Return a convolution of the same height and width."""
    if rng.random() < 0.2:
        return x
    kernel = tuple(int(rng.choice([1, 3, 5])) for _ in range(2))
    pads = tuple(k // 2 for k in (*kernel, *kernel))
    w = _weights(g, rng, x.type.extents[1], x.type.extents[1], *kernel)
    return g(Relu(), g(Conv((1, 1), pads), x, w))


def _residual(g: Graph, rng: Rng, x: Value) -> Value:
    return g(Add(), _same(g, rng, _same(g, rng, x)), x)
