"""Placements on a host: stages are steps of a network, whose results are those of the whole."""

from __future__ import annotations

from concurrent.futures import wait

import numpy as np
import pytest
from test_place import CPU, NUMPY, STRICT, cut_at, layers, numbers
from test_schedule import drawn

import alpenglow as ag
from alpenglow.base.cpus import granted_cpus
from alpenglow.base.errors import UnsupportedError
from alpenglow.host.worker import Worker
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.placement.compiled import placed
from alpenglow.placement.placing import place
from alpenglow.placement.schedule import Schedule

needs_two = pytest.mark.skipif(len(granted_cpus()) < 2, reason="two workers want two CPUs")


def many(g: ag.Graph, count: int = 20) -> list[dict[str, Array]]:
    return [{n: a + k for n, a in numbers(g).items()} for k in range(count)]


@needs_two
@pytest.mark.parametrize("seed", range(4))
def test_stages_are_steps(seed: int) -> None:
    g = drawn(seed)
    rng = np.random.default_rng(seed)
    workers = (Worker("processor", CPU), Worker("numpy", NUMPY))
    n = len(Schedule(g).nodes)
    cuts = [0, *(p for p in range(1, n) if rng.random() < 0.6)]
    model = placed(
        g, cut_at(g, {p: workers[rng.integers(2)] for p in cuts}, workers), options=STRICT
    )
    whole = ag.compile(g, options=STRICT)
    with ag.Host(workers) as host:
        host.add(model.network())
        futures = [host.submit(g.name, feeds) for feeds in many(g)]

        for feeds, future in zip(many(g), futures, strict=True):
            for name, array in whole.run(feeds).items():
                np.testing.assert_array_equal(future.result()[name], array)


@needs_two
def test_replicas_take_turns() -> None:
    workers = [Worker("left", CPU), Worker("right", CPU)]
    g = layers(2)
    p = place(g, workers[:1], "throughput", measure=False)
    p = place(g, workers, "throughput", pins={"r0": p.stages[0].worker, "y": p.stages[0].worker},
              measure=False)  # fmt: skip
    replicated = place(layers(1), workers, "throughput", replicate=True, measure=False)
    with ag.Host(workers) as host:
        host.add(placed(g, p).network())
        host.add(placed(layers(1), replicated).network(version=2))
        futures = [host.submit("layers", feeds, version=2) for feeds in many(g, 40)]
        wait(futures)
        used = host.statistics().workers

    assert all(not f.exception() for f in futures)
    assert used["left"].requests + used["right"].requests == 40


def test_an_output_with_the_name_of_an_input_is_told() -> None:
    g = ag.Graph("same")
    g.output("x", g(Relu(), g.input("x", "f32[3]")))
    worker = Worker("numpy", NUMPY)
    model = placed(g, cut_at(g, {0: worker}, (worker,)))

    np.testing.assert_array_equal(model.run({"x": np.array([-1, 0, 2], "f4")})["x"], [0, 0, 2])
    with pytest.raises(UnsupportedError, match="an input and an output 'x'"):
        model.network()
