"""What a function through `torch.compile` writes into its arguments, beside eager.

Compiled code writes where an argument lies; what others wrote through it, its views and what was
compiled in of it before has to be what eager would leave there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from alpenglow.torch import compiled as ours

pytestmark = pytest.mark.usefixtures("traced_anew")


@torch.library.custom_op("tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator that is not compiled."""
    return x.cos()


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def swapped(x: Any, y: Any) -> None:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)


def scaled_by_each_other(x: Any, y: Any) -> Any:
    old = x.clone()
    x.mul_(y)
    y.add_(old)
    return x + y


def by_a_view(x: Any, y: Any) -> Any:
    x[0].mul_(3)
    x[:, 1:].add_(y[:, :1])
    return x.sum()


def returned(x: Any, y: Any) -> Any:
    return x.add_(y), y


def filled(x: Any, y: Any) -> None:
    x.fill_(3)
    y.zero_()


def of_a_sum_of_all(x: Any, y: Any) -> None:
    x.sub_(x.sum() / y.numel())
    y.copy_(y.flip(0) + y.cumsum(1))


def twice(x: Any, y: Any) -> Any:
    x.add_(1)
    z = x * y
    x.mul_(z)
    return z


def with_eager_between(x: Any, y: Any) -> Any:
    x.add_(1)
    y.mul_(unknown(x + y))
    x.sub_(y)
    return x


def of_the_other(x: Any, y: Any) -> None:
    x.copy_(y)
    y.add_(1)


def of_other_types(x: Any, y: Any) -> None:
    x.copy_((y > 0).to(torch.int64))
    y.copy_(torch.arange(y.shape[1]))


def transposed(x: Any, y: Any) -> None:
    x.t().add_(y.t().exp())


FUNCTIONS = (
    swapped, scaled_by_each_other, by_a_view, returned, filled, of_a_sum_of_all, twice,
    with_eager_between, of_the_other, of_other_types, transposed,
)  # fmt: skip


def plain(k: int) -> tuple[Any, ...]:
    g = torch.Generator().manual_seed(k)
    return tuple(torch.randn(3, 5, generator=g) for _ in range(2))


def turned(k: int) -> tuple[Any, ...]:
    return tuple(x.t().contiguous().t() for x in plain(k))


def with_gaps(k: int) -> tuple[Any, ...]:
    return tuple(torch.cat([x, x], 1)[:, ::2] for x in plain(k))


def of_any_extent(k: int) -> tuple[Any, ...]:
    g = torch.Generator().manual_seed(k)
    return tuple(torch.randn(3 + k, 5, generator=g) for _ in range(2))


def in_half_precision(k: int) -> tuple[Any, ...]:
    return tuple(x.bfloat16() for x in plain(k))


def of_one_memory(k: int) -> tuple[Any, ...]:
    memory = torch.randn(4, 5, generator=torch.Generator().manual_seed(k))
    return memory[:3], memory[1:]


def off_the_line(k: int) -> tuple[Any, ...]:
    """Tensors that begin four bytes behind where memory does."""
    g = torch.Generator().manual_seed(k)
    return tuple(torch.randn(17, generator=g)[1:16].view(3, 5) for _ in range(2))


ARGUMENTS = (
    plain, turned, with_gaps, of_any_extent, in_half_precision, off_the_line, of_one_memory,
)  # fmt: skip
REFUSED = (swapped, scaled_by_each_other, returned, with_eager_between, of_the_other)
"""What eager does not do where arguments share memory."""
CASES = [
    pytest.param(f, x, id=f"{f.__name__}-{x.__name__}")
    for f in FUNCTIONS for x in ARGUMENTS if x is not of_one_memory or f not in REFUSED
]  # fmt: skip


SCALARS = 1024
"""Bytes: room for the numbers of a step, but not for a parameter."""


def memory_of(x: torch.Tensor) -> torch.Tensor:
    """Return all that lies where a tensor does, what is beside it too."""
    return torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)


@torch.no_grad()
@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_what_is_written_is_what_eager_writes(
    function: Callable[..., Any], arguments: Callable[[int], tuple[Any, ...]]
) -> None:
    call = torch.compile(function, backend="alpenglow")
    exact = {"rtol": 2**-6, "atol": 2**-6} if arguments is in_half_precision else {}
    for k in range(4):  # the first call of code goes another way than those after it
        given, expected = arguments(k), arguments(k)
        result = call(*given)
        torch.testing.assert_close(result, function(*expected), **exact)
        for x, y in zip(given, expected, strict=True):
            torch.testing.assert_close(memory_of(x), memory_of(y), **exact)


@torch.no_grad()
def test_a_buffer_is_written_by_batches_of_any_size() -> None:
    def function(buffer: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        buffer.mul_(0.5).add_(x.sum(0))
        return x - buffer

    call = torch.compile(function, backend="alpenglow", options={"strict": True})
    given, expected = torch.zeros(5), torch.zeros(5)
    for n in (3, 4, 5, 7, 1, 5, 9, 100):
        x = torch.randn(n, 5)
        torch.testing.assert_close(call(given, x), function(expected, x))
        torch.testing.assert_close(given, expected)


def with_a_copy(x: Any, memory: Any) -> Any:
    y = x * memory.clone()
    memory.add_(1)
    return y.sum()


def with_what_was_computed_of_it(x: Any, memory: Any) -> Any:
    before = memory * 2
    y = (x * before).exp()
    memory.mul_(3)
    return y.sum() * memory.mean().item()


def with_eager_before(x: Any, memory: Any) -> Any:
    y = unknown(x.detach()) * x * memory.t().clone().t()
    memory.zero_()
    return y.sum()


@pytest.mark.parametrize(
    "function", [with_a_copy, with_what_was_computed_of_it, with_eager_before],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_a_gradient_is_that_of_what_was_there_before(function: Callable[..., Any]) -> None:
    """PyTorch computes again in the backward pass what it has at the time from a tensor that was
    written meanwhile, and its own backends return that: another number than eager."""
    call = torch.compile(function, backend="alpenglow")
    for k in range(3):
        gradients = []
        for f in (call, function):
            x, memory = plain(k)
            x.requires_grad_()
            f(x, memory).backward()
            gradients.append((x.grad, memory))
        torch.testing.assert_close(*gradients)


@torch.no_grad()
def test_a_view_of_what_is_written_is_one_afterwards() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.add_(1)
        return y[0], y

    call = torch.compile(function, backend="alpenglow")
    for _ in range(3):
        x = torch.zeros(3, 5)
        row, same = call(x)
        assert same is x
        x.fill_(7)
        assert torch.equal(row, x[0])


@torch.no_grad()
def test_what_is_compiled_in_is_seen_to_be_written() -> None:
    linear = nn.Linear(5, 5)
    forward = torch.compile(linear, backend="alpenglow")
    halve = torch.compile(lambda: linear.weight.mul_(0.5), backend="alpenglow")
    x = torch.randn(3, 5)
    for _ in range(4):
        torch.testing.assert_close(forward(x), linear(x))
        halve()


def test_a_step_of_an_optimizer_is_computed_where_parameters_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[tuple[int, bool]] = []
    run = ours.Compiled._run

    def noted(self: Any, exe: Any, tensors: Any, outputs: Any, states: Any) -> None:
        run(self, exe, tensors, outputs, states)
        program = exe.artifact.program
        stay = all(c.exit == name for name, c in program.variables.items())
        runs.append((len(outputs), stay and program.arena < SCALARS))

    net = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(net.parameters())
    step = torch.compile(optimizer.step, backend="alpenglow", options={"strict": True})
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(4, 64)).square().sum().backward()
        monkeypatch.setattr(ours.Compiled, "_run", noted)
        step()
        monkeypatch.undo()

    assert runs[-1] == (0, True)
