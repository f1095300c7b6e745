"""Training without PyTorch, against PyTorch's own: losses, gradients and steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import alpenglow as ag
from alpenglow import train
from alpenglow.ir.graph import Graph
from train_cases import CLASSES, convolutional, perceptron, samples

STEPS = 200
Optim = torch.optim

CASES: dict[str, tuple[train.Optimizer, Callable[[Any], Any]]] = {
    "sgd": (train.SGD(0.1), lambda p: Optim.SGD(p, 0.1)),
    "momentum": (
        train.SGD(0.1, 0.9, decay=1e-3), lambda p: Optim.SGD(p, 0.1, 0.9, weight_decay=1e-3)),
    "nesterov": (
        train.SGD(0.1, 0.9, nesterov=True), lambda p: Optim.SGD(p, 0.1, 0.9, nesterov=True)),
    "adam": (train.Adam(1e-2, decay=1e-3), lambda p: Optim.Adam(p, 1e-2, weight_decay=1e-3)),
    "adamw": (train.AdamW(1e-2), lambda p: Optim.AdamW(p, 1e-2)),
    "rmsprop": (train.RMSprop(1e-2), lambda p: Optim.RMSprop(p, 1e-2)),
    "centred": (
        train.RMSprop(1e-2, momentum=0.5, centred=True, decay=1e-3),
        lambda p: Optim.RMSprop(p, 1e-2, momentum=0.5, centered=True, weight_decay=1e-3)),
    "adagrad": (
        train.Adagrad(1e-2, slowing=1e-2), lambda p: Optim.Adagrad(p, 1e-2, lr_decay=1e-2)),
}  # fmt: skip


def layers(graph: Graph) -> torch.nn.Module:
    """Return the same network in PyTorch, with the same parameters."""
    start = {name: torch.from_numpy(np.array(v.array)) for name, v in graph.initial.items()}
    net: list[torch.nn.Module] = []
    if graph.name == "convolutional":
        for name in ("first", "second"):
            w = start[f"{name}.w"]
            conv = torch.nn.Conv2d(w.shape[1], w.shape[0], 3, padding=1, bias=False)
            conv.weight.data = w
            # What ONNX's momentum leaves of the old is what PyTorch's takes away.
            net += [conv, torch.nn.BatchNorm2d(len(w), momentum=0.1), torch.nn.ReLU()]
            net.append(torch.nn.MaxPool2d(2))
        net += [torch.nn.Flatten(), linear(start, "last")]
    else:
        net += [linear(start, "first"), torch.nn.ReLU(), linear(start, "second")]
    return torch.nn.Sequential(*net)


def linear(start: dict[str, torch.Tensor], name: str) -> torch.nn.Module:
    w, b = start[f"{name}.w"], start[f"{name}.b"]
    layer = torch.nn.Linear(*w.shape)
    layer.weight.data, layer.bias.data = w.T.contiguous(), b
    return layer


def assert_same_losses(
    graph: Graph, optimizer: train.Optimizer, theirs: Callable[[Any], Any],
    shape: tuple[int, ...], batch: int, clip: float | None = None,
) -> None:  # fmt: skip
    net = layers(graph)
    t = train.Trainer(graph, "loss", optimizer, threads=1, clip=clip)
    other = theirs(net.parameters())
    for k in range(STEPS):
        given = samples(batch, shape, seed=k)
        loss = float(t.step(given)["loss"])
        other.zero_grad()
        expected = F.cross_entropy(
            net(torch.from_numpy(given["x"])), torch.from_numpy(given["labels"])
        )
        expected.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        other.step()

        assert loss == pytest.approx(expected.item(), rel=1e-4, abs=2e-6), f"step {k}"


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_eager(name: str) -> None:
    assert_same_losses(perceptron(), *CASES[name], (20,), 16)


def test_losses_are_those_of_eager_where_gradients_are_cut() -> None:
    assert_same_losses(
        perceptron(), train.SGD(0.5), partial(Optim.SGD, lr=0.5), (20,), 16, clip=0.3
    )


def test_losses_of_convolutions_and_norms_are_those_of_eager() -> None:
    assert_same_losses(
        convolutional(), train.SGD(0.01), partial(Optim.SGD, lr=0.01), (3, 12, 12), 8
    )


LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "mse": (train.mse, F.mse_loss, ("x", "y")),
    "l1": (train.l1, F.l1_loss, ("x", "y")),
    "binary": (
        train.binary_cross_entropy, F.binary_cross_entropy_with_logits, ("x", "share")),
    "triplet": (train.triplet, F.triplet_margin_loss, ("x", "y", "z")),
    "cross_entropy": (train.cross_entropy, F.cross_entropy, ("x", "labels")),
    "weighted": (
        train.cross_entropy, lambda x, t, w: F.cross_entropy(x, t, w), ("x", "labels", "weight")),
    "ignoring": (
        lambda g, x, t: train.cross_entropy(g, x, t, ignore=2),
        lambda x, t: F.cross_entropy(x, t, ignore_index=2), ("x", "labels")),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_that_of_eager(name: str) -> None:
    mine, theirs, operands = LOSSES[name]
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        **{n: 3 * random.standard_normal((6, CLASSES)).astype(np.float32) for n in "xyz"},
        "share": random.random((6, CLASSES)).astype(np.float32),
        "weight": random.random(CLASSES).astype(np.float32),
        "labels": random.integers(0, CLASSES, 6),
    }
    g = ag.Graph("loss")
    values = [
        g.input(n, ag.TensorType("i64" if n == "labels" else "f32", arrays[n].shape))
        for n in operands
    ]
    loss = g.output("loss", mine(g, *values))
    g.output("dx", ag.gradients(g, loss, [values[0]])[0])
    tensors = [torch.from_numpy(arrays[n]) for n in operands]
    expected = theirs(tensors[0].requires_grad_(), *tensors[1:])
    expected.backward()
    found = ag.compile(g).run({n: arrays[n] for n in operands})

    np.testing.assert_allclose(found["loss"], expected.item(), 1e-5)
    np.testing.assert_allclose(found["dx"], tensors[0].grad.numpy(), 1e-4, 1e-6)
