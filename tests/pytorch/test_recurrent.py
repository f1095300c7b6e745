"""Recurrent layers are kept whole, and equal eager in all their forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import alpenglow as ag
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn

FORMS: list[tuple[type[nn.RNNBase], dict[str, Any]]] = [
    (nn.LSTM, {}),
    (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    (nn.LSTM, {"bias": False}),
    (nn.LSTM, {"proj_size": 3, "bidirectional": True, "num_layers": 2}),
    (nn.GRU, {}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    (nn.GRU, {"bias": False}),
    (nn.RNN, {"bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 2, "bias": False}),
]


class Layer(nn.Module):
    """A recurrent layer that begins with states that are given."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        return self.layer(x, states if len(states) > 1 else states[0])


@pytest.mark.parametrize(("kind", "more"), FORMS)
def test_a_layer_equals_eager_and_stays_whole(kind: type[nn.RNNBase], more: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net = Layer(kind(4, 5, **more)).eval()
    rows = more.get("num_layers", 1) * (2 if more.get("bidirectional") else 1)
    h, c = torch.randn(rows, 2, more.get("proj_size", 5)), torch.randn(rows, 2, 5)
    x = torch.randn(2, 6, 4) if more.get("batch_first") else torch.randn(6, 2, 4)
    args = (x, h, c) if kind is nn.LSTM else (x, h)
    program = torch.export.export(net, args)
    graph = ag.load(program)
    assert isinstance(graph, ag.Graph)
    got = tree_leaves(ag.compile(graph)(*(a.numpy() for a in args)))
    expected = tree_leaves(net(*args))

    if "proj_size" not in more:
        kinds = {type(node.op) for node in graph.nodes}
        assert kinds & {Lstm, Gru, Rnn} and not kinds & {Sigmoid, Tanh}
    assert len(got) == len(expected)
    for y, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(y, e.detach(), rtol=1e-5, atol=1e-5)
