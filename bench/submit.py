"""What a request costs beside a call, and what two workers of one core do beside one.

    python bench/submit.py

A request is `exe.submit(feeds).result()`, alone and many at a time, of a model of one short kernel;
beside it stands the pool of threads of the standard library.  Workers multiply matrices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.base.cpus import granted_cpus
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import MatMul

ROUNDS, CALLS, MANY = 200, 50, 2000
EXTENT, PRODUCTS = 512, 200


def main() -> None:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[4]")))
    exe = ag.compile(g, threads=1)
    feeds = {"x": np.ones(4, np.float32)}
    pool = ThreadPoolExecutor(1)
    with ag.Host([ag.Worker("a", exe.target)], waiting=2 * MANY) as host:
        host.add(exe)
        kinds: dict[str, Callable[[], object]] = {
            "run": lambda: exe.run(feeds),
            "submit": lambda: exe.submit(feeds).result(),
            "host": lambda: host.submit("negated", feeds).result(),
            "pool": lambda: pool.submit(exe.run, feeds).result(),
        }
        for name, call in kinds.items():
            print(f"{name:8}{told(timed(call))}")
        crowds: dict[str, Callable[[], object]] = {
            "submit": lambda: exe.submit(feeds),
            "host": lambda: host.submit("negated", feeds),
            "pool": lambda: pool.submit(exe.run, feeds),
        }
        for name, call in crowds.items():
            seconds = min(crowd(call) for _ in range(10)) / MANY
            print(f"{name:8}{1e6 * seconds:7.1f} µs of each of {MANY} at a time")
    throughput()


def timed(call: Callable[[], object]) -> list[float]:
    """Return the seconds of a call in each of many rounds, in order."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - begin) / CALLS)
    return sorted(rounds)


def told(rounds: list[float]) -> str:
    best, middle = 1e6 * rounds[0], 1e6 * rounds[len(rounds) // 2]
    return f"{best:7.1f} µs at best, {middle:.1f} µs in the middle"


def crowd(submit: Callable[[], Future[Any]]) -> float:
    """Return the seconds until many requests that are submitted at once are done."""
    begin = time.perf_counter()
    futures = [submit() for _ in range(MANY)]
    for future in futures:
        future.result()
    return time.perf_counter() - begin


def throughput() -> None:
    """Print how many products a second there are with one worker, and with two."""
    g = ag.Graph("product")
    w = g.constant(np.ones((EXTENT, EXTENT), np.float32))
    g.output("y", g(MatMul(), g.input("x", f"f32[{EXTENT},{EXTENT}]"), w))
    feeds = {"x": np.ones((EXTENT, EXTENT), np.float32)}
    rates = []
    for count in range(1, 1 + min(2, len(granted_cpus()))):
        workers = [ag.Worker(f"w{k}", ag.Target.parse("cpu")) for k in range(count)]
        with ag.Host(workers, waiting=2 * PRODUCTS) as host:
            host.add_model("product", g)
            host.run("product", feeds)
            rates.append(max(PRODUCTS / batch(host, feeds) for _ in range(5)))
        print(f"{count} worker{'s' * (count > 1)}: {rates[-1]:.0f} products a second")
    if len(rates) > 1:
        print(f"two do {rates[1] / rates[0]:.2f} times what one does")


def batch(host: ag.Host, feeds: dict[str, np.ndarray]) -> float:
    begin = time.perf_counter()
    futures = [host.submit("product", feeds) for _ in range(PRODUCTS)]
    for future in futures:
        future.result()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
