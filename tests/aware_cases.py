"""Small networks of constants that are quantized, trained for that, and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import MaxPool
from train_cases import CLASSES, samples

Array = NDArray[Any]
IMAGE = (3, 12, 12)


class Net:
    """A graph while it is built; constants and results have names."""

    def __init__(self, name: str, batch: int | str, seed: int = 0) -> None:
        self.g, self.batch = Graph(name), batch
        self.random = np.random.default_rng(seed)

    def constant(self, name: str, *shape: int, size: float = 1.0) -> Value:
        numbers = self.random.standard_normal(shape) * size
        return self.g.constant(numbers.astype(np.float32), name)

    def image(self) -> Value:
        return self.g.input("x", f"f32[{self.batch},{','.join(map(str, IMAGE))}]")

    def conv(
        self, x: Value, name: str, outputs: int, taps: int = 3, stride: int = 1,
        deep: bool = False, norm: bool = False,
    ) -> Value:  # fmt: skip
        channels = int(x.type.shape[1])
        shape = (outputs, 1 if deep else channels, taps, taps)
        w = self.constant(f"{name}.w", *shape, size=(2 / np.prod(shape[1:])) ** 0.5)
        bias = None if norm else self.constant(f"{name}.b", outputs, size=0.1)
        op = Conv((stride, stride), (taps // 2,) * 4, (1, 1), channels if deep else 1)
        y = self.g(op, x, w, bias, name=name)
        if not norm:
            return y
        shift = [self.constant(f"{name}.{what}", outputs, size=0.1) for what in ("shift", "mean")]
        spread = [
            self.g.constant(self.random.uniform(0.5, 2, outputs).astype(np.float32), f"{name}.{w}")
            for w in ("scale", "variance")
        ]
        operands = spread[0], *shift, spread[1]
        return self.g(BatchNorm(), y, *operands, name=f"{name}.norm")

    def dense(self, x: Value, name: str, outputs: int, turned: bool = False) -> Value:
        inputs = int(x.type.shape[-1])
        shape = (outputs, inputs) if turned else (inputs, outputs)
        w = self.constant(f"{name}.w", *shape, size=inputs**-0.5)
        w = self.g(Transpose((1, 0)), w) if turned else w
        if x.type.rank > 2:
            w = self.g(Broadcast((*x.type.shape[:-2], inputs, outputs)), w)
        y = self.g(MatMul(), x, w)
        bias = self.constant(f"{name}.b", outputs, size=0.1)
        return self.g(Add(), y, self.g(Broadcast(y.type.shape), bias), name=name)

    def scored(self, y: Value) -> Graph:
        self.g.output("scores", y)
        return self.g


def pooled(batch: int | str = 8) -> Graph:
    """Return two convolutions with pools, and a layer whose weights are turned."""
    net = Net("pooled", batch)
    x = net.image()
    for name, outputs in (("first", 8), ("second", 8)):
        x = net.g(Relu(), net.conv(x, name, outputs), name=f"{name}.relu")
        x = net.g(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1)), x, name=f"{name}.pool")
    x = net.g(Reshape((x.type.shape[0], 72)), x, name="flat")
    return net.scored(net.dense(x, "last", CLASSES, turned=True))


def blocks(batch: int | str = 8, norm: bool = False) -> Graph:
    """Return two inverted residual blocks, as those of MobileNetV2."""
    net = Net("blocks", batch)

    def relu6(x: Value, name: str) -> Value:
        return net.g(Clip(0.0, 6.0), x, name=f"{name}.relu")

    x = relu6(net.conv(net.image(), "stem", 8, stride=2, norm=norm), "stem")
    for k in range(2):
        y = relu6(net.conv(x, f"wide{k}", 24, 1, norm=norm), f"wide{k}")
        y = relu6(net.conv(y, f"deep{k}", 24, 3, deep=True, norm=norm), f"deep{k}")
        y = net.conv(y, f"narrow{k}", 8, 1, norm=norm)
        x = net.g(Add(), x, y, name=f"sum{k}")
    x = net.g(ReduceMean((2, 3), False), x, name="mean")
    return net.scored(net.dense(x, "last", CLASSES))


def normed(batch: int | str = 8) -> Graph:
    return blocks(batch, norm=True)


def widened(batch: int = 8) -> Graph:
    """Return a transposed convolution between two others."""
    net = Net("widened", batch)
    x = net.g(Relu(), net.conv(net.image(), "first", 6, stride=2), name="first.relu")
    w, b = net.constant("up.w", 6, 4, 2, 2, size=0.4), net.constant("up.b", 4, size=0.1)
    x = net.g(ConvTranspose((2, 2), (0,) * 4, (1, 1), (0, 0)), x, w, b, name="up")
    x = net.conv(net.g(Relu(), x, name="up.relu"), "last", CLASSES)
    return net.scored(net.g(ReduceMean((2, 3), False), x, name="mean"))


def attentive(batch: int = 8) -> Graph:
    """Return a layer of attention: two products of what is computed."""
    net = Net("attentive", batch)
    x = net.g(Reshape((batch, 12, 36)), net.image(), name="rows")
    q, k, v = (net.dense(x, name, 16) for name in "qkv")
    scores = net.g(MatMul(), q, net.g(Transpose((0, 2, 1)), k), name="scores of keys")
    x = net.g(MatMul(), net.g(Softmax(2), scores, name="shares"), v, name="mixed")
    return net.scored(net.dense(net.g(ReduceMean((1,), False), x, name="mean"), "last", CLASSES))


def shared(batch: int = 8) -> Graph:
    """Return a weight and a bias that two layers have."""
    net = Net("shared", batch)
    x = net.g(Relu(), net.conv(net.image(), "first", 8), name="first.relu")
    w, b = net.constant("w", 8, 8, 3, 3, size=0.1), net.constant("b", 8, size=0.1)
    for name in ("second", "third"):
        y = net.g(Conv(pads=(1,) * 4), x, w, b, name=name)
        x = net.g(Relu(), y, name=f"{name}.relu")
    x = net.g(ReduceMean((2, 3), False), x, name="mean")
    return net.scored(net.dense(x, "last", CLASSES))


NETS: dict[str, Callable[[], Graph]] = {
    "pooled": pooled, "blocks": blocks, "normed": normed, "widened": widened,
    "attentive": attentive, "shared": shared,
}  # fmt: skip


def batches(count: int = 4, seed: int = 3) -> list[dict[str, Array]]:
    """Return batches of eight samples with labels."""
    data = samples(8 * count, IMAGE, seed)
    return [{k: v[8 * i : 8 * i + 8] for k, v in data.items()} for i in range(count)]


def profiled(g: Graph) -> ag.Profile:
    return ag.profile_ranges(g, [batch["x"] for batch in batches()])


def with_outliers(g: Graph, first: str, second: str, spread: float) -> Graph:
    """Return a copy that computes the same, with channels between two convolutions of other sizes.

    A ReLU passes a positive factor on, so what one layer gains the next can lose (Nagel et al.,
    2019); one scale for a whole weight then has few steps for the small channels.
    """
    g = g.copy()
    named = {v.name: v for v in g.constants() if v.name}
    count = named[f"{first}.b"].type.extents[0]
    factor = np.exp(np.linspace(-1, 1, count) * np.log(spread)).astype(np.float32)
    for name, by in (
        (f"{first}.w", factor[:, None, None, None]), (f"{first}.b", factor),
        (f"{second}.w", 1 / factor[None, :, None, None]),
    ):  # fmt: skip
        old = named[name]
        g.replace(old, g.constant(old.array * by, name))
    return g
