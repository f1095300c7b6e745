"""Functions of complex numbers equal eager, on both sides of their cuts too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_edges import assert_equals_eager

PARTS = torch.tensor([-2.5, -1.0, -0.25, -0.0, 0.0, 0.25, 1.0, 3.0])
GRID = torch.complex(*torch.cartesian_prod(PARTS, PARTS).unbind(1))
INNER = GRID[(GRID.abs() != 1) & (GRID.abs() != 0)]
"""Without the places where functions have poles, of which the parts may be NaN or infinite."""

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (
        torch.sqrt, torch.rsqrt, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2,
        torch.log10, torch.log1p, torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh,
        torch.tanh, torch.asin, torch.acos, torch.atan, torch.asinh, torch.acosh, torch.atanh,
        torch.sigmoid, torch.reciprocal, torch.abs, torch.angle, torch.neg, torch.isfinite,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_complex_number(name: str) -> None:
    assert_equals_eager(FUNCTIONS[name], INNER)


def test_sums_and_products_of_complex_numbers() -> None:
    x = INNER[:24].reshape(4, 6)
    for f in (torch.sum, torch.prod, torch.mean, torch.var):
        assert_equals_eager(f, x)
    assert_equals_eager(lambda v: torch.cumsum(v, 1), x)
    assert_equals_eager(lambda v: torch.cumprod(v, 1), x)
    assert_equals_eager(lambda v: torch.prod(v, 0, keepdim=True), x)


@pytest.mark.parametrize("ord", [2, 1, 0, 3, 0.5, float("inf"), -float("inf")])
def test_norms_of_complex_numbers(ord: float) -> None:
    x = INNER[:24].reshape(4, 6)
    assert_equals_eager(lambda v: torch.linalg.vector_norm(v, ord), x)
    assert_equals_eager(lambda v: torch.linalg.vector_norm(v, ord, dim=1, keepdim=True), x)


def test_lengths_of_complex_numbers() -> None:
    x = INNER[:24].reshape(4, 6)
    assert_equals_eager(torch.linalg.matrix_norm, x)
    assert_equals_eager(torch.norm, x)
    assert_equals_eager(lambda v: torch.dist(v, v.flip(0)), x)
    assert_equals_eager(lambda v: torch.nn.functional.normalize(v, dim=1), x)
    assert_equals_eager(lambda v: torch.renorm(v, 2, 0, 1.5), x)
