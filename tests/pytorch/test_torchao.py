"""Models that torchao quantizes: they equal eager, and compute with integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = F.max_pool2d(x + torch.relu(self.second(x)), 2)
        return self.head(x.mean((2, 3)))


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))


def quantiser(name: str) -> Any:
    if name == "x86":
        return x86.X86InductorQuantizer().set_global(
            x86.get_default_x86_inductor_quantization_config()
        )
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=name == "xnnpack_by_channel")
    return xnnpack.XNNPACKQuantizer().set_global(config)


def stages(g: Graph, target: str = "cpu") -> Iterator[Graph]:
    """Yield the graph after each pass, which the next one changes."""
    for _, made in run_stages(g, ag.Target.parse(target), ag.Options()):
        if isinstance(made, Graph):
            yield made


@pytest.mark.parametrize("quantizer", ["xnnpack_by_channel", "xnnpack", "x86"])
@pytest.mark.parametrize(("net", "shape", "products"), [
    (Images, (4, 3, 8, 8), 3), (layers, (5, 128), 2),
])  # fmt: skip
def test_a_model_that_pt2e_quantised_runs_on_bytes(
    net: Callable[[], nn.Module], shape: tuple[int, ...], products: int, quantizer: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    module = torch.export.export(net().eval(), (x,)).module()
    prepared = prepare_pt2e(module, quantiser(quantizer))
    for _ in range(4):
        prepared(torch.randn(shape))
    converted = convert_pt2e(prepared)
    g = ag.load(torch.export.export(converted, (x,)))
    assert isinstance(g, Graph)
    actual, expected = ag.compile(g)(x.numpy()), converted(x).detach().numpy()
    integers = [sum(isinstance(n.op, ConvInteger | MatMulInteger) for n in s.nodes)
                for s in stages(g)]  # fmt: skip

    # One step of an operand or result, of 255, may be another one.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2.5 * np.ptp(expected) / 255)
    assert max(integers) == products


WEIGHTS: dict[str, tuple[Any, str]] = {
    "int8": (Int8WeightOnlyConfig(), "i8"),
    "int4": (IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)), "u32"),
    "int8_of_int8": (Int8DynamicActivationInt8WeightConfig(), "i8"),
    "int4_of_int8": (Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)), "u32"),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_few_bits_stay_so(name: str) -> None:
    config, stored = WEIGHTS[name]
    torch.manual_seed(0)
    module, x = layers().eval(), torch.randn(4, 128)
    quantize_(module, config)
    g = ag.load(torch.export.export(module, (x,)))
    assert isinstance(g, Graph)
    actual, expected = ag.compile(g)(x.numpy()), module(x).detach()
    # With vectors of 8 and four rows, weights of floats are faster.
    *_, last = stages(g, "x86-64-v4")
    large = {v.type.dtype for v in last.constants() if v.type.size > 256}

    torch.testing.assert_close(torch.from_numpy(np.array(actual)), expected)
    assert large == {stored}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_few_bits_in_halves_equal_eager(name: str) -> None:
    torch.manual_seed(0)
    module, x = layers().bfloat16().eval(), torch.randn(4, 128, dtype=torch.bfloat16)
    quantize_(module, WEIGHTS[name][0])
    feed = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    actual = ag.compile(module, args=(x,))(feed)

    torch.testing.assert_close(torch.as_tensor(np.array(actual, np.float32)), module(x).float(),
                               rtol=0.016, atol=0.02)  # fmt: skip
