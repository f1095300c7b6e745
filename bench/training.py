"""Steps of training beside PyTorch's: eager and, if asked, Inductor.

    .venv/torch/bin/python bench/training.py [NET …] [--threads 1] [--inductor] [--rounds 15]

Each net is loaded with the parameters that PyTorch has, and all ways take steps of the same
optimizer on the same batch, in turns: `alpenglow` is our Trainer, `compile` torch.compile with our
backend (loss and optimizer.step), `eager` and `inductor` PyTorch's.  Each trains parameters of its
own, in a process of its own: threads of one that wait busily for the next step would take a core
from all others.  In each turn a process takes as many steps as the slowest takes in a tenth of a
second, two at least, and the middle of the second half counts: threads that have rested may first
share one core.

Prints the least and the median milliseconds of a step, of the forward pass alone, the loss after as
many steps, and the largest resident memory of the process (VmHWM of /proc, Linux alone) beside that
before anything was compiled.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

import alpenglow as ag
from alpenglow import train
from alpenglow.ir.graph import Graph
from alpenglow.ops.tensor.movement import Reshape

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


def trainable(net: nn.Module, x: Any) -> tuple[Graph, str]:
    """Return a net with parameters and a loss of its scores, and the name of its input."""
    loaded = ag.load(net.eval(), args=(x,))
    assert isinstance(loaded, Graph)
    g = ag.trainable(loaded)
    (scores,) = g.callers_outputs().values()
    labels = g.input("labels", ag.TensorType("i64", scores.type.extents[:-1]))
    flat = g(Reshape((labels.type.size, scores.type.extents[-1])), scores)
    g.output("loss", train.cross_entropy(g, flat, g(Reshape((labels.type.size,)), labels)))
    return g, next(iter(loaded.inputs))


Step = Callable[[], float]
WAYS = ("alpenglow", "alpenglow forward", "compile", "eager", "eager forward", "inductor")


@dataclass(frozen=True)
class Task:
    """A net of PyTorch's, and the batch that it is trained on."""

    case: Case
    net: nn.Module
    x: Any
    labels: Any

    def loss(self, net: nn.Module) -> Any:
        scores = net(self.x)
        return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), self.labels.reshape(-1))


def task(name: str) -> Task:
    torch.manual_seed(0)
    case = CASES[name]
    net = case.net()
    words = len(case.shape) == 2 and case.shape[1] == TOKENS
    x = torch.randint(VOCABULARY, case.shape) if words else torch.randn(case.shape)
    labels = torch.randint(10, case.shape if words else case.shape[:1])
    return Task(case, net, x, labels)


def way(t: Task, name: str, threads: int) -> Step:
    """Return what takes a step, or a forward pass alone, and returns the loss."""
    if name.startswith("alpenglow"):
        g, of = trainable(t.net, t.x)
        feeds = {of: t.x.numpy(), "labels": t.labels.numpy()}
        if name.endswith("forward"):
            return partial(_loss_of, ag.compile(g, threads=threads).session().run, feeds)
        trainer = train.Trainer(g, "loss", t.case.mine, threads=threads)
        return partial(_loss_of, trainer.step, feeds)
    net = t.net.train()
    return partial(_forward, t, net) if name.endswith("forward") else theirs(t, net, name)


def _loss_of(call: Callable[..., Any], feeds: Any) -> float:
    return float(call(feeds)["loss"])


def _forward(t: Task, net: nn.Module) -> float:
    return float(t.loss(net).detach())


def theirs(t: Task, net: nn.Module, way: str) -> Step:
    """Return what takes a step of PyTorch's optimizer, by eager or through torch.compile."""
    optimizer = t.case.theirs(net.parameters())
    loss, update = partial(t.loss, net), optimizer.step
    if way != "eager":
        backend = {"compile": "alpenglow"}.get(way, way)
        loss, update = (torch.compile(f, backend=backend) for f in (loss, update))

    def step() -> float:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        update()
        return float(found.detach())

    return step


REST = 0.02
"""Seconds before a turn, in which the threads of the process before stop waiting busily."""

SPELL = 0.1
"""Seconds that a turn of the slowest takes."""


@dataclass
class Runner:
    """A process that takes steps by one way when it is told to."""

    name: str
    process: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list)
    loss: float = 0.0

    def answer(self) -> list[float]:
        assert self.process.stdout is not None
        return [float(word) for word in self.process.stdout.readline().split()]

    def turn(self, steps: int) -> float:
        """Take so many steps, and return how long those of the second half took in the middle."""
        assert self.process.stdin is not None
        time.sleep(REST)
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        seconds, self.loss = self.answer()
        return seconds

    def end(self) -> list[float]:
        """Return the largest resident memory, before and after, in KiB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.answer()


def measured(name: str, threads: int, rounds: int, inductor: bool) -> None:
    begin = time.perf_counter()
    runners = {}
    for w in [w for w in WAYS if inductor or w != "inductor"]:
        command = [sys.executable, __file__, name, "--threads", str(threads), "--alone", w]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        runners[w] = Runner(w, process)
        if runners[w].answer() != [0.0]:
            sys.exit(f"{w}: {process.communicate()[1]}")
    print(f"{name}: made in {time.perf_counter() - begin:.1f} s")
    steps = max(2, round(SPELL / max(r.turn(4) for r in runners.values())))
    for _ in range(rounds):
        for r in runners.values():
            r.seconds.append(r.turn(steps))
    for r in runners.values():
        best, middle = min(r.seconds) * 1e3, median(r.seconds) * 1e3
        before, most = r.end()
        print(
            f"  {r.name:18} {best:9.2f} ms at best, {middle:9.2f} in the middle  loss {r.loss:.5f}"
            f"  {most / 1024:7.1f} MiB at most, {(most - before) / 1024:7.1f} of it since"
        )
    for slow in ("compile", "eager", "inductor"):
        for fast in ("alpenglow", "compile")[: 1 if slow == "compile" else 2]:
            if slow in runners:
                pairs = zip(runners[slow].seconds, runners[fast].seconds, strict=True)
                ratio = median(a / b for a, b in pairs)
                print(f"  a step takes {slow} {ratio:.2f} times as long as {fast}")
    least = [min(runners[w].seconds) for w in ("alpenglow", "alpenglow forward")]
    print(f"  a step takes {least[0] / least[1]:.2f} times as long as the forward pass", flush=True)


def alone(name: str, by: str, threads: int) -> None:
    """Say 0 when ready; at each line take as many steps as it says, and say how long those of the
    second half took in the middle, and the loss; at the end the largest resident memory before and
    after, in KiB."""
    torch.set_num_threads(threads)
    t = task(name)
    before = resident()
    step = way(t, by, threads)
    for _ in range(2):
        step()
    print(0, flush=True)
    for line in sys.stdin:
        seconds, loss = [], 0.0
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - start)
        print(median(seconds[len(seconds) // 2 :]), loss, flush=True)
    print(before, resident(), flush=True)


def resident() -> int:
    """Return the largest resident memory of this process so far, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", default=list(CASES), metavar="NET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for name in asked.nets:
        if asked.alone:
            alone(name, asked.alone, asked.threads)
        else:
            measured(name, asked.threads, asked.rounds, asked.inductor)


if __name__ == "__main__":
    main()
