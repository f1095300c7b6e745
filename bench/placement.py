"""Placements: how far estimates are off, and what two workers of a core gain.

    python bench/placement.py MODEL.onnx [--shapes NAME=1x3x224x224]

Places the model on two one-core workers for throughput, runs it on a host, and prints the results a
second beside those of one core, the seconds of each stage beside the estimate, and whether bits are
those of the whole.  Also: how long the search takes for 400 nodes on 4 workers of made-up costs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np

import alpenglow as ag
from alpenglow.cli.options import parse_shapes
from alpenglow.compiler.validate import generate
from alpenglow.placement.search import soonest, steadiest

REQUESTS = 60
ROUNDS = 5


def searched() -> None:
    """Print how long the search takes on costs like a network's."""
    rng = np.random.default_rng(0)
    n, workers = 400, 4
    base = rng.random(n) * rng.choice([0.1, 1, 5], n)
    each = base[:, None] * np.array([1, 0.3, 0.5, 2]) * (1 + 0.3 * rng.random((n, workers)))
    before = np.concatenate([np.zeros((1, workers)), each.cumsum(0)])
    crossing = rng.random(n + 1) * 3
    seconds = before[None] - before[:, None] + (crossing[None] + crossing[:, None])[:, :, None]
    sizes = np.concatenate([[0], rng.random(n).cumsum()])
    nbytes = np.repeat((sizes[None] - sizes[:, None])[:, :, None], workers, axis=2)
    for what, limits in (("no limit", [np.inf] * 4), ("one limit", [np.inf, 80, np.inf, np.inf]),
                         ("four limits", [80, 100, 120, 80])):  # fmt: skip
        begin = time.perf_counter()
        found = soonest(seconds, nbytes, limits)
        latency = time.perf_counter() - begin
        begin = time.perf_counter()
        steadiest(seconds, nbytes, limits, range(workers))
        throughput = time.perf_counter() - begin
        within = "none" if found is None else f"within {found.within:.1%}"
        print(f"400 nodes, 4 workers, {what}: {latency:.2f} s for latency ({within}), "
              f"{throughput:.2f} s for throughput")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shapes", action="append", default=[])
    parser.add_argument("--numerics", default="fast")
    asked = parser.parse_args()
    searched()
    g = ag.load(asked.model, parse_shapes(tuple(asked.shapes)) or None)
    options = ag.Options(numerics=asked.numerics)
    rng = np.random.default_rng(0)
    feeds = {name: generate(v.type, rng) for name, v in g.inputs.items()}
    cpu = ag.Target.parse("cpu")
    workers = [ag.Worker("left", cpu), ag.Worker("right", cpu)]
    placement = ag.place(g, workers, "throughput", options=options)
    print(placement, end="")
    model = ag.placed(g, placement, options=options)
    whole = ag.compile(g, threads=1, options=options)
    same = all(np.array_equal(model.run(feeds)[n], a) for n, a in whole.run(feeds).items())
    print(f"bits are those of the whole: {same}")
    with ag.Host(workers, waiting=REQUESTS) as host, ag.Host(workers[:1], waiting=REQUESTS) as one:
        host.add(model.network())
        one.add(whole)
        alone, shared, stages = [], [], []
        for _ in range(ROUNDS):
            for h, times in ((one, alone), (host, shared)):
                name = g.name if h is host else whole.name
                begin = time.perf_counter()
                futures = [h.submit(name, feeds) for _ in range(REQUESTS)]
                for f in futures:
                    f.result()
                times.append((time.perf_counter() - begin) / REQUESTS)
            used = host.statistics().workers
            stages.append({name: w.busy for name, w in used.items()})
    print(f"one core: {median(alone) * 1e3:.2f} ms a request; two workers: "
          f"{median(shared) * 1e3:.2f} ms, estimated {placement.interval * 1e3:.2f} ms; "
          f"{median(alone) / median(shared):.2f} x")  # fmt: skip
    for stage, runs in zip(placement.stages, model.stages, strict=True):
        exe = next(iter(runs.values()))
        own = {n: generate(t, rng) for n, t in exe.inputs.items()}
        exe.run(own)
        samples = []
        for _ in range(20):
            begin = time.perf_counter()
            exe.run(own)
            samples.append(time.perf_counter() - begin)
        took, expected = median(samples) * 1e3, stage.seconds * 1e3
        print(f"{stage.worker}: {took:.2f} ms, estimated {expected:.2f} ms")


if __name__ == "__main__":
    main()
