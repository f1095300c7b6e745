"""Modules for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Of(nn.Module):
    """A module that is a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.function(*xs)
