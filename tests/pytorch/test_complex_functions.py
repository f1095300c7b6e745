"""Functions of complex numbers equal eager, on both sides of their cuts too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_edges import assert_equals_eager

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.ops.elementwise.complex import ViewAsReal

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


SLOPES: dict[str, Callable[[Any], Any]] = {
    **{name: f for name, f in FUNCTIONS.items() if name != "isfinite"},
    "sgn": torch.sgn,
    "sinc": torch.sinc,
    "z**z": lambda z: z**z,
    "z**2": lambda z: z**2,
    "z**1.5": lambda z: z**1.5,
    "z**-1": lambda z: z**-1,
    "z to 0": lambda z: z ** torch.zeros_like(z),
    "quotient": lambda z: (z + 3) / (z - 5),
    "norm": lambda z: torch.linalg.vector_norm(z.reshape(-1, 1), 2, 1),
    "normalize": lambda z: torch.nn.functional.normalize(z.reshape(-1, 1), dim=1),
}
"""Functions of each number alone."""

SIDES = {"asin", "acos", "asinh", "atan", "atanh", "acosh"}
"""Functions with cuts on an axis where PyTorch takes the derivative of one side for both."""

AXES = torch.tensor([*[complex(x, 0) for x in (0.0, 0.25, -0.5, 2.5)],
                     *[complex(0, x) for x in (0.75, 0.5, -0.25, -3)],
                     0.25 + 1j, -2 + 0.5j, 1e8 - 1j], dtype=torch.complex128)  # fmt: skip


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.function(x).resolve_conj()
        return torch.view_as_real(y) if y.is_complex() else y


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.sampled(6, "asin", "sgn", "abs", "z**z", "sinc", "tanh")
def test_first_and_second_gradients_on_the_axes_are_those_of_pytorch(name: str) -> None:
    function = Called(SLOPES[name])
    x = AXES[(AXES.abs() < 1) | (AXES.real * AXES.imag != 0)] if name in SIDES else AXES
    g = ag.load(torch.export.export(function, (x,)))
    ((inside, value),), (y,) = g.inputs.items(), g.outputs.values()
    random = np.random.default_rng(0)
    weights = random.standard_normal(tuple(map(int, y.type.shape)))
    pairs = random.standard_normal((len(x), 2))
    first = gradients(g, y, [value], dy=g.constant(weights))[0]
    g.output("first", first)
    second = gradients(g, g(ViewAsReal(), first), [value], dy=g.constant(pairs))[0]
    g.output("second", second)
    results = ag.compile(g, target="interpreter").run({inside: x.numpy()})

    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(x), x, torch.from_numpy(weights), create_graph=True)
    expected = {"first": slope.detach().resolve_conj().numpy()}
    if slope.requires_grad and name not in ("sinc", "norm", "normalize"):  # PyTorch: 0 or NaN at 0
        (bend,) = torch.autograd.grad(torch.view_as_real(slope), x, torch.from_numpy(pairs))
        expected["second"] = bend.resolve_conj().numpy()
    for key, numbers in expected.items():
        known = np.isfinite(numbers)
        assert known.sum() >= len(numbers) - 4
        np.testing.assert_allclose(results[key][known], numbers[known], 1e-7, 1e-15)
