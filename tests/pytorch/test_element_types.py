"""Operators on bf16 are rounded once, and those on integers and truths are as exact as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from modules import Of
from torch.nn import functional as F

import alpenglow as ag
from alpenglow.frontends.torch import fx

TARGETS = ("interpreter", "cpu")


def results(f: Callable[..., Any], *xs: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    """Return what a function makes on each target."""
    model = torch.export.export(Of(f), xs)
    return [np.asarray(ag.compile(model, target)(*map(fx.array_of, xs))) for target in TARGETS]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


ROUNDED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "linear": (F.linear, [(8, 8), (40, 8), (40,)]),
    "addmm": (torch.addmm, [(6, 40), (6, 8), (8, 40)]),
    "baddbmm": (torch.baddbmm, [(5, 6, 9), (5, 6, 8), (5, 8, 9)]),
    "addbmm": (torch.addbmm, [(6, 9), (5, 6, 8), (5, 8, 9)]),
    "addmv": (torch.addmv, [(40,), (40, 8), (8,)]),
    "bilinear": (F.bilinear, [(8, 3), (8, 4), (40, 3, 4)]),
    "matrix_exp": (torch.matrix_exp, [(5, 5)]),
    "logits": (
        lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, None, None, "none", p),
        [(40, 5), (40, 5), (5,)],
    ),
    "linspace": (lambda x: x + torch.linspace(4.3, -3, 50, dtype=x.dtype), [(1,)]),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_is_made_of_bf16_is_rounded_once(name: str) -> None:
    f, shapes = ROUNDED[name]
    xs = [normal(*shape) for shape in shapes]
    if name == "linspace":
        xs = [torch.zeros(1, dtype=torch.bfloat16)]
    exact = f(*[x.double() for x in xs]).numpy()
    for y in results(f, *xs):
        assert y.dtype == ml_dtypes.bfloat16
        # Half of the last of 8 bits, and what f32 rounds before.
        assert np.all(np.abs(y.astype(np.float64) - exact) <= 2.0**-8 * np.abs(exact) + 2e-6)


@pytest.mark.parametrize("weights", [0, 1, 2])
def test_the_loss_of_logits_equals_eager(weights: int) -> None:
    x, t, w = (torch.randn(7, 5, generator=torch.Generator().manual_seed(i)) for i in range(3))
    t = torch.sigmoid(t)
    w = [None, w, w[0]][weights]
    for reduction in ("none", "mean", "sum"):
        f = [
            lambda x, t: F.binary_cross_entropy_with_logits(x, t, None, None, reduction),
            lambda x, t: F.binary_cross_entropy_with_logits(x, t, w, None, reduction),
            lambda x, t: F.binary_cross_entropy_with_logits(x, t, w, None, reduction, w.abs()),
        ][weights]
        for y in results(f, x, t):
            np.testing.assert_allclose(y, f(x, t), rtol=2e-6, atol=1e-6)


CONVOLUTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "plain": lambda x, w: F.conv2d(x, w[:, :2]),
    "strided": lambda x, w: F.conv2d(x, w[:, :1], w[:, 0, 0, 0], (2, 1), (1, 2), (1, 2), 2),
    "transposed": lambda x, w: F.conv_transpose2d(x, w[:2], None, (2, 1), (1, 0), (1, 0), 2),
    "line": lambda x, w: F.conv1d(x[..., 0], w[:, :2, :, 0], padding="same"),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_integers_wrap(name: str, dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    random = torch.Generator().manual_seed(0)
    x = torch.randint(-most, most, (2, 2, 6, 5), generator=random).to(dtype)
    w = torch.randint(-most, most, (4, 3, 3, 2), generator=random).to(dtype)
    expected = CONVOLUTIONS[name](x.long(), w.long()).to(dtype)  # eager lacks some for i32 and i8
    for y in results(CONVOLUTIONS[name], x, w):
        np.testing.assert_array_equal(y, expected)


def test_truths_are_padded_with_truths() -> None:
    x = torch.tensor([[True, False]])
    for y in results(lambda x: F.pad(x, (1, 2), value=2.0), x):
        np.testing.assert_array_equal(y, [[True, True, False, True, True]])


def test_limits_of_integers_lose_their_fractions() -> None:
    x = torch.arange(-3, 4)
    for y in results(lambda x: F.hardtanh(x, -0.5, 1.5), x):
        np.testing.assert_array_equal(y, F.hardtanh(x, -0.5, 1.5))


def test_greatest_common_divisors() -> None:
    x, y = torch.cartesian_prod(torch.arange(-9, 10), torch.arange(-30, 31, 6)).unbind(1)
    for f in (torch.gcd, torch.lcm):
        for z in results(f, x.contiguous(), y.contiguous()):
            np.testing.assert_array_equal(z, f(x, y))


def test_a_histogram_of_bf16_counts_beyond_what_bf16_adds_up() -> None:
    x = torch.ones(1000, dtype=torch.bfloat16)
    for y in results(lambda x: torch.histc(x, 2, 0, 2), x):
        np.testing.assert_array_equal(y.astype(np.float32), [0, 1000])


def test_polygamma_between_whole_numbers_below_zero() -> None:
    x = torch.tensor([-8.5, -0.5, -3.25])
    for y in results(lambda x: torch.polygamma(4, x), x):
        np.testing.assert_allclose(y, torch.polygamma(4, x.double()), rtol=2e-6)
