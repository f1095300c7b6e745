"""Reductions and running totals along axes whose extents are open."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "var": lambda x: torch.var(x, 1),
    "std": lambda x: torch.std(x, (0, 1), correction=0),
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "max": lambda x: x.max(1).values,
    "argmin": lambda x: x.argmin(1),
    "argmax of all": lambda x: x.argmax(),
    "any": lambda x: (x > 2).any(1),
    "softmax": lambda x: x.softmax(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "cdist": lambda x: torch.cdist(x, x + 1, p=1.0),
    "histogram by comparison": lambda x: (x[:, :, None] > torch.arange(3.0)).sum((0, 1)),
    "floor_divide": lambda x: x // 0.3,
    "nansum": lambda x: x.nansum(1),
    "frexp": lambda x: torch.frexp(x).mantissa,
}


class Applied(nn.Module):
    """A module that applies a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def program(function: Function) -> torch.export.ExportedProgram:
    """Return a function as a program of an open number of rows and columns."""
    open_ = {0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("columns", min=2)}
    return torch.export.export(Applied(function), (torch.randn(3, 5),), dynamic_shapes=(open_,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_open_extents_equal_eager(name: str) -> None:
    exe = ag.compile(program(FUNCTIONS[name]))
    for shape in ((3, 5), (1, 2), (4, 33)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        expected = FUNCTIONS[name](x).numpy()

        np.testing.assert_allclose(exe(x.numpy()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("p", [0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_pairs_of_open_width_equal_eager(p: float) -> None:
    widths = {1: torch.export.Dim("columns", min=0)}
    function = Applied(lambda x: nn.functional.pdist(x, p))
    exe = ag.compile(torch.export.export(function, (torch.randn(4, 5),), dynamic_shapes=(widths,)))
    for width in (5, 3, 0):
        x = torch.randn(4, width, generator=torch.Generator().manual_seed(width))

        np.testing.assert_allclose(exe(x.numpy()), function(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [torch.median, lambda x: x.cummax(1).values])
def test_what_needs_a_number_is_refused(function: Function) -> None:
    with pytest.raises(UnsupportedError, match="expected fixed"):
        ag.load(program(function))
