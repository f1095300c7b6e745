"""Rounding for few bits and its straight-through gradient, against PyTorch's, bit for bit.

PyTorch multiplies by 1 / scale where QuantizeLinear divides by the scale.  So results are the same
bits where the scale is a power of two; for others the few places are left out at which the two
quotients round to different steps.  NaN becomes the least number there, and stays NaN here; so does
infinity where there is a scale a channel, which here becomes the greatest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.ir.types import DTYPES
from alpenglow.ops.quantized.fake_quantize import FakeQuantize
from alpenglow.ops.tensor.movement import Broadcast, Reshape

Array = NDArray[Any]
RANGES = {"u8": (0, 255), "i8": (-128, 127), "i16": (-32768, 32767), "u16": (0, 65535),
          "i4": (-8, 7), "u4": (0, 15)}  # fmt: skip
CHANNELS = 3


def numbers(scale: float, zero: int, dtype: str) -> Array:
    """Return rows of numbers about a range, and its ends, halves, and what is not finite."""
    random = np.random.default_rng(0)
    low, high = (limit - zero for limit in RANGES[dtype])
    spread = random.uniform(low - 20, high + 20, 2000)
    halves = np.arange(-40, 41) / 2
    ends = [end + part for end in (low, high) for part in halves]
    edges = [np.inf, -np.inf, np.nan, -0.0, 1e-45, 1e9, -1e9]
    steps = np.concatenate([spread, halves, ends]).astype(np.float32) * np.float32(scale)
    x = np.concatenate([steps, np.nextafter(steps, np.float32(np.inf)), edges]).astype(np.float32)
    return np.stack([np.roll(x, i) for i in range(CHANNELS)])


def ours(x: Array, dy: Array, scale: Array, zero: Array, dtype: str) -> tuple[Array, Array]:
    """Return x[C, N] rounded by the scales and zero points of rows, and the gradient, compiled."""
    g = ag.Graph("fake")
    v, seed = g.input("x", f"f32[{x.shape[0]},{x.shape[1]}]"), g.input("dy", g.inputs["x"].type)
    rows = [
        g(Broadcast(x.shape), g(Reshape((len(c), 1)), g.constant(c)))
        for c in (scale, zero.astype(DTYPES[dtype]))
    ]
    y = g(FakeQuantize(dtype), v, *rows)
    g.output("y", y)
    g.output("dx", gradients(g, y, [v], dy=seed)[0])
    made = ag.compile(g, threads=1).run({"x": x, "dy": dy})
    return made["y"], made["dx"]


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("scale", [1.0, 0.25, 2.0**-20, 0.1, 0.0173, 3.7])
@pytest.mark.parametrize("by", ["tensor", "channel"])
def test_values_and_gradients_are_those_of_pytorch(dtype: str, scale: float, by: str) -> None:
    low, high = RANGES[dtype]
    scales = np.float32([scale] * CHANNELS if by == "tensor" else [scale, scale * 2, scale / 4])
    middle = (low + high + 1) // 2
    zeros = np.array([middle] * 3 if by == "tensor" else [low, middle, high], np.int32)
    x = numbers(scale, middle, dtype)
    dy = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    y, dx = ours(x, dy, scales, zeros, dtype)
    leaf = torch.from_numpy(x).requires_grad_()
    if by == "tensor":
        expected = torch.fake_quantize_per_tensor_affine(leaf, scale, int(middle), low, high)
    else:
        expected = torch.fake_quantize_per_channel_affine(
            leaf, torch.from_numpy(scales), torch.from_numpy(zeros), 0, low, high)  # fmt: skip
    expected.backward(torch.from_numpy(dy))
    with np.errstate(invalid="ignore", over="ignore"):
        column, one = scales[:, None], np.float32(1)
        same = np.rint(x / column) == np.rint(x * (one / column))
    nan = np.isnan(x)
    if by == "channel":
        same &= x != np.inf

    finite = np.isfinite(x)
    assert same[finite].all() if np.log2(scale) % 1 == 0 else same[finite].mean() > 0.9
    np.testing.assert_array_equal(y[same], expected.detach().numpy()[same])
    assert leaf.grad is not None
    np.testing.assert_array_equal(dx[same], leaf.grad.numpy()[same])
    assert np.isnan(y[nan]).all() and not dx[~finite].any()
    most = (high - zeros) * scales
    assert (y.max(1, where=x == np.inf, initial=0) == np.maximum(most, 0).astype(np.float32)).all()
