"""Tuned kernels for grids as OpenCL C: on the runtimes here they leave the evaluator's bits."""

from __future__ import annotations

import numpy as np
import pytest
import test_conv
import test_grid_attention
import test_matmul
import test_rows
from test_words import DRAWN, drawn_bytes

from alpenglow.machines.grid.templates import attention
from alpenglow.render.opencl.render import WITH_DOTS
from grid_programs import DOTS, GRID, SMALL, feeds_of, run
from kernel_cases import Case
from opencl_devices import NAMES, Runtime, check, runtime_called

pytestmark = pytest.mark.opencl

SAMPLE = range(0, 40, 5)


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return runtime_called(request.param)


FAMILIES = {
    "attention": test_grid_attention.drawn,
    "conv": test_conv.drawn,
    "tile": test_matmul.drawn,
    "skinny": test_matmul.drawn_skinny,
    "softmax": test_rows.drawn_softmax,
    "norm": test_rows.drawn_norm,
    "reduction": test_rows.drawn_reduction,
    "arg": test_rows.drawn_arg,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LEAST", 3)
    cases: list[Case] = []
    for seed in SAMPLE:
        build, _ = FAMILIES[family](seed)
        feeds = feeds_of(build, seed)
        numbers = np.random.default_rng(seed)
        for name, x in feeds.items():
            if x.dtype.kind not in "iub":
                feeds[name] = numbers.standard_normal(x.shape).astype(x.dtype)
        cases += run(build, feeds, SMALL if seed % 2 else GRID).cases
    check(cases, runtime)


@pytest.mark.parametrize("family", DRAWN)
def test_bytes_four_at_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[Case] = []
    for seed in SAMPLE:
        build, feeds = drawn_bytes(family, seed, monkeypatch)
        cases += run(build, feeds, DOTS).cases
    check(cases, runtime_called("intel"), WITH_DOTS)
