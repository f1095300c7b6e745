"""Tuned kernels for grids as OpenCL C: on the runtimes here they leave the evaluator's bits."""

from __future__ import annotations

import numpy as np
import pytest
import test_matmul

from grid_programs import GRID, SMALL, feeds_of, run
from opencl_devices import NAMES, Runtime, check, runtime_called

pytestmark = pytest.mark.opencl

SAMPLE = range(0, 40, 3)


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return runtime_called(request.param)


@pytest.mark.parametrize("family", [test_matmul])
def test_families(family: object, runtime: Runtime) -> None:
    for seed in SAMPLE:
        build = family.drawn(seed)[0]
        feeds = feeds_of(build, seed)
        numbers = np.random.default_rng(seed)
        for name, x in feeds.items():
            if x.dtype.kind not in "iub":
                feeds[name] = numbers.standard_normal(x.shape).astype(x.dtype)
        check(run(build, feeds, SMALL if seed % 2 else GRID).cases, runtime)
