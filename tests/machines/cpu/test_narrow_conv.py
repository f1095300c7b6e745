"""Convolutions with few outputs or in narrow groups, and moves between layouts, on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate as run_kernel
from alpenglow.kernel.expr import Blend, Load, lift
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import parse_kernel, print_kernel
from alpenglow.machines.vector.operators.blocked import ConvBlocked
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.passes.layout import layout
from alpenglow.machines.vector.templates.transpose import transposed
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Reshape, Transpose

RNG = np.random.default_rng(0)


def compiled_and_right(
    g: Graph, *shapes: tuple[int, ...], tolerance: float = 1e-5
) -> ag.Executable:
    """Assert that a graph is compiled and computes what the evaluator does."""
    exe = ag.compile(g)
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    feeds = dict(zip(g.inputs, arrays, strict=True))
    got, want = exe.run(feeds), evaluate(g, feeds)
    for name, y in want.items():
        scale = max(float(np.abs(y).max(initial=0)), 1e-6)
        np.testing.assert_allclose(got[name], y, atol=tolerance * scale, rtol=0)
    assert all(entry.kernel for entry in exe.artifact.table)
    return exe


@pytest.mark.parametrize(
    ("outputs", "shape", "taps", "op"),
    [
        (3, (2, 4, 40, 70), (9, 9), Conv(pads=(4, 4, 4, 4))),
        (1, (1, 8, 33, 130), (5, 5), Conv(pads=(2, 2, 2, 2))),
        (8, (1, 8, 20, 264), (3, 39), Conv()),
        (2, (1, 3, 17, 16), (3, 3), Conv((2, 1), (1, 1, 1, 1))),
        (5, (2, 3, 333), (7,), Conv(pads=(3, 3))),
        (7, (1, 2, 9, 9), (3, 3), Conv((), (1, 1, 1, 1), (2, 1))),
        (8, (1, 3, 4, 5, 50), (3, 3, 3), Conv(pads=(1,) * 6)),
        (4, (3, 5, 8, 48), (3, 3), Conv()),
    ],
)
@pytest.mark.sampled(4)
def test_few_outputs(outputs: int, shape: tuple[int, ...], taps: tuple[int, ...], op: Conv) -> None:
    g = ag.Graph("f")
    x = g.input("x", f"f32[{','.join(map(str, shape))}]")
    w = g.constant(RNG.standard_normal((outputs, shape[1], *taps)).astype(np.float32))
    b = g.constant(RNG.standard_normal(outputs).astype(np.float32))
    g.output("y", g(Relu(), g(op, x, w, b)))
    exe = compiled_and_right(g, shape)
    kernels = [e.kernel for e in exe.artifact.table]
    few = outputs <= ag.Target.parse("cpu").facts.lanes // 2

    assert any(name.startswith("conv_") and "blocked" not in name for name in kernels) == few


def test_weights_and_bias_that_are_computed() -> None:
    g = ag.Graph("f")
    x, w, b = g.input("x", "f32[1,6,4]"), g.input("w", "f32[3,6,1]"), g.input("b", "f32[3]")
    g.output("y", g(Conv(), x, w, b))
    g.output("z", g(Relu(), g(Conv(), x, w)))

    compiled_and_right(g, (1, 6, 4), (3, 6, 1), (3,))


@pytest.mark.parametrize(
    ("group", "channels", "outputs"), [(4, 24, 112), (3, 60, 90), (8, 40, 8), (32, 128, 128)]
)
@pytest.mark.parametrize(("shape", "op"), [
    ((9, 11), Conv(pads=(1, 1, 1, 1))),
    ((7, 6), Conv(pads=(1, 1, 1, 1))),
    ((9, 11), Conv(strides=(2, 1), pads=(0, 1, 0, 1), dilations=(1, 2))),
    ((9, 11), Conv(strides=(2, 2), pads=(1, 1, 1, 1))),
    ((45,), Conv(pads=(1, 1))),
])  # fmt: skip
@pytest.mark.sampled(4)
def test_groups_narrower_than_vectors(
    group: int, channels: int, outputs: int, shape: tuple[int, ...], op: Conv
) -> None:
    g = ag.Graph("f")
    extents = (1, channels, *shape)
    x = g.input("x", f"f32[{','.join(map(str, extents))}]")
    taps = (3,) * len(shape)
    w = RNG.standard_normal((outputs, channels // group, *taps)).astype(np.float32)
    g.output("y", g(replace(op, group=group), x, g.constant(w)))

    compiled_and_right(g, extents)


@pytest.mark.parametrize(
    ("size", "taps", "op", "left_out"),
    [
        (4, 3, Conv(pads=(1, 1, 1, 1)), True),
        (7, 5, Conv(pads=(2, 0, 1, 2)), True),
        (5, 3, Conv(strides=(2, 2), pads=(3, 1, 4, 1), dilations=(2, 1)), True),
        (3, 3, Conv(pads=(9, 1, 9, 1)), True),
        (40, 3, Conv(pads=(1, 1, 1, 1)), False),
    ],
)
@pytest.mark.sampled(3)
def test_rows_of_padding_are_left_out_where_they_are_many(
    size: int, taps: int, op: Conv, left_out: bool
) -> None:
    g = ag.Graph("f")
    shape = (2, 24, size, size)
    x = g.input("x", f"f32[{','.join(map(str, shape))}]")
    w = g.constant(RNG.standard_normal((40, 24, taps, taps)).astype(np.float32))
    g.output("y", g(Relu(), g(op, x, w)))
    compiled_and_right(g, shape)
    blocked = [n.op for n in layout(g.copy(), ag.Target.parse("cpu")).nodes
               if isinstance(n.op, ConvBlocked)]  # fmt: skip

    assert any(blocked[0].edges) == left_out


def shuffled(size: int = 14, stride: int = 1) -> Graph:
    """Return a unit of a net whose channels are shuffled between narrow groups."""
    g = ag.Graph("shuffle")

    def weights(*shape: int) -> Value:
        return g.constant(RNG.standard_normal(shape).astype(np.float32) * 0.3)

    x = g.input("x", f"f32[2,40,{size},{size}]")
    y = g(Relu(), g(Conv(group=4), x, weights(68, 10, 1, 1), weights(68)))
    split = g(Reshape((2, 4, 17, size, size)), y)
    y = g(Reshape((2, 68, size, size)), g(Transpose((0, 2, 1, 3, 4)), split))
    deep = Conv(strides=(stride, stride), pads=(1, 1, 1, 1), group=68)
    y = g(deep, y, weights(68, 1, 3, 3), weights(68))
    y = g(Conv(group=4), y, weights(40, 17, 1, 1), weights(40))
    g.output("y", g(Relu(), g(Add(), y, x)) if stride == 1 else y)
    return g


def test_shuffling_channels_between_groups_moves_nothing() -> None:
    exe = compiled_and_right(shuffled(), (2, 40, 14, 14))
    kernels = [e.kernel.rsplit("_", 1)[0] for e in exe.artifact.table]

    assert len(kernels) == 3 and kernels[1].startswith("depthwise_planar"), kernels


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize(("size", "stride"), [(12, 1), (28, 1), (33, 2), (45, 1), (64, 2)])
@pytest.mark.sampled(2)
def test_images_stay_plain_between_narrow_groups(size: int, stride: int, target: str) -> None:
    g = shuffled(size=size, stride=stride)
    x = {"x": RNG.standard_normal((2, 40, size, size)).astype(np.float32)}
    got, want = ag.compile(g, target=target).run(x)["y"], evaluate(g, x)["y"]

    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max(), rtol=0)


def test_groups_on_plain_images_give_the_same_bits_on_any_number_of_threads() -> None:
    g = shuffled(size=28)
    x = RNG.standard_normal((2, 40, 28, 28)).astype(np.float32)
    one, three = ag.compile(g, threads=1)(x), ag.compile(g, threads=3)(x)

    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("place", [(1, 1), (4, 5), (3, 16), (2, 33), (40,), (2, 3, 17)])
@pytest.mark.parametrize("channels", [1, 15, 16, 20, 48])
@pytest.mark.sampled(10)
def test_pack_and_unpack(channels: int, place: tuple[int, ...]) -> None:
    g = ag.Graph("f")
    shape = (2, channels, *place)
    x = g.input("x", f"f32[{','.join(map(str, shape))}]")
    packed = g(Pack(16), x)
    g.output("y", g(Unpack(channels), g(Add(), packed, packed)))

    compiled_and_right(g, shape, tolerance=0)


def turned(size: int) -> Kernel:
    """Return a kernel that transposes a square of `size` rows."""
    b = Builder("turn")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    rows = [b.let(Load(x, lift(at), size)) for at in range(0, size * size, size)]
    for i, row in enumerate(transposed(b, rows)):
        b.store(y, i * size, row)
    return b.done()


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_square_is_transposed(size: int) -> None:
    x = np.arange(size * size, dtype=np.float32)
    y = np.zeros_like(x)
    kernel = parse_kernel(print_kernel(turned(size)))
    run_kernel(kernel, {"x": x, "y": y})

    np.testing.assert_array_equal(y.reshape(size, size), x.reshape(size, size).T)


def test_blends_take_from_both() -> None:
    b = Builder("blend")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    low, high = Load(x, lift(0), 4), Load(x, lift(4), 4)
    b.store(y, 0, Blend(low, high, (7, 0, 5, 2)))
    data = np.arange(8, dtype=np.float32)
    out = np.zeros(4, np.float32)
    run_kernel(b.done(), {"x": data, "y": out})

    assert out.tolist() == [7, 0, 5, 2]
