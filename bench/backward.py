"""How long the backward pass takes beside the forward pass: gradients of all parameters.

    .venv/torch/bin/python bench/backward.py [NET …] [--threads 1] [--rounds 15]

The forward pass computes the loss as in training (batch norms take statistics of the batch); both
passes compute the gradient of each parameter besides.  They run in turns, and write where results
of the call before were.  Nothing is updated: bench/training.py measures steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

import alpenglow as ag
from alpenglow.ir.graph import Graph
from training import Block, trainable, vision

nn = torch.nn


class Recurrent(nn.Module):
    """Two layers of an LSTM, and scores of what the last step says."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(256, 256, 2, batch_first=True), nn.Linear(256, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def encoder() -> nn.Module:
    """Return twelve layers of 768 numbers, which is the size of BERT-base."""
    return nn.Sequential(*(Block(768, 12) for _ in range(12)))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (vision("resnet18"), (4, 3, 224, 224)),
    "mobilenet_v2": (vision("mobilenet_v2"), (4, 3, 224, 224)),
    "bert": (encoder, (1, 128, 768)),
    "lstm": (Recurrent, (32, 64, 256)),
}


def built(g: Graph, threads: int) -> tuple[ag.Executable, dict[str, Any]]:
    """Return what runs a graph, and places for what it returns."""
    exe = ag.compile(g, threads=threads)
    return exe, {n: np.empty(t.extents, t.numpy) for n, t in exe.outputs.items()}


def measured(name: str, threads: int, rounds: int) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    x = torch.randn(shape)
    g, of = trainable(make(), x)
    wrt = [name for name, v in g.variables.items() if v.assigned is None]
    both = g.copy()
    found = ag.gradients(both, both.outputs["loss"], [both.inputs[n] for n in wrt])
    for n, dw in zip(wrt, found, strict=True):
        both.output(f"gradient of {n}", dw)
    labels = np.zeros(g.inputs["labels"].type.extents, np.int64)
    ways = {}
    for what, graph in (("forward", g), ("both", both)):
        exe, out = built(graph, threads)
        ways[what] = partial(exe.run, {of: x.numpy(), "labels": labels}, out)
    times: dict[str, list[float]] = {what: [] for what in ways}
    for round_ in range(rounds + 2):
        for what, run in ways.items():
            begin = time.perf_counter()
            run()
            if round_ >= 2:
                times[what].append(time.perf_counter() - begin)
    ratios = [b / f - 1 for f, b in zip(times["forward"], times["both"], strict=True)]
    forward, all_ = (median(times[what]) * 1e3 for what in ("forward", "both"))
    print(f"{name:14} forward {forward:8.2f} ms, both {all_:8.2f} ms: backward takes "
          f"{median(ratios):.2f} times as long as forward")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", default=list(CASES), metavar="NET")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    for name in asked.nets:
        measured(name, asked.threads, asked.rounds)


if __name__ == "__main__":
    main()
