"""The cross entropy of a linear layer, and its slopes, are those that PyTorch makes in chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.modules.linear_cross_entropy  # registers the operators
from torch.fx.experimental.proxy_tensor import make_fx

import alpenglow as ag
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.model import model_of

IGNORED = 2


def arguments() -> tuple[torch.Tensor, ...]:
    """Return rows, weights, classes (one of them ignored), bias, and how much each class counts."""
    torch.manual_seed(3)
    target = torch.tensor([0, IGNORED, 3, 1, 3])
    return torch.randn(5, 4), torch.randn(6, 4), target, torch.randn(6), torch.rand(6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("is_asked", [True, False])
def test_loss_and_gradients_equal_those_of_chunks(reduction: str, is_asked: bool) -> None:
    op = torch.ops.torch_nn._linear_cross_entropy_batch_chunked.default
    rest = (reduction, IGNORED, 0.0, 2, "keep", torch.float32, False, *(is_asked,) * 3)

    check(lambda *xs: op(*xs, *rest))


def test_loss_of_each_row_equals_that_of_chunks() -> None:
    op = torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default

    check(lambda *xs: (op(*xs, IGNORED, 2, "keep", torch.float32),))


def check(f: object) -> None:
    """Compare what we make of the arguments with what eager does."""
    tensors = arguments()
    module = make_fx(f, tracing_mode="fake")(*tensors)
    model = model_of(fx.traced(module))
    feeds = dict(zip(model.inputs, [x.numpy() for x in tensors], strict=True))
    results = list(ag.compile(model, "interpreter").run(feeds).values())
    with torch.no_grad():
        expected = module(*tensors)

    for e, actual in zip(expected, results, strict=True):
        np.testing.assert_allclose(e.numpy(), np.asarray(actual), rtol=1e-5, atol=1e-6)
