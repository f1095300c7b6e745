"""Steps of training beside PyTorch's: eager and, if asked, Inductor.

    .venv/torch/bin/python bench/training.py [NET …] [--threads 1] [--inductor] [--rounds 15]

Each net is loaded with the parameters that PyTorch has, and both take steps of the same optimizer
on the same batch, in turns.  Prints the least and the median milliseconds of a step, of the forward
pass alone, and the loss after as many steps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

import alpenglow as ag
from alpenglow import train
from alpenglow.ir.graph import Graph
from alpenglow.ops.movement import Reshape

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "pytorch"))
from torch_zoo import import_torchvision

nn = torch.nn
VOCABULARY, TOKENS = 512, 64


class Block(nn.Module):
    """A layer of a transformer that sees what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, t, width = x.shape
        parts = self.qkv(self.first(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Four layers of 128 numbers, four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, 128), nn.Embedding(TOKENS, 128)
        self.blocks = nn.Sequential(*(Block(128, 4) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, VOCABULARY, bias=False)

    def forward(self, x: Any) -> Any:
        places = torch.arange(x.shape[1])
        return self.head(self.norm(self.blocks(self.words(x) + self.places(places))))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def vision(name: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        net: nn.Module = import_torchvision().models.get_model(name, weights=None, num_classes=10)
        for m in net.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.0  # what one drops the other would not
        return net

    return made


@dataclass(frozen=True)
class Case:
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    mine: train.Optimizer
    theirs: Callable[[Any], Any]


SGD = train.SGD(0.01, momentum=0.9), lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)
ADAMW = train.AdamW(1e-3), lambda p: torch.optim.AdamW(p, 1e-3)

CASES = {
    "mlp": Case(mlp, (64, 784), *SGD),
    "lenet": Case(lenet, (64, 1, 28, 28), *SGD),
    "resnet18-32": Case(vision("resnet18"), (16, 3, 32, 32), *SGD),
    "resnet18-224": Case(vision("resnet18"), (4, 3, 224, 224), *SGD),
    "mobilenet_v2-224": Case(vision("mobilenet_v2"), (4, 3, 224, 224), *SGD),
    "gpt": Case(Gpt, (8, TOKENS), *ADAMW),
}


def mine(net: nn.Module, x: Any, optimizer: train.Optimizer, threads: int) -> tuple[Any, ...]:
    """Return what takes a step by our own means, and what computes the forward pass alone."""
    loaded = ag.load(net.eval(), args=(x,))
    assert isinstance(loaded, Graph)
    g = ag.trainable(loaded)
    (scores,) = g.callers_outputs().values()
    labels = g.input("labels", ag.TensorType("i64", scores.type.extents[:-1]))
    flat = g(Reshape((labels.type.size, scores.type.extents[-1])), scores)
    g.output("loss", train.cross_entropy(g, flat, g(Reshape((labels.type.size,)), labels)))
    trainer = train.Trainer(g, "loss", optimizer, threads=threads)
    forward = ag.compile(g, threads=threads).session()
    return next(iter(loaded.inputs)), trainer.step, forward.run


def measured(name: str, threads: int, rounds: int, inductor: bool) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    case = CASES[name]
    net = case.net()
    words = len(case.shape) == 2 and case.shape[1] == TOKENS
    x = torch.randint(VOCABULARY, case.shape) if words else torch.randn(case.shape)
    t = torch.randint(10, case.shape if words else case.shape[:1])
    begin = time.perf_counter()
    of, step, forward = mine(net, x, case.mine, threads)
    made = time.perf_counter() - begin
    feeds = {of: x.numpy(), "labels": t.numpy()}
    net.train()
    optimizer = case.theirs(net.parameters())

    def loss() -> Any:
        scores = net(x)
        return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), t.reshape(-1))

    losses = {"eager": loss, **({"inductor": torch.compile(loss)} if inductor else {})}

    def theirs(of: Callable[[], Any]) -> float:
        optimizer.zero_grad()
        found = of()
        found.backward()
        optimizer.step()
        return float(found)

    ways: dict[str, Callable[[], Any]] = {
        "alpenglow": lambda: float(step(feeds)["loss"]),
        **{k: partial(theirs, of) for k, of in losses.items()},
        "alpenglow forward": lambda: forward(feeds),
        "eager forward": lambda: float(loss()),
    }
    times: dict[str, list[float]] = {k: [] for k in ways}
    last: dict[str, Any] = {}
    for round_ in range(rounds + 2):
        for k, way in ways.items():
            begin = time.perf_counter()
            last[k] = way()
            if round_ >= 2:
                times[k].append(time.perf_counter() - begin)
    print(f"{name}: made in {made:.1f} s")
    for k, seconds in times.items():
        end = f"  loss {last[k]:.5f}" if isinstance(last[k], float) else ""
        best, middle = min(seconds) * 1e3, median(seconds) * 1e3
        print(f"  {k:18} {best:9.2f} ms at best, {middle:9.2f} in the middle{end}")
    for k in losses:
        pairs = zip(times[k], times["alpenglow"], strict=True)
        print(f"  a step takes {k} {median(a / b for a, b in pairs):.2f} times as long")
    ratio = min(times["alpenglow"]) / min(times["alpenglow forward"])
    print(f"  a step takes {ratio:.2f} times as long as the forward pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", default=list(CASES), metavar="NET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inductor", action="store_true")
    asked = parser.parse_args()
    for name in asked.nets:
        measured(name, asked.threads, asked.rounds, asked.inductor)


if __name__ == "__main__":
    main()
