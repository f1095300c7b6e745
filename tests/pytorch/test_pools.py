"""Pools whose windows hang over the end (`ceil_mode`), over dynamic dimensions, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("traced_anew")

POOLS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: F.max_pool2d(x, (2, 1), (3, 4), (1, 0), ceil_mode=True),
    "mean": lambda x: F.avg_pool2d(x, (2, 3), (5, 3), (1, 0), True, False),
    "norm": lambda x: F.lp_pool2d(x, 2, 2, 3, ceil_mode=True),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_window_that_would_begin_behind_the_data_is_left_out(name: str) -> None:
    pool = POOLS[name]
    f = torch.compile(pool, backend="alpenglow", dynamic=True, options={"strict": True})
    for shape in ((7, 7), (8, 9), (9, 8), (11, 12)):
        x = torch.randn(2, 3, *shape)
        torch.testing.assert_close(f(x), pool(x))
