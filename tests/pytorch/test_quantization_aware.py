"""Training for few bits, step by step, against PyTorch's fake quantization of the same network.

Scales are powers of two, with which PyTorch's 1 / scale is exact.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

import alpenglow as ag
from alpenglow import train
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import plan
from alpenglow.quant.schema import Parameters, limits
from aware_cases import batches, pooled, profiled

RATE, STEPS = 0.02, 10
OPTIONS = QuantOptions(schema="symmetric_power2")


def activation(x: torch.Tensor, p: Parameters) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(x, p.scale, p.zero_point, *limits(p.dtype))


def scales(w: torch.Tensor) -> torch.Tensor:
    largest = w.detach().abs().amax(tuple(range(1, w.ndim)))
    return torch.exp2(torch.ceil(torch.log2(largest.double() / 127))).float()


def weight(w: torch.Tensor) -> torch.Tensor:
    zeros = torch.zeros(len(w), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(w, scales(w), zeros, 0, -128, 127)


def bias(b: torch.Tensor, w: torch.Tensor, x: Parameters) -> torch.Tensor:
    """Return a bias in whole steps of the sums; gradients go straight through."""
    step = scales(w).double() * x.scale
    rounded = (torch.round(b.detach().double() / step) * step).float()
    return b + (rounded - b).detach()


def test_losses_and_parameters_are_those_of_pytorch() -> None:
    g = pooled()
    profile = profiled(g)
    p = {a.name: a.parameters for a in plan(g, profile, OPTIONS).activations}
    rounded = train.quantization_aware(g, profile, OPTIONS)
    t = train.Trainer(
        train.supervise(ag.trainable(rounded), "cross-entropy"), "loss", train.SGD(RATE), threads=1
    )
    ws = {n: torch.from_numpy(x.copy()).requires_grad_() for n, x in t.values().items()}
    start = {n: x.copy() for n, x in t.values().items()}

    def layer(x: torch.Tensor, name: str, given: str) -> torch.Tensor:
        w, b = ws[f"{name}.w"], ws[f"{name}.b"]
        apply = F.conv2d if w.ndim == 4 else F.linear
        more = {"padding": 1} if w.ndim == 4 else {}
        return apply(activation(x, p[given]), weight(w), bias(b, w, p[given]), **more)

    for batch in batches(STEPS):
        x = torch.from_numpy(batch["x"])
        x = activation(F.relu(layer(x, "first", "x")), p["first.relu"])
        x = F.max_pool2d(x, 2)
        x = activation(F.relu(layer(x, "second", "first.pool")), p["second.relu"])
        x = layer(F.max_pool2d(x, 2).flatten(1), "last", "flat")
        loss = F.cross_entropy(x, torch.from_numpy(batch["labels"]))
        grads = torch.autograd.grad(loss, list(ws.values()))
        with torch.no_grad():
            for w, dw in zip(ws.values(), grads, strict=True):
                w -= RATE * dw
        actual = t.step(batch)["loss"]

        np.testing.assert_allclose(actual, loss.item(), rtol=1e-5)
    for name, w in ws.items():
        moved = np.abs(w.detach().numpy() - start[name]).max()
        np.testing.assert_allclose(
            t.values()[name], w.detach().numpy(), 0, 1e-3 * moved, err_msg=name
        )
