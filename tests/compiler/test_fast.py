"""What `numerics="fast"` leaves as it is: the order of operations, and the casts of a model."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS, Array
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.softmax import Softmax

RANDOM = np.random.default_rng(0)

HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def spread(*shape: int) -> Array:
    """Return numbers of all sizes, from 1e-40 to 1e38."""
    return (RANDOM.standard_normal(shape) * 10.0 ** RANDOM.uniform(-40, 38, shape)).astype("f4")


def assert_same_bits(g: Graph, feeds: dict[str, Array]) -> None:
    with np.errstate(all="ignore"):
        expected = evaluate(g, feeds)
    for target in TARGETS:
        actual = ag.compile(g, target=target).run(feeds)
        for name, want in expected.items():
            wide = np.float32 if want.dtype.itemsize == 2 else want.dtype
            message = f"{name} on {target}"
            np.testing.assert_array_equal(actual[name].astype(wide), want.astype(wide), message)


@pytest.mark.parametrize("kinds", [(Mul, Div), (Add, Sub)], ids=["products", "sums"])
def test_operations_that_could_overflow_stay_in_their_order(kinds: tuple[type, type]) -> None:
    g, feeds = Graph("f"), dict[str, Array]()

    def fed() -> Value:
        feeds[f"x{len(feeds)}"] = spread(200)
        return g.input(f"x{len(feeds) - 1}", "f32[200]")

    # Each has operands of its own: what two of them shared would be stored in between.
    for f, h, k in product(kinds, repeat=3):
        name = f"{f.__name__} {h.__name__} {k.__name__}"
        x, y, z = fed(), fed(), fed()
        g.output(f"{name} from the left", g(k(), g(h(), g(f(), x, y), z), x))
        x, y, z = fed(), fed(), fed()
        g.output(f"{name} from the right", g(k(), x, g(h(), y, g(f(), z, x))))
        x, y, z = fed(), fed(), fed()
        g.output(f"{name} in pairs", g(h(), g(f(), x, y), g(k(), z, x)))

    assert_same_bits(g, feeds)


@pytest.mark.parametrize("half", HALVES)
def test_a_cast_that_a_model_writes_rounds(half: str) -> None:
    """Between conversions only what is exact is computed, in f32 as well."""
    g = Graph("f")
    x, y = g.input("x", "f32[1,20,6,17]"), g.input("y", f"{half}[1,20,6,17]")

    def there_and_back(v: Value) -> Value:
        return g(Cast("f32"), g(Cast(half), v))

    g.output("alone", g(Cast(half), x))
    g.output("there and back", there_and_back(x))
    g.output("through others", g(Neg(), there_and_back(g(Abs(), x))))
    g.output("twice", there_and_back(g(Neg(), there_and_back(x))))
    g.output("in half", g(Cast("f32"), g(Maximum(), g(Neg(), g(Cast(half), x)), y)))
    g.output("in half to the end", g(Abs(), g(Maximum(), g(Neg(), g(Cast(half), x)), y)))
    g.output("by way of the other", there_and_back(g(Cast("f32"), g(Cast("bf16"), x))))
    g.output("lost in the sum", g(Sub(), there_and_back(x), x))
    g.output("f64", g(Cast("f64"), g(Cast(half), x)))
    g.output("to integers", g(Cast("i32"), g(Cast(half), g(Softmax(-1), x))))
    feeds = {"x": spread(1, 20, 6, 17), "y": RANDOM.standard_normal((1, 20, 6, 17))}
    feeds["x"].flat[:4] = 70000, -1e6, 3e38, 1e-7
    feeds["y"] = feeds["y"].astype(HALVES[half])

    assert_same_bits(g, feeds)


@pytest.mark.parametrize("half", HALVES)
def test_a_cast_behind_a_convolution_rounds(half: str) -> None:
    """The weights only copy, so that sums are the same on each machine."""
    g = Graph("f")
    w = np.eye(24, 20, dtype=np.float32).reshape(24, 20, 1, 1)
    c = g(Conv(), g.input("x", "f32[1,20,6,17]"), g.constant(w))
    g.output("y", g(Relu(), g(Cast("f32"), g(Cast(half), c))))
    x = RANDOM.standard_normal((1, 20, 6, 17)).astype(np.float32)
    x.flat[0] = 70000

    assert_same_bits(g, {"x": x})
