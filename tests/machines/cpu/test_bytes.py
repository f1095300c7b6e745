"""Convolutions and matrix products of bytes: exact on every target, packed where they can be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle, product

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value, infer
from alpenglow.ir.types import Array, TensorType
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate as run_kernel
from alpenglow.kernel.expr import Const, Load, Splat
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.cpu.assemble import assembly
from alpenglow.machines.cpu.legal import legal
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.operators.layout import Pack
from alpenglow.machines.vector.templates.depthwise import runs
from alpenglow.machines.vector.templates.products import products
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.logic import BitXor
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.quantize import Dequantize, Quantize, Requantize
from alpenglow.ops.tensor.movement import Broadcast, Transpose
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.render.llvm.render import render

BYTES = {"u8": np.uint8, "i8": np.int8}
TARGETS = (
    "cpu",
    "x86-64",
    "x86-64+avx",
    "x86-64-v3",
    "x86-64-v4",
    "x86-64-v4+avx512vnni",
)

every_target = pytest.mark.parametrize("target", TARGETS)


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return bytes of all values, the extremes among them."""
    limits = np.iinfo(BYTES[dtype])
    array = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    array.reshape(-1)[:2] = limits.min, limits.max
    return array.astype(BYTES[dtype])


Case = tuple[tuple[int, ...], tuple[int, ...], Conv | MatMul]


def cases() -> Iterator[Case]:
    yield (1, 32, 9, 11), (40, 32, 3, 3), Conv(pads=(1, 1, 1, 1))
    yield (2, 3, 17, 19), (20, 3, 7, 7), Conv((2, 2), (3, 3, 3, 3))
    yield (1, 1, 13, 14), (8, 1, 5, 5), Conv(pads=(2, 1, 0, 2))
    yield (1, 22, 7, 7), (33, 22, 1, 1), Conv()
    yield (1, 7, 5, 40), (9, 7, 3, 3), Conv((), (0, 2, 1, 0), (1, 2))
    yield (1, 20, 12, 13), (20, 1, 3, 3), Conv(pads=(1, 1, 1, 1), group=20)
    yield (1, 32, 12, 13), (32, 1, 5, 5), Conv((2, 2), (2, 2, 2, 2), group=32)
    yield (1, 16, 30), (16, 1, 5), Conv((1,), (4, 4), (2,), 16)
    yield (1, 24, 6, 6), (48, 6, 3, 3), Conv(pads=(1, 1, 1, 1), group=4)
    yield (1, 64, 6, 6), (64, 32, 3, 3), Conv(pads=(1, 1, 1, 1), group=2)
    yield (1, 40, 6, 6), (40, 4, 3, 3), Conv(group=10)
    yield (5, 37), (37, 50), MatMul()
    yield (1, 128), (128, 200), MatMul()
    yield (2, 3, 64), (64, 33), MatMul()
    yield (1, 4, 2), (1, 2, 17), MatMul()


def built(x: str, w: str) -> tuple[Graph, dict[str, Array]]:
    """Return a graph of all cases with constant weights, and what to feed it."""
    g, feeds = Graph("bytes"), {}
    for n, (shape, weights, op) in enumerate(cases()):
        v = g.input(f"x{n}", TensorType(x, shape))
        feeds[f"x{n}"] = drawn(x, shape, n)
        c = g.constant(drawn(w, weights, n))
        if len(shape) > len(weights):
            c = g(Broadcast((*shape[:-2], *weights)), c)
        g.output(f"y{n}", g(op, v, c))
    return g, feeds


def agrees(g: Graph, feeds: dict[str, Array], target: str) -> ag.Executable | None:
    """Assert that compiled code gives the evaluator's bits; None if it cannot run here."""
    parsed = ag.Target.parse(target)
    exe = ag.compile(g, target=parsed)
    if not parsed.is_host_compatible():
        return None
    got, want = exe.run(feeds), evaluate(g, feeds)
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y, name)
    return exe


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64+avx512f", "x86-64-v3", "x86-64"])
@pytest.mark.parametrize(
    ("outputs", "shape", "taps", "op"),
    [
        (3, (1, 8, 12, 50), (9, 9), Conv(pads=(4, 4, 4, 4))),
        (2, (2, 5, 6, 33), (3, 5), Conv((2, 1), (1, 0, 1, 2), (1, 2))),
        (1, (1, 4, 40), (7,), Conv()),
    ],
)
@pytest.mark.sampled(5)
def test_few_outputs_are_computed_on_plain_images(
    outputs: int, shape: tuple[int, ...], taps: tuple[int, ...], op: Conv, target: str
) -> None:
    g = Graph("few")
    x, w = drawn("u8", shape), drawn("i8", (outputs, shape[1], *taps))
    bias = g.constant(np.arange(outputs, dtype=np.int32) - 7)
    y = g(op, g.input("x", TensorType("u8", shape)), g.constant(w), bias)
    g.output("y", requantized(g, y))
    exe = agrees(g, {"x": x}, target)

    if exe is not None and target == "x86-64-v4":
        kernels = [entry.kernel.rsplit("_", 1)[0] for entry in exe.artifact.table]
        assert "conv_planar" in kernels and "unpack" not in kernels


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.sampled(4)
def test_channels_that_lie_side_by_side_are_packed_as_they_lie(channels: int, target: str) -> None:
    g = Graph("image")
    shape = (2, 5, 21, channels)
    x = g(Transpose((0, 3, 1, 2)), g.input("x", TensorType("u8", shape)))
    w = g.constant(drawn("i8", (16, channels, 3, 3)))
    g.output("y", g(Conv(pads=(1, 1, 1, 1)), x, w))

    agrees(g, {"x": drawn("u8", shape)}, target)


@every_target
@pytest.mark.sampled(1)
def test_sums_of_bytes_are_exact(target: str) -> None:
    agrees(*built("u8", "i8"), target)


@pytest.mark.parametrize(("x", "w"), [("i8", "u8"), ("u8", "u8"), ("i8", "i8")])
@pytest.mark.sampled(1)
def test_signs_that_no_machine_multiplies_are_changed(x: str, w: str) -> None:
    agrees(*built(x, w), "cpu")


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_the_extremes_do_not_saturate(dtype: str) -> None:
    g = Graph("f")
    x, w = np.full((1, 32, 4, 4), 255, np.uint8), np.full((16, 32, 3, 3), -128, np.int8)
    if dtype == "i8":
        x = np.full(x.shape, -128, np.int8)
    g.output("y", g(Conv(), g.input("x", TensorType(dtype, x.shape)), g.constant(w)))
    y = ag.compile(g, target=ag.Target.parse("x86-64-v3")).run({"x": x})["y"]

    assert (y == int(x[0, 0, 0, 0]) * -128 * 32 * 9).all()


@pytest.mark.parametrize("target", ["cpu", "x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.rest
def test_products_of_computed_bytes_are_exact(target: str) -> None:
    """Rows, columns and inner extents with and without rests; operands as they lie or turned."""
    shapes = [
        ((5, 37), (37, 50), False, False),
        ((2, 33, 64), (2, 64, 40), False, False),
        ((1, 3), (3, 7), False, False),
        ((3, 17, 130), (3, 16, 130), False, True),
        ((2, 35, 9), (2, 35, 20), True, False),
    ]
    g, feeds = Graph("products"), {}
    for x, y in (("u8", "u8"), ("u8", "i8"), ("i8", "u8"), ("i8", "i8")):
        for left, right, turn_left, turn_right in shapes:
            operands = []
            for dtype, shape, turn in ((x, left, turn_left), (y, right, turn_right)):
                v = g.input(f"x{len(feeds)}", TensorType(dtype, shape))
                feeds[v.name] = drawn(dtype, shape, len(feeds))
                order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
                operands.append(g(Transpose(order), v) if turn else v)
            g.output(f"y{len(feeds)}", g(MatMul(), *operands))

    agrees(g, feeds, target)


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.rest
def test_products_of_open_extents_are_exact(target: str) -> None:
    """One kernel serves rows, columns and inner extents of any number."""
    g = Graph("open")
    for name, (x, y) in (("a", ("u8", "u8")), ("b", ("i8", "i8"))):
        left = g.input(f"x{name}", f"{x}[2,M,K]")
        g.output(name, g(MatMul(), left, g.input(f"y{name}", f"{y}[2,K,N]")))
        turned = g(Transpose((0, 2, 1)), g.input(f"t{name}", f"{y}[2,N,K]"))
        g.output(f"{name}_turned", g(MatMul(), left, turned))
    exe = ag.compile(g, target=ag.Target.parse(target), threads=1)

    for extents in ((1, 1, 1), (5, 7, 33), (40, 67, 64)):
        bound = g.bind(dict(zip("MKN", extents, strict=True)))
        feeds = {k: drawn(v.type.dtype, v.type.extents) for k, v in bound.inputs.items()}
        expected, actual = evaluate(bound, feeds), exe.run(feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array)


def test_factors_of_other_types_are_told_apart() -> None:
    with pytest.raises(TypeRuleError, match="expected one dtype"):
        infer(MatMul(), (TensorType("u8", (2, 3)), TensorType("i32", (3, 4))))
    with pytest.raises(TypeRuleError, match="bias is f32"):
        types = [TensorType.parse(t) for t in ("u8[1,3,4,4]", "i8[2,3,1,1]", "f32[2]")]
        infer(Conv(), tuple(types))


def requantized(g: Graph, y: Value) -> Value:
    multiplier = g(Broadcast(y.type.shape), g.constant(np.float32(0.003)))
    zero = g(Broadcast(y.type.shape), g.constant(np.uint8(101)))
    return g(Requantize("u8", 0, 255), y, multiplier, zero)


def chain() -> tuple[Graph, dict[str, Array]]:
    """Return a graph of layers as quantized networks have them."""
    g = Graph("chain")
    x = g.input("x", "u8[1,3,18,20]")
    bias = g.constant(np.arange(32, dtype=np.int32) * 100)
    y = g(Conv((), (1, 1, 1, 1)), x, g.constant(drawn("i8", (32, 3, 3, 3))), bias)
    z = requantized(g, y)
    y = g(Conv((), (1, 1, 1, 1), (), 32), z, g.constant(drawn("i8", (32, 1, 3, 3), 1)))
    z = g(MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), requantized(g, y))
    y = g(Conv(), z, g.constant(drawn("i8", (20, 32, 1, 1), 2)))
    g.output("y", requantized(g, y))
    return g, {"x": drawn("u8", (1, 3, 18, 20))}


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_layers_hand_over_blocked_bytes(target: str) -> None:
    exe = agrees(*chain(), target)
    if exe is None:
        pytest.skip(f"this machine is no {target}")
    kernels = [entry.kernel.rsplit("_", 1)[0] for entry in exe.artifact.table]
    between = kernels[kernels.index("conv_blocked") : -1]

    assert kernels.count("pack") == kernels.count("unpack") == 1
    assert set(between) <= {"conv_blocked", "depthwise_blocked", "max_pool", "fill"}


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("x86-64-v4+avx512vnni", "vpdpbusd"),
        ("x86-64-v3+avxvnni", "vpdpbusd"),
        ("x86-64-v4", "vpmaddwd"),
        ("x86-64-v3", "vpmaddwd"),
        ("x86-64", "pmaddwd"),
        ("aarch64+i8mm", "usdot"),
        ("aarch64+dotprod", "sdot"),
    ],
)
def test_four_products_take_one_instruction_or_two(target: str, machine: str) -> None:
    parsed = ag.Target.parse(target)
    lanes = parsed.facts.lanes
    kind = products("u8", lanes, parsed)
    b = Builder("dot")
    x, w, y = b.buffer("x", "u8"), b.buffer("w", "i8"), b.buffer("y", "i32", True)
    total: Load | Const = Load(y, Const(0), lanes)
    acc = b.var(total)
    word = Splat(kind.word(b, x, Const(0), 1, 4), lanes)
    weights = kind.weights(b.let(kind.vector(w, Const(0), lanes)))
    for factor, weight in zip(kind.factors(b.let(word)), weights, strict=True):
        b.set(acc, kind.add(factor, weight, acc))
    b.store(y, 0, acc)
    text = assembly(render(legal(b.done(), parsed)), parsed)

    assert text.count(f"{machine}\t") == kind.count
    assert "maddubs" not in text


def requantized_within(g: Graph, y: Value, low: int, high: int) -> Value:
    multiplier = g(Broadcast(y.type.shape), g.constant(np.float32(0.01)))
    zero = g(Broadcast(y.type.shape), g.constant(np.uint8(101)))
    return g(Requantize("u8", low, high), y, multiplier, zero)


@every_target
@pytest.mark.sampled(1)
def test_rows_are_requantised_alike_however_many_there_are(target: str) -> None:
    g, feeds = Graph("rows"), {}
    bounds = cycle([(0, 255), (101, 255), (7, 180)])
    for n, (width, group) in enumerate(product((3, 4, 6, 9, 28), (1, 24))):
        shape, weights = (1, 24, 2, width), (24, 24 // group, 1, 3)
        w, b = g.constant(drawn("i8", weights)), g.constant(np.arange(24, dtype=np.int32) * 50)
        x = g.input(f"x{n}", TensorType("u8", shape))
        y = g(Conv((), (0, 1, 0, 1), (), group), x, w, b)
        g.output(f"y{n}", requantized_within(g, y, *next(bounds)))
        feeds[f"x{n}"] = drawn("u8", shape, n)

    agrees(g, feeds, target)


def residual(least: float) -> tuple[Graph, dict[str, Array]]:
    """Return the sum of a convolution and of bytes that it may overwrite, in steps of `least`."""
    g, shape = Graph("residual"), (1, 32, 6, 6)
    x = g.input("x", TensorType("u8", shape))
    w = g.constant(drawn("i8", (32, 32, 1, 1)))
    before = requantized(g, g(Conv(), x, w))

    def reals(v: Value, scale: float) -> Value:
        one, zero = g.constant(np.float32(scale)), g.constant(np.zeros((), v.type.numpy))
        spread = [g(Broadcast(v.type.shape), c) for c in (one, zero)]
        return g(Dequantize(), v, *spread)

    total = g(Add(), reals(g(Conv(), before, w), 0.0001), reals(before, 0.03))
    step, zero = g.constant(np.float32(least)), g.constant(np.uint8(5))
    given = [g(Broadcast(shape), c) for c in (step, zero)]
    g.output("y", g(Quantize("u8"), total, *given))
    return g, {"x": drawn("u8", shape)}


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize("least", [0.05, 1e-6])
def test_what_is_added_to_sums_is_at_most_one_step_off(least: float, target: str) -> None:
    g, feeds = residual(least)
    exe = ag.compile(g, target=ag.Target.parse(target))
    (expected,), (actual,) = evaluate(g, feeds).values(), exe.run(feeds).values()

    assert np.abs(expected.astype(np.int32) - actual).max() <= 1


def test_results_of_four_rows_are_stored_at_once() -> None:
    g = Graph("packed")
    x, w = TensorType("u8", (1, 32, 5, 8)), drawn("i8", (16, 32, 1, 1))
    y = g(Conv(), g.input("x", x), g.constant(w))
    g.output("y", requantized_within(g, y, 0, 255))
    target = ag.Target.parse("x86-64-v4+avx512vnni")
    program = ag.compile(g, target=target).artifact.program
    (text,) = [assembly(render(legal(k, target)), target) for _, k in kernels(program, target)
               if k.name.startswith("conv")]  # fmt: skip

    assert "vpackuswb" in text and "vpmovdb" not in text


def test_sums_begin_with_the_bias() -> None:
    g = Graph("biased")
    x, w = TensorType("u8", (1, 32, 5, 7)), drawn("i8", (32, 32, 1, 1))
    bias = g.constant(np.arange(32, dtype=np.int32) - 9)
    g.output("y", g(Conv(), g.input("x", x), g.constant(w), bias))
    exe = agrees(g, {"x": drawn("u8", x.extents)}, "cpu")
    target = ag.Target.parse("x86-64-v4+avx512vnni")
    program = ag.compile(g, target=target).artifact.program
    texts = [print_kernel(k) for i, k in kernels(program, target) if i.body is not None]

    assert exe is not None
    assert len(texts) == 1
    assert not re.search(r"i32x16 = r\d+ \+ ", texts[0])


@pytest.mark.parametrize("target", ["x86-64-v4+avx512vnni", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize("used", [1, 2, 3, 4])
def test_a_word_reads_no_more_than_there_is(target: str, used: int) -> None:
    kind = products("u8", 4, ag.Target.parse(target))
    b = Builder("word")
    x, y = b.buffer("x", "u8"), b.buffer("y", "i32", True)
    b.store(y, 0, kind.word(b, x, Const(2), 1, used))
    operands = {"x": np.arange(1, 3 + used, dtype=np.uint8), "y": np.zeros(1, np.int32)}
    run_kernel(b.done(), operands)

    assert operands["y"].tobytes() == operands["x"][2:].tobytes().ljust(4, b"\0")


@pytest.mark.parametrize("taps", [1, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("height", [1, 2, 5, 12])
def test_runs_of_pixels_cover_a_tile_and_stay_inside(taps: int, stride: int, height: int) -> None:
    groups = -(-taps // 4)
    found = runs(height, taps, stride, groups)
    numbers = [r for run in found for r, _ in run.pixels]

    assert numbers == list(range(height))
    for run in found:
        assert run.first >= 0 and run.read <= 4 * groups
        assert run.first + run.read <= (height - 1) * stride + taps
        for r, offset in run.pixels:
            assert run.first + offset == r * stride
            assert offset + taps <= run.read


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("shape", [(1, 3, 5, 33), (2, 6, 16), (1, 9, 2, 16), (1, 2, 3, 7)])
@pytest.mark.sampled(4)
def test_bytes_are_packed_by_fours(dtype: str, shape: tuple[int, ...]) -> None:
    g = Graph("f")
    packed = g(Pack(4), g.input("x", TensorType(dtype, shape)))
    t = packed.type
    flip = g(Broadcast(t.shape, t.layout), g.constant(np.asarray(85, BYTES[dtype])))
    g.output("y", packed)
    g.output("z", g(BitXor(), packed, flip))
    x = drawn(dtype, shape)
    for target in ("cpu", "x86-64-v3"):
        got = ag.compile(g, target=ag.Target.parse(target)).run({"x": x})
        want = Pack(4).reference(x)
        logical = np.moveaxis(np.ones_like(want), -1, 2).reshape(shape[0], -1, *shape[2:])
        logical[:, shape[1] :] = 0
        there = Pack(4).reference(logical) != 0

        np.testing.assert_array_equal(got["y"][there], want[there])
