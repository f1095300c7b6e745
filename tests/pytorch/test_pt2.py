"""Files of exported programs: what is read without torch is what the object would have been."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.ir.graph import Graph
from alpenglow.ir.text import print_graph

BATCH = torch.export.Dim("batch", min=1, max=64)


class Of(nn.Module):
    """A module that is a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: torch.Tensor) -> Any:
        return self.function(*xs)


class Tied(nn.Module):
    """Two layers of one weight, a transposed buffer, a constant, and a count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("n", torch.zeros(()))
        self.register_buffer("turned", torch.arange(20.0).reshape(4, 5).t())
        self.register_buffer("part", torch.arange(20.0)[7:15:2])
        self.register_buffer("wide", torch.ones(1).expand(4), persistent=False)
        self.factors = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.n.add_(1)
        y = self.second(self.first(x)) * self.factors + self.part + self.wide
        return {"n": self.n * 2, "y": (y, y @ self.turned.t())}


class Types(nn.Module):
    """Constants of all element types."""

    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
                 torch.float16, torch.bfloat16, torch.float64, torch.complex64,
                 torch.float8_e4m3fn, torch.float8_e5m2)  # fmt: skip
        for i, kind in enumerate(kinds):
            self.register_buffer(f"b{i}", torch.tensor([0, 1, 1, 0]).to(kind)[::3])
        self.register_buffer("none", torch.zeros(0, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, *(b.clone() for b in self.buffers())


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


Case = tuple[Callable[[], nn.Module], tuple[Any, ...], bool]
CASES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(4, 3), (seeded(2, 4),), True),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), (seeded(2, 4),),
            True),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding="same"), (seeded(2, 4, 9),), False),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (seeded(2, 4, 9, 9),),
               True),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (seeded(2, 2, 4, 4, 4),), False),
    "conv_transpose": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (seeded(2, 4, 5, 5),), False),
    "batch_norm": (lambda: nn.BatchNorm2d(4).eval(), (seeded(2, 4, 3, 3),), True),
    "layer_norm": (lambda: nn.LayerNorm((4, 3)), (seeded(2, 4, 3),), True),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (seeded(2, 4, 3, 3),), False),
    "rms_norm": (lambda: nn.RMSNorm(4), (seeded(2, 4),), True),
    "max_pool": (lambda: nn.MaxPool2d(2), (seeded(2, 4, 8, 8),), True),
    "embedding": (lambda: nn.Embedding(10, 4), (torch.tensor([[1, 2], [3, 4]]),), True),
    "softmax": (lambda: nn.Softmax(-1), (seeded(2, 4),), True),
    "relu": (lambda: nn.ReLU(), (seeded(2, 4),), True),
    "attention": (lambda: Of(F.scaled_dot_product_attention),
                  (seeded(2, 2, 5, 4), seeded(2, 2, 5, 4), seeded(2, 2, 5, 4)), False),
    "tied": (Tied, (seeded(2, 4),), True),
    "types": (Types, (seeded(2, 4),), True),
    "several": (lambda: Of(lambda x: torch.split(x, [1, 3], 1)), (seeded(2, 4),), True),
    "one_of_several": (lambda: Of(lambda x: torch.split(x, [1, 3], 1)[1]), (seeded(2, 4),), True),
    "reshaped": (lambda: Of(lambda x: x.reshape(x.shape[0] * 2, -1)), (seeded(2, 4),), True),
    "filled": (lambda: Of(lambda x: torch.full((x.shape[0], 2), float("-inf"))), (seeded(2, 4),),
               True),
    "extent": (lambda: Of(lambda x: [x.sum(), x.shape[0], 3, None, "s"]), (seeded(2, 4),), True),
    "indexed": (lambda: Of(lambda x: x[:, torch.tensor([0, 2])]), (seeded(2, 4),), True),
    "masked": (lambda: Of(lambda x, m: torch.where(m, x, float("nan"))),
               (seeded(2, 4), torch.ones(2, 4) > 0), False),
    "stacked": (lambda: Of(lambda x, y: torch.cat([x, y, x], 1)), (seeded(2, 4), seeded(2, 4)),
                False),
    "cast": (lambda: Of(lambda x: x.to(torch.bfloat16).to(torch.int32)), (seeded(2, 4),), True),
    "arange": (lambda: Of(lambda x: torch.arange(x.shape[0]) + x[:, 0]), (seeded(2, 4),), True),
    "mean": (lambda: Of(lambda x: x.mean((0, -1), keepdim=True)), (seeded(2, 4),), False),
    "view": (lambda: Of(lambda x: x.permute(1, 0).contiguous().view(-1)), (seeded(2, 4),), False),
}  # fmt: skip


def decomposed(name: str) -> Any:
    """Return the exported program of a case, of operators that have converters."""
    torch.manual_seed(0)
    make, args, is_open = CASES[name]
    shapes = None
    if is_open:
        module = make()
        shapes = tuple({0: BATCH} for _ in args)
        shapes = (shapes,) if isinstance(module, Of) else shapes
    torch.manual_seed(0)
    program = torch.export.export(make().eval(), args, dynamic_shapes=shapes)
    return program.run_decompositions(fx.decompositions())


def saved(program: Any, path: Path) -> Path:
    torch.export.save(program, path)
    return path


@pytest.mark.filterwarnings("ignore:No complete tensor")
@pytest.mark.parametrize("name", CASES)
def test_a_file_is_read_as_its_object_is(name: str, tmp_path: Path) -> None:
    program = decomposed(name)
    expected = ag.load(program)
    actual = ag.load(saved(program, tmp_path / "m.pt2"))
    again = ag.load((tmp_path / "m.pt2").read_bytes())

    assert isinstance(expected, Graph) and isinstance(actual, Graph) and isinstance(again, Graph)
    assert print_graph(expected) == print_graph(actual) == print_graph(again)
    assert expected.metadata == actual.metadata == again.metadata


@pytest.mark.filterwarnings("ignore:No complete tensor")
def test_a_file_runs_where_torch_is_never_imported(tmp_path: Path) -> None:
    path = saved(decomposed("tied"), tmp_path / "m.pt2")
    code = (
        "import sys, numpy as np, alpenglow as ag\n"
        f"exe = ag.compile({str(path)!r}, target='interpreter')\n"
        "made = exe(np.ones((3, 4), np.float32))\n"
        "assert not {'torch', 'onnx'} & set(sys.modules), sorted(sys.modules)\n"
        "print(np.sum(made['y'][1], dtype=np.float64))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    torch.manual_seed(0)
    expected = Tied()(torch.ones(3, 4))["y"][1]

    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(float(run.stdout), expected.sum().item(), rtol=1e-5)


def test_what_changes_in_place_is_refused_with_a_hint(tmp_path: Path) -> None:
    program = torch.export.export(Of(lambda x: (x + 1).relu_()), (seeded(2, 4),))
    with pytest.raises(UnsupportedError, match=r"(?s)relu_.*run_decompositions\(\)"):
        ag.load(saved(program, tmp_path / "m.pt2"))


def test_a_state_dict_is_refused_as_a_pickle(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsupportedError, match="pickle"):
        ag.load(tmp_path / "m.pt")


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"\0" * 100)
    with pytest.raises(ModelError, match=r"no \.pt2 file.*m\.pt2"):
        ag.load(tmp_path / "m.pt2")
