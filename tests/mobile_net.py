"""MobileNetV2 with drawn weights: published shapes, for memory and bits, not for pictures."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import numpy as np

import alpenglow as ag
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.arithmetic import Add, Clip
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.quant import activations

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
          (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
"""How much wider inside, outputs, how many blocks, and the stride of the first."""

MOBILE_NBYTES = 190_000
"""What a call takes of 224 rows in 8 bits, at most; by layers it takes 1.5 MB."""


class _Net:
    def __init__(self, side: int) -> None:
        self.g = Graph(f"mobilenet_v2_{side}")
        self.rng = np.random.default_rng(0)

    def conv(self, x: Value, outputs: int, taps: int, stride: int = 1, deep: bool = False) -> Value:
        channels = x.type.extents[1]
        shape = (outputs, 1 if deep else channels, taps, taps)
        w = self.rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        bias = self.rng.standard_normal(outputs) / 10
        pads = (taps // 2,) * 4
        op = Conv((stride, stride), pads, (1, 1), channels if deep else 1)
        constants = (self.g.constant(a.astype(np.float32)) for a in (w, bias))
        return self.g(op, x, *constants, name=f"v{len(self.g.nodes)}")

    def relu6(self, x: Value) -> Value:
        return self.g(Clip(0.0, 6.0), x, name=f"v{len(self.g.nodes)}")

    def block(self, x: Value, wider: int, outputs: int, stride: int) -> Value:
        inner = x.type.extents[1] * wider
        y = self.relu6(self.conv(x, inner, 1)) if wider > 1 else x
        y = self.relu6(self.conv(y, inner, 3, stride, deep=True))
        y = self.conv(y, outputs, 1)
        same = stride == 1 and x.type == y.type
        return self.g(Add(), x, y, name=f"v{len(self.g.nodes)}") if same else y


def mobilenet(side: int = 224) -> Graph:
    """Return the network in f32 for pictures of so many rows."""
    net = _Net(side)
    x = net.g.input("image", f"f32[1,3,{side},{side}]")
    x = net.relu6(net.conv(x, 32, 3, 2))
    for wider, outputs, count, stride in STAGES:
        for i in range(count):
            x = net.block(x, wider, outputs, stride if i == 0 else 1)
    x = net.relu6(net.conv(x, 1280, 1))
    x = net.g(Reshape((1, 1280)), net.g(ReduceMean((2, 3), True), x, name="mean"), name="flat")
    w = net.g.constant((net.rng.standard_normal((1280, 1000)) / 36).astype(np.float32))
    net.g.output("logits", net.g(MatMul(), x, w, name="logits"))
    return net.g


@cache
def quantised(side: int = 224) -> Graph:
    """Return the network in 8 bits, all layers of it: also those that would be faster in f32."""
    g = mobilenet(side)
    rng = np.random.default_rng(1)
    samples = [rng.standard_normal((1, 3, side, side)).astype(np.float32)]
    options = ag.QuantOptions(schema="symmetric_uint8")
    with patch.object(activations, "LEAST_WORK", 0):
        return ag.quantize(g, ag.profile_ranges(g, samples), options)
