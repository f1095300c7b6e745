"""Elements of segments together, as eager computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import alpenglow as ag
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.whole import graph_of

LENGTHS = torch.tensor([[2, 0, 3, 1], [0, 4, 0, 2]])


def reals(*shape: int) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))
    x.view(-1)[3] = float("nan")
    return x


def check(f: Callable[..., Any], *tensors: torch.Tensor) -> None:
    graph = graph_of(fx.traced(make_fx(f, tracing_mode="fake")(*tensors)))
    for target in ("interpreter", "cpu"):
        exe = ag.compile(graph, target)
        (y,) = exe.run(dict(zip(exe.inputs, (t.numpy() for t in tensors), strict=True))).values()
        np.testing.assert_allclose(y, f(*tensors).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("initial", [None, 0.5])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments_by_length_and_by_offset(reduce: str, initial: float | None) -> None:
    more: dict[str, Any] = {"axis": 1, "initial": initial, "unsafe": True}
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, **more), reals(2, 6, 3), LENGTHS)
    offsets = torch.cat([torch.zeros(2, 1, dtype=torch.int64), LENGTHS.cumsum(1)], 1)
    check(lambda x, n: torch.segment_reduce(x, reduce, offsets=n, **more), reals(2, 6), offsets)
