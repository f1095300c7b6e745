"""Interpolation of many extents equals eager: nearest neighbours hang on the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import alpenglow as ag

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("nearest", {}), ("nearest-exact", {}), ("bilinear", {}), ("bicubic", {}),
    ("bilinear", {"align_corners": True}), ("bicubic", {"align_corners": True}),
    ("bilinear", {"antialias": True}), ("bicubic", {"antialias": True}),
]  # fmt: skip


class Resized(nn.Module):
    """Rows of one image resized to many sizes, by extents and by a scale."""

    def __init__(self, sizes: list[int], mode: str, more: dict[str, Any]) -> None:
        super().__init__()
        self.sizes, self.mode, self.more = sizes, mode, more

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        def resized(**how: Any) -> torch.Tensor:
            return functional.interpolate(x, mode=self.mode, **how, **self.more)

        by_scale = [resized(scale_factor=(n / 7.3, 1.7)) for n in self.sizes[1::4]]
        return by_scale + [resized(size=(n, 5)) for n in self.sizes]


@pytest.mark.parametrize(("mode", "more"), WAYS)
@pytest.mark.parametrize("extent", [7, 49])
def test_many_sizes_equal_eager(mode: str, more: dict[str, Any], extent: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, extent, 3)
    net = Resized([2, 3, 5, 6, 7, 13, 20, 21, 41, 49, 82, 98, 147], mode, more)
    exe = ag.compile(torch.export.export(net, (x,)), "interpreter")
    got = exe.run({next(iter(exe.inputs)): x.numpy()}).values()
    expected = net(x)

    assert len(got) == len(expected)
    for y, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_open_extents_equal_eager(mode: str) -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.interpolate(x, scale_factor=2, mode=mode)

    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({2: rows},)
    program = torch.export.export(Doubled(), (torch.randn(1, 2, 6, 5),), dynamic_shapes=shapes)
    exe = ag.compile(program)

    for n in (2, 7, 33):
        x = torch.randn(1, 2, n, 5)
        np.testing.assert_allclose(exe(x.numpy()), Doubled()(x), rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_places_halfway_between_elements_equal_eager(
    mode: str, padding: str, aligned: bool
) -> None:  # fmt: skip
    x = torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
    halves = torch.arange(-40, 41) / 2
    shift = 0 if aligned else 1
    rows, columns = ((halves * 2 + shift) / (d - 1 + shift) - 1 for d in (4, 8))
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)[None]

    class Net(nn.Module):
        def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return functional.grid_sample(x, grid, mode, padding, aligned)

    for target in ("interpreter", "cpu"):
        exe = ag.compile(torch.export.export(Net(), (x, grid)), target)
        y = exe(x.numpy(), grid.numpy())
        np.testing.assert_allclose(y, Net()(x, grid).numpy(), rtol=1e-5, atol=1e-5)
