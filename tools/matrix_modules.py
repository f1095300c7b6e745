"""The modules of PyTorch among the models of `matrix.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

Case = tuple[nn.Module, tuple[Any, ...], Any, dict[str, int], dict[str, str]]
"""A module, its arguments, its dynamic shapes, the extents that fix these, and its state."""


class Attention(nn.Module):  # type: ignore[misc]  # mypy has no torch
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


class Recurrent(nn.Module):  # type: ignore[misc]  # mypy has no torch
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Decoder(nn.Module):  # type: ignore[misc]  # mypy has no torch
    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, past: dict[str, torch.Tensor]) -> Any:
        keys = torch.cat([past["k"], self.key(x)], 1)
        return {"y": torch.softmax(x @ keys.mT, -1) @ keys, "present": {"k": keys}}


def modules() -> dict[str, Case]:
    """Return the modules by name; all weights are drawn from one seed."""
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))  # fmt: skip
    rows = {1: torch.export.Dim("rows", min=0, max=64)}
    cases: dict[str, Case] = {
        "CNN": (cnn, (torch.ones(2, 3, 8, 8),), None, {}, {}),
        "attention": (Attention(), (torch.ones(2, 4, 16),), None, {}, {}),
        "LSTM": (Recurrent(), (torch.ones(3, 1, 8),), None, {}, {}),
        "decoder": (Decoder(), (torch.ones(1, 1, 16), {"k": torch.ones(1, 4, 16)}),
                    {"x": None, "past": {"k": rows}}, {}, {"past_k": "present_k"}),
    }  # fmt: skip
    return {name: (module.eval(), *rest) for name, (module, *rest) in cases.items()}
