"""Calls that change the shape of their operand in place, and what torch cannot decompose."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import ModelError


class Reshaped(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[Any, ...]:
        before = x.sum(0)
        x.squeeze_()
        x.unsqueeze_(1)
        again = y.t_()
        y.swapaxes_(0, 1)
        copy = z.clone().transpose_(0, 1)
        return x + 1, before, again * 2, y - 1, copy


def module(arguments: Any) -> Any:
    return ag.compile(Reshaped(), args=arguments)


def program(arguments: Any) -> Any:
    return ag.compile(torch.export.export(Reshaped(), arguments))


def file(arguments: Any) -> Any:
    content = io.BytesIO()
    torch.export.save(torch.export.export(Reshaped(), arguments), content)
    return ag.compile(content.getvalue())


@pytest.mark.parametrize("door", [module, program, file])
def test_a_tensor_is_read_in_the_shape_that_it_was_given_in_place(
    door: Callable[[Any], Any],
) -> None:
    arguments = torch.randn(1, 3), torch.randn(2, 3), torch.randn(4, 2)
    got = door(arguments)(*(a.numpy().copy() for a in arguments))

    for a, b in zip(got, Reshaped()(*(a.clone() for a in arguments)), strict=True):
        np.testing.assert_allclose(a, b)


def test_what_torch_cannot_decompose_is_refused_with_its_message() -> None:
    class Zeros(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            torch._foreach_zero_([y])
            return y

    with pytest.raises(ModelError, match=r"torch cannot decompose .*_foreach_zero_"):
        ag.compile(Zeros(), args=(torch.ones(2),))
