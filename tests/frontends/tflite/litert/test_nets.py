"""Nets of many operators: equal LiteRT, with channels turned once, where the image comes in."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tests.frontends.tflite.litert import written as litert
from tests.frontends.tflite.litert.test_probes import listed, wrong
from tests.frontends.tflite.litert.written import operator, run, tensor

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

SAME, RELU, RELU6 = 0, 1, 3
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


class Net:
    """A chain of operators on images, and what is needed to write it."""

    def __init__(self, *shape: int) -> None:
        self.tensors: list[Any] = []
        self.buffers = [litert.buffer()]
        self.operators: list[Any] = []
        self.kinds: list[str] = []
        self.x = self.value(shape)

    def value(self, shape: tuple[int, ...], array: Array | None = None) -> int:
        dtype = "f32" if array is None or array.dtype == np.float32 else "i32"
        t = tensor(f"t{len(self.tensors)}", dtype, shape)
        if array is not None:
            t.buffer = len(self.buffers)
            self.buffers.append(litert.buffer(array.tobytes()))
        self.tensors.append(t)
        return len(self.tensors) - 1

    def add(
        self, kind: str, operands: list[int | Array], shape: tuple[int, ...], **options: Any
    ) -> int:
        if kind not in self.kinds:
            self.kinds.append(kind)
        inputs = [o if isinstance(o, int) else self.value(o.shape, o) for o in operands]
        y = self.value(shape)
        self.operators.append(operator(self.kinds.index(kind), kind, inputs, [y], options))
        return y

    def conv(
        self, x: int, outputs: int, k: int = 3, stride: int = 1, activation: int = RELU
    ) -> int:
        n, h, w, c = self.tensors[x].shape
        shape = (n, -(-h // stride), -(-w // stride), outputs)
        return self.add("CONV_2D", [x, floats(outputs, k, k, c), floats(outputs)], shape,
                        padding=SAME, stride_h=stride, stride_w=stride,
                        fused_activation_function=RELU)  # fmt: skip

    def model(self, *outputs: int) -> bytes:
        graph = litert.subgraph(self.tensors, [self.x], outputs, self.operators)
        codes = [litert.code(kind) for kind in self.kinds]
        return litert.packed(litert.model_of([graph], codes, self.buffers))


def transposes(model: bytes) -> int:
    """Return how many transposes are left in the graph that is compiled."""
    graph = load(model)
    assert isinstance(graph, Graph)
    counts: Counter[str] = Counter()
    for _, made in run_stages(graph, ag.Target.parse("cpu"), ag.Options()):
        if isinstance(made, Graph):
            counts = Counter(node.op.name for node in made.nodes)
    return counts["transpose"]


def trunk(net: Net) -> int:
    """Convolutions, pools side by side, padding, and a sum: [1, 8, 8, 32]."""
    a = net.conv(net.x, 16, stride=2)
    a = net.add("DEPTHWISE_CONV_2D", [a, floats(1, 3, 3, 16), floats(16)], (1, 16, 16, 16),
                padding=SAME, stride_h=1, stride_w=1, depth_multiplier=1,
                fused_activation_function=RELU6)  # fmt: skip
    a = net.conv(a, 32, 1)
    window = {"padding": SAME, "stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 3}
    pools = [net.add(kind, [a], (1, 8, 8, 32), **window)
             for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D")]  # fmt: skip
    joined = net.add("CONCATENATION", list(pools), (1, 8, 8, 64), axis=3)
    edges = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    wide = net.add("PAD", [joined, edges], (1, 10, 10, 64))
    b = net.add("CONV_2D", [wide, floats(32, 3, 3, 64), floats(32)], (1, 8, 8, 32), padding=1,
                stride_h=1, stride_w=1)  # fmt: skip
    return net.add("ADD", [net.conv(b, 32), b], (1, 8, 8, 32), fused_activation_function=RELU)


def check(net: Net, y: int) -> int:
    """Assert that a net equals LiteRT; return how many transposes are left."""
    model = net.model(y)
    x = floats(*net.tensors[net.x].shape)

    assert not wrong(listed(ag.compile(model)(x)), run(model, [x], False))
    return transposes(model)


def classified(net: Net, h: int) -> int:
    mean = net.add("MEAN", [h, np.array([1, 2], np.int32)], (1, 32), keep_dims=False)
    z = net.add("FULLY_CONNECTED", [mean, floats(10, 32), floats(10)], (1, 10))
    return net.add("SOFTMAX", [z], (1, 10), beta=1.0)


def test_a_classifier_turns_its_image_alone() -> None:
    net = Net(1, 32, 32, 3)

    assert check(net, classified(net, trunk(net))) == 1


def test_channels_that_are_weighted_are_not_turned() -> None:
    net = Net(1, 32, 32, 3)
    h = trunk(net)
    h = net.add("PRELU", [h, floats(1, 1, 32)], (1, 8, 8, 32))
    mean = net.add("MEAN", [h, np.array([1, 2], np.int32)], (1, 1, 1, 32), keep_dims=True)
    share = net.add("LOGISTIC", [net.conv(mean, 32, 1)], (1, 1, 1, 32))
    h = net.add("MUL", [h, share], (1, 8, 8, 32))

    assert check(net, classified(net, h)) == 1


def test_images_that_grow_are_not_turned() -> None:
    net = Net(1, 32, 32, 3)
    size = np.array([16, 16], np.int32)
    h = net.add("RESIZE_BILINEAR", [trunk(net), size], (1, 16, 16, 32))
    h = net.add("RESIZE_NEAREST_NEIGHBOR", [net.conv(h, 32), size * 2], (1, 32, 32, 32))
    shape = np.array([1, 64, 64, 8], np.int32)
    h = net.add("TRANSPOSE_CONV", [shape, floats(8, 2, 2, 32), net.conv(h, 32)], (1, 64, 64, 8),
                padding=SAME, stride_h=2, stride_w=2)  # fmt: skip

    assert check(net, classified(net, net.conv(h, 32, stride=2))) == 1


def test_blocks_of_channels_cost_a_transpose_each_and_no_turns() -> None:
    net = Net(1, 32, 32, 3)
    h = net.add("DEPTH_TO_SPACE", [trunk(net)], (1, 16, 16, 8), block_size=2)
    h = net.add("SPACE_TO_DEPTH", [net.conv(h, 8)], (1, 8, 8, 32), block_size=2)

    assert check(net, classified(net, net.conv(h, 32))) == 3
