"""unique_consecutive: what runs there are, in which each element is, and how long they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError

CASES = [
    (None, torch.tensor([1, 1, 2, 2, 3, 1, 1, 2])),
    (None, torch.tensor([[1.0, 1.0], [1.0, 2.0], [2.0, 2.0]])),
    (0, torch.tensor([[1, 2], [1, 2], [3, 4]])),
    (1, torch.tensor([[1.0, 1.0, 2.0], [1.0, 1.0, 5.0]])),
    (1, torch.zeros(2, 0, 3)),
    (None, torch.zeros(2, 0, 3)),
]


class Runs(nn.Module):
    """The runs of equal slices along an axis, of all elements if there is none."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.unique_consecutive(x, True, True, self.dim))


@pytest.mark.parametrize(("dim", "x"), CASES)
def test_runs_equal_eager(dim: int | None, x: torch.Tensor) -> None:
    results = ag.compile(torch.export.export(Runs(dim), (x,)))(x.numpy())

    for expected, actual in zip(Runs(dim)(x), results, strict=True):
        np.testing.assert_array_equal(expected.numpy(), actual, strict=True)


def test_shapes_that_pytorch_infers_wrongly_are_refused() -> None:
    program = torch.export.export(Runs(-1), (torch.ones(2, 3),))

    with pytest.raises(UnsupportedError, match="expected rank"):
        ag.compile(program)
