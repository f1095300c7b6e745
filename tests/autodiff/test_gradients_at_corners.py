"""Gradients where a function has a corner, a limit or no logarithm: one convention, stated here.

Where PyTorch and JAX differ, PyTorch's is taken.  Each expectation is a formula, not what the
operator's own formula gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array, type_of
from alpenglow.ops.elementwise.activation import Elu, HardSwish, LeakyRelu, Relu
from alpenglow.ops.elementwise.arithmetic import Clip
from alpenglow.ops.elementwise.logarithm import XLog1pY, XLogY
from alpenglow.ops.elementwise.normal import Erfc
from alpenglow.ops.elementwise.transcendental import Atan2, Hypot
from alpenglow.ops.training.loss import BinaryCrossEntropy


def slopes(op: Op, *xs: Sequence[float], dtype: type = np.float64) -> list[Array]:
    """Return the gradients of all operands, for a gradient of ones."""
    arrays = [np.array(x, dtype) for x in xs]
    g = Graph("slopes")
    operands = [g.input(f"x{i}", type_of(x)) for i, x in enumerate(arrays)]
    for i, dx in enumerate(gradients(g, g(op, *operands), operands)):
        g.output(f"d{i}", dx)
    with np.errstate(all="ignore"):
        made = evaluate(g, {f"x{i}": x for i, x in enumerate(arrays)})
    return [made[f"d{i}"] for i in range(len(xs))]


CORNERS: dict[str, tuple[Op, Sequence[float], Sequence[float]]] = {
    "leaky_relu": (LeakyRelu(0.25), (-1, -0.0, 0, 1), (0.25, 0.25, 0.25, 1)),
    "leaky_relu of slope 0": (LeakyRelu(0.0), (-0.0, 0, 1), (0, 0, 1)),
    "elu": (Elu(0.5), (-np.log(2), -0.0, 0, 1, 1e4), (0.25, 0.5, 0.5, 1, 1)),
    "hard_swish": (HardSwish(), (-np.inf, -4, -3, 0, 3, 4, np.inf), (0, 0, 0, 0.5, 1, 1, 1)),
    "erfc": (Erfc(), (-np.inf, -1e30, 0, 1, np.inf), (0, 0, -1.1283792, -0.41510750, 0)),
    "relu": (Relu(), (-1, -0.0, 0, 1), (0, 0, 0, 1)),
    "clip": (Clip(-1, 2), (-2, -1, 0, 2, 3, np.nan), (0, 0, 1, 0, 0, 1)),
    "closed clip": (Clip(-1, 2, closed=True), (-2, -1, 0, 2, 3, np.nan), (0, 1, 1, 1, 0, 0)),
    "closed clip without low": (Clip(high=1, closed=True), (-9, 1, 2), (1, 1, 0)),
    "closed clip to one number": (Clip(1, 1, closed=True), (0, 1, 2), (0, 1, 0)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CORNERS)
def test_the_slope_at_a_corner(name: str, dtype: type) -> None:
    op, x, expected = CORNERS[name]

    np.testing.assert_allclose(slopes(op, x, dtype=dtype)[0], expected, 1e-6)


def test_x_log_y_has_a_slope_where_x_is_zero() -> None:
    x = (0, 0, 0, 0, 2, 2, -1)
    by_x, by_y = slopes(XLogY(), x, (2, 0, -1, np.inf, 3, 0, 0.5))
    np.testing.assert_allclose(by_x, (np.log(2), 0, 0, np.inf, np.log(3), -np.inf, -np.log(2)))
    np.testing.assert_allclose(by_y, (0, 0, 0, 0, 2 / 3, np.inf, -2))

    by_x, by_y = slopes(XLog1pY(), x, (1, -1, -2, np.inf, 2, -1, -0.5))
    np.testing.assert_allclose(by_x, (np.log(2), 0, 0, np.inf, np.log(3), -np.inf, -np.log(2)))
    np.testing.assert_allclose(by_y, (0, 0, 0, 0, 2 / 3, np.inf, -2))


def test_a_size_is_differentiated_along_the_direction_and_flat_at_the_origin() -> None:
    by_x, by_y = slopes(Hypot(), (3, 0, 0, 1e300, -5e-324), (4, -2, 0, 1e300, 0))

    np.testing.assert_allclose(by_x, (0.6, 0, 0, np.sqrt(0.5), -1))
    np.testing.assert_allclose(by_y, (0.8, -1, 0, np.sqrt(0.5), 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_angle_is_flat_at_an_infinite_distance_and_at_the_origin(dtype: type) -> None:
    y = (np.inf, -np.inf, 2, -2, np.inf, 0, 1)
    by_y, by_x = slopes(Atan2(), y, (2, 0, np.inf, -np.inf, np.inf, 0, 2), dtype=dtype)

    np.testing.assert_allclose(by_y, (*(0,) * 6, 0.4), 1e-6)
    np.testing.assert_allclose(by_x, (*(0,) * 6, -0.2), 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cross_entropy_has_a_gradient_where_a_sigmoid_is_saturated(dtype: type) -> None:
    t = (0, 1, 1, 0, 0.25)
    by_x, by_t = slopes(BinaryCrossEntropy(), (0, 0, 1, 1, 0.5), t, dtype=dtype)

    np.testing.assert_allclose(by_x, (0, -1e12, 0, 1e12, 1), 1e-6)
    np.testing.assert_allclose(by_t, (100, 100, -100, -100, 0), 1e-6)
