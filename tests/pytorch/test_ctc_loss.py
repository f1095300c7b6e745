"""Connectionist temporal classification against PyTorch's: losses and gradients, in f64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import ctc_loss, log_softmax

import alpenglow as ag
from alpenglow.evaluate import evaluate
from train_cases import sequences

BATCH = 5


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("blank", [0, -1])
@pytest.mark.parametrize("classes", [2, 4, 30])
def test_losses_and_gradients_are_those_of_pytorch(classes: int, blank: int, zero: bool) -> None:
    for steps in (1, 2, 5, 9):
        for most in (0, 1, 3, 6):
            compare(steps, most, classes, blank % classes, zero, compiled=(steps, most) == (9, 3))


def compare(steps: int, most: int, classes: int, blank: int, zero: bool, compiled: bool) -> None:
    random = np.random.default_rng([steps, most, classes])
    others = [c for c in range(classes) if c != blank]
    feeds = {
        "logits": 3 * random.standard_normal((steps, BATCH, classes)),
        "labels": random.choice(others, (BATCH, most)).astype(np.int64),
        "inputs": random.integers(0, steps + 1, BATCH),
        "counts": random.integers(0, most + 1, BATCH),
    }
    g = sequences((steps, BATCH, classes, most), blank, zero=zero)
    actual = ag.compile(g).run(feeds) if compiled else evaluate(g, feeds)

    x, *rest = (torch.from_numpy(a) for a in feeds.values())
    x.requires_grad_()
    expected = ctc_loss(log_softmax(x, 2), *rest, blank, "mean", zero)
    expected.backward()
    assert x.grad is not None
    np.testing.assert_allclose(actual["loss"], expected.item(), 1e-12)
    assert np.isfinite(actual["gradient"]).all()
    if np.isfinite(expected.item()):  # PyTorch's gradients of infinity are NaN
        np.testing.assert_allclose(actual["gradient"], x.grad.numpy(), 1e-11, 1e-13)
