"""Nets of Flax, exported, beside jaxlib: time of a call, and how far apart results are.

    taskset -c 0 .venv/stablehlo/bin/python bench/jax_nets.py [--net bert] [--rounds 9]

jaxlib takes as many threads as there are cores for it (taskset), and so do we.  Both run in turns;
a line has the median of the rounds and the ratio.  What a net has learnt is in both cases an
argument; in the second line it is constant for us, as whoever deploys a net has it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import alpenglow as ag

KEY = jax.random.key(0)


class Bottleneck(nn.Module):
    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        def block(y: Any, features: int, size: int, stride: int = 1) -> Any:
            y = nn.Conv(features, (size, size), stride, use_bias=False)(y)
            return nn.BatchNorm(use_running_average=True)(y)

        y = nn.relu(block(x, self.features, 1))
        y = nn.relu(block(y, self.features, 3, self.stride))
        y = block(y, 4 * self.features, 1)
        if x.shape != y.shape:
            x = block(x, 4 * self.features, 1, self.stride)
        return nn.relu(x + y)


class ResNet50(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(64, (7, 7), 2, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for i, count in enumerate((3, 4, 6, 3)):
            for j in range(count):
                x = Bottleneck(64 * 2**i, 2 if i and not j else 1)(x)
        return nn.Dense(1000)(x.mean((1, 2)))


class Bert(nn.Module):
    """An encoder of the size of BERT-base."""

    @nn.compact
    def __call__(self, words: Any) -> Any:
        x = nn.Embed(30522, 768)(words) + nn.Embed(512, 768)(jnp.arange(words.shape[1]))
        x = nn.LayerNorm()(x)
        for _ in range(12):
            x = nn.LayerNorm()(x + nn.SelfAttention(num_heads=12)(x))
            y = nn.Dense(768)(nn.gelu(nn.Dense(3072)(x), approximate=False))
            x = nn.LayerNorm()(x + y)
        return jnp.tanh(nn.Dense(768)(x[:, 0]))


NETS: dict[str, Callable[[], tuple[nn.Module, jax.Array]]] = {
    "resnet50": lambda: (ResNet50(), jax.random.normal(KEY, (1, 224, 224, 3))),
    "bert": lambda: (Bert(), jax.random.randint(KEY, (1, 128), 0, 30522)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", action="append", choices=list(NETS))
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    print(f"{'net':24}{'ours':>10}{'jaxlib':>10}{'ratio':>7}{'apart':>10}   threads: {threads}")
    for name in chosen.net or NETS:
        net, x = NETS[name]()
        learnt = jax.jit(net.init)(KEY, x)
        jitted = jax.jit(net.apply)
        program = export.export(jitted)(learnt, x)
        arrays = list(map(np.asarray, jax.tree.leaves(learnt)))
        names = list(ag.load(program).inputs)
        for how in ("arguments", "constants"):
            fixed = dict(zip(names, arrays, strict=False)) if how == "constants" else {}
            exe = ag.compile(program, constants=fixed, threads=threads)
            given = dict(zip(names, [*arrays, np.asarray(x)], strict=True))
            feeds = {n: v for n, v in given.items() if n not in fixed}
            line(f"{name}, {how}", lambda: exe.run(feeds), lambda: jitted(learnt, x), chosen.rounds)


def line(name: str, ours: Callable[[], Any], theirs: Callable[[], jax.Array], rounds: int) -> None:
    """Print what the calls take, in turns, and how far apart their results are."""
    (made,) = ours().values()
    wanted = np.asarray(theirs())
    apart = np.abs(made - wanted).max() / np.abs(wanted).max()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, seen in zip((ours, lambda: theirs().block_until_ready()), times, strict=True):
            call()
            begin = time.perf_counter()
            call()
            seen.append(time.perf_counter() - begin)
    a, b = map(median, times)
    print(f"{name:24}{1e3 * a:8.1f}ms{1e3 * b:8.1f}ms{b / a:7.2f}{apart:10.1e}", flush=True)


if __name__ == "__main__":
    main()
