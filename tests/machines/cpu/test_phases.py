"""Transposed and sub-pixel convolutions, computed phase by phase."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array, type_of
from alpenglow.machines.vector.operators.phases import ConvPhases
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Concat, Reshape, Transpose
from alpenglow.ops.window.conv_transpose import ConvTranspose

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def transposed(
    x: tuple[int, ...], outputs: int, window: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], extra: tuple[int, ...] = (),
) -> Graph:  # fmt: skip
    g = ag.Graph("f")
    image = g.input("x", f"f32[{','.join(map(str, x))}]")
    spatial = len(window)
    op = ConvTranspose(strides, pads, (1,) * spatial, extra or (0,) * spatial)
    w = g.constant(numbers(x[1], outputs, *window))
    g.output("y", g(Relu(), g(op, image, w, g.constant(numbers(outputs)))))
    return g


def made(g: Graph, options: ag.Options | None = None) -> list[ConvPhases]:
    """Return the convolutions by phases that a graph becomes."""
    stages = run_stages(g.copy(), ag.Target.parse("cpu"), options or ag.Options())
    lowered = next(ir for stage, ir in stages if stage.name == "phases")
    return [n.op for n in lowered.nodes if isinstance(n.op, ConvPhases)]


def agrees(g: Graph, exe: ag.Executable, feed: Array, tolerance: float = 1e-5) -> None:
    (want,) = evaluate(g, {"x": feed}).values()
    np.testing.assert_allclose(exe(feed), want, atol=tolerance * float(np.abs(want).max()), rtol=0)


@pytest.mark.parametrize(
    "g",
    [
        transposed((2, 32, 4, 4), 40, (4, 4), (2, 2), (1, 1, 1, 1)),
        transposed((1, 32, 5, 9), 16, (3, 3), (2, 2), (1, 1, 1, 1)),
        transposed((1, 20, 6, 40), 16, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
        transposed((1, 3, 7, 33), 16, (2, 2), (2, 2), (0, 0, 0, 0)),
        transposed((1, 16, 9, 8), 24, (2, 5), (3, 1), (0, 4, 1, 2), (2, 0)),
        transposed((1, 16, 5, 6), 16, (7, 3), (3, 4), (9, 0, 5, 1)),
        transposed((3, 17, 50), 33, (5,), (2,), (1, 2)),
        transposed((1, 16, 3, 4, 5), 16, (3, 2, 4), (2, 1, 2), (1, 0, 1, 0, 0, 1), (1, 0, 0)),
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_transposed_convolutions(g: Graph) -> None:
    assert made(g)
    agrees(g, ag.compile(g), numbers(*g.inputs["x"].type.extents))


@pytest.mark.parametrize("group", [1, 16])
@pytest.mark.parametrize("width", [1, 2])
def test_results_narrower_than_their_strides(width: int, group: int) -> None:
    g = ag.Graph("narrow")
    x = g.input("x", f"f32[1,16,{width},{width}]")
    for stride in (2, 5):
        for kernel in (1, 3):
            pad = min((width - 1) * stride + kernel - 1, kernel - 1) // 2
            op = ConvTranspose((stride,) * 2, (pad,) * 4, (1, 1), (0, 0), group)
            w = g.constant(numbers(16, 16 // group, kernel, kernel))
            g.output(f"y{stride}{kernel}", g(op, x, w))
    feed = numbers(1, 16, width, width)
    results = ag.compile(g, threads=1).run({"x": feed})
    for name, expected in evaluate(g, {"x": feed}).items():
        np.testing.assert_allclose(results[name], expected, atol=1e-4, rtol=0, err_msg=name)


@pytest.mark.parametrize(
    ("window", "strides"), [((3, 3), (2, 2)), ((5, 2), (3, 4)), ((4, 1), (2, 1))]
)
def test_taps_that_a_phase_does_not_have_are_not_computed(
    window: tuple[int, int], strides: tuple[int, int]
) -> None:
    (op,) = made(transposed((1, 32, 8, 8), 32, window, strides, (0,) * 4))

    assert op.window == window


@pytest.mark.parametrize("first", [True, False], ids=["blocks first", "channels first"])
def test_depth_to_space_of_a_convolution(first: bool) -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[2,24,9,11]")
    y = g(Conv(pads=(2, 2, 2, 2)), x, g.constant(numbers(96, 24, 5, 5)), g.constant(numbers(96)))
    split, perm = ((2, 3, 16), (0, 3, 4, 1, 5, 2)) if first else ((16, 2, 3), (0, 1, 4, 2, 5, 3))
    apart = g(Transpose(perm), g(Reshape((2, *split, 9, 11)), y))
    g.output("y", g(Reshape((2, 16, 18, 33)), apart))

    assert made(g)
    agrees(g, ag.compile(g), numbers(2, 24, 9, 11))


def test_images_stay_in_blocks_from_one_to_the_next() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[1,32,8,8]")
    up = ConvTranspose((2, 2), (1,) * 4, (1, 1), (0, 0))
    y = g(Relu(), g(up, x, g.constant(numbers(32, 48, 4, 4))))
    y = g(up, g(Concat(1), y, y), g.constant(numbers(96, 16, 4, 4)))
    g.output("y", g(Add(), y, y))
    exe = ag.compile(g)
    agrees(g, exe, numbers(1, 32, 8, 8))

    names = [entry.kernel.split("_")[0] for entry in exe.artifact.table if entry.kernel]
    assert names.count("unpack") == names.count("pack") == 1


def test_few_outputs_share_blocks() -> None:
    assert not made(transposed((1, 64, 32, 32), 3, (4, 4), (2, 2), (1, 1, 1, 1)))


@pytest.mark.parametrize("window", [4, 3])
def test_images_of_open_extents(window: int) -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[1,16,h,w]")
    op = ConvTranspose((2, 2), (1,) * 4, (1, 1), (0, 0))
    g.output("y", g(op, x, g.constant(numbers(16, 16, window, window))))
    exe = ag.compile(g, threads=1)

    for h, w in ((3, 40), (17, 5), (4, 1)):
        agrees(g.bind({"h": h, "w": w}), exe, numbers(1, 16, h, w))


def test_one_pixel_is_a_product() -> None:
    g = transposed((2, 20, 1, 1), 32, (4, 3), (1, 1), (0, 0, 1, 0))
    exe = ag.compile(g)
    agrees(g, exe, numbers(2, 20, 1, 1))

    assert any("mat_mul" in entry.kernel for entry in exe.artifact.table if entry.kernel)


def test_sums_of_halves_are_wide() -> None:
    g = transposed((1, 40, 6, 6), 32, (3, 3), (2, 2), (1, 1, 1, 1))
    options = ag.Options(precision="bf16")

    assert made(g, options)
    agrees(g, ag.compile(g, options=options), numbers(1, 40, 6, 6), tolerance=2e-2)


@pytest.mark.parametrize("target", ["cpu", "x86-64", "x86-64-v3"])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(("image", "window", "strides", "pads", "extra"), [
    ((7, 6), (3, 3), (2, 2), (1, 1, 1, 1), (1, 0)),
    ((14, 30), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    ((5, 4), (5, 5), (2, 2), (2, 2, 2, 2), (0, 1)),
    ((4, 5), (2, 7), (1, 3), (0, 3, 1, 2), (0, 2)),
    ((3, 9), (1, 1), (2, 2), (0, 0, 0, 0), (1, 0)),
    ((3, 4), (7, 3), (4, 2), (9, 0, 5, 1), (0, 0)),
    ((50,), (5,), (2,), (1, 2), (0,)),
    ((3, 2, 5), (3, 3, 3), (2, 2, 2), (1,) * 6, (0, 1, 0)),
])  # fmt: skip
@pytest.mark.sampled(3)
def test_each_channel_by_itself(
    image: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], extra: tuple[int, ...], computed: bool, target: str,
) -> None:  # fmt: skip
    g = ag.Graph("f")
    feeds = {"x": numbers(2, 20, *image), "w": numbers(20, 1, *window)}
    x = g.input("x", f"f32[2,20,{','.join(map(str, image))}]")
    w = g.input("w", type_of(feeds["w"])) if computed else g.constant(feeds.pop("w"))
    g.output("y", g(ConvTranspose(strides, pads, (1,) * len(image), extra, 20), x, w))
    exe = ag.compile(g, target, threads=2)

    (want,) = evaluate(g, feeds).values()
    np.testing.assert_allclose(exe.run(feeds)["y"], want, atol=1e-5 * np.abs(want).max(), rtol=0)
    if max(strides) > 1:
        assert "depthwise_phases" in str([i.op.name for i in exe.artifact.program.instrs()])
