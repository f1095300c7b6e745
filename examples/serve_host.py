"""Serve two networks with one Host: priorities, futures, and statistics."""

import numpy as np

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Add, Neg


def network(name, make):
    g = ag.Graph(name)
    g.output("y", make(g, g.input("x", "f32[3]")))
    return g


twice = network("twice", lambda g, x: g(Add(), x, x))
negated = network("negated", lambda g, x: g(Neg(), x))

# One worker is one CPU group with its threads; more workers serve requests at the same time.
worker = ag.Worker("cpu", ag.Target.parse("cpu"), threads=1)
with ag.Host([worker], waiting=100) as host:
    host.add_model("twice", twice)
    host.add_model("negated", negated)
    print(host)

    # `submit` returns a future.  A request of higher priority runs first.
    futures = []
    for k in range(10):
        feeds = {"x": np.full(3, k, np.float32)}
        futures.append(host.submit("twice", feeds, priority=0))
        futures.append(host.submit("negated", feeds, priority=1))
    sums = [float(future.result()["y"].sum()) for future in futures]
    print("twice:", sums[0::2])
    print("negated:", sums[1::2])

    # `run` waits for the result.
    print(host.run("twice", {"x": np.array([1, 2, 3], np.float32)})["y"])

    seen = host.statistics()
    print("requests:", seen.workers["cpu"].requests, "failures:", seen.workers["cpu"].failures)
    for (name, version), statistics in seen.networks.items():
        print(f"{name}:{version}: {statistics.run.count} runs")
