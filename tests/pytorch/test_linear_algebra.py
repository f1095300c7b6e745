"""Matrices: what an exported program makes is what eager makes; signs that are open are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import FeedError


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.f(*xs)


def both(f: Callable[..., Any], *xs: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what eager makes, and what is compiled of an exported program makes."""
    exe = ag.compile(torch.export.export(Calls(f), xs))
    made = exe(*(x.numpy() for x in xs))
    actual = list(made) if isinstance(made, list | tuple) else [made]
    expected = f(*xs)
    listed = list(expected) if isinstance(expected, list | tuple) else [expected]
    return listed, [torch.from_numpy(np.array(a)) for a in actual]


torch.manual_seed(0)
SQUARE = torch.randn(2, 4, 4) + 3 * torch.eye(4)
POSITIVE = SQUARE @ SQUARE.mT
TALL = torch.randn(2, 5, 3)

EQUAL: dict[str, Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]] = {
    "inv": lambda: (torch.linalg.inv, (SQUARE,)),
    "solve": lambda: (torch.linalg.solve, (SQUARE, TALL[:, :4])),
    "solve right": lambda: (lambda a, b: torch.linalg.solve(a, b, left=False),
                            (SQUARE, TALL[:, :4].mT)),
    "solve vectors": lambda: (torch.linalg.solve, (SQUARE, TALL[:, :4, 0])),
    "det": lambda: (torch.linalg.det, (SQUARE,)),
    "slogdet": lambda: (lambda x: tuple(torch.linalg.slogdet(x)), (SQUARE,)),
    "cholesky": lambda: (torch.linalg.cholesky, (POSITIVE,)),
    "cholesky solve": lambda: (lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)),
                               (POSITIVE, TALL[:, :4])),
    "lu": lambda: (lambda x: tuple(torch.linalg.lu(x)), (TALL,)),
    "lu factor": lambda: (lambda x: tuple(torch.linalg.lu_factor(x)), (SQUARE,)),
    "qr": lambda: (lambda x: tuple(torch.linalg.qr(x)), (TALL,)),
    "qr complete": lambda: (lambda x: tuple(torch.linalg.qr(x, mode="complete")), (TALL,)),
    "reflections of a wide matrix": lambda: (
        lambda x: torch.ormqr(*torch.geqrf(x), torch.ones(2, 3, 4)), (TALL.mT,)),
    "svdvals": lambda: (torch.linalg.svdvals, (TALL,)),
    "eigvalsh": lambda: (torch.linalg.eigvalsh, (POSITIVE,)),
    "pinv": lambda: (torch.linalg.pinv, (TALL,)),
    "triangular": lambda: (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
                           (SQUARE, TALL[:, :4])),
    "exponential": lambda: (torch.linalg.matrix_exp, (SQUARE / 3,)),
    "rank": lambda: (torch.linalg.matrix_rank, (TALL,)),
    "fft": lambda: (lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * 2, n=7), (TALL,)),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_results_equal_those_of_eager(name: str) -> None:
    expected, actual = both(*_flat(EQUAL[name]()))

    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def _flat(case: tuple[Callable[..., Any], tuple[torch.Tensor, ...]]) -> tuple[Any, ...]:
    f, xs = case
    return (f, *(x.contiguous() for x in xs))


def test_singular_vectors_make_their_matrix() -> None:
    _, (u, s, vh) = both(lambda x: tuple(torch.linalg.svd(x, full_matrices=False)), TALL)

    torch.testing.assert_close(u * s[:, None] @ vh, TALL, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(u.mT @ u, torch.eye(3).expand(2, 3, 3), rtol=1e-5, atol=1e-5)


def test_eigenvectors_make_their_matrix() -> None:
    _, (values, vectors) = both(lambda x: tuple(torch.linalg.eigh(x)), POSITIVE)

    torch.testing.assert_close(vectors * values[:, None] @ vectors.mT, POSITIVE,
                               rtol=1e-4, atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("f", [
    torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x),
    lambda x: torch.linalg.lu_factor(x)[0],
])  # fmt: skip
def test_what_a_matrix_does_not_have_ends_the_call(f: Callable[..., Any]) -> None:
    exe = ag.compile(torch.export.export(Calls(f), (torch.eye(3),)))

    np.testing.assert_array_equal(np.abs(exe(np.eye(3, dtype=np.float32))), np.eye(3))
    with pytest.raises(FeedError, match=r"failed, 0 for none\) is 3"):
        exe(np.diag([1, 2, 0]).astype(np.float32))


def test_what_says_so_itself_does_not() -> None:
    exe = ag.compile(torch.export.export(Calls(lambda x: torch.linalg.inv_ex(x)[1]), (SQUARE,)))
    singular = np.stack([np.eye(4), np.diag([1, 0, 1, 1])]).astype(np.float32)

    np.testing.assert_array_equal(exe(singular), [0, 2])
