"""Writes where a mask says, which is not known ahead: one value for each element, or for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import FeedError

X = torch.arange(12.0).reshape(3, 4)
PICKED = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]).bool()
ROWS, COLUMNS = torch.tensor([True, False, True]), torch.tensor([False, True, True, False])


class Written(nn.Module):
    def forward(self, x: Any, picked: Any, rows: Any, columns: Any, five: Any) -> list[Any]:
        def put(index: Any, values: Any, accumulate: bool = False, to: Any = x) -> Any:
            return torch.ops.aten.index_put(to, index, values, accumulate)

        six = torch.arange(6.0)
        return [
            put([picked], five, True), put([picked], five[:1]), put([rows], six[:2].reshape(2, 1)),
            put([None, columns], six.reshape(3, 2)), put([picked.byte()], five > 2, to=x > 3),
            put([picked & False], six[:0]),
        ]  # fmt: skip


class Updated(nn.Module):
    """Reads as many elements as a mask picks, so that its graph depends on data."""

    def forward(self, x: Any, rows: Any) -> Any:
        x = x.clone()
        x[x > 2] += (x + 1)[x > 2]
        x[rows, 1] = 5.0
        return x


@pytest.mark.parametrize("module, arguments", [
    (Written(), (X, PICKED, ROWS, COLUMNS, torch.arange(5.0))), (Updated(), (X, ROWS)),
])  # fmt: skip
def test_values_go_where_a_mask_says(module: Any, arguments: Any) -> None:
    got = ag.compile(module, args=arguments)(*(a.numpy() for a in arguments))
    expected = module(*arguments)

    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b.numpy())


class Put(nn.Module):
    def forward(self, x: Any, mask: Any, values: Any) -> Any:
        return torch.index_put(x, (mask,), values)


@pytest.mark.usefixtures("traced_anew")
def test_a_mask_is_written_by_in_one_graph() -> None:
    f = torch.compile(Put(), backend="alpenglow", options={"strict": True})

    assert torch.equal(f(X, PICKED, torch.arange(5.0)), Put()(X, PICKED, torch.arange(5.0)))


def test_as_many_values_are_expected_as_a_mask_picks() -> None:
    count = torch.export.Dim("count", min=0)
    exe = ag.compile(
        Put(), args=(X, PICKED, torch.arange(5.0)), dynamic_shapes=(None, None, {0: count})
    )
    for mask in (PICKED, ~PICKED, PICKED & False, torch.eye(3, 4).bool() & PICKED):
        number = int(mask.sum())
        got = exe(X.numpy(), mask.numpy(), np.arange(number, dtype=np.float32))
        expected = Put()(X, mask, torch.arange(float(number)))
        np.testing.assert_array_equal(got, expected.numpy())
        for other in (number + 1, max(number - 1, 0)):
            if other not in (1, number):
                with pytest.raises(FeedError, match="how many more a mask picks than"):
                    exe(X.numpy(), mask.numpy(), np.zeros(other, np.float32))
