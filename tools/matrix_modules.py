"""The modules of PyTorch among the models of `matrix.py`, and the files that PyTorch exports."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from matrix_models import Model


@dataclass(frozen=True)
class Case:
    """A module, its arguments, its dynamic shapes, the extents that fix these, and its state."""

    module: nn.Module
    arguments: tuple[Any, ...]
    dynamic: Any = None
    extents: dict[str, int] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)


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


def cases() -> dict[str, Case]:
    """Return the modules by name; all weights are drawn from one seed."""
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))  # fmt: skip
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    rows = {1: torch.export.Dim("rows", min=0, max=64)}
    return {
        "CNN": Case(cnn.eval(), (torch.randn(2, 3, 8, 8),), ({0: batch[0]},), {"batch": 2}),
        "attention": Case(Attention().eval(), (torch.randn(2, 4, 16),)),
        "LSTM": Case(Recurrent().eval(), (torch.randn(3, 1, 8),)),
        "decoder": Case(Decoder().eval(), (torch.randn(1, 1, 16), {"k": torch.randn(1, 4, 16)}),
                        {"x": None, "past": {"k": rows}}, {}, {"past_k": "present_k"}),
    }  # fmt: skip


def models(folder: Path) -> Iterator[Model]:
    """Yield modules, and the files of their exported programs."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    for name, case in cases().items():
        traced = {"args": case.arguments, "dynamic_shapes": case.dynamic}
        extents, state = case.extents, case.state
        yield Model(name, "PyTorch module", case.module, extents, traced, state,
                    is_small=name == "CNN")  # fmt: skip
        program = torch.export.export(case.module, case.arguments, dynamic_shapes=case.dynamic)
        path = folder / f"{name}.pt2"
        torch.export.save(program, path)
        yield Model(name, ".pt2", path, extents, state=state)
        yield Model(name, "torch.compile", case.module, traced=traced, in_place=True)
        yield from onnx_files(name, case, program, folder)


def onnx_files(name: str, case: Case, program: Any, folder: Path) -> Iterator[Model]:
    """Yield the files that PyTorch's two exporters of ONNX write."""
    if not case.state:  # the arguments of the decoder are a tree
        path = folder / f"{name}-script.onnx"
        torch.onnx.export(
            case.module, case.arguments, path, dynamo=False, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "batch"}} if case.extents else None,
        )  # fmt: skip
        yield Model(f"TorchScript {name}", "ONNX", path, case.extents)
    path = folder / f"{name}-dynamo.onnx"
    torch.onnx.export(program, (), path, dynamo=True, verbose=False)
    yield Model(f"dynamo {name}", "ONNX", path, case.extents)
