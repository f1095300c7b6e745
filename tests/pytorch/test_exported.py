"""Exported programs: what is loaded equals eager, and what cannot be is listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.base.errors import IncompatibleError, UnsupportedError
from alpenglow.ir.text import parse_graph, print_graph


class Small(nn.Module):
    """A little of everything that vision and language models are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> dict[str, torch.Tensor]:
        y = nn.functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        y = y.flatten(2).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(y, y, y) + self.embedding(i)[:, None]
        y = self.norm(y).mean(1)
        return {"scores": self.head(y), "shares": torch.softmax(y, -1)}


def test_an_open_batch_equals_eager() -> None:
    torch.manual_seed(0)
    module = Small().eval()
    batch = torch.export.Dim("batch", min=1)
    example = (torch.randn(2, 3, 8, 8), torch.tensor([1, 2]))
    program = torch.export.export(module, example, dynamic_shapes=({0: batch}, {0: batch}))
    exe = ag.compile(program)

    for n in (1, 2, 5):
        x, i = torch.randn(n, 3, 8, 8), torch.arange(n)
        with torch.no_grad():
            expected = module(x, i)
        got = exe(x.numpy(), i.numpy())
        np.testing.assert_allclose(got["scores"], expected["scores"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got["shares"], expected["shares"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_tensors_are_taken_as_they_are(dtype: torch.dtype) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    x, y = torch.arange(6).reshape(2, 3).to(dtype), torch.ones(3, 2).to(dtype).t()
    if dtype.is_floating_point:
        x.requires_grad_()
    exe = ag.compile(Sum(), args=(x.detach(), y))

    np.testing.assert_array_equal(exe(x, y).astype(np.float32), (x + y).detach().float())


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")

    with pytest.raises(IncompatibleError, match=r"torch 2\.6\.0\+cpu is too old: expected 2\.13"):
        ag.load(program)


def test_neither_torch_nor_its_front_end_comes_with_alpenglow() -> None:
    code = "import sys, alpenglow; alpenglow.compile; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr


for name in ("one", "two"):
    torch.library.define(f"exported::{name}", "(Tensor x) -> Tensor")
    torch.library.impl(f"exported::{name}", "CompositeExplicitAutograd", torch.clone)
    torch.library.register_fake(f"exported::{name}", torch.empty_like)


def test_all_that_cannot_be_converted_is_listed_with_its_place() -> None:
    class Rare(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.exported.one(x) + torch.ops.exported.two(torch.ops.exported.two(x))

    program = torch.export.export(Rare(), (torch.randn(3),))
    with pytest.raises(UnsupportedError, match=r"2 operators.*one.*test_exported.py:\d+.*2 calls"):
        ag.load(program)


class Twice(nn.Module):
    """Two blocks of several calls, and a module that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.act(block(x) + x)
        return x


@pytest.mark.parametrize("strict", [False, True])
def test_values_have_the_names_of_modules_and_a_text_keeps_them(
    strict: bool, tmp_path: Path
) -> None:
    program = torch.export.export(Twice().eval(), (torch.randn(2, 4),), strict=strict)
    torch.export.save(program, tmp_path / "twice.pt2")
    expected = [
        "blocks.0.0", "blocks.0.1", "add", "act.relu",
        "blocks.1.0", "blocks.1.1", "add_1", "act.relu_1",
    ]  # fmt: skip

    for graph in (ag.load(program), ag.load(tmp_path / "twice.pt2")):
        assert isinstance(graph, ag.Graph)
        assert graph.name == "Twice"
        for g in (graph, parse_graph(print_graph(graph))):
            names = [v.name for n in g.nodes for v in n.results]
            assert [n for n in names if n and not n.isdecimal()] == expected
        cut = ag.compile(ag.truncate(graph, "blocks.1.0"))
        assert list(cut.outputs) == ["blocks.1.0"]


class Alone(nn.Module):
    """Calls with several results, of which one is read that is not the first."""

    def forward(self, x: torch.Tensor, images: torch.Tensor) -> list[torch.Tensor]:
        pooled = nn.functional.max_pool2d(images, 2, return_indices=True)
        adapted = nn.functional.adaptive_max_pool2d(images, 2, return_indices=True)
        return [
            x.max(1).indices, x.min(0, keepdim=True)[1], torch.var_mean(x, 1)[1],
            torch.std_mean(x)[1], pooled[1], adapted[1], torch.aminmax(x, dim=1)[1],
            torch.meshgrid(x[0], x[:, 0], indexing="ij")[1], torch.topk(x, 2)[1], x.sort(1)[1],
            x.cummax(1)[1], x.kthvalue(2, 1)[1], x.median(1)[1], torch.frexp(x)[1],
            torch.linalg.slogdet(x)[1], torch.linalg.qr(x)[1], x.split([1, 3], 1)[1],
        ]  # fmt: skip


def test_one_of_several_results_is_computed_alone() -> None:
    torch.manual_seed(0)
    x, images = torch.randn(4, 4), torch.randn(2, 3, 6, 6)
    expected = Alone()(x, images)
    got = ag.compile(Alone(), args=(x, images))(x.numpy(), images.numpy())

    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_torch_decomposes_wrongly_is_refused() -> None:
    x, labels = torch.rand(2, 4), torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2]])
    with pytest.raises(UnsupportedError, match="multilabel_margin_loss_forward"):
        ag.compile(nn.MultiLabelMarginLoss(), args=(x, labels))
