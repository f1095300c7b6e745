"""Models cut over processors, the interpreter and OpenCL devices: the bits of one alone."""

from __future__ import annotations

import numpy as np
import pytest
from test_place import CPU, NUMPY, STRICT, cut_at, numbers
from test_schedule import drawn

import alpenglow as ag
import models
from alpenglow.host.worker import Worker
from alpenglow.ir.target import Target
from alpenglow.placement.compiled import placed
from alpenglow.placement.schedule import Schedule

pytestmark = pytest.mark.opencl

RUNTIMES = ("intel", "pocl")


def workers(runtime: str) -> tuple[Worker, ...]:
    device, grid = map(Target.parse, (f"opencl:{runtime}", f"opencl-gpu:{runtime}"))
    return (
        Worker("processor", CPU), Worker("device", device), Worker("grid", grid),
        Worker("numpy", NUMPY),
    )  # fmt: skip


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("seed", range(4))
def test_graphs_cut_over_all_of_them(seed: int, runtime: str) -> None:
    g = drawn(seed)
    rng = np.random.default_rng(seed)
    here = workers(runtime)
    at = {p: here[rng.integers(len(here))] for p in range(len(Schedule(g).nodes))}
    expected = ag.compile(g, options=STRICT).run(numbers(g))
    actual = placed(g, cut_at(g, at, here), options=STRICT).run(numbers(g))

    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


@pytest.mark.models
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", ["mnist8", "squeezenet11"])
def test_a_network_cut_over_a_processor_and_a_device(name: str, runtime: str) -> None:
    feeds = models.inputs(name)
    g = ag.load(models.model_path(name), {n: a.shape for n, a in feeds.items()})
    processor, device, *_ = workers(runtime)
    n = len(Schedule(g).nodes)
    at = {0: processor, n // 3: device, 2 * n // 3: processor}
    expected = ag.compile(g, options=STRICT).run(feeds)
    actual = placed(g, cut_at(g, at, (processor, device)), options=STRICT).run(feeds)

    for output, array in expected.items():
        np.testing.assert_array_equal(actual[output], array)
