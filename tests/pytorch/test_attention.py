"""Attention stays one operator, whatever its masks, heads and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.ops.product.attention import Attention

SEEN = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) > 0.5
SEEN[1] = False  # a query that sees nothing gives 0


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Mixed(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.settings)


CASES: dict[str, tuple[list[torch.Tensor], dict[str, Any]]] = {
    "plain": ([reals(5, 8), reals(7, 8), reals(7, 8)], {}),
    "causal": ([reals(2, 4, 5, 8), reals(2, 4, 7, 8), reals(2, 4, 7, 8)], {"is_causal": True}),
    "seen": ([reals(2, 4, 5, 8), reals(2, 4, 7, 8), reals(2, 4, 7, 8), SEEN], {}),
    "added": ([reals(2, 4, 5, 8), reals(2, 4, 7, 8), reals(2, 4, 7, 8),
               torch.zeros(5, 7).masked_fill(~SEEN, -torch.inf)], {"scale": 0.3}),
    "three axes": ([reals(4, 5, 8), reals(4, 7, 8), reals(4, 7, 8), SEEN.expand(4, 5, 7)], {}),
    "five axes": ([reals(3, 2, 4, 5, 8), reals(3, 2, 4, 7, 8), reals(3, 2, 4, 7, 8),
                   SEEN[None, None, None].expand(3, 1, 1, 5, 7)], {}),
    "batches of one": ([reals(2, 4, 5, 8), reals(1, 4, 7, 8), reals(2, 1, 7, 8)], {}),
    "shared heads": ([reals(2, 4, 5, 8), reals(2, 2, 7, 8), reals(2, 2, 7, 6)],
                     {"enable_gqa": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_attention_equals_eager(name: str) -> None:
    arguments, settings = CASES[name]
    module = Mixed(**settings)
    graph = ag.load(module, args=tuple(arguments))
    actual = ag.compile(graph)(*(x.numpy() for x in arguments))

    assert isinstance(graph, ag.Graph)
    assert any(isinstance(node.op, Attention) for node in graph.nodes)
    np.testing.assert_allclose(actual, module(*arguments), rtol=1e-5, atol=1e-6)


def test_rows_of_an_open_size_are_scaled_by_it() -> None:
    size = {2: torch.export.Dim.AUTO}
    module = Mixed()
    example = (reals(4, 5, 6), reals(4, 7, 6), reals(4, 7, 6))
    exe = ag.compile(module, args=example, dynamic_shapes=(size, size, size))

    for n in (3, 8):
        q, k, v = reals(4, 5, n), reals(4, 7, n), reals(4, 7, n)
        actual = exe(q.numpy(), k.numpy(), v.numpy())
        np.testing.assert_allclose(actual, module(q, k, v), rtol=1e-5, atol=1e-6)
