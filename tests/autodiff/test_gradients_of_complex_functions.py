"""Gradients of complex functions are dy times the conjugate of the derivative, also on the axes.

Functions of complex numbers are formulas on parts, which are flat where |x| or a choice is: a
gradient that were read off them would be wrong on both axes, and NaN at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import type_of
from alpenglow.ops.elementwise import complex_functions as functions
from alpenglow.ops.elementwise.complex import (
    Angle,
    ComplexAbs,
    ComplexDiv,
    ComplexLog,
    ComplexPow,
    Pair,
    ViewAsReal,
)

Numbers = NDArray[np.complexfloating[Any]]
Function = Callable[[Any], Any]

PARTS = (0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.0, -2.5, 1e-10, -1e-10)
POINTS = np.array([complex(*parts) for parts in product(PARTS, repeat=2)])
POLES = (0, 1, -1, 1j, -1j)
BESIDE = np.array([z for z in POINTS if abs(z) > 1e-9 and all(abs(z - p) > 1e-9 for p in POLES)])
LARGE = np.array([complex(*parts) for parts in product((1e30, -1e30, 1.0), repeat=2)][:-1])

CASES: dict[Op, tuple[Function, Function]] = {
    functions.ComplexSqrt(): (lambda z: 0.5 / np.sqrt(z), lambda z: -0.25 / np.sqrt(z) / z),
    functions.ComplexSin(): (np.cos, lambda z: -np.sin(z)),
    functions.ComplexCos(): (lambda z: -np.sin(z), lambda z: -np.cos(z)),
    functions.ComplexTan(): (lambda z: 1 / np.cos(z) ** 2,
                             lambda z: 2 * np.sin(z) / np.cos(z) ** 3),
    functions.ComplexSinh(): (np.cosh, np.sinh),
    functions.ComplexCosh(): (np.sinh, np.cosh),
    functions.ComplexTanh(): (lambda z: 1 / np.cosh(z) ** 2,
                              lambda z: -2 * np.sinh(z) / np.cosh(z) ** 3),
    functions.ComplexAsin(): (lambda z: 1 / roots(z), lambda z: z / roots(z) ** 3),
    functions.ComplexAcos(): (lambda z: -1 / roots(z), lambda z: -z / roots(z) ** 3),
    functions.ComplexAtan(): (lambda z: 1 / (1 + z * z), lambda z: -2 * z / (1 + z * z) ** 2),
    functions.ComplexAsinh(): (lambda z: 1 / roots(1j * z), lambda z: -z / roots(1j * z) ** 3),
    functions.ComplexAcosh(): (lambda z: 1 / (np.sqrt(z - 1) * np.sqrt(z + 1)),
                               lambda z: -z / (np.sqrt(z - 1) * np.sqrt(z + 1)) ** 3),
    functions.ComplexAtanh(): (lambda z: 1 / (1 - z * z), lambda z: 2 * z / (1 - z * z) ** 2),
    functions.ComplexLog2(): (lambda z: 1 / z / np.log(2), lambda z: -1 / z**2 / np.log(2)),
    functions.ComplexLog10(): (lambda z: 1 / z / np.log(10), lambda z: -1 / z**2 / np.log(10)),
    functions.ComplexLog1p(): (lambda z: 1 / (1 + z), lambda z: -1 / (1 + z) ** 2),
    functions.ComplexExp2(): (lambda z: np.exp2(z) * np.log(2),
                              lambda z: np.exp2(z) * np.log(2) ** 2),
    functions.ComplexExpm1(): (np.exp, np.exp),
    functions.ComplexSigmoid(): (lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2,
                                 lambda z: -np.tanh(z / 2) / np.cosh(z / 2) ** 2 / 4),
    ComplexLog(): (lambda z: 1 / z, lambda z: -1 / z**2),
}  # fmt: skip
"""Operators, with their first and their second derivatives."""

HOLOMORPHIC_AT_0 = {
    op for op in CASES
    if not isinstance(op, functions.ComplexSqrt | functions.ComplexLog2 | functions.ComplexLog10
                      | functions.ComplexAcosh | ComplexLog)
}  # fmt: skip


def roots(z: Numbers) -> Any:
    """Return the root of 1 - z², on the side of its cut where z is."""
    return np.sqrt(1 - z) * np.sqrt(1 + z)


def off_the_axes(z: Numbers) -> Numbers:
    """Return points in place of those on an axis, on the side that the sign of the zero says."""
    real, imaginary = (np.where(v == 0, np.copysign(1e-200, v), v) for v in (z.real, z.imag))
    moved: Numbers = real + 1j * imaginary
    return moved


def slopes(op: Op, *xs: Numbers, by: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Return dy, the gradient of an operand, and the gradient of the sum of its real parts."""
    random = np.random.default_rng(0)
    dy = random.standard_normal(xs[0].shape) + 1j * random.standard_normal(xs[0].shape)
    g = Graph("slopes")
    operands = [g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
    y = g(ViewAsReal(), g(op, *operands))
    pairs = np.stack([dy.real, dy.imag], -1).astype(xs[0].real.dtype)
    (first,) = gradients(g, y, [operands[by]], dy=g.constant(pairs))
    reals = np.stack([np.ones(dy.shape), np.zeros(dy.shape)], -1).astype(pairs.dtype)
    pair = g(ViewAsReal(), first)
    (second,) = gradients(g, pair, [operands[by]], dy=g.constant(reals))
    g.output("first", first)
    g.output("second", second)
    with np.errstate(all="ignore"):
        made = evaluate(g, {f"x{i}": x for i, x in enumerate(xs)})
    return dy, made["first"], made["second"]


@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_gradients_are_those_of_the_formula(op: Op, dtype: str) -> None:
    points = np.concatenate([BESIDE, POINTS[np.abs(POINTS) < 0.5]])
    points = points if op in HOLOMORPHIC_AT_0 else BESIDE
    x = points.astype({"c64": np.complex64, "c128": np.complex128}[dtype])
    dy, first, second = slopes(op, x)

    rtol = 2e-5 if dtype == "c64" else 1e-12
    z = off_the_axes(x.astype(np.complex128))
    for actual, derivative in zip((first, second), CASES[op], strict=True):
        np.testing.assert_allclose(actual, dy * np.conj(derivative(z)), rtol, 1e-9)


@pytest.mark.parametrize("op", [functions.ComplexAtan(), functions.ComplexAsin(),
                                functions.ComplexTan(), functions.ComplexTanh(),
                                functions.ComplexSqrt(), ComplexLog(), functions.ComplexLog1p(),
                                functions.ComplexAcosh()], ids=lambda op: op.name)  # fmt: skip
def test_gradients_of_large_numbers_do_not_overflow(op: Op) -> None:
    x = LARGE.astype(np.complex64)
    dy, first, second = slopes(op, x)

    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    if not isinstance(op, functions.ComplexTan | functions.ComplexTanh):
        z = off_the_axes(x.astype(np.complex128))
        np.testing.assert_allclose(first, dy * np.conj(CASES[op][0](z)), 1e-5, 1e-37)


def test_gradients_of_powers_by_both_operands() -> None:
    x, y = np.array(list(product(BESIDE[:30], (2, 0.5, -1 + 2j))), np.complex128).T.copy()
    z = off_the_axes(x)
    power = np.exp(y * np.log(z))

    dz, first, second = slopes(ComplexPow(), x, y)
    np.testing.assert_allclose(first, dz * np.conj(y * power / z), 1e-11, 1e-12)
    np.testing.assert_allclose(
        second, dz * np.conj(y * (y - 1) * power / z**2), 1e-11, 1e-11 * np.abs(1 / z).max() ** 2
    )
    dz, first, second = slopes(ComplexPow(), x, y, by=1)
    np.testing.assert_allclose(first, dz * np.conj(power * np.log(z)), 1e-11, 1e-12)
    np.testing.assert_allclose(second, dz * np.conj(power * np.log(z) ** 2), 1e-11, 1e-12)


def test_gradients_of_powers_of_zero() -> None:
    x = np.zeros(5, np.complex128)
    y = np.array([0, 1, 2, 0.5 + 1j, 3], np.complex128)
    dz, by_x, _ = slopes(ComplexPow(), x, y)
    _, by_y, _ = slopes(ComplexPow(), x, y, by=1)

    np.testing.assert_array_equal(by_x[[0, 1, 2, 4]], dz[[0, 1, 2, 4]] * [0, 1, 0, 0])
    np.testing.assert_array_equal(by_y[[0, 1, 2, 4]], np.zeros(4))


def test_gradients_of_quotients_by_both_operands() -> None:
    x, y = BESIDE, np.roll(BESIDE, 7)
    for large in (1.0, 1e200):
        dz, first, second = slopes(ComplexDiv(), x * large, y * large)
        np.testing.assert_allclose(first * large, dz / np.conj(y), 1e-12)
        np.testing.assert_array_equal(second, np.zeros(x.shape))
        dz, first, second = slopes(ComplexDiv(), x * large, y * large, by=1)
        np.testing.assert_allclose(first * large, -dz * np.conj(x / y**2), 1e-12)


def test_the_gradient_of_a_size_is_the_direction_and_zero_at_zero() -> None:
    x = np.concatenate([BESIDE, [0, 1e200 + 1e200j, 1e-200j]])
    g = Graph("size")
    z = g.input("z", type_of(x))
    (first,) = gradients(g, g(ComplexAbs(), z), [z])
    (second,) = gradients(g, g(ViewAsReal(), first), [z])
    g.output("first", first)
    g.output("second", second)
    made = evaluate(g, {"z": x})
    far = np.abs(np.where(x == 0, 1, x))
    direction = x / far

    np.testing.assert_allclose(made["first"], direction, 1e-14)
    # The Hessian of |z| is (1 - u uᵀ) / |z| with the direction u; its product with (1, 1) is this.
    along = direction.real + direction.imag
    expected = np.where(x == 0, 0, (1 + 1j - along * direction) / far)
    np.testing.assert_allclose(made["second"], expected, 1e-9, 1e-15 / far.min())


def test_the_gradient_of_an_angle_is_across_and_zero_at_zero() -> None:
    x = np.concatenate([BESIDE, [0]])
    g = Graph("angle")
    z = g.input("z", type_of(x))
    (dx,) = gradients(g, g(Angle(), z), [z])
    g.output("dx", dx)
    square = np.where(x == 0, 1, np.abs(x)) ** 2

    np.testing.assert_allclose(evaluate(g, {"z": x})["dx"], 1j * x / square, 1e-13)


def test_a_function_without_a_derivative_is_no_operator() -> None:
    with pytest.raises(AssertionError, match="Half lacks slope"):

        class Half(functions.ComplexFunction):
            def of_parts(self, b: Graph, z: Pair) -> Pair:
                return z

    assert "half" not in Op.registry
