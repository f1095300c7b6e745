"""Buffers that a module changes are variables; arguments that it changes are results, too."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import alpenglow as ag


def reals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Counts(nn.Module):
    """Adds up what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        self.calls += 1
        return self.total / self.calls


class Cache(nn.Module):
    """Keeps the keys of each step, as a decoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 6, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, key: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(2, self.at, key)
        self.at += 1
        return nn.functional.scaled_dot_product_attention(key, self.keys, self.keys)


class Sliced(nn.Module):
    """Writes into a part of a buffer, and reads it before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.ones(5, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.rows.sum()
        self.rows[1:3] = x
        self.rows[:, 0] *= 2
        return before, self.rows.sum(0)


MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "counts": (Counts(), (3,)), "cache": (Cache(), (1, 2, 1, 4)), "sliced": (Sliced(), (2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_a_session_remembers_what_the_module_does(name: str) -> None:
    module, shape = deepcopy(MODULES[name][0]), MODULES[name][1]
    session = ag.compile(torch.export.export(deepcopy(module), (reals(*shape),))).session()

    for step in range(4):
        x = reals(*shape, seed=step)
        expected, actual = module(x), session(x.numpy())
        for e, a in zip(*(r if isinstance(r, tuple) else (r,) for r in (expected, actual)),
                        strict=True):  # fmt: skip
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
    for buffer, expected in module.named_buffers():
        np.testing.assert_allclose(session.variables[buffer], expected, rtol=1e-5, atol=1e-6)


def test_an_index_past_a_cache_ends_the_call() -> None:
    session = ag.compile(torch.export.export(Cache(), (reals(1, 2, 1, 4),))).session()
    for step in range(6):
        session(reals(1, 2, 1, 4, seed=step).numpy())
    with pytest.raises(ag.errors.FeedError, match="an index"):
        session(reals(1, 2, 1, 4).numpy())


def test_an_argument_that_is_changed_is_an_output_more() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * y

    exe = ag.compile(torch.export.export(Adds(), (torch.ones(3), torch.ones(3))))
    x, y = np.zeros(3, np.float32), np.full(3, 2, np.float32)
    results = exe.run({"x": x, "y": y})

    assert list(results) == ["x_after", "output"]
    np.testing.assert_array_equal(results["x_after"], np.ones(3))
    np.testing.assert_array_equal(exe(x, y), np.full(3, 2))
    np.testing.assert_array_equal(x, np.zeros(3))


def test_tied_weights_are_one_constant() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(500, 64)
            self.head = nn.Linear(64, 500, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(i))

    module = Tied()
    graph = ag.load(torch.export.export(module, (torch.tensor([1, 2]),)))
    assert isinstance(graph, ag.Graph)
    exe = ag.compile(graph)

    assert len([c for c in graph.constants() if c.type.rank == 2]) == 1
    i = torch.tensor([7, 0])
    with torch.no_grad():
        np.testing.assert_allclose(exe(i.numpy()), module(i), rtol=1e-5, atol=1e-5)


def test_arguments_that_are_no_tensors_are_held_to_their_values() -> None:
    class Scaled(nn.Module):
        def forward(
            self, x: torch.Tensor, n: int, a: float, kind: str, z: None = None
        ) -> torch.Tensor:
            return x * n + a if kind == "linear" and z is None else x

    exe = ag.compile(torch.export.export(Scaled(), (torch.ones(3), 3, 0.5, "linear")))
    x = np.arange(3, dtype=np.float32)

    np.testing.assert_array_equal(exe(x, 3, 0.5, "linear"), x * 3 + 0.5)
    for arguments in ((x, 4, 0.5, "linear"), (x, 3, 0.25, "linear"), (x, 3, 0.5, "other")):
        with pytest.raises(ag.errors.FeedError, match="its value is fixed when the"):
            exe(*arguments)


def test_rotations_by_complex_numbers_equal_eager() -> None:
    class Rotated(nn.Module):
        def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
            turned = torch.polar(torch.ones_like(angles), angles)
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turned).flatten(-2)

    module, shapes = Rotated(), ({0: torch.export.Dim.AUTO}, {})
    exe = ag.compile(module, args=(reals(2, 5, 8), reals(5, 4)), dynamic_shapes=shapes)
    for n in (2, 3):
        x, angles = reals(n, 5, 8), reals(5, 4)
        actual = exe(x.numpy(), angles.numpy())
        np.testing.assert_allclose(actual, module(x, angles), rtol=1e-5, atol=1e-6)
