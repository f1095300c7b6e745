"""Split a model over two groups of cores, and run requests through it as a pipeline."""

import os

import numpy as np

import alpenglow as ag
from alpenglow.ops.product.contraction import MatMul

g = ag.Graph("layers")
x = g.input("x", "f32[64,256]")
for k in range(4):
    x = g(MatMul(), x, g.constant(np.eye(256, dtype=np.float32) * 2), name=f"layer {k}")
g.output("y", x)

cpu = ag.Target.parse("cpu")
workers = [ag.Worker("left", cpu), ag.Worker("right", cpu)]

# measure=False: estimate the time of each layer instead of running it.
placement = ag.place(g, workers, "throughput", measure=False)
for stage in placement.stages:
    print(f"{stage.worker}: layers {stage.begin} to {stage.end - 1}")

# `run` computes the stages one after the other.
model = ag.placed(g, placement)
y = model.run({"x": np.ones((64, 256), np.float32)})["y"]
print("y:", y.shape, "all 16:", bool((y == 16).all()))

# A host gives each worker a group of cores of its own, so that stages of different requests
# overlap.  This needs as many CPUs as workers.
requests = [{"x": np.full((64, 256), k, np.float32)} for k in range(8)]
if len(os.sched_getaffinity(0)) < len(workers):
    results = [model.run(feeds)["y"] for feeds in requests]
else:
    with ag.Host(workers) as host:
        host.add(model.network())
        results = [f.result()["y"] for f in [host.submit("layers", r) for r in requests]]
print("first elements:", [float(y[0, 0]) for y in results])
