"""Files of exported programs: what is read without torch is what the object would have been."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from modules import Of
from torch import nn
from torch.nn import functional as F

import alpenglow as ag
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.program import Body, Program
from alpenglow.frontends.torch.pt2 import pt2
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Graph
from alpenglow.ir.text import print_graph
from alpenglow.ir.types import TensorType

BATCH = torch.export.Dim("batch", min=1, max=64)


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


class Halving(nn.Module):
    """A loop that goes on for as long as data say."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch._higher_order_ops.while_loop(
            lambda i, a: (i < 3) & (a.abs().sum() > 0.5),
            lambda i, a: (i + 1, a / 2),
            (torch.tensor(0), x),
        )


class Item(nn.Module):
    """As many rows as a number says that is in a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = (x.sum() * 0).to(torch.int64).item() + 2
        torch._check(n >= 1)
        torch._check(n <= 3)
        return x[:n] + torch.zeros(n, 4)


def plain(value: Any) -> Any:
    """Return all that a program holds as something that can be compared."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, Sym | TensorType):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value).__name__, {n: plain(v) for n, v in fields.items()}
    if isinstance(value, Mapping):
        return {n: plain(v) for n, v in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return repr(value)


def told(program: Program) -> Program:
    """Return a program without what an object has of its own: types of what is no result."""

    def read(body: Body) -> Body:
        made = {r for c in body.calls for r in c.results} | set(body.inputs)
        calls = tuple(replace(c, arguments={
            n: read(a) if isinstance(a, Body) else a for n, a in c.arguments.items()
        }) for c in body.calls)  # fmt: skip
        return replace(body, types={n: t for n, t in body.types.items() if n in made}, calls=calls)

    return replace(program, body=read(program.body), file="", trusted=True)


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
    "maximum": (lambda: Of(lambda x: x.new_zeros(max(x.shape[0], 3))), (seeded(2, 4),), True),
    "complex": (lambda: Of(lambda x: torch.fft.rfft(x) * (1 + 2j)), (seeded(2, 4),), False),
    "strided": (lambda: Of(lambda x: torch.as_strided(x, (2, 2), (1, 2), 1)), (seeded(2, 4),),
                False),
    "turned_memory": (lambda: Of(lambda x: torch.as_strided(x.t() + 1, (2, 2), (1, 2), 1)),
                      (seeded(2, 4),), False),
    "fraction": (lambda: Of(lambda x: x * (x.shape[0] / 3)), (seeded(2, 4),), True),
    "branches": (lambda: Of(lambda x: torch.cond(
        x.sum() > 0, lambda a: a + a.shape[0], lambda a: a * 2, (x,))), (seeded(2, 4),), True),
    "branch_of_extents": (lambda: Of(lambda x: torch.cond(
        x.shape[0] > 4, lambda a: a + 1, lambda a: a * 2, (x,))), (seeded(2, 4),), True),
    "loop": (Halving, (seeded(3, 4),), False),
    "scan": (lambda: Of(lambda x: torch._higher_order_ops.scan(
        lambda c, e: (c + e, c * e), x[0] * 0, x, dim=0)), (seeded(5, 4),), False),
    "map": (lambda: Of(lambda x: torch._higher_order_ops.map(
        lambda e: e.cos() * 2, x)), (seeded(5, 4),), False),
    "places": (lambda: Of(lambda x: torch.nonzero(x)), (seeded(2, 4),), False),
    "item": (Item, (seeded(3, 4),), False),
    "item_of_floats": (lambda: Of(lambda x: x * x.sum().item()), (seeded(3, 4),), False),
    "number": (lambda: Of(lambda x: x.sum().item()), (seeded(3, 4),), False),
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
    expected = fx.decomposed(program)
    actual = pt2.program_of(saved(program, tmp_path / "m.pt2"))

    assert plain(told(actual)) == plain(told(expected))
    assert tied(actual) == tied(expected)


def tied(program: Program) -> list[list[str]]:
    """Return the names of arrays that are one."""
    names: dict[int, list[str]] = {}
    for name, array in sorted(program.state.items()):
        names.setdefault(id(array), []).append(name)
    return sorted(names.values())


@pytest.mark.filterwarnings("ignore:No complete tensor")
@pytest.mark.parametrize("name", ["tied", "types", "conv2d", "attention", "extent"])
def test_the_graph_of_a_file_is_that_of_its_object(name: str, tmp_path: Path) -> None:
    program = decomposed(name)
    expected = ag.load(program)
    actual = ag.load(saved(program, tmp_path / "m.pt2"))
    again = ag.load((tmp_path / "m.pt2").read_bytes())

    assert isinstance(expected, Graph) and isinstance(actual, Graph) and isinstance(again, Graph)
    assert print_graph(expected) == print_graph(actual) == print_graph(again)
    assert expected.metadata == actual.metadata == again.metadata


@pytest.mark.parametrize(
    "name", ["branches", "branch_of_extents", "loop", "scan", "places", "item"]
)
def test_a_file_whose_graph_depends_on_data_equals_eager(name: str, tmp_path: Path) -> None:
    exe = ag.compile(saved(decomposed(name), tmp_path / "m.pt2"), target="interpreter")
    make, args, _ = CASES[name]
    for sign in (1, -1):
        expected = make()(*(sign * a for a in args))
        actual = exe(*(sign * a.numpy() for a in args))
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else (
            (expected, actual),)  # fmt: skip
        for y, a in pairs:
            np.testing.assert_allclose(a, y, rtol=1e-5, atol=1e-5)


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


def test_what_has_no_converter_is_refused_with_a_hint(tmp_path: Path) -> None:
    program = torch.export.export(Of(lambda x: torch.atleast_2d(x)), (seeded(2, 4),))
    with pytest.raises(UnsupportedError, match=r"(?s)atleast_2d.*run_decompositions\(\)"):
        ag.load(saved(program, tmp_path / "m.pt2"))


def test_a_state_dict_is_refused_as_a_pickle(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsupportedError, match="pickle"):
        ag.load(tmp_path / "m.pt")


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"\0" * 100)
    with pytest.raises(ModelError, match=r"not a \.pt2 file.*m\.pt2"):
        ag.load(tmp_path / "m.pt2")
