"""Convolutions with few outputs, grouped ones in bands, and moves between layouts, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.backends.cpu.templates.transpose import transposed
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate as run_kernel
from alpenglow.kernel.expr import Blend, Load, lift
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import parse_kernel, print_kernel
from alpenglow.ops.activation import Relu
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.contraction import Conv
from alpenglow.ops.movement import Pack, Unpack

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
def test_few_outputs(outputs: int, shape: tuple[int, ...], taps: tuple[int, ...], op: Conv) -> None:
    g = ag.Graph("f")
    x = g.input("x", f"f32[{','.join(map(str, shape))}]")
    w = g.constant(RNG.standard_normal((outputs, shape[1], *taps)).astype(np.float32))
    b = g.constant(RNG.standard_normal(outputs).astype(np.float32))
    g.output("y", g(Relu(), g(op, x, w, b)))
    exe = compiled_and_right(g, shape)
    kernels = [e.kernel for e in exe.artifact.table]

    assert any(name.startswith("conv_") and "blocked" not in name for name in kernels)


def test_weights_and_bias_that_are_computed() -> None:
    g = ag.Graph("f")
    x, w, b = g.input("x", "f32[1,6,4]"), g.input("w", "f32[3,6,1]"), g.input("b", "f32[3]")
    g.output("y", g(Conv(), x, w, b))
    g.output("z", g(Relu(), g(Conv(), x, w)))

    compiled_and_right(g, (1, 6, 4), (3, 6, 1), (3,))


@pytest.mark.parametrize(("group", "channels", "outputs"), [(4, 24, 112), (3, 60, 90), (8, 40, 8)])
def test_groups_narrower_than_vectors(group: int, channels: int, outputs: int) -> None:
    g = ag.Graph("f")
    x = g.input("x", f"f32[1,{channels},9,11]")
    w = RNG.standard_normal((outputs, channels // group, 3, 3)).astype(np.float32)
    g.output("y", g(Conv(pads=(1, 1, 1, 1), group=group), x, g.constant(w)))

    compiled_and_right(g, (1, channels, 9, 11))


@pytest.mark.parametrize("place", [(1, 1), (4, 5), (3, 16), (2, 33), (40,), (2, 3, 17)])
@pytest.mark.parametrize("channels", [1, 15, 16, 20, 48])
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
