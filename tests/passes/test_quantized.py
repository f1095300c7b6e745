"""Quantized networks: what is compiled of them, and that it computes what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from agreement import disagreements
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import DTYPES, TensorType
from alpenglow.ops.elementwise.activation import LeakyRelu, Relu, Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import Dequantize, DynamicQuantize, Quantize
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Transpose
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.passes.lower import lower
from alpenglow.passes.quantized import integers

Array = NDArray[Any]

BYTES = ("u8", "i8")

WEIGHTS = {"conv": (8, 6, 1, 1), "conv_transpose": (6, 8, 1, 1), "mat_mul": (1, 6, 8, 8)}

f32 = np.float32


class Network:
    """A graph that is quantized as exporters do it: every tensor there and back."""

    def __init__(self, dtype: str, weights: str) -> None:
        self.g = Graph("network")
        self.dtype, self.weights = dtype, weights
        self.rng = np.random.default_rng(11)

    def spread(self, numbers: Array, like: Value) -> Value:
        return self.g(Broadcast(like.type.shape), self.g.constant(numbers))

    def quantised(self, x: Value, scale: float, zero: int | None = None) -> Value:
        """Return x, rounded to a grid."""
        middle = (0 if self.dtype == "i8" else 128) if zero is None else zero
        grid = [self.spread(np.array(scale, np.float32), x),
                self.spread(np.array(middle, DTYPES[self.dtype]), x)]  # fmt: skip
        return self.g(Dequantize(), self.g(Quantize(self.dtype), x, *grid), *grid)

    def weight(self, *shape: int, axis: int = 0) -> Value:
        """Return random weights: i8 by channel, or u8 around a zero point."""
        u8 = self.weights == "u8"
        w = self.rng.integers(-127, 128, shape) + (128 if u8 else 0)
        behind = [1] * (len(shape) - 1 - axis)
        scales = self.rng.uniform(0.002, 0.006, (1 if u8 else shape[axis], *behind))
        q = self.g.constant(w.astype(DTYPES[self.weights]))
        zero = np.array(128 if u8 else 0, DTYPES[self.weights])
        return self.g(
            Dequantize(), q, self.spread(scales.astype(np.float32), q), self.spread(zero, q)
        )

    def conv(self, x: Value, outputs: int, taps: int = 3, stride: int = 1, group: int = 1) -> Value:
        w = self.weight(outputs, int(x.type.extents[1]) // group, taps, taps)
        bias = self.g.constant(self.rng.normal(0, 0.3, outputs).astype(np.float32))
        pad = (taps // 2,) * 4
        return self.g(Conv((stride, stride), pad, (1, 1), group), x, w, bias)


def residual(dtype: str = "u8", weights: str = "i8") -> Graph:
    """Return a network of convolutions, whole and by channel, with a residual sum and a mean."""
    n = Network(dtype, weights)
    low = 0 if dtype == "u8" else -128
    x = n.quantised(n.g.input("x", "f32[1,3,12,12]"), 0.02)
    x = n.quantised(n.g(Relu(), n.conv(x, 24, stride=2)), 0.01, low)
    y = n.quantised(n.g(Clip(0.0, 2.0), n.conv(x, 40, 1)), 0.01, low)
    y = n.quantised(n.g(Relu(), n.conv(y, 40, group=40)), 0.004, low)
    y = n.quantised(n.conv(y, 24, 1), 0.01)
    x = n.quantised(n.g(Relu(), n.g(Add(), x, y)), 0.013, low)
    x = n.quantised(n.g(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1)), x), 0.013, low)
    x = n.quantised(n.g(ReduceMean((2, 3), False), x), 0.011, low)
    x = n.quantised(n.g(MatMul(), x, n.weight(24, 10, axis=1)), 0.02)
    n.g.output("y", x)
    return n.g


def gated() -> Graph:
    """Return a network with functions, products and parts of different scales."""
    n = Network("u8", "i8")
    x = n.quantised(n.g.input("x", "f32[1,16,8,8]"), 0.02)
    a = n.quantised(n.conv(x, 16), 0.02)
    a = n.quantised(n.g(Mul(), a, n.quantised(n.g(Sigmoid(), a), 1 / 256, 0)), 0.015, 20)
    b = n.quantised(n.g(LeakyRelu(0.1), n.conv(x, 16)), 0.02, 40)
    y = n.quantised(n.g(Concat(1), a, b), 0.021, 60)
    gate = n.quantised(n.g(ReduceMean((2, 3)), y), 0.01)
    gate = n.quantised(n.g(Sigmoid(), n.quantised(n.conv(gate, 32, 1), 0.01)), 1 / 256, 0)
    y = n.quantised(n.g(Mul(), y, n.g(Broadcast(y.type.shape), gate)), 0.01)
    n.g.output("y", n.g(Reshape((1, 32 * 64)), y))
    return n.g


def attention(dtype: str = "u8") -> Graph:
    """Return two heads of attention, whose products are of computed tensors."""
    n = Network(dtype, "i8")
    x = n.quantised(n.g.input("x", "f32[1,9,20]"), 0.02)
    parts = []
    for i in range(3):
        weight = n.g(Broadcast((1, 20, 20)), n.weight(20, 20, axis=1))
        y = n.quantised(n.g(MatMul(), x, weight), 0.02, None if i else (3 if dtype == "i8" else 99))
        parts.append(n.g(Transpose((0, 2, 1, 3)), n.g(Reshape((1, 9, 2, 10)), y)))
    q, k, v = parts
    scores = n.quantised(n.g(MatMul(), q, n.g(Transpose((0, 1, 3, 2)), k)), 0.04)
    shares = n.quantised(n.g(Softmax(-1), scores), 1 / 255, 0 if dtype == "u8" else -128)
    y = n.g(Transpose((0, 2, 1, 3)), n.quantised(n.g(MatMul(), shares, v), 0.02))
    n.g.output("y", n.g(Reshape((1, 180)), y))
    return n.g


NETWORKS = {
    "u8 by i8": residual(),
    "i8 by i8": residual("i8"),
    "u8 by u8": residual("u8", "u8"),
    "i8 by u8": residual("i8", "u8"),
    "gated": gated(),
}
WITH_FLOATS = NETWORKS | {"attention": attention(), "signed attention": attention("i8")}
"""Also those whose softmax computes floats."""


def feeds(g: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {k: rng.normal(0, 1, v.type.extents).astype(np.float32) for k, v in g.inputs.items()}


@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.sampled(2)
def test_compiled_it_answers_bit_by_bit_like_the_interpreter(name: str) -> None:
    g = WITH_FLOATS[name]
    expected = ag.compile(g, "interpreter").run(feeds(g))["y"]
    actual = ag.compile(g, threads=1).run(feeds(g))["y"]

    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.sampled(4)
def test_it_answers_like_the_floats_that_it_is_written_in(name: str) -> None:
    g = WITH_FLOATS[name]
    expected = evaluate(g, feeds(g))["y"]
    actual = ag.compile(g, "interpreter").run(feeds(g))["y"]
    (step,) = {float(n.inputs[1].producer.inputs[0].array) for n in g.nodes  # type: ignore[union-attr, arg-type]
               if n.output is _last(g)}  # fmt: skip
    off = np.abs(actual - expected) / step

    # What is one step off in one layer may be one step off in the next; few are.
    assert off.max() < 2.01
    assert (off > 0.5).mean() < 0.02


AFTER = {
    "nothing": lambda g, y: y,
    "relu": lambda g, y: g(Relu(), y),
    "a large factor": lambda g, y: g(Mul(), y, g(Broadcast(y.type.shape), g.constant(f32(40)))),
    "a square": lambda g, y: g(Mul(), y, y),
    "its own sum": lambda g, y: g(Add(), y, g(Add(), y, y)),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("kind", ["conv", "conv_transpose", "mat_mul"])
def test_a_bias_in_f32_is_not_rounded_to_steps_that_the_result_shows(
    kind: str, scale: float, after: str
) -> None:
    n, g = Network("u8", "i8"), Graph("bias")
    n.g = g
    q = g.input("q", "u8[1,6,8,8]")
    grid = [n.spread(a, q) for a in (f32(scale), np.array(128, np.uint8))]
    x = g(Dequantize(), q, *grid)
    bias = g.constant(np.linspace(-3.3, 3.3, 8).astype(np.float32) * f32(scale))
    w = g.constant(np.random.default_rng(3).integers(-2, 3, WEIGHTS[kind]).astype(np.int8))
    weights = g(Dequantize(), w, n.spread(f32(1), w), n.spread(np.array(0, np.int8), w))
    if kind == "mat_mul":
        y = g(MatMul(), x, weights)
        y = g(Add(), y, g(Broadcast(y.type.shape), bias))
    else:
        window = ((1, 1), (0,) * 4, (1, 1))
        op = Conv(*window) if kind == "conv" else ConvTranspose(*window, (0, 0))
        y = g(op, x, weights, bias)
    y = AFTER[after](g, y)
    g.output("y", n.quantised(y, 0.1 * scale * (scale if after == "a square" else 1), 3))
    near = 128 + np.random.default_rng(4).integers(-1, 2, q.type.extents)
    given = {"q": near.astype(np.uint8)}
    expected = evaluate(g, given)["y"]
    actual = evaluate(integers(g.copy()), given)["y"]

    assert np.unique(expected).size > 5
    np.testing.assert_array_equal(actual, expected)


def _last(g: Graph) -> Value:
    """Return the dequantized result of a network, before it is moved."""
    v = g.outputs["y"]
    while v.producer is not None and isinstance(v.producer.op, Reshape | Transpose):
        (inner,) = v.producer.inputs
        assert inner is not None
        v = inner
    return v


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled(3)
def test_no_floats_stand_between_its_layers(name: str) -> None:
    made: list[Any] = []
    options = ag.Options(after=lambda p, ir: made.append(ir) if p.name == "fuse" else None)
    ag.compile(NETWORKS[name], options=options)
    (fused,) = made
    computed = [n for n in fused.nodes if n.op.name not in ("broadcast", "reshape", "unpack")]
    floats = [n for n in computed if n.output.type.dtype == "f32"]

    # The last layer makes floats, on its way out or by itself; what it is unpacked to are no more.
    assert len(floats) <= 1


@pytest.mark.parametrize("dtype", BYTES)
def test_attention_multiplies_integers_only(dtype: str) -> None:
    g = integers(attention(dtype))
    products = [n for n in g.nodes if isinstance(n.op, MatMul | MatMulInteger)]

    assert [n.output.type.dtype for n in products] == ["i32"] * 5


@pytest.mark.parametrize("scale", [0.0, 1e-41, np.nan, np.inf])
def test_a_scale_that_is_no_number_leaves_the_model_as_it_is_written(scale: float) -> None:
    g = Graph("odd")
    x = g.input("x", "f32[1,3]")
    grid = [g(Broadcast((1, 3)), g.constant(np.array(n, t)))
            for n, t in ((scale, np.float32), (7, np.uint8))]  # fmt: skip
    y = g(Relu(), g(Dequantize(), g(Quantize("u8"), x, *grid), *grid))
    g.output("y", g(Quantize("u8"), y, *grid))
    array = np.array([[-1, 0.5, 3]], np.float32)
    with np.errstate(all="ignore"):
        expected = evaluate(g, {"x": array})["y"]
        actual = ag.compile(g).run({"x": array})["y"]

    np.testing.assert_array_equal(actual, expected)


# ── integer operators ──

ZEROS = ("none", "known", "computed")


def operand(g: Graph, feeds: dict[str, Array], name: str, t: str, known: bool) -> Value:
    """Return random bytes, as a constant or an input."""
    rng = np.random.default_rng(len(name) + len(t))
    kind = TensorType.parse(t)
    limits = np.iinfo(kind.numpy)
    array = rng.integers(limits.min, limits.max + 1, kind.extents).astype(kind.numpy)
    if known:
        return g.constant(array)
    feeds[name] = array
    return g.input(name, t)


def zero_point(
    g: Graph, feeds: dict[str, Array], how: str, like: Value, shape: tuple[int, ...]
) -> Value:
    """Return a zero point for `like`: 0, a constant, or an input."""
    name, t = f"zero{len(g.inputs)}", f"{like.type.dtype}[{','.join(map(str, shape))}]"
    if how == "none":
        zero = g.constant(np.zeros((), like.type.numpy))
    else:
        zero = operand(g, feeds, name, t, how == "known")
    return g(Broadcast(like.type.shape), zero)


def wrapped(sums: Array) -> Array:
    return sums.astype(np.int64).astype(np.int32)


def value_of(v: Value, feeds: dict[str, Array]) -> Array:
    """Return the contents of a stretched constant or input."""
    source = v.producer.inputs[0] if v.producer is not None else v
    assert source is not None
    array = source.array if source.array is not None else feeds[source.name]
    return np.broadcast_to(array, v.type.extents).astype(np.float64)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("w_how", ZEROS)
@pytest.mark.parametrize("x_how", ZEROS)
def test_zero_points_of_convolutions_are_corrected_exactly(
    x_how: str, w_how: str, known: bool
) -> None:
    for dtype, group, pads in (("u8", 1, (1, 0, 2, 1)), ("i8", 2, (0,) * 4), ("u8", 6, (1,) * 4)):
        g, given = Graph("conv"), dict[str, Array]()
        x = operand(g, given, "x", f"{dtype}[2,6,5,4]", False)
        w = operand(g, given, "w", f"{BYTES[group % 2]}[6,{6 // group},3,2]", known)
        x_zero = zero_point(g, given, x_how, x, ())
        w_zero = zero_point(g, given, w_how, w, (6, 1, 1, 1))
        op = ConvInteger((1, 2), pads, (1, 1), group)
        g.output("y", g(op, x, w, x_zero, w_zero))
        centred = [(given["x"] if v is x else w.array if known else given["w"]) - value_of(z, given)
                   for v, z in ((x, x_zero), (w, w_zero))]  # fmt: skip
        expected = wrapped(op.conv.reference(*centred))
        actual = evaluate(lower(g), given)["y"]

        np.testing.assert_array_equal(actual, expected)


def test_a_fed_zero_point_of_the_input_needs_no_convolution_of_its_own() -> None:
    """Over a large image that took minutes while compiling, or as long as the first in each run."""
    g = Graph("conv")
    x = g.input("x", "u8[1,5,64,64]")
    w = g.constant(np.ones((6, 5, 3, 3), np.int8))
    zeros = zero_point(g, {}, "fed", x, ()), zero_point(g, {}, "none", w, ())
    g.output("y", g(ConvInteger((1, 1), (1,) * 4, (1, 1)), x, w, *zeros))

    assert [type(node.op) for node in lower(g).nodes].count(Conv) == 1


@pytest.mark.parametrize("outputs", [1, 2, 15, 16, 17, 32])
@pytest.mark.sampled(2)
def test_sums_begin_with_what_a_fed_zero_point_adds(outputs: int) -> None:
    g = Graph("conv")
    x = g.input("x", "u8[1,5,6,7]")
    w = g.constant(np.random.default_rng(1).integers(0, 256, (outputs, 5, 2, 2), np.uint8))
    x_zero = zero_point(g, {}, "fed", x, ())
    w_zero = zero_point(g, {}, "none", w, ())
    g.output("y", g(ConvInteger((1, 1), (0,) * 4, (1, 1)), x, w, x_zero, w_zero))

    assert disagreements(g, numerics=("fast", "strict")) == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("y_how", ZEROS)
@pytest.mark.parametrize("x_how", ZEROS)
def test_zero_points_of_products_are_corrected_exactly(x_how: str, y_how: str, known: bool) -> None:
    for a, c in (("u8", "i8"), ("i8", "u8"), ("u8", "u8")):
        g, given = Graph("product"), dict[str, Array]()
        x = operand(g, given, "x", f"{a}[2,5,9]", False)
        y = operand(g, given, "y", f"{c}[2,9,4]", known)
        x_zero = zero_point(g, given, x_how, x, (5, 1))
        y_zero = zero_point(g, given, y_how, y, (4,))
        g.output("z", g(MatMulInteger(), x, y, x_zero, y_zero))
        right = y.array if known else given["y"]
        left = given["x"] - value_of(x_zero, given)
        expected = wrapped(left @ (right - value_of(y_zero, given)))
        actual = evaluate(lower(g), given)["z"]

        np.testing.assert_array_equal(actual, expected)


def test_a_measured_range_gives_what_division_by_its_scale_gives() -> None:
    g = Graph("dynamic")
    made = g.add(DynamicQuantize(), [g.input("x", "f32[4,33]")]).results
    for name, v in zip(("q", "scale", "zero"), made, strict=True):
        g.output(name, v)
    expected = evaluate(g, feeds(g))
    actual = ag.compile(g).run(feeds(g))

    np.testing.assert_array_equal(actual["q"], expected["q"])
    assert expected["scale"] == actual["scale"]
    assert expected["zero"] == actual["zero"]
