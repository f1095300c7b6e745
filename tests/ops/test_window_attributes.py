"""Every attribute of what slides a window, by every kernel of it, on every width of vectors.

A kernel that leaves an attribute out of account is right wherever that has its default: so
attributes are combined, and pads go beyond the kernel, which ONNX allows of convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS, Array, disagreements
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import TensorType
from alpenglow.kernel.stmt import Store, statements
from alpenglow.machines.registry import kernels
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Broadcast, Pad
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import AveragePool, MaxPool
from onnx_node import assert_close, node_model, ours, runtimes

RANDOM = np.random.default_rng(0)

PADS = ((0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 0, 0), (0, 1, 5, 1),
        (0, 4, 1, 0), (3, 0, 2, 4))  # fmt: skip

KERNELS = ((1, 1), (1, 3), (3, 1), (2, 3))

CHANNELS = {
    "blocks": (20, 24, 1),
    "groups of blocks": (32, 32, 2),
    "narrow groups": (6, 12, 3),
    "depthwise": (20, 20, 20),
    "few outputs": (20, 3, 1),
    "few inputs": (3, 20, 1),
}
"""Channels, outputs and groups that choose a layout and a kernel each."""

STEPS = (((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 2), (2, 1)))
"""Strides and dilations."""


def weights(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def assert_right(
    shape: tuple[int, ...], cases: Sequence[Callable[[Graph, Value], Value]], dtype: str = "f32"
) -> None:
    """Assert that the cases, dealt out among the machines, are what the evaluator makes of them."""
    wrong = []
    for i, target in enumerate(TARGETS):
        g = ag.Graph("f")
        x = g.input("x", TensorType(dtype, shape))
        for n, case in enumerate(cases[i :: len(TARGETS)]):
            g.output(f"y{n} {case}", case(g, x))
        wrong += disagreements(g, targets=[target])

    assert wrong == []


@dataclass(frozen=True)
class Convolution:
    """A convolution by constant weights, maybe behind padding by zeros."""

    op: Conv | ConvTranspose
    w: tuple[int, ...]
    zeros: tuple[int, ...] = ()

    def __call__(self, g: Graph, x: Value) -> Value:
        half = len(self.zeros) // 2
        if self.zeros:
            x = g(Pad((0, 0, *self.zeros[:half]), (0, 0, *self.zeros[half:])), x)
        w = weights(*self.w)
        small = (w * 20).astype(np.int8)
        return g(self.op, x, g.constant(small if x.type.dtype == "u8" else w))


PARTS = 5
"""How many tests share the attributes of a kind: no divisor of what there is of any."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow if "groups" in k else ()) for k in CHANNELS],
)
@pytest.mark.sampled(1)
def test_convolutions_heed_all_their_attributes(kind: str, part: int) -> None:
    channels, outputs, group = CHANNELS[kind]
    cases = [
        Convolution(Conv(strides, pads, dilations, group), (outputs, channels // group, *kernel))
        for (strides, dilations), kernel, pads in product(STEPS, KERNELS, PADS)
    ]
    assert_right((2, channels, 5, 6), cases[part::PARTS])


@dataclass(frozen=True)
class Residual:
    """A convolution of a column, a bias, another convolution of it added, and an activation."""

    convolution: Convolution

    def __call__(self, g: Graph, x: Value) -> Value:
        y, bias = self.convolution(g, x), weights(self.convolution.w[0])
        bias = bias.reshape(1, -1, *[1] * (y.type.rank - 2))
        whole = g(Add(), y, g(Broadcast(y.type.shape), g.constant(bias)))
        return g(Relu(), g(Add(), whole, self.convolution(g, x)))


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("shape", [(40, 1), (5, 9, 1)])
@pytest.mark.sampled(1)
def test_columns_are_convolved_like_rows(kind: str, shape: tuple[int, ...]) -> None:
    channels, outputs, group = CHANNELS[kind]
    tail = (1,) * (len(shape) - 1)
    cases: list[Callable[[Graph, Value], Value]] = []
    for taps, step, spread, pad in ((1, 2, 1, 0), (3, 1, 1, 1), (3, 2, 1, 0), (3, 1, 2, 2)):
        kernel, strides, dilations = ((n, *tail) for n in (taps, step, spread))
        none = (0,) * len(tail)
        op = Conv(strides, (pad, *none, pad, *none), dilations, group)
        one = Convolution(op, (outputs, channels // group, *kernel))
        cases += [one, Residual(one)]
    assert_right((2, channels, *shape), cases)


def test_a_column_takes_as_many_steps_as_a_row() -> None:
    def steps(*shape: int) -> int:
        g = ag.Graph("f")
        x = g.input("x", TensorType("f32", (1, 32, *shape)))
        taps = tuple(min(d, 5) for d in shape)
        g.output("y", g(Conv(), x, g.constant(weights(32, 32, *taps))))
        exe = ag.compile(g, target="x86-64-v3", threads=1)
        (kernel,) = (k for i, k in kernels(exe.artifact.program, exe.target)
                     if i.op.name == "conv_blocked")  # fmt: skip
        return sum(isinstance(s, Store) for s in statements(kernel.body))

    assert steps(60, 1) == steps(1, 60) == steps(60) > 1


@pytest.mark.slow
def test_convolutions_of_one_and_three_spatial_axes_heed_all_their_attributes() -> None:
    for spatial, shape in ((1, (1, 20, 7)), (3, (1, 20, 3, 4, 5))):
        assert_right(shape, [
            Convolution(Conv((), (*before, *after)), (24, 20, *kernel))
            for kernel in product((1, 2), repeat=spatial)
            for before, after in product(((0,) * spatial, (1, 0, 2)[:spatial]), repeat=2)
        ])  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.sampled(2)
def test_few_channels_are_convolved_each_alone_in_rows_of_any_length(
    channels: int, dtype: str
) -> None:
    for width in (1, 8, 33, 141):
        lines = [
            Convolution(Conv((stride,), pads, (dilation,), channels), (channels, 1, taps))
            for stride, dilation, taps, pads in (
                (1, 1, 3, (1, 1)), (1, 3, 5, (9, 4)), (2, 1, 1, (0, 0)), (2, 2, 4, (4, 0)),
                (3, 2, 2, (0, 3)), (4, 1, 5, (4, 6)), (5, 1, 3, (2, 2)),
            )
            if width + sum(pads) > (taps - 1) * dilation
        ]
        assert_right((2, channels, width), lines, dtype)


@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.sampled(1)
def test_few_channels_are_convolved_each_alone_in_images(dtype: str) -> None:
    for height, width in ((3, 40), (19, 17)):
        assert_right((2, 3, height, width), [
            Convolution(Conv(strides, pads, dilations, 3), (3, 1, *taps))
            for strides, dilations, taps, pads in (
                ((1, 1), (1, 1), (3, 3), (1, 1, 1, 1)), ((2, 2), (1, 1), (3, 3), (1, 1, 0, 2)),
                ((1, 3), (2, 1), (2, 4), (2, 0, 2, 3)), ((3, 4), (1, 2), (2, 2), (1, 3, 1, 0)),
                ((1, 1), (3, 1), (1, 7), (0, 6, 0, 6)), ((4, 1), (1, 5), (7, 2), (6, 0, 6, 9)),
                ((1, 5), (1, 1), (2, 3), (1, 1, 1, 1)),
            )
        ], dtype)  # fmt: skip


def test_few_channels_are_convolved_each_alone_along_a_dynamic_dimension() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[2,3,n]")
    for stride, pads in ((1, (2, 2)), (2, (0, 3))):
        op = Conv((stride,), pads, (2,), 3)
        g.output(f"y{stride}", g(op, x, g.constant(weights(3, 1, 3)), g.constant(weights(3))))
    for target in TARGETS:
        exe = ag.compile(g, target=target, threads=1)
        for n in (70, 8, 5, 133):
            feed = weights(2, 3, n)
            for name, expected in evaluate(g.bind({"n": n}), {"x": feed}).items():
                np.testing.assert_allclose(exe.run({"x": feed})[name], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.parametrize(("groups", "per_group", "outputs"), [(9, 3, 4), (9, 9, 3), (12, 1, 6)])
@pytest.mark.sampled(2)
def test_narrow_groups_are_convolved_in_blocks_that_are_filled(
    groups: int, per_group: int, outputs: int, dtype: str
) -> None:
    channels, shape = groups * per_group, (groups * outputs, per_group)
    assert_right((2, channels, 5, 6), [
        Convolution(Conv(strides, pads, dilations, groups), (*shape, *kernel))
        for strides, dilations in (((2, 2), (1, 1)), ((1, 3), (2, 1)), ((1, 1), (1, 1)))
        for kernel, pads in ((KERNELS[0], PADS[0]), (KERNELS[1], PADS[3]), (KERNELS[3], PADS[2]))
    ], dtype)  # fmt: skip


@pytest.mark.slow
def test_padding_written_out_before_a_convolution_is_padding_of_its_own() -> None:
    assert_right((1, 20, 5, 6), [
        Convolution(Conv((), pads), (24, 20, *kernel), zeros)
        for kernel in KERNELS for pads in PADS[:2] for zeros in PADS[1:]
    ])  # fmt: skip


@pytest.mark.rest
def test_transposed_convolutions_heed_all_their_attributes() -> None:
    for shape, spatial in (((1, 20, 4, 5), 2), ((1, 20, 3, 4, 3), 3)):
        assert_right(shape, [
            Convolution(ConvTranspose((stride,) * spatial, (pad,) * (2 * spatial), (1,) * spatial,
                                      (out,) * spatial), (20, outputs, *(kernel,) * spatial))
            for kernel, stride, pad, out, outputs in (
                (3, 3, 1, 2, 1), (3, 3, 1, 2, 17), (1, 2, 0, 1, 4), (3, 2, 1, 1, 20),
                (2, 1, 1, 0, 3), (2, 3, 0, 2, 17), (4, 2, 3, 1, 16),
            )
        ])  # fmt: skip


@dataclass(frozen=True)
class Pooling:
    """A pooling behind padding by one number."""

    op: MaxPool | AveragePool
    pads: tuple[int, ...]
    value: float
    relu: bool = False

    def __call__(self, g: Graph, x: Value) -> Value:
        x = g(Relu(), x) if self.relu else x
        half = len(self.pads) // 2
        pad = Pad((0, 0, *self.pads[:half]), (0, 0, *self.pads[half:]), value=self.value)
        return g(self.op, g(pad, x))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sampled(1)
def test_padding_of_any_width_stands_before_a_pooling(part: int) -> None:
    none, ones = (0, 0, 0, 0), (1, 1)
    cases: list[Pooling] = []
    for kernel, pads in product(((1, 1), (3, 3), (1, 3)), PADS):
        own = tuple(min(1, k - 1) for k in (*kernel, *kernel))
        for inside in (none, own):
            mean = AveragePool(kernel, ones, inside, ones, count_pads=True)
            cases.append(Pooling(mean, pads, 0.0))
            for value, relu in ((float("-inf"), False), (0.0, True)):
                cases.append(Pooling(MaxPool(kernel, ones, inside, ones), pads, value, relu))

    assert_right((1, 20, 5, 6), cases[part::PARTS])


def overhanging() -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield the attributes of poolings with `ceil_mode`, and the extents that they take."""
    for kernel, stride, pads in product(range(1, 5), range(1, 5), ((0, 0), (1, 0), (0, 1), (1, 1))):
        extents = [e for e in range(1, 6) if e + sum(pads) > kernel - stride]
        if max(pads) < kernel:
            window = {"kernel_shape": [kernel], "strides": [stride], "pads": pads}
            yield {**window, "ceil_mode": 1}, extents


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.sampled(2)
def test_windows_hang_over_the_end_as_in_onnx_runtime(op_type: str) -> None:
    for attributes, extents in overhanging():
        for extent in extents:
            x = RANDOM.standard_normal((1, 2, extent)).astype(np.float32)
            model = node_model(op_type, {"x": x}, opset=22, **attributes)
            assert_close(runtimes(model, {"x": x}), ours(model, {"x": x}), 1e-5)


@pytest.mark.parametrize(
    "op_type", ["MaxPool", "AveragePool", pytest.param("LpPool", marks=pytest.mark.slow)]
)
@pytest.mark.rest
def test_windows_hang_over_an_end_that_is_open(op_type: str) -> None:
    for attributes, extents in overhanging():
        x = RANDOM.standard_normal((1, 2, max(extents))).astype(np.float32)
        model = node_model(op_type, {"x": x}, opset=22, **attributes)
        model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "n"
        exe = ag.compile(model)
        for extent in extents:
            part = x[..., :extent]
            (actual,) = exe.run({"x": part}).values()
            assert_close(runtimes(model, {"x": part}), [actual], 1e-5)
