"""Operators on lists of tensors (`torch._foreach_…`), and counts of numbers, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import FeedError


class Lists(nn.Module):
    def forward(self, a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        x, y = [a, b], [c, d]
        written = [a * 1, b * 1]
        torch._foreach_add_([written[0]], [written[0].flip(0)])
        torch._foreach_mul_(written, y)
        every = [
            written, torch._foreach_add(x, y, alpha=2), torch._foreach_add(x, [1.5, 2.0]),
            torch._foreach_add(x, c.sum(), alpha=2.0), torch._foreach_div(x, y),
            torch._foreach_pow(x, 2), torch._foreach_pow(x, y), torch._foreach_pow(2.0, x),
            torch._foreach_maximum(x, y), torch._foreach_clamp_min(x, 0.8),
            torch._foreach_lerp(x, y, 0.3), torch._foreach_addcdiv(x, y, y, [0.5, 2.0]),
            torch._foreach_norm(x, 2), torch._foreach_rsqrt(x), torch._foreach_sub(x, y)[1:],
        ]  # fmt: skip
        return [tensor for tensors in every for tensor in tensors]


def compiled(arguments: Any) -> Any:
    return torch.compile(Lists(), backend="alpenglow", options={"strict": True})(*arguments)


def exported(arguments: Any) -> Any:
    return ag.compile(Lists(), args=arguments)(*(a.numpy() for a in arguments))


@pytest.mark.usefixtures("traced_anew")
@pytest.mark.parametrize("door", [compiled, exported])
def test_lists_are_changed_as_their_tensors_are(door: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    arguments = tuple(torch.rand(*shape) + 0.5 for shape in ((3,), (2, 2), (3,), (2, 2)))

    for got, expected in zip(door(arguments), Lists()(*arguments), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


class Counts(nn.Module):
    def forward(self, x: Any, w: Any) -> tuple[Any, ...]:
        return torch.bincount(x), torch.bincount(x, w, 4), torch.bincount(x.int(), w.double())


def test_numbers_are_counted_up_to_the_largest() -> None:
    count = torch.export.Dim("count", min=1)
    first = torch.tensor([1, 2, 2, 5]), torch.rand(4)
    exe = ag.compile(Counts(), args=first, dynamic_shapes=({0: count}, {0: count}))
    for x, w in (first, (torch.tensor([0]), torch.rand(1)), (torch.tensor([7, 0]), torch.rand(2))):
        for got, expected in zip(exe(x.numpy(), w.numpy()), Counts()(x, w), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
            assert got.dtype == expected.numpy().dtype
    with pytest.raises(FeedError, match="is -1, expected 0 to"):
        exe(np.array([-1, 3]), np.ones(2, np.float32))
