"""Quantized models: what PT2E leaves equals eager within a step, and runs on bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import nn
from torch.nn import functional as F

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger

TARGETS = ("interpreter", "cpu")

OPS = torch.ops.quantized_decomposed
Quantise = Callable[[torch.Tensor, float, int], torch.Tensor]


class Of(nn.Module):
    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.function(*xs, **dict(self.named_buffers()))


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def quantised(x: torch.Tensor, scale: float, zero: int, kind: Any = torch.uint8) -> torch.Tensor:
    """Return x on a grid: quantized and dequantized, as PT2E spells it."""
    ends = torch.iinfo(kind)
    q = OPS.quantize_per_tensor(x, scale, zero, ends.min, ends.max, kind)
    return OPS.dequantize_per_tensor(q, scale, zero, ends.min, ends.max, kind)


def weights(*shape: int) -> dict[str, torch.Tensor]:
    """Return weights of i8 with a scale for each index of axis 0."""
    w = seeded(*shape)
    scales = w.reshape(shape[0], -1).abs().amax(1) / 127
    q = torch.round(w / scales.reshape(-1, *[1] * (len(shape) - 1))).to(torch.int8)
    return {"q": q, "scales": scales, "zeros": torch.zeros(shape[0], dtype=torch.int64)}


def reals(w: dict[str, torch.Tensor]) -> torch.Tensor:
    return OPS.dequantize_per_channel(w["q"], w["scales"], w["zeros"], 0, -127, 127, torch.int8)


def images(
    x: torch.Tensor, **b: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """Two convolutions and a sum, quantized as XNNPACK's quantizer does."""
    first = {k: b[f"a_{k}"] for k in ("q", "scales", "zeros")}
    second = {k: b[f"b_{k}"] for k in ("q", "scales", "zeros")}
    x = quantised(x, 0.03, 5, torch.int8)
    y = torch.relu(F.conv2d(x, reals(first), b["bias"], padding=1))
    y = quantised(y, 0.1, -128, torch.int8)
    z = torch.relu(F.conv2d(y, reals(second), padding=1))
    z = quantised(y + quantised(z, 0.3, -128, torch.int8), 0.3, -128, torch.int8)
    return quantised(F.max_pool2d(z, 2), 0.3, -128, torch.int8)


def layers(x: torch.Tensor, **b: torch.Tensor) -> torch.Tensor:
    """Two layers, quantized as the quantizer for x86 does: in 7 bits, the last one in floats."""
    first = {k: b[f"a_{k}"] for k in ("q", "scales", "zeros")}
    second = {k: b[f"b_{k}"] for k in ("q", "scales", "zeros")}
    q = OPS.quantize_per_tensor(x, 0.05, 60, 0, 127, torch.uint8)
    x = OPS.dequantize_per_tensor(q, 0.05, 60, 0, 127, torch.uint8)
    x = quantised(torch.relu(F.linear(x, reals(first), b["bias"])), 0.04, 0)
    return F.linear(x, reals(second))


def named(**parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{n}_{k}": v for n, w in parts.items() for k, v in w.items()}


NETS: dict[str, tuple[nn.Module, torch.Tensor, float, int]] = {
    "images": (Of(images, **named(a=weights(8, 3, 3, 3), b=weights(8, 8, 3, 3)), bias=seeded(8)),
               seeded(4, 3, 8, 8), 0.3, 2),
    "layers": (Of(layers, **named(a=weights(16, 12), b=weights(5, 16)), bias=seeded(16)),
               seeded(7, 3, 12), 0.04 * 3, 2),
}  # fmt: skip


def integer_products(g: Graph) -> int:
    """Return how many convolutions and products are of integers, after passes made them so."""
    most = 0
    for _, made in run_stages(g, ag.Target.parse("interpreter"), ag.Options()):
        if isinstance(made, Graph):
            whole = [n for n in made.nodes if isinstance(n.op, ConvInteger | MatMulInteger)]
            most = max(most, len(whole))
    return most


@pytest.mark.parametrize("name", NETS)
def test_a_quantised_net_is_within_a_step_of_eager_and_runs_on_bytes(name: str) -> None:
    module, x, step, products = NETS[name]
    program = torch.export.export(module, (x,))
    g = ag.load(program)
    assert isinstance(g, Graph)
    for target in TARGETS:
        actual = ag.compile(g, target=target)(x.numpy())
        off = np.abs(actual - module(x).numpy()) / step
        assert off.max() <= 1.001 and (off > 0.5).mean() < 0.02

    assert integer_products(g) == products


# ── each operator equals eager ──

T = torch.tensor
X = seeded(3, 8) * 3
CASES: dict[str, tuple[Callable[..., Any], dict[str, torch.Tensor]]] = {
    "per_tensor_u8": (lambda x: OPS.quantize_per_tensor(x, 0.1, 7, 0, 255, torch.uint8), {}),
    "per_tensor_7_bits": (lambda x: OPS.quantize_per_tensor(x, 0.02, 7, 0, 127, torch.uint8), {}),
    "per_tensor_i16": (lambda x: OPS.quantize_per_tensor(x, 1e-3, -5, -32768, 32767, torch.int16),
                       {}),
    "per_tensor_i32": (lambda x: OPS.quantize_per_tensor(x, 1e-3, 0, -(2**31), 2**31 - 1,
                                                         torch.int32), {}),
    "per_tensor_half": (lambda x: quantised(x.to(torch.bfloat16), 0.1, 3), {}),
    "per_tensor_to_half": (lambda x: OPS.dequantize_per_tensor(
        OPS.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8), 0.1, 3, -128, 127, torch.int8,
        out_dtype=torch.bfloat16), {}),
    "per_tensor_of_tensors": (lambda x, scale, zero: OPS.quantize_per_tensor.tensor(
        x, scale, zero, -128, 127, torch.int8),
        {"scale": T([0.1]), "zero": T([3])}),
    "per_tensor_computed": (lambda x, scale, zero: OPS.dequantize_per_tensor.tensor(
        OPS.quantize_per_tensor.tensor(x, scale * 2, zero + 300, -128, 127, torch.int8),
        scale * 2, zero + 300, -128, 127, torch.int8),
        {"scale": T([0.1]), "zero": T([3])}),
    "dequantize_i32": (lambda x, q: x + OPS.dequantize_per_tensor(
        q, 1e-3, 0, -(2**31), 2**31 - 1, torch.int32),
        {"q": T([1, -(2**31), 2**31 - 1, 0, 5, 7, 123456789, 9], dtype=torch.int32)}),
    "per_channel": (lambda x, scales, zeros: OPS.quantize_per_channel(
        x, scales, zeros, 1, -128, 127, torch.int8),
        {"scales": seeded(8).abs() + 0.1, "zeros": torch.arange(8) - 4}),
    "per_channel_back": (lambda x, scales, q: x + OPS.dequantize_per_channel(
        q, scales, None, 0, -128, 127, torch.int8).reshape(1, 8),
        {"scales": seeded(8).abs() + 0.1, "q": torch.arange(8, dtype=torch.int8)}),
    "per_channel_fractions": (lambda x, scales, zeros, q: x + OPS.dequantize_per_channel(
        q, scales, zeros, 0, 0, 255, torch.uint8),
        {"scales": seeded(8).abs() + 0.1, "zeros": seeded(8),
         "q": torch.arange(8, dtype=torch.uint8)}),
    "per_token": (lambda x, scales, zeros: OPS.dequantize_per_token(OPS.quantize_per_token(
        x, scales, zeros, -128, 127, torch.int8), scales, zeros, -128, 127, torch.int8,
        torch.float32),
        {"scales": seeded(3, 1).abs() + 0.1, "zeros": T([[1], [-2], [3]])}),
    "per_group": (lambda x, scales, zeros: OPS.dequantize_per_channel_group(
        OPS.quantize_per_channel_group(x, scales, zeros, -8, 7, torch.int8, 4), scales, zeros, -8,
        7, torch.int8, 4, torch.float32),
        {"scales": seeded(3, 2).abs() + 0.1, "zeros": torch.zeros(3, 2)}),
    "product_of_bytes": (lambda x, a, b: x.sum() + torch._int_mm(a, b),
                         {"a": torch.arange(17 * 8, dtype=torch.int8).reshape(17, 8),
                          "b": (torch.arange(64) * 7 % 256 - 128).to(torch.int8).reshape(8, 8)}),
    "packed_int8": (lambda x, q, scales: torch.ops.aten._weight_int8pack_mm(x, q, scales),
                    {"q": torch.arange(-20, 20, dtype=torch.int8).reshape(5, 8),
                     "scales": seeded(5).abs() / 100}),
    "fake": (lambda x, scales, zeros: OPS.fake_quant_per_channel(x, scales, zeros, 1, -128, 127),
             {"scales": seeded(8).abs() + 0.1, "zeros": torch.arange(8, dtype=torch.int32)}),
    "choose": (lambda x: OPS.choose_qparams(x, -128, 127, 1e-5, torch.int8), {}),
    "choose_of_halves": (lambda x: OPS.choose_qparams(x.half().abs(), 0, 255, 1e-5, torch.uint8),
                         {}),
    "choose_symmetric": (lambda x: OPS.choose_qparams_symmetric(x, -127, 127, 1e-5, torch.int8),
                         {}),
    "choose_symmetric_u8": (lambda x: OPS.choose_qparams_symmetric(x * 0, 0, 255, 1e-5,
                                                                   torch.uint8), {}),
    "choose_per_token": (lambda x: OPS._choose_qparams_per_token_asymmetric_impl(x, torch.int8),
                         {}),
    "choose_per_token_asymmetric": (lambda x: OPS.choose_qparams_per_token_asymmetric(
        x, torch.int8), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators_of_quantised_tensors_equal_eager(name: str) -> None:
    function, buffers = CASES[name]
    module = Of(function, **buffers)
    expected = module(X)
    g = ag.load(torch.export.export(module, (X,)))
    close = 1e-3 if name == "choose_of_halves" else 1.3e-6  # torch's own, for f16 and for f32
    expected = expected if isinstance(expected, tuple) else (expected,)

    for target in TARGETS:
        made = ag.compile(g, target=target).run({"xs_0": X.numpy()})
        for y, a in zip(expected, made.values(), strict=True):
            np.testing.assert_allclose(np.asarray(a).astype(np.float64), y.double(), close, 1e-5)


def test_a_model_whose_scales_are_computed_equals_eager() -> None:
    def net(x: torch.Tensor, **b: torch.Tensor) -> torch.Tensor:
        scale, zero = OPS.choose_qparams(x, -128, 127, 2**-12, torch.int8)
        q = OPS.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        y = OPS.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)
        return F.linear(y, reals({k: b[k] for k in ("q", "scales", "zeros")}))

    module = Of(net, **weights(5, 8))
    exe = ag.compile(torch.export.export(module, (X,)))

    torch.testing.assert_close(torch.from_numpy(np.array(exe(X.numpy()))), module(X))
