"""Files of programs that write in place, saved as `torch.export.export` makes them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from modules import Of
from torch import nn
from torch.nn import functional as F

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import converters, views
from alpenglow.frontends.torch.functional import TOLD_ELSEWHERE


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def loaded(module: nn.Module, x: torch.Tensor) -> Any:
    """Return the graph of the file of a module, none of whose calls was decomposed."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(module, (x.clone(),)), file)
    return ag.load(file.getvalue())


def check(module: nn.Module, x: torch.Tensor) -> None:
    """Assert that the file of a module computes what eager does."""
    graph = loaded(module, x)
    made = module(x.clone())
    expected = list(made) if isinstance(made, tuple | list) else [made]
    exe = ag.compile(graph, "interpreter")
    got = list(exe.run({next(iter(exe.inputs)): x.numpy()}).values())
    for y, e in zip(got, expected, strict=False):
        np.testing.assert_allclose(y, e.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert len(got) >= len(expected)


def rows(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[0] = 7
    y[1:3, ::2] = y[2:4, 1::2] * 2
    return y


def through_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 0
    turned, flat, last = y.t(), y.view(-1), y[-1]
    turned[1].mul_(3)
    flat[2:5].add_(10)
    y.relu_()
    return y, turned, flat, last


def kept(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    before = y + 1
    y.add_(before).clamp_(-1, 1)
    return y, before


def dropped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 1
    same = F.dropout(y, 0.5, training=False)
    same.mul_(2)
    return y, same


def reshaped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    z = y.reshape(2, 2, -1)  # a view, as its elements lie in order
    z[1].zero_()
    return y, z.flatten()


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x > 0] = 0
    y.masked_fill_(x < -1, 5)
    return y


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "rows": rows, "through_views": through_views, "kept": kept, "dropped": dropped,
    "reshaped": reshaped, "masked": masked,
    "activations": lambda x: F.hardswish(F.silu(F.relu(x * 2, True), True), True),
    "typed": lambda x: (x.to(torch.float32) * 1).add_(1),
    "diagonal": lambda x: torch.diagonal(x * 1).mul_(3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_what_eager_reads(name: str) -> None:
    check(Of(CASES[name]).eval(), reals(4, 6))


def test_a_net_with_activations_in_place_is_read_as_it_was_saved() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(inplace=True),
        nn.Flatten(), nn.Unflatten(1, (8, -1)), nn.Hardswish(inplace=True),
    )  # fmt: skip
    check(net.eval(), reals(2, 3, 6, 6))


def test_a_buffer_that_is_written_in_place_is_kept_from_call_to_call() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sums", torch.zeros(4, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.sums[1:] += x[1:]
            return self.sums * 2

    x = reals(4, 6)
    session = ag.compile(loaded(Counting(), x), "interpreter").session()
    module = Counting()
    for _ in range(3):
        np.testing.assert_allclose(session(x.numpy()), module(x).numpy(), rtol=1e-6)


def test_an_input_that_is_written_is_an_output_too() -> None:
    x = reals(4, 6)
    exe = ag.compile(loaded(Of(lambda x: x.add_(1) * 2), x), "interpreter")
    results = exe.run({next(iter(exe.inputs)): x.numpy()})
    assert list(results) == ["output", "xs_0_after"]
    np.testing.assert_array_equal(results["xs_0_after"], x.numpy() + 1)


def test_who_reads_what_may_be_a_copy_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        a, b = torch.meshgrid(y[0], y[1], indexing="ij")
        a.add_(1) if a.stride(0) else y.add_(1)
        return a + b

    with pytest.raises(UnsupportedError, match=TOLD_ELSEWHERE):
        loaded(Of(function), reals(2, 6))


# ── any program ──

VIEWING: list[Callable[[torch.Tensor], Any]] = [
    lambda t: t[1:], lambda t: t[::2], lambda t: t[-1], lambda t: t[..., :-1], lambda t: t.t(),
    lambda t: t.transpose(0, -1), lambda t: t.view(-1), lambda t: t.reshape(-1),
    lambda t: t.reshape(2, -1), lambda t: t.unsqueeze(1), lambda t: t.squeeze(),
    lambda t: t.detach(), lambda t: t.flatten(), lambda t: t.narrow(0, 1, 1),
    lambda t: t.permute(list(reversed(range(t.dim())))), lambda t: t.contiguous(),
    lambda t: t.chunk(2)[0], lambda t: t.unbind(0)[-1], lambda t: t.float(),
    lambda t: t.expand(2, *t.shape), lambda t: F.dropout(t, 0.3, False),
    lambda t: t.movedim(0, -1), lambda t: t.type_as(t), lambda t: t.swapaxes(0, -1),
    lambda t: t.unflatten(0, (-1, 1)), lambda t: t.diagonal(),
]  # fmt: skip
COMPUTING: list[Callable[[torch.Tensor], Any]] = [
    lambda t: t + 1, lambda t: t.clone(), lambda t: torch.relu(t), lambda t: t * t,
    lambda t: torch.cat([t, t]),
]  # fmt: skip
WRITING: list[Callable[[torch.Tensor], Any]] = [
    lambda t: t.add_(1), lambda t: t.mul_(2), lambda t: t.relu_(), lambda t: t.fill_(3),
    lambda t: t.zero_(), lambda t: t.copy_(t * 2 + 1), lambda t: t.clamp_(max=2),
    lambda t: t.sub_(t.mean()), lambda t: t[:1].neg_(),
]  # fmt: skip


Steps = list[tuple[int, Callable[[torch.Tensor], Any]]]


def any_steps(seed: int, x: torch.Tensor) -> Steps:
    """Return steps that eager takes, each on the tensor that an earlier one made."""
    chance = random.Random(seed)
    tensors, steps = [x * 1], Steps()
    for _ in range(12):
        kind = chance.choices((VIEWING, COMPUTING, WRITING), (5, 2, 3))[0]
        of, step = chance.randrange(len(tensors)), chance.choice(kind)
        try:
            made = step(tensors[of])
        except (RuntimeError, IndexError, ValueError):  # of another shape, or not its own memory
            continue
        if made.numel():
            steps.append((of, step))
            tensors.append(made)
    return steps


def any_program(steps: Steps) -> Callable[[torch.Tensor], Any]:
    """Return a function that takes steps, and returns all that these made."""

    def function(x: torch.Tensor) -> Any:
        tensors = [x * 1]
        for of, step in steps:
            tensors.append(step(tensors[of]))
        return tuple(t + 0 for t in tensors)

    return function


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_any_program_computes_what_eager_does_or_is_refused(first: int) -> None:
    refused, x = 0, reals(4, 6)
    for seed in range(first, first + 20):
        try:
            check(Of(any_program(any_steps(seed, x))), x)
        except UnsupportedError as error:
            assert TOLD_ELSEWHERE in str(error), error
            refused += 1
    assert refused < 10


def test_all_that_may_share_memory_is_listed() -> None:
    listed = (
        views.VIEWS.keys() | views.IF_IN_ORDER.keys() | views.IF_ALIKE | views.UNTIL_TRAINED
        | views.PERHAPS
    )  # fmt: skip
    shares = set()
    for target in converters.supported():
        namespace, packet, overload = (*target.split("."), "default")[:3]
        op = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        schema = getattr(op, "_schema", None)
        if schema and any(r.alias_info and not r.alias_info.is_write for r in schema.returns):
            shares.add(target)
    assert shares <= listed
