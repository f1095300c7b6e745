"""`torch.compile(…, backend="alpenglow")` beside eager: numbers, strides, changes, fallbacks."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

import alpenglow.torch
from alpenglow.base.errors import OptionError
from alpenglow.torch.backend import recording

pytestmark = pytest.mark.usefixtures("traced_anew")


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="alpenglow", options=options or None)


def check(got: Any, expected: Any) -> None:
    """Hold tensors to the numbers, strides and types of others."""
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.conv = nn.Conv2d(3, 4, 1)
        self.plain = torch.ones(4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(1)
        y = self.linear(x) + self.plain
        constant = torch.tensor([1.0, 2, 3, 4])
        return y.t(), self.conv(image), x, y[None].expand(3, -1, -1), constant + y, y * x.shape[0]


def images(n: int) -> torch.Tensor:
    return torch.randn(n, 3, 4, 4).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def test_numbers_and_strides_of_any_extent_are_those_of_eager() -> None:
    net = Net().eval()
    f = compiled(net, strict=True)

    for n in (3, 5, 6, 1, 7, 1, 3):
        x, image = torch.randn(n, 4), images(2)
        got = f(x, image)
        count = net.count.clone()
        check(got, net(x, image))
        assert got[2] is x
        assert torch.equal(count + 1, net.count)


@torch.no_grad()
def test_dynamo_compiles_three_graphs_and_no_more() -> None:
    net = Net().eval()
    f = compiled(net)
    with recording() as record:
        for n in (3, 4, 5, 1, 6, 100, 7, 1, 50, 3):
            f(torch.randn(n, 4), images(2))

    assert len(record.plans) == 3


@torch.no_grad()
def test_a_weight_that_is_changed_later_is_seen() -> None:
    net = Net().eval()
    f = compiled(net)
    x, image = torch.randn(3, 4), images(2)
    f(x, image)
    for change in range(6):
        net.linear.weight.mul_(1.5)
        if change == 2:
            net.linear.bias.data = torch.randn(4)
        if change == 3:
            net.linear.weight = nn.Parameter(torch.randn(4, 4))
        check(f(x, image), net(x, image))


def test_gradients_are_those_of_eager() -> None:
    net = Net()
    f = compiled(net)
    x, image = torch.randn(3, 4, requires_grad=True), images(2)
    gradients = []
    for call in (f, net):
        sum(y.square().sum() for y in call(x, image)).backward()
        gradients.append([x.grad, *(p.grad for p in net.parameters())])
        x.grad = None
        net.zero_grad()

    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


@torch.library.custom_op("tests::rare", mutates_args=())
def rare(x: torch.Tensor) -> torch.Tensor:
    """An operator that nobody else knows."""
    return x.sin() * 3


@rare.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Rare(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = rare(x + 1) * 2
        z = torch.rand(3) + rare(x * 3)
        return torch.relu(y) + z * torch.rand(3)


@torch.no_grad()
def test_what_is_not_supported_runs_in_eager_and_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = torch.randn(3)
    f = compiled(Rare())
    with caplog.at_level(logging.WARNING, "alpenglow"):
        torch.manual_seed(7)
        got = f(x)
    torch.manual_seed(7)

    torch.testing.assert_close(got, Rare()(x))
    assert "run in eager" in caplog.text and "tests.rare" in caplog.text
    assert "test_backend.py" in caplog.text


@torch.no_grad()
def test_strict_raises_with_all_of_it() -> None:
    with pytest.raises(Exception, match=r"UnsupportedError.*tests.rare.*2 calls"):
        compiled(Rare(), strict=True)(torch.randn(3))


@torch.no_grad()
def test_an_explanation_lists_calls_and_graph_breaks() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = rare(x)
            torch._dynamo.graph_break()
            return y + 1

    explanation = alpenglow.torch.explain(Broken(), torch.randn(3))

    assert explanation.graphs == 2
    assert [r.call.target for r in explanation.refusals] == ["tests.rare.default"]
    assert explanation.breaks and "in eager" in str(explanation)


@torch.no_grad()
def test_graph_breaks_do_no_harm() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(end="")
        return y + 1 if y.sum() > 0 else y - 1

    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(torch.compile(f, backend="alpenglow")(x), f(x))


@torch.no_grad()
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_that_torch_has(threads: int) -> None:
    before = torch.get_num_threads()
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)).eval()
    try:
        torch.set_num_threads(threads)
        x = torch.randn(1, 3, 32, 32)
        check([compiled(net)(x)], [net(x)])
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def test_halves_views_and_integers_go_in_and_out() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (a * 2).t(), b + 1, c[:, 1:] & 3, a.bool(), b.sum(), c.t().unfold(0, 2, 2)

    a = torch.randn(4, 6).bfloat16().t()[1:, ::2]
    b = torch.randn(5, 3).to(torch.float64)[::2]
    c = torch.arange(12).reshape(3, 4)
    check(torch.compile(f, backend="alpenglow")(a, b, c), f(a, b, c))


@torch.no_grad()
def test_extents_that_are_data_and_sparse_tensors_run_in_eager() -> None:
    def f(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = torch.nonzero(x > 0)
        n = int((x.abs() * 3).sum().item())
        torch._check(n >= 0)
        return at * 2 + at.shape[0], torch.zeros(n) + x.sum(), (s @ x[:, None]) * 2

    sparse = torch.eye(4).to_sparse()
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        g = torch.compile(f, backend="alpenglow")
        for _ in range(3):
            x = torch.randn(4)
            check(g(x, sparse), f(x, sparse))


def test_what_is_made_in_inference_mode_is_no_constant() -> None:
    with torch.inference_mode():
        net = Net().eval()
        f = compiled(net)
        for _ in range(2):
            x, image = torch.randn(3, 4), images(1)
            check(f(x, image), net(x, image))
            net.linear.weight.mul_(2)


@torch.no_grad()
def test_numbers_of_python_may_change() -> None:
    def f(x: torch.Tensor, a: float, n: int) -> torch.Tensor:
        return x * a + n

    g = torch.compile(f, backend="alpenglow")
    x = torch.randn(5)
    for a, n in ((1.5, 2), (2.5, 3), (3.5, 4), (0.0, 0), (1.0, 1)):
        check([g(x, a, n)], [f(x, a, n)])


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match=r"option fast is unknown.*strict, freeze, compiler"):
        compiled(nn.ReLU(), fast=True)(torch.ones(2))
    with pytest.raises(OptionError, match="strict is 1"):
        alpenglow.torch.backend(None, [], options={"strict": 1})
