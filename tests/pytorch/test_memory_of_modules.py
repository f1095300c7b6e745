"""Modules that go on changing after they were loaded or compiled: what was made stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag
from alpenglow.train import SGD, Trainer

pytestmark = pytest.mark.usefixtures("traced_anew")


class Net(nn.Module):
    """Weights that are packed and read as they are, tied, repeated, of 16 bits, and state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(500, 16)
        self.linear, self.conv = nn.Linear(16, 16), nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(16, 500, bias=False)
        self.head.weight = self.embedding.weight
        self.plain = torch.linspace(0, 1, 16)
        self.register_buffer("wide", torch.ones(1).expand(4, 16))
        self.register_buffer("narrow", torch.randn(16).bfloat16())
        self.register_buffer("count", torch.zeros(16))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(1)
        x = torch.relu(self.linear(self.embedding(tokens)) + self.count + self.plain)
        x = self.norm(self.conv(x + self.wide + self.narrow))
        return self.head(x), self.wide, self.plain


def write(module: Any) -> None:
    """Write into all memory of a module, by `.data`, so that no version tells."""
    for tensor in {id(t): t for t in [*module.state_dict().values(), module.plain]}.values():
        place = tensor.data[:1, :1] if 0 in tensor.stride() else tensor.data
        place.mul_(3).add_(7)


def compiled(module: Any, tokens: Any, extents: Any) -> Callable[[], Any]:
    return ag.compile(module, args=(tokens,), dynamic_shapes=extents).session


def loaded(module: Any, tokens: Any, extents: Any) -> Callable[[], Any]:
    graph = ag.load(module, args=(tokens,), dynamic_shapes=extents)
    return lambda: ag.compile(graph).session()


def exported(module: Any, tokens: Any, extents: Any) -> Callable[[], Any]:
    program = torch.export.export(module, (tokens,), dynamic_shapes=extents)
    return ag.compile(program).session


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("door", [compiled, loaded, exported])
def test_what_is_written_into_a_module_changes_no_result(door: Any, is_open: bool) -> None:
    tokens = torch.randint(0, 500, (2, 4))
    extents = ({0: torch.export.Dim("n", min=1, max=9)},) if is_open else None
    module = Net().eval()
    expected = door(module, tokens, extents)()
    expected = [expected(tokens.numpy()) for _ in range(2)]
    begin = door(module, tokens, extents)
    write(module)
    session = begin()

    for outputs in expected:
        for a, b in zip(session(tokens.numpy()), outputs, strict=True):
            np.testing.assert_array_equal(a, b)


@torch.no_grad()
def test_a_write_that_no_version_tells_leaves_all_that_torch_compile_froze() -> None:
    module, x = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval(), torch.randn(2, 64)
    f = torch.compile(module, backend="alpenglow")
    expected = f(x)
    for tensor in module.state_dict().values():
        tensor.data.mul_(3).add_(7)

    assert torch.equal(f(x), expected)


def test_weights_that_are_tied_are_one_constant() -> None:
    graph = ag.load(Net().eval(), args=(torch.zeros(2, 4, dtype=torch.int64),))
    large = [v for v in graph.constants() if v.type.size == 500 * 16]

    assert len(large) == 1


def test_parameters_are_trained_from_what_the_module_held() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(64, 64))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (x @ self.w).mean()}

    def trained(after: Callable[[Any], None]) -> list[float]:
        module = Loss()
        graph = ag.trainable(ag.load(module, args=(torch.ones(2, 64),)))
        trainer = Trainer(graph, "loss", SGD(0.1))
        after(module)
        return [float(trainer.step({"x": np.ones((2, 64), np.float32)})["loss"]) for _ in range(2)]

    assert trained(lambda module: None) == trained(lambda m: m.w.data.fill_(9))
