"""Steps of training through `torch.compile`, beside eager: losses, gradients, and the state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from alpenglow.torch.backend import recording

STEPS = 4
Net = nn.Module
Loss = Callable[[Net, Any, Any], torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


pytestmark = pytest.mark.usefixtures("traced_anew")


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, 0.9)


def cross_entropy(net: Net, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    scores = net(x)
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))


def compiled(call: Any, strict: bool = True) -> Any:
    return torch.compile(call, backend="alpenglow", options={"strict": strict})


@dataclass
class Run:
    """What came of some steps: losses, the gradients of each, and what the net holds afterwards."""

    losses: list[torch.Tensor] = field(default_factory=list)
    gradients: list[list[torch.Tensor]] = field(default_factory=list)
    state: list[torch.Tensor] = field(default_factory=list)


def run(
    net: Net, batch: Callable[[int], Batch], loss: Loss = cross_entropy, optimizer: Any = sgd,
    through: Callable[[Any], Any] = lambda call: call,
    between: Callable[[Net], Any] = lambda net: None,
) -> Run:  # fmt: skip
    torch.manual_seed(1)
    found, o = Run(), optimizer(net.parameters())
    of, step = through(lambda x, labels: loss(net, x, labels)), through(o.step)
    for k in range(STEPS):
        o.zero_grad()
        value = of(*batch(k))
        value.backward()
        between(net)
        found.losses.append(value.detach())
        found.gradients.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        step()
    found.state = [x.detach().clone() for x in net.state_dict().values()]
    return found


def assert_same(net: Net, batch: Callable[[int], Batch], strict: bool = True, **words: Any) -> None:
    other = copy.deepcopy(net)
    expected = run(net, batch, **words)
    found = run(other, batch, through=lambda call: compiled(call, strict), **words)

    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.state, expected.state, rtol=1e-4, atol=1e-5)


def rows(k: int, count: int = 16) -> Batch:
    g = torch.Generator().manual_seed(k)
    return torch.randn(count, 20, generator=g), torch.randint(5, (count,), generator=g)


def images(k: int, count: int = 4) -> Batch:
    g = torch.Generator().manual_seed(k)
    return torch.randn(count, 3, 12, 12, generator=g), torch.randint(5, (count,), generator=g)


def words(k: int) -> Batch:
    g = torch.Generator().manual_seed(k)
    return torch.randint(30, (2, 6), generator=g), torch.randint(30, (2, 6), generator=g)


def perceptron() -> Net:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))


def convolutional() -> Net:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.GELU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 5),
    )  # fmt: skip


class Encoder(nn.Module):
    """A layer of attention between an embedding and scores, which share their weights."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.scores = nn.Embedding(30, 16), nn.Linear(16, 30, bias=False)
        self.scores.weight = self.words.weight
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.layer(self.words(x)))


class Recomputed(nn.Module):
    """Blocks whose values are computed again in the backward pass."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Dropout(dropout), nn.Linear(40, 20))
            for _ in range(2)
        )
        self.last = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.last(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cells = nn.Embedding(30, 16), nn.LSTM(16, 12, batch_first=True)
        self.scores = nn.Linear(12, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.cells(self.words(x))[0])


Optim = torch.optim
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: Optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: Optim.SGD(p, 0.1, 0.9, weight_decay=1e-3),
    "Nesterov": lambda p: Optim.SGD(p, 0.1, 0.9, nesterov=True),
    "Adam": lambda p: Optim.Adam(p, 1e-2, weight_decay=1e-3),
    "AMSGrad": lambda p: Optim.Adam(p, 1e-2, amsgrad=True),
    "AdamW": lambda p: Optim.AdamW(p, 1e-2),
    "RMSprop": lambda p: Optim.RMSprop(p, 1e-2),
    "RMSprop, centred": lambda p: Optim.RMSprop(
        p, 1e-2, momentum=0.5, centered=True, weight_decay=1e-3
    ),
    "Adagrad": lambda p: Optim.Adagrad(p, 1e-2, lr_decay=1e-2),
    "Adadelta": lambda p: Optim.Adadelta(p),
    "NAdam": lambda p: Optim.NAdam(p),
    "RAdam": lambda p: Optim.RAdam(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers_are_those_of_eager(name: str) -> None:
    assert_same(perceptron(), rows, optimizer=OPTIMIZERS[name])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_rate_that_is_a_tensor_may_change_without_another_graph(kind: Any) -> None:
    nets = [perceptron().double()]
    nets.append(copy.deepcopy(nets[0]))
    with recording() as record:
        for net, through in zip(nets, (lambda call: call, compiled), strict=True):
            o = kind(net.parameters(), torch.tensor(0.01, dtype=torch.float64))
            schedule, step = torch.optim.lr_scheduler.CosineAnnealingLR(o, 6), through(o.step)
            for k in range(4):
                x, labels = rows(k)
                o.zero_grad()
                cross_entropy(net, x.double(), labels).backward()
                step()
                schedule.step()

    # Adam's corrections are f32 where Dynamo traces them, by any backend.
    exact = 1e-5 if kind is torch.optim.AdamW else 1e-12
    found, expected = (list(net.parameters()) for net in reversed(nets))
    torch.testing.assert_close(found, expected, rtol=exact, atol=exact)
    assert len(record.plans) == 1


def test_convolutions_and_batch_norms_are_trained_as_in_eager() -> None:
    assert_same(convolutional(), images)


def test_batches_of_any_size_take_two_pairs_of_graphs() -> None:
    with recording() as record:
        assert_same(convolutional(), lambda k: images(k, (4, 5, 3, 6)[k]))

    assert sorted(purpose for purpose, _ in record.plans if purpose != "inference") == [
        "backward", "backward", "forward", "forward",
    ]  # fmt: skip


def test_images_of_any_size_go_through_batch_norms_in_parts() -> None:
    """What counts elements is a fraction, which one compiled part hands to the next."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(6, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    ).double()  # fmt: skip
    other = copy.deepcopy(net)
    loss = torch.compile(
        lambda x, labels: cross_entropy(other, x, labels), backend="alpenglow", dynamic=True
    )
    for count, side in ((4, 32), (5, 41), (3, 56)):
        x, labels = torch.randn(count, 3, side, side).double(), torch.randint(5, (count,))
        pairs = []
        for of in (loss, lambda x, labels: cross_entropy(net, x, labels)):
            found = of(x, labels)
            found.backward()
            pairs.append(found.detach())
        torch.testing.assert_close(*pairs, rtol=1e-12, atol=1e-12)
        for p, q in zip(other.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-10)


def test_attention_and_shared_weights_are_trained_as_in_eager() -> None:
    assert_same(Encoder(), words)


def test_cells_are_trained_as_in_eager() -> None:
    with torch._dynamo.config.patch(allow_rnn=True), recording() as record:
        assert_same(Recurrent(), words)

    purposes = [purpose for purpose, _ in record.plans]
    assert purposes.count("forward") == purposes.count("backward") == 1


def test_dropout_drops_what_eager_drops() -> None:
    assert_same(Encoder(0.3), words, strict=False)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_blocks_are_recomputed_with_what_they_dropped(dropout: float) -> None:
    assert_same(Recomputed(dropout), rows, strict=not dropout)


def test_gradients_that_are_clipped_are_those_of_eager() -> None:
    assert_same(
        perceptron(), rows, between=lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    )


def test_gradients_are_accumulated() -> None:
    net = perceptron()
    other = copy.deepcopy(net)
    f = compiled(other)
    for k in range(3):
        for call in (net, f):
            x, labels = rows(k, 8)
            F.cross_entropy(call(x), labels).backward()

    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad)


def test_a_graph_that_is_retained_is_gone_through_twice() -> None:
    net = perceptron()
    x, labels = rows(0)
    loss = compiled(lambda x: F.cross_entropy(net(x), labels))(x)
    once = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(net.parameters()))

    torch.testing.assert_close(again, once, rtol=0, atol=0)


# ── half precision ──


def autocast(net: Net, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return cross_entropy(net, x, labels)


def short(batch: Callable[[int], Batch], dtype: torch.dtype) -> Callable[[int], Batch]:
    def made(k: int) -> Batch:
        x, labels = batch(k)
        return (x.to(dtype) if x.is_floating_point() else x), labels

    return made


def distance(a: Run, exact: Run) -> float:
    """Return how far the first gradients are from exact ones, of how long those are."""
    pairs = list(zip(a.gradients[0], exact.gradients[0], strict=True))
    off = sum((x.double() - y).square().sum() for x, y in pairs)
    return float((off / sum(y.square().sum() for _, y in pairs)).sqrt())


HALF: dict[str, tuple[Callable[[], Net], Callable[[int], Batch], torch.dtype, Loss]] = {
    "perceptron, autocast": (perceptron, rows, torch.float32, autocast),
    "convolutional, autocast": (convolutional, images, torch.float32, autocast),
    "encoder, autocast": (Encoder, words, torch.float32, autocast),
    "perceptron, bf16": (perceptron, rows, torch.bfloat16, cross_entropy),
    "convolutional, bf16": (convolutional, images, torch.bfloat16, cross_entropy),
    "perceptron, f16": (perceptron, rows, torch.float16, cross_entropy),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_as_near_to_f64_as_eager_is(name: str) -> None:
    make, batch, dtype, loss = HALF[name]
    net = make().to(dtype)
    exact = run(copy.deepcopy(net).double(), short(batch, torch.float64))
    expected = run(copy.deepcopy(net), short(batch, dtype), loss)
    found = run(net, short(batch, dtype), loss, through=compiled)

    assert 1e-6 < distance(found, exact) <= 1.25 * distance(expected, exact)
    assert [x.dtype for x in found.state] == [x.dtype for x in expected.state]
    torch.testing.assert_close(found.losses, expected.losses, rtol=2e-2, atol=2e-2)
