"""Operators on truth values, integers and complex numbers are built of operators with kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.numbers import apply
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Floor, Maximum, Minimum, Mul, Neg, Reciprocal
from alpenglow.ops.elementwise.comparison import Equal, IsNaN, Less
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import ReduceProd, ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import ScatterElements, ScatterNd
from alpenglow.ops.window.conv_transpose import ConvTranspose

GENERATOR = np.random.default_rng(0)


def applied(op: Op, *arrays: Array) -> Any:
    """Return what `apply` makes of constants, in the interpreter."""
    g = ag.Graph("numbers")
    g.output("y", apply(g, op, *map(g.constant, arrays)))
    return ag.compile(g, target="interpreter").run({})["y"]


def drawn(dtype: str, *shape: int) -> Array:
    """Return small whole numbers as elements of a type."""
    whole = GENERATOR.integers(-4, 5, shape)
    if dtype == "complex64":
        return np.asarray(whole + 1j * GENERATOR.integers(-4, 5, shape)).astype(dtype)
    return whole.astype(dtype)


@pytest.mark.parametrize(
    ("op", "expected"),
    [(Add(), np.logical_or), (Maximum(), np.logical_or), (Mul(), np.logical_and),
     (Minimum(), np.logical_and), (Less(), np.less), (Equal(), np.equal)],
    ids=str,
)  # fmt: skip
def test_arithmetic_of_truth_values_is_logic(op: Op, expected: Any) -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])

    assert applied(op, x, y).tolist() == expected(x, y).tolist()


def test_sums_and_products_of_truth_values_say_if_one_holds_or_all() -> None:
    x = np.array([[False, False], [False, True], [True, True]])

    assert applied(ReduceSum((1,), False), x).tolist() == [False, True, True]
    assert applied(ReduceProd((1,), False), x).tolist() == [False, False, True]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    "op",
    [Conv((2, 1), (1, 0, 0, 1), (1, 2), 2), ConvTranspose((2, 1), (1, 0, 0, 1), (1, 2), (1, 0), 2)],
    ids=["plain", "transposed"],
)
def test_integers_are_convolved_exactly_and_wrap(op: Op, dtype: str) -> None:
    x, w = drawn(dtype, 2, 4, 5, 6), drawn(dtype, 4, 2, 3, 2)
    bias = drawn(dtype, 4)
    exact = applied(op, *(v.astype(np.float64) for v in (x, w, bias))).astype(np.int64)

    y = applied(op, x, w, bias)

    assert y.dtype == dtype
    assert np.array_equal(y, exact.astype(dtype))


def test_products_of_bytes_and_opposites_without_a_sign_wrap() -> None:
    x = np.full((1, 3), 127, np.int8)

    assert applied(MatMul(), x, x.T).tolist() == [[(3 * 127 * 127 + 128) % 256 - 128]]
    assert applied(Neg(), np.array([0, 1, 255], np.uint8)).tolist() == [0, 255, 1]


@pytest.mark.parametrize("op", [Conv((1, 1), (1, 0, 0, 1), (1, 2)),
                                ConvTranspose((1, 1), (1, 0, 0, 1), (1, 2), (0, 0))],
                         ids=["plain", "transposed"])  # fmt: skip
def test_complex_numbers_are_convolved(op: Op) -> None:
    x, w = drawn("complex64", 1, 2, 4, 5), drawn("complex64", 2, 2, 3, 2)
    bias = drawn("complex64", 2)
    none = np.zeros(2, np.float32)
    real = applied(op, x.real, w.real, bias.real.copy()) - applied(op, x.imag, w.imag, none)
    imaginary = applied(op, x.real, w.imag, bias.imag.copy()) + applied(op, x.imag, w.real, none)

    assert np.array_equal(applied(op, x, w, bias), real + 1j * imaginary)


def test_functions_sums_and_tests_of_complex_numbers() -> None:
    x = np.array([[1 + 2j, 3 - 1j], [-2 + 1j, complex(0, np.nan)]], np.complex64)

    assert np.allclose(applied(Tanh(), x[0]), np.tanh(x[0]))
    assert np.allclose(applied(Reciprocal(), x[0]), 1 / x[0])
    assert np.allclose(applied(ReduceSum((1,), False), x[:1]), x[:1].sum(axis=1))
    assert np.allclose(applied(CumSum(1), x[:1]), x[:1].cumsum(axis=1))
    assert applied(IsNaN(), x).tolist() == np.isnan(x).tolist()
    assert applied(Equal(), x, x.conj()).tolist() == [[False, False], [False, False]]


@pytest.mark.parametrize("dtype", ["complex64", "bool"])
def test_elements_are_added_where_indices_say(dtype: str) -> None:
    x, updates = drawn(dtype, 4), drawn(dtype, 3)
    at = np.array([1, 3, 1])
    expected = x.copy()
    np.add.at(expected, at, updates)

    assert np.array_equal(applied(ScatterElements(0, "add"), x, at, updates), expected)
    assert np.array_equal(applied(ScatterNd("add"), x, at[:, None], updates), expected)


def test_what_complex_numbers_have_not_is_refused() -> None:
    x = drawn("complex64", 2)

    with pytest.raises(UnsupportedError, match="floor: c64 is not supported"):
        applied(Floor(), x)
    with pytest.raises(UnsupportedError, match="reduction 'mul' of c64"):
        applied(ScatterNd("mul"), x, np.array([[0]]), x[:1])
    with pytest.raises(AssertionError, match="from the front"):
        applied(ReduceSum((-1,), False), x)
