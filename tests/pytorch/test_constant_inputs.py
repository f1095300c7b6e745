"""Inputs of modules that are constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError

X = torch.arange(6.0).reshape(2, 3)
ROWS = torch.export.Dim("rows", min=2, max=64)


class Scaled(torch.nn.Module):  # type: ignore[misc]  # mypy sees no torch
    def forward(self, x: Any, options: dict[str, Any]) -> dict[str, Any]:
        return {"y": x * options["scale"] + options["shift"]}


class First(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, count: Any) -> Any:
        return x[: count.item()]


class Found(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, w: Any) -> Any:
        return torch.nonzero(x @ w)


def test_parameters_that_are_constants_are_left_out() -> None:
    options = {"scale": torch.tensor(2.0), "shift": torch.ones(1)}
    args = (X, options)

    exe = ag.compile(Scaled(), args=args, constants={"x": X})
    np.testing.assert_array_equal(exe(options)["y"], 2 * X + 1)
    exe = ag.compile(Scaled(), args=args, constants={"options_scale": 3.0})
    np.testing.assert_array_equal(exe(X, np.ones(1, np.float32)), 3 * X + 1)


def test_what_an_item_decides_is_decided(tmp_path: Path) -> None:
    args = (X, torch.tensor(1))
    torch.export.save(torch.export.export(First(), args), tmp_path / "first.pt2")

    exe = ag.compile(First(), args=args, constants={"count": 2})
    assert exe.outputs["output"].extents == (2, 3)
    exe = ag.compile(tmp_path / "first.pt2", constants={"count": 1})
    np.testing.assert_array_equal(exe(X), X[:1])


@pytest.mark.parametrize("model", [torch.nn.Bilinear(3, 3, 4), Found()])
def test_constants_of_graphs_that_depend_on_data_and_of_others(model: Any) -> None:
    w = torch.rand(2, 3) if isinstance(model, torch.nn.Bilinear) else torch.eye(3)
    name = "input2" if isinstance(model, torch.nn.Bilinear) else "w"
    expected = model(X, w).detach().numpy()

    exe = ag.compile(model, args=(X, w), constants={name: w})
    assert len(exe.inputs) == 1
    np.testing.assert_allclose(exe(X), expected, rtol=1e-5)


def test_constants_bind_open_extents_of_graphs_alone() -> None:
    x, w = torch.rand(5, 3), torch.rand(5, 3)
    shapes = ({0: ROWS}, {0: ROWS})
    exe = ag.compile(Pairs(), args=(X, X + 1), dynamic_shapes=shapes, constants={"w": w})

    assert exe.inputs["x"].extents == (5, 3)
    np.testing.assert_array_equal(exe(x), x + w)
    with pytest.raises(UnsupportedError, match="the shape of the constant 'x'"):
        ag.compile(Found(), args=(X, torch.eye(3)), dynamic_shapes=({0: ROWS}, None),
                   constants={"x": x})  # fmt: skip
    with pytest.raises(OptionError, match="names z, expected inputs: x, w"):
        ag.compile(Pairs(), args=(X, X + 1), constants={"z": 1.0})


class Pairs(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, w: Any) -> Any:
        return x + w
